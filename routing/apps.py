from django.apps import AppConfig


class RoutingConfig(AppConfig):
    name = "routing"
    verbose_name = "Routing and spend"

    def ready(self) -> None:
        from routing import checks  # noqa: F401 - registers the checks
