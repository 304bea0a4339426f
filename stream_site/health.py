"""`GET /healthz`: is this web process up? It asks nothing of the database, which may be busy."""

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe


@login_not_required
@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer `{"status": "up"}`."""
    return JsonResponse({"status": "up"})
