"""All URLs of the site."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("", include("chat.urls")),
    path("", include("accounts.urls")),
    path("admin/", admin.site.urls),
]
