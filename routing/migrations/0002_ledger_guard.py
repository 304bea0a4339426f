"""Refuse every change and deletion of ledger lines in the database itself.

A later migration that makes SQLite rebuild the table (AlterField, a constraint) drops these triggers: it must run
`guard` again. tests/integration/routing/test_guard.py fails if it does not.
"""

from django.db import migrations

TABLE = "routing_ledgerentry"
WORDS = "The ledger is only ever added to. Add a correction."

# 23001 is restrict_violation: Django raises IntegrityError for it, as it does for SQLite's RAISE(ABORT).
POSTGRESQL_ON = [
    f"""
    CREATE OR REPLACE FUNCTION {TABLE}_guard() RETURNS trigger LANGUAGE plpgsql AS $guard$
    BEGIN
        RAISE EXCEPTION '{WORDS}' USING ERRCODE = '23001';
    END
    $guard$
    """,
    f"CREATE TRIGGER {TABLE}_rows BEFORE UPDATE OR DELETE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION {TABLE}_guard()",
    f"CREATE TRIGGER {TABLE}_all BEFORE TRUNCATE ON {TABLE} FOR EACH STATEMENT EXECUTE FUNCTION {TABLE}_guard()",
]
POSTGRESQL_OFF = [
    f"DROP TRIGGER IF EXISTS {TABLE}_rows ON {TABLE}",
    f"DROP TRIGGER IF EXISTS {TABLE}_all ON {TABLE}",
    f"DROP FUNCTION IF EXISTS {TABLE}_guard()",
]
SQLITE_ON = [
    f"CREATE TRIGGER {TABLE}_update BEFORE UPDATE ON {TABLE} BEGIN SELECT RAISE(ABORT, '{WORDS}'); END",
    f"CREATE TRIGGER {TABLE}_delete BEFORE DELETE ON {TABLE} BEGIN SELECT RAISE(ABORT, '{WORDS}'); END",
]
SQLITE_OFF = [f"DROP TRIGGER IF EXISTS {TABLE}_update", f"DROP TRIGGER IF EXISTS {TABLE}_delete"]

ON = {"postgresql": POSTGRESQL_ON, "sqlite": SQLITE_ON}
OFF = {"postgresql": POSTGRESQL_OFF, "sqlite": SQLITE_OFF}


def guard(apps, schema_editor):
    for statement in ON[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


def unguard(apps, schema_editor):
    for statement in OFF[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("routing", "0001_money")]
    operations = [migrations.RunPython(guard, unguard)]
