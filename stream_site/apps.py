from django.apps import AppConfig


class SiteConfig(AppConfig):
    name = "stream_site"
    verbose_name = "STREAM"

    def ready(self) -> None:
        from stream_site import checks  # noqa: F401 - registers the system checks
