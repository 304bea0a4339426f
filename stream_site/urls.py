"""All URLs of the site."""

from django.contrib import admin
from django.urls import include, path

from stream_site.health import healthz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("", include("chat.urls")),
    path("", include("accounts.urls")),
    path("admin/", admin.site.urls),
]
