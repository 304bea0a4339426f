"""What the stand-in for Globus Compute knows, and who its callers are: identities, tokens, rates."""

from __future__ import annotations

import base64
import binascii
import threading
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RESOURCE = "funcx_service"
SCOPE = "https://auth.globus.org/scopes/facd7ccc-c5f4-42aa-916b-a0e270e2c2a9/all"
REQUESTS_PER_10_S = 20


class Refusal(Exception):
    """Raise to answer with an error in the form of the Compute service, or of the token endpoint."""

    def __init__(self, status: int, code: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.body = {"status": "Failed", "code": code, "error_args": [], "reason": reason, "http_status_code": status}
        if code.startswith("invalid_"):
            self.body = {"error": code, "error_description": reason}


@dataclass
class Endpoint:
    """An endpoint that registered itself, or (with `parent`) a user endpoint that one of them starts."""

    owner: str
    name: str = ""
    allowed: list[str] | None = None
    multi_user: bool = False
    parent: str = ""
    seen_at: float = 0.0
    period_s: float = 30.0
    stopped: bool = False
    error: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def online(self) -> bool:
        quiet_s = time.time() - self.seen_at
        return not self.stopped and not self.error and quiet_s < 3 * self.period_s


@dataclass
class Work:
    """One task."""

    owner: str
    group: str
    target: str
    function: str
    status: str = "pending"
    document: dict[str, Any] = field(default_factory=dict)


@dataclass
class Group:
    owner: str
    queue: str = ""
    tasks: list[str] = field(default_factory=list)


class State:
    """Everything in memory, under one lock."""

    def __init__(self, clients: Mapping[str, str], token_s: int) -> None:
        self.lock = threading.RLock()
        self.clients = dict(clients)
        self.token_s = token_s
        self.tokens: dict[str, tuple[str, float]] = {}
        self.functions: dict[str, dict[str, Any]] = {}
        self.endpoints: dict[str, Endpoint] = {}
        self.work: dict[str, Work] = {}
        self.groups: dict[str, Group] = {}
        self.refused_for_rate = 0
        self._hits: defaultdict[str, deque[float]] = defaultdict(deque)

    def grant(self, authorization: str, form: Mapping[str, str]) -> dict[str, Any]:
        """Answer the token endpoint: client credentials only."""
        try:
            client, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            client = secret = ""
        if form.get("grant_type") != "client_credentials":
            raise Refusal(400, "invalid_grant", "only client credentials are known here")
        if not secret or self.clients.get(client) != secret:
            raise Refusal(401, "invalid_client", "the client or its secret is not known")
        documents = self._documents(client, form.get("scope", SCOPE).split())
        return {**documents[0], "other_tokens": documents[1:]}

    def token(self, subject: str, seconds: float) -> str:
        """Return a new access token for `subject`."""
        made = f"token-{uuid.uuid4().hex}"
        self.tokens[made] = (subject, time.time() + seconds)
        return made

    def who(self, authorization: str) -> str:
        subject, until = self.tokens.get(authorization.removeprefix("Bearer "), ("", 0.0))
        if until < time.time():
            raise Refusal(401, "UNAUTHORIZED", "the token is missing, unknown or expired")
        return subject

    def count(self, subject: str) -> None:
        """Count a submit against the service's limit."""
        hits, now = self._hits[subject], time.time()
        while hits and hits[0] < now - 10:
            hits.popleft()
        if len(hits) >= REQUESTS_PER_10_S:
            self.refused_for_rate += 1
            raise Refusal(429, "MAX_REQUESTS_EXCEEDED", "20 requests per 10 seconds")
        hits.append(now)

    def forget_rates(self) -> None:
        self._hits.clear()

    def _documents(self, subject: str, scopes: list[str]) -> list[dict[str, Any]]:
        by_server: defaultdict[str, list[str]] = defaultdict(list)
        for scope in scopes:
            by_server[RESOURCE if scope.startswith(SCOPE) else "auth.globus.org"].append(scope)
        return [
            {
                "access_token": self.token(subject, self.token_s),
                "expires_in": self.token_s,
                "resource_server": server,
                "scope": " ".join(names),
                "token_type": "Bearer",
            }
            for server, names in by_server.items()
        ]


def identity(subject: str) -> dict[str, Any]:
    """Return what the userinfo endpoint says of `subject`, a client or a person."""
    name = subject if "@" in subject else f"{subject}@clients.auth.globus.org"
    return {
        "sub": subject,
        "id": subject,
        "username": name,
        "preferred_username": name,
        "email": name,
        "name": name,
        "organization": None,
        "identity_provider": str(uuid.uuid5(uuid.NAMESPACE_URL, "identity provider")),
        "identity_type": "login",
        "status": "used",
    }
