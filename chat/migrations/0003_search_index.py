"""Full-text indexes: an FTS5 table kept by triggers on SQLite, a GIN index on PostgreSQL."""

from django.db import migrations

SQLITE_UP = [
    """CREATE VIRTUAL TABLE chat_search_fts USING fts5(
        text, content='chat_searchtext', content_rowid='id', tokenize="unicode61 remove_diacritics 0", prefix='2 3')""",
    """CREATE TRIGGER chat_search_insert AFTER INSERT ON chat_searchtext BEGIN
        INSERT INTO chat_search_fts(rowid, text) VALUES (new.id, new.text); END""",
    """CREATE TRIGGER chat_search_delete AFTER DELETE ON chat_searchtext BEGIN
        INSERT INTO chat_search_fts(chat_search_fts, rowid, text) VALUES ('delete', old.id, old.text); END""",
    """CREATE TRIGGER chat_search_update AFTER UPDATE ON chat_searchtext BEGIN
        INSERT INTO chat_search_fts(chat_search_fts, rowid, text) VALUES ('delete', old.id, old.text);
        INSERT INTO chat_search_fts(rowid, text) VALUES (new.id, new.text); END""",
]
SQLITE_DOWN = [
    "DROP TRIGGER chat_search_update",
    "DROP TRIGGER chat_search_delete",
    "DROP TRIGGER chat_search_insert",
    "DROP TABLE chat_search_fts",
]
POSTGRES_UP = ["CREATE INDEX chat_search_gin ON chat_searchtext USING gin (to_tsvector('simple', text))"]
POSTGRES_DOWN = ["DROP INDEX chat_search_gin"]


def run(statements):
    def apply(apps, schema_editor):
        for statement in statements.get(schema_editor.connection.vendor, []):
            schema_editor.execute(statement)

    return apply


class Migration(migrations.Migration):
    dependencies = [("chat", "0002_search_text")]
    operations = [
        migrations.RunPython(
            run({"sqlite": SQLITE_UP, "postgresql": POSTGRES_UP}), run({"sqlite": SQLITE_DOWN, "postgresql": POSTGRES_DOWN})
        )
    ]
