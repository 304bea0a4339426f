"""Pages of the chat and the small JSON calls they make. Views only parse, call and render."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from functools import wraps
from typing import Any

from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.middleware.csrf import get_token
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from accounts.models import Theme, User
from chat import pages, selectors, services
from chat.answer_html import answer_html
from chat.live import ring, user_group
from chat.models import Conversation
from chat.search import search as search_own
from routing.tiers import tier_cards
from routing.types import Tier
from stream_site.error_shapes import http_shape
from stream_site.errors import InputError, NotFound, StreamError

View = Callable[..., HttpResponse]


def json_errors(view: View) -> View:
    """Render our errors in JSON, in the one shape."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except StreamError as error:
            status, headers, body = http_shape(error)
            return JsonResponse(body, status=status, headers=headers)

    return guarded


def user_of(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user


def body_of(request: HttpRequest) -> dict[str, Any]:
    """Return the JSON object in the request. Raises `InputError`."""
    try:
        data = json.loads(request.body or b"{}")
    except ValueError:
        raise InputError("The page sent a message that is not JSON.") from None
    if not isinstance(data, dict):
        raise InputError("The page sent a message that is not a JSON object.")
    return data


# ── pages ─────────────────────────────────────────────────────────────────


@never_cache
@require_GET
def new_chat(request: HttpRequest) -> HttpResponse:
    return chat_page(request, None)


@never_cache
@require_GET
def conversation(request: HttpRequest, conversation_id: uuid.UUID) -> HttpResponse:
    try:
        found = services.own_conversation(user_of(request), conversation_id)
    except NotFound:
        return render(request, "404.html", status=404)
    return chat_page(request, found)


def chat_page(request: HttpRequest, found: Conversation | None) -> HttpResponse:
    """Render the chat. Five queries and as much text, however long the conversation and the side bar are."""
    user = user_of(request)
    me = selectors.me(user)
    tiers = tier_cards()
    shown = selectors.conversation_dict(found) if found else None
    turns = pages.opening_turns(found) if found else []
    groups, more = pages.sidebar(user)
    first = pages.last_answer(turns)
    boot = {
        "ws": "/ws/chat",
        "conversation": shown["id"] if shown else None,
        "new_conversation": str(uuid.uuid4()),
        "title": shown["title"] if shown else "",
        "campus_only": bool(shown and shown["campus_only"]),
        "turns": turns,
        "more_conversations": more,
        "tiers": tiers,
        "urls": urls(),
        "csrf": get_token(request),
        "user": me,
    }
    context = {"me": me, "conversation": shown, "groups": groups, "tiers": tiers, "boot": boot, "theme": user.theme}
    if first:
        label = Tier(first["tier"]).label if first["tier"] else ""
        context["first"] = first | {"html": answer_html(first["answer"]), "tier_label": label}
    return render(request, "chat/page.html", context)


def urls() -> dict[str, str]:
    """Return the addresses the page calls; ID stands for a conversation."""
    return {
        "chat": reverse("chat"),
        "conversation": "/c/ID",
        "rename": "/c/ID/rename",
        "delete": "/c/ID/delete",
        "campus_only": "/c/ID/campus-only",
        "turns": "/c/ID/turns",
        "conversations": reverse("conversations"),
        "search": reverse("search"),
        "theme": reverse("theme"),
    }


# ── calls ─────────────────────────────────────────────────────────────────


def changed(user: User, found: Conversation, *, deleted: bool = False) -> JsonResponse:
    """Tell the other pages of `user` that a conversation changed; answer with it."""
    message = selectors.conversation_message(found, deleted=deleted)
    async_to_sync(ring)(user_group(user.pk), message)
    return JsonResponse(message["conversation"])


@require_POST
@json_errors
def rename(request: HttpRequest, conversation_id: uuid.UUID) -> HttpResponse:
    title = body_of(request).get("title")
    if not isinstance(title, str):
        raise InputError("The title is missing.", field="title")
    user = user_of(request)
    return changed(user, services.conversation_rename(owner=user, conversation_id=conversation_id, title=title))


@require_POST
@json_errors
def delete(request: HttpRequest, conversation_id: uuid.UUID) -> HttpResponse:
    user = user_of(request)
    return changed(user, services.conversation_delete(owner=user, conversation_id=conversation_id), deleted=True)


@require_POST
@json_errors
def campus_only(request: HttpRequest, conversation_id: uuid.UUID) -> HttpResponse:
    user = user_of(request)
    on = body_of(request).get("on") is True
    return changed(user, services.conversation_set_campus_only(owner=user, conversation_id=conversation_id, on=on))


@never_cache
@require_GET
@json_errors
def older_turns(request: HttpRequest, conversation_id: uuid.UUID) -> HttpResponse:
    """Return the turns before a position: {"turns": [...]}, oldest first."""
    found = services.own_conversation(user_of(request), conversation_id)
    before, back_to = whole_number(request, "before"), whole_number(request, "back_to")
    if before is None:
        raise InputError("The position is missing.", field="before")
    return JsonResponse({"turns": pages.turns_before(found, before, back_to)})


def whole_number(request: HttpRequest, name: str) -> int | None:
    """Return a number of the address, 0 to 10^9, or None. Raises `InputError`."""
    given = request.GET.get(name)
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) < 10):
        raise InputError(f"{name} is not a whole number below 1,000,000,000.", field=name)
    return int(given)


@never_cache
@require_GET
@json_errors
def conversations(request: HttpRequest) -> HttpResponse:
    """Return the next conversations of the side bar: {"groups": [[heading, [...]]], "more": mark}."""
    groups, more = pages.sidebar(user_of(request), request.GET.get("after", ""), pages.MORE_CONVERSATIONS)
    return JsonResponse({"groups": groups, "more": more})


@require_GET
@json_errors
def search(request: HttpRequest) -> HttpResponse:
    query = request.GET.get("q", "")
    if len(query) > 200:
        raise InputError("The search has more than 200 characters.", field="q", todo="Shorten it.")
    return JsonResponse({"results": search_own(user_of(request), query)})


@require_POST
@json_errors
def theme(request: HttpRequest) -> HttpResponse:
    value = body_of(request).get("theme")
    if value not in Theme.values:
        raise InputError("There is no such theme.", field="theme", todo="Use light, dark or the system's.")
    user = user_of(request)
    user.theme = value
    user.save(update_fields=["theme"])
    return JsonResponse({"theme": value})
