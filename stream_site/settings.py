"""All settings of the site, flat. docs/settings.md documents each; names carry their unit.

Every app has a typed view of its part in `conf.py` and checks it in `checks.py`.
"""

from __future__ import annotations

import secrets
import tempfile
from hashlib import blake2s
from pathlib import Path

import dj_database_url
from csp.constants import NONCE, NONE, SELF

from stream_site.env import Env
from stream_site.static_version import static_version

env = Env()
BASE_DIR = Path(__file__).resolve().parent.parent

# ── where things are kept ─────────────────────────────────────────────────
VAR_DIR = Path(env.text("STREAM_VAR_DIR", str(BASE_DIR / "var")))
VAR_DIR.mkdir(parents=True, exist_ok=True)


def socket_path(name: str) -> str:
    """Return a path for a unix socket under VAR_DIR, or a short one elsewhere: the kernel allows 107 bytes."""
    path = VAR_DIR / name
    if len(str(path).encode()) < 100:
        return str(path)
    short = Path(tempfile.gettempdir()) / f"stream-{blake2s(str(VAR_DIR).encode(), digest_size=6).hexdigest()}"
    short.mkdir(mode=0o700, exist_ok=True)
    return str(short / name)


def own_secret_key() -> str:
    """Return the secret key of a site that sets none: made once, kept in VAR_DIR, readable by its owner only."""
    path = VAR_DIR / "secret_key"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(48), encoding="ascii")
    return path.read_text(encoding="ascii")


# ── the site ──────────────────────────────────────────────────────────────
DEMO = env.flag("STREAM_DEMO", default=False)
DEBUG = env.flag("STREAM_DEBUG", default=False)
SECRET_KEY = env.secret("STREAM_SECRET_KEY") or own_secret_key()
SITE_URL = env.text("STREAM_SITE_URL", "http://127.0.0.1:8000").rstrip("/")
ALLOWED_HOSTS = env.words("STREAM_ALLOWED_HOSTS", ("127.0.0.1", "localhost", "[::1]"))
CSRF_TRUSTED_ORIGINS = env.words("STREAM_TRUSTED_ORIGINS")
HTTPS = SITE_URL.startswith("https://")
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.admin",
    "channels",
    "csp",
    "stream_site",
    "accounts",
    "routing",
    "chat",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "stream_site.urls"
ASGI_APPLICATION = "stream_site.asgi.application"
AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "chat"
LOGOUT_REDIRECT_URL = "login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": ["chat.templatetags.icons"],
        },
    }
]

# The version is in the address: relative imports between scripts stay under it, and nothing is ever asked for twice.
STATIC_URL = f"static/{static_version(BASE_DIR / 'chat' / 'static')}/"
STATIC_ROOT = env.text("STREAM_STATIC_ROOT", str(VAR_DIR / "static"))
SERVE_STATIC = env.flag("STREAM_SERVE_STATIC", default=DEMO)

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "manifest-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
    }
}

# ── time and language ─────────────────────────────────────────────────────
USE_TZ = True
TIME_ZONE = env.text("STREAM_TIME_ZONE", "UTC")
LANGUAGE_CODE = "en-us"
USE_I18N = False

# ── data ──────────────────────────────────────────────────────────────────
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": dj_database_url.parse(
        env.secret("DATABASE_URL") or f"sqlite:///{VAR_DIR / 'stream.sqlite3'}",
        conn_max_age=env.integer("DATABASE_CONN_MAX_AGE_S", 0),
        conn_health_checks=True,
    )
}
DATABASE_THREADS = env.integer("DATABASE_THREADS", 8, least=1)
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # WAL lets readers go on beside the one writer; IMMEDIATE takes the write lock at BEGIN, so a
    # transaction can wait for it (timeout) instead of failing when a read turns into a write.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-16000;",
    }
    # Tests get a file too: locks of a database in memory are other locks, and other processes cannot open it.
    DATABASES["default"]["TEST"] = {"NAME": str(VAR_DIR / "test.sqlite3")}

REDIS_URL = env.secret("REDIS_URL") or f"unix://{socket_path('kv.sock')}"
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "stream", "capacity": 2000},
    }
}

# ── Celery ────────────────────────────────────────────────────────────────
CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1)
CELERY_RESULT_BACKEND = CELERY_BROKER_URL
CELERY_TASK_SERIALIZER = CELERY_RESULT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_TIME_LIMIT = 300
CELERY_TASK_SOFT_TIME_LIMIT = 270
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 900}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULE = {
    "sweep-turns": {"task": "chat.tasks.sweep_turns", "schedule": 10.0},
}

