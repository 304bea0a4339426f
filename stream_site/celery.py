"""The Celery application: background work only; answers are streamed by the runner."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "stream_site.settings")

app = Celery("stream")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
