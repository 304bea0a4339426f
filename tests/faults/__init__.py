"""Tests that break things on purpose. Its scripts also run by themselves, and what they import has models."""

import os

import django
from django.apps import apps

if not apps.ready:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