# ── tiers ─────────────────────────────────────────────────────────────────
TIERS_FILE = env.text("STREAM_TIERS_FILE", str(BASE_DIR / "routing" / "tiers.toml"))
LOCAL_BASE_URL = env.text("LOCAL_BASE_URL")
LOCAL_KIND = env.choice("LOCAL_KIND", "openai", ("openai", "ollama"))
LOCAL_MODEL = env.text("LOCAL_MODEL")
LOCAL_API_KEY = env.secret("LOCAL_API_KEY")
CLOUD_BASE_URL = env.text("CLOUD_BASE_URL", "https://openrouter.ai/api/v1")
CLOUD_API_KEY = env.secret("OPENROUTER_API_KEY") or env.secret("CLOUD_API_KEY")
# Globus Compute, the control plane of the HPC tier
GLOBUS_COMPUTE_CLIENT_ID = env.text("GLOBUS_COMPUTE_CLIENT_ID")
GLOBUS_COMPUTE_CLIENT_SECRET = env.secret("GLOBUS_COMPUTE_CLIENT_SECRET")
GLOBUS_COMPUTE_FUNCTION_ID = env.text("GLOBUS_COMPUTE_FUNCTION_ID")
GLOBUS_COMPUTE_AMQP_PORT = env.integer("GLOBUS_COMPUTE_AMQP_PORT", 443, least=0, most=65535)
CONNECT_TIMEOUT_S = env.number("CONNECT_TIMEOUT_S", 5, least=0.1)
FIRST_BYTE_TIMEOUT_S = env.number("FIRST_BYTE_TIMEOUT_S", 60, least=0.1)
BETWEEN_BYTES_TIMEOUT_S = env.number("BETWEEN_BYTES_TIMEOUT_S", 45, least=0.1)
ANSWER_TIMEOUT_S = env.number("ANSWER_TIMEOUT_S", 900, least=1)

# ── the campus tier ───────────────────────────────────────────────────────
RELAY_URLS = env.words("RELAY_URLS")
EMBEDDED_RELAY = env.flag("STREAM_EMBEDDED_RELAY", default=False)
KEY_ENCRYPTION_KEY = env.secret("STREAM_KEY_ENCRYPTION_KEY")
HPC_WORKER_TIMEOUT_S = env.number("HPC_WORKER_TIMEOUT_S", 300, least=0.5)
HPC_FIRST_TEXT_TIMEOUT_S = env.number("HPC_FIRST_TEXT_TIMEOUT_S", 120, least=0.5)
HPC_DEMO_MODEL_URL = env.text("HPC_DEMO_MODEL_URL")
HPC_DEMO_MODEL_KEY = env.secret("HPC_DEMO_MODEL_KEY")

# ── money ─────────────────────────────────────────────────────────────────
USER_MONTHLY_BUDGET_USD = env.number("USER_MONTHLY_BUDGET_USD", 20)
PLATFORM_MONTHLY_BUDGET_USD = env.number("PLATFORM_MONTHLY_BUDGET_USD", 1000)

# ── the runner ────────────────────────────────────────────────────────────
RUNNER_MODE = env.choice("RUNNER_MODE", "embedded", ("embedded", "separate"))
RUNNER_CONCURRENCY = env.integer("RUNNER_CONCURRENCY", 200, least=1)
RUNNER_LEASE_S = env.number("RUNNER_LEASE_S", 20, least=2)
RUNNER_POLL_S = env.number("RUNNER_POLL_S", 1, least=0.05)
RUNNER_DRAIN_S = env.number("RUNNER_DRAIN_S", 10)
STORE_INTERVAL_S = env.number("STORE_INTERVAL_S", 0.15, least=0.01)
COALESCE_INTERVAL_S = env.number("COALESCE_INTERVAL_S", 0.025)

# ── logs ──────────────────────────────────────────────────────────────────
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname:7} {name} {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.text("STREAM_LOG_LEVEL", "INFO")},
    "loggers": {
        "httpx": {"level": "WARNING"},
        "httpx2": {"level": "WARNING"},
        "pika": {"level": "WARNING"},
        "globus_compute_sdk": {"level": "WARNING"},
        "django.channels.server": {"level": "WARNING"},
    },
}
