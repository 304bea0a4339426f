"""The site's settings for tests: a fresh VAR_DIR and nothing of the developer's own settings, keys least of all.

DATABASE_URL is kept: `python -m tests.with_postgres` names the test's PostgreSQL with it.
"""

import atexit
import os
import shutil
import tempfile

from tests.setting_names import setting_names

for _name in setting_names() - {"DATABASE_URL"}:
    os.environ.pop(_name, None)

_folder = tempfile.mkdtemp(prefix="stream-test-")
atexit.register(shutil.rmtree, _folder, ignore_errors=True)
os.environ["STREAM_VAR_DIR"] = _folder
# Processes that tests start read the site's own settings, and keep what the test sets for them.
os.environ["DJANGO_SETTINGS_MODULE"] = "stream_site.settings"

from stream_site.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # made to be fast: tests sign in often
STATIC_URL = "/static/"  # the pages of the scripted site name its files without a version
