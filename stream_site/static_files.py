"""Serve static files from the web process itself, for the embedded default. In production nginx serves them."""

from __future__ import annotations

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.http import FileResponse, HttpRequest, HttpResponse


class StaticFiles(ASGIStaticFilesHandler):
    """Django's handler, with whole bodies: its file streams are synchronous and would block the event loop."""

    def serve(self, request: HttpRequest) -> HttpResponse:
        found = super().serve(request)
        if isinstance(found, FileResponse):
            response = HttpResponse(found.getvalue(), headers=dict(found.headers))
            found.close()
        else:
            response = found  # 304
        response["Cache-Control"] = "public, max-age=31536000, immutable"  # another content has another address
        response["X-Content-Type-Options"] = "nosniff"
        return response
