"""A stand-in for what Globus hosts, as a process of its own: the Compute web service and the token endpoint.

    python -m tests.fakes.globus_service --port N --amqp amqp://... --client ID:SECRET

The SDK and the endpoint daemon are the real ones; so is the broker. It answers plain and absolute-form requests, so
that HTTP_PROXY can lead the SDK here. Under /_test/ a test says what goes wrong and asks what happened:

    POST /_test/fault   {"path": regex, "count": n, "status": s | "delay_s": t | "drop": "before" | "after"}
    POST /_test/client  {"id": ..., "secret": ...}   the client's secret; when it is a new one, its tokens end
    POST /_test/token   {"subject": ..., "seconds": n} -> {"access_token"}
    POST /_test/reset   forget faults, rates and the list of requests
    GET  /_test/log     {"requests": [[method, path, status], ...], "refused_for_rate": n}
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.globus_api import Service
from tests.fakes.globus_broker import Broker
from tests.fakes.globus_state import Refusal, State

log = logging.getLogger(__name__)
MAX_BODY = 10 * 1024 * 1024
VERSION = {"api": "1.34.0", "min_sdk_version": "2.0.0", "min_ep_version": "2.0.0", "git_sha": "stand-in"}
_ID = r"([0-9a-f-]{36})"
ROUTES = [
    (method, re.compile(path), call)
    for method, path, call in [
        ("GET", "/v2/get_amqp_result_connection_url", "result_url"),
        ("POST", "/v[23]/functions", "register_function"),
        ("POST", "/v3/endpoints", "register_endpoint"),
        ("PUT", f"/v3/endpoints/{_ID}", "register_endpoint"),
        ("GET", f"/v2/endpoints/{_ID}", "endpoint"),
        ("GET", f"/v2/endpoints/{_ID}/status", "endpoint_status"),
        ("POST", f"/v[23]/endpoints/{_ID}/lock", "lock_endpoint"),
        ("GET", f"/v3/endpoints/{_ID}/allowed_functions", "allowed_functions"),
        ("POST", f"/v3/endpoints/{_ID}/submit", "submit"),
        ("GET", f"/v2/tasks/{_ID}", "task"),
        ("GET", "/v2/oauth2/userinfo", "userinfo"),
    ]
]


class ReplyLost(Exception):
    """Raise to close the connection without a reply."""


class Site:
    """One request in, a status and a document out."""

    def __init__(self, state: State, service: Service) -> None:
        self.state = state
        self.service = service
        self.faults: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, int]] = []

    def answer(self, method: str, target: str, authorization: str, body: bytes) -> tuple[int, Any]:
        """Answer; raises `ReplyLost`."""
        path = urlsplit(target).path
        if path.startswith("/_test/"):
            return 200, self._control(path.removeprefix("/_test/"), json.loads(body or b"{}"))
        fault = self._fault(path)
        try:
            time.sleep(fault.get("delay_s", 0))
            if fault.get("drop") == "before":
                raise ReplyLost
            if fault.get("status"):
                raise Refusal(fault["status"], fault.get("code", "INJECTED"), "a fault of the test")
            status, document = 200, self._route(method, target, authorization, body)
        except Refusal as refusal:
            status, document = refusal.status, refusal.body
        self.requests.append((method, path, status))
        if fault.get("drop") == "after":
            raise ReplyLost
        return status, document

    def _fault(self, path: str) -> dict[str, Any]:
        with self.state.lock:
            for fault in self.faults:
                if fault["count"] > 0 and re.search(fault["path"], path):
                    fault["count"] -= 1
                    return fault
        return {}

    def _control(self, what: str, doc: dict[str, Any]) -> Any:
        with self.state.lock:
            if what == "fault":
                self.faults.append(doc)
            elif what == "client":
                if self.state.clients.get(doc["id"]) == doc["secret"]:
                    return {}
                self.state.clients[doc["id"]] = doc["secret"]
                self.state.tokens = {t: v for t, v in self.state.tokens.items() if v[0] != doc["id"]}
            elif what == "token":
                return {"access_token": self.state.token(doc["subject"], doc["seconds"])}
            elif what == "reset":
                self.faults.clear()
                self.requests.clear()
                self.state.forget_rates()
                self.state.refused_for_rate = 0
            return {"requests": self.requests, "refused_for_rate": self.state.refused_for_rate}

    def _route(self, method: str, target: str, authorization: str, body: bytes) -> Any:
        url = urlsplit(target)
        if url.path == "/v2/version":
            return VERSION if parse_qs(url.query).get("service") == ["all"] else VERSION["api"]
        if url.path == "/v2/oauth2/token":
            form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            return self.state.grant(authorization, form)
        for wanted, pattern, call in ROUTES:
            found = pattern.fullmatch(url.path) if wanted == method else None
            if found is None:
                continue
            who = self.state.who(authorization)
            if call == "submit":
                self.state.count(who)
                if len(body) > MAX_BODY:
                    raise Refusal(413, "TASK_PAYLOAD_TOO_LARGE", f"{len(body)} bytes are too many")
            documents = [json.loads(body or b"{}")] if method in ("POST", "PUT") else []
            with self.state.lock:
                return getattr(self.service, call)(who, *documents, *found.groups())
        raise Refusal(404, "NOT_FOUND", f"{method} {url.path}")


def handler(site: Site) -> type[BaseHTTPRequestHandler]:
    """Return the HTTP side of `site`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _go(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                status, document = site.answer(self.command, self.path, self.headers.get("Authorization", ""), body)
            except ReplyLost:
                self.close_connection = True
                return
            out = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(out)))
            self.end_headers()
            self.wfile.write(out)

        do_GET = do_POST = do_PUT = do_DELETE = _go

        def log_message(self, format: str, *args: Any) -> None:
            log.info(format, *args)

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--amqp", required=True)
    parser.add_argument("--client", action="append", default=[], help="ID:SECRET")
    parser.add_argument("--token-s", type=int, default=172_800)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("pika").setLevel(logging.WARNING)
    clients = dict(client.split(":", 1) for client in options.client)
    state = State(clients, options.token_s)
    site = Site(state, Service(state, Broker(options.amqp)))
    server = ThreadingHTTPServer(("127.0.0.1", options.port), handler(site))
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    main()
