"""What the stand-in for Globus Compute does: functions, endpoints, tasks. Each method is one call of its HTTP API.

Error codes that the service does not document are ours: ENDPOINT_NOT_ONLINE (409) for one.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from typing import Any

from globus_compute_common.messagepack import pack, unpack
from globus_compute_common.messagepack.message_types import EPStatusReport, Result, ResultErrorDetails, Task

from tests.fakes.globus_broker import Broker
from tests.fakes.globus_state import Endpoint, Group, Refusal, State, Work, identity

log = logging.getLogger(__name__)
Doc = dict[str, Any]


class Service:
    """The calls of the Compute API. `who` is the caller; raises `Refusal`."""

    def __init__(self, state: State, broker: Broker) -> None:
        self.s = state
        self.broker = broker
        broker.listen(self._on_result, self._on_heartbeat)

    # ── functions ──
    def register_function(self, who: str, doc: Doc) -> Doc:
        if not doc.get("function_code") or not doc.get("function_name"):
            raise Refusal(422, "SEMANTICALLY_INVALID", "function_name and function_code are needed")
        made = str(uuid.uuid4())
        self.s.functions[made] = {**doc, "owner": who}
        return {"function_uuid": made}

    def allowed_functions(self, who: str, endpoint: str) -> Doc:
        allowed = self._endpoint(endpoint).allowed
        return {"endpoint_id": endpoint, "restricted": allowed is not None, "functions": allowed or []}

    # ── endpoints ──
    def register_endpoint(self, who: str, doc: Doc, endpoint: str = "") -> Doc:
        endpoint = endpoint or str(uuid.uuid4())
        known = self.s.endpoints.get(endpoint)
        if known and known.owner != who:
            raise Refusal(403, "ENDPOINT_ACCESS_FORBIDDEN", "not the owner")
        name, allowed = str(doc.get("endpoint_name")), doc.get("allowed_functions")
        self.s.endpoints[endpoint] = Endpoint(who, name, allowed, bool(doc.get("multi_user")))
        return {
            "endpoint_id": endpoint,
            "command_queue_info": self.broker.reading("commands", endpoint),
            "result_queue_info": self.broker.writing("results", endpoint),
            "heartbeat_queue_info": self.broker.writing("heartbeats", endpoint),
            "warnings": [],
        }

    def endpoint(self, who: str, endpoint: str) -> Doc:
        known = self._endpoint(endpoint)
        return {"uuid": endpoint, "name": known.name, "display_name": known.name, "multi_user": known.multi_user}

    def endpoint_status(self, who: str, endpoint: str) -> Doc:
        known = self._endpoint(endpoint)
        return {"status": "online" if known.online else "offline", "details": dict(known.details)}

    def lock_endpoint(self, who: str, doc: Doc, endpoint: str) -> Doc:
        self._endpoint(endpoint)
        return {}

    # ── tasks ──
    def result_url(self, who: str) -> Doc:
        return {"queue_prefix": f"{who}.", "connection_url": self.broker.url}

    def submit(self, who: str, doc: Doc, endpoint: str) -> Doc:
        known = self._endpoint(endpoint)
        if not known.multi_user and known.owner != who:
            raise Refusal(403, "ENDPOINT_ACCESS_FORBIDDEN", "the endpoint is not shared with the caller")
        for function in doc["tasks"]:
            self._check_function(who, function, known)
        if not known.online:
            raise Refusal(409, "ENDPOINT_NOT_ONLINE", f"Endpoint {endpoint} is not online")
        group_id, group = self._group(who, doc)
        target = self._start_user_endpoint(who, endpoint, doc)
        made: dict[str, list[str]] = {}
        for function, payloads in doc["tasks"].items():
            for payload in payloads:
                task = str(uuid.uuid4())
                self.s.work[task] = Work(who, group_id, target, function)
                group.tasks.append(task)
                made.setdefault(function, []).append(task)
                self._send(task, self.s.functions[function], payload, doc)
        return {"request_id": str(uuid.uuid4()), "task_group_id": group_id, "endpoint_id": endpoint, "tasks": made}

    def task(self, who: str, task: str) -> Doc:
        known = self.s.work.get(task)
        if known is None or known.owner != who:
            raise Refusal(404, "TASK_NOT_FOUND", f"Task {task} could not be resolved")
        return {"task_id": task, "status": known.status, **known.document}

    def userinfo(self, who: str) -> Doc:
        return {**identity(who), "identity_set": [identity(who)]}

    # ── within ──
    def _endpoint(self, endpoint: str) -> Endpoint:
        known = self.s.endpoints.get(endpoint)
        if known is None or known.parent:
            raise Refusal(404, "ENDPOINT_NOT_FOUND", f"Endpoint {endpoint} could not be resolved")
        return known

    def _check_function(self, who: str, function: str, endpoint: Endpoint) -> None:
        known = self.s.functions.get(function)
        if known is None:
            raise Refusal(404, "FUNCTION_NOT_FOUND", f"Function {function} could not be resolved")
        if known["owner"] != who and not known.get("public"):
            raise Refusal(403, "FUNCTION_ACCESS_FORBIDDEN", f"Function {function} is not accessible")
        if endpoint.allowed is not None and function not in endpoint.allowed:
            raise Refusal(403, "FUNCTION_NOT_PERMITTED", f"Function {function} not permitted on the endpoint")

    def _group(self, who: str, doc: Doc) -> tuple[str, Group]:
        group_id = doc.get("task_group_id")
        if group_id:
            group = self.s.groups.get(group_id)
            if group is None or group.owner != who:
                raise Refusal(403, "TASK_GROUP_ACCESS_FORBIDDEN", f"Task Group {group_id} is not accessible")
        else:
            group_id = str(uuid.uuid4())
            group = self.s.groups[group_id] = Group(who)
        if doc.get("create_queue") and not group.queue:
            group.queue = f"{who}.{group_id}"
            self.broker.queue(group.queue)
        return group_id, group

    def _start_user_endpoint(self, who: str, parent: str, doc: Doc) -> str:
        """Ask the daemon to start the user endpoint of this caller, configuration and runtime; return its id."""
        options, runtime = doc.get("user_endpoint_config") or {}, doc.get("user_runtime") or {}
        versions = [runtime.get("globus_compute_sdk_version"), runtime.get("python_version")]
        key = json.dumps([parent, who, options, versions], sort_keys=True)
        child = str(uuid.uuid5(uuid.NAMESPACE_URL, key))
        self.s.endpoints.setdefault(child, Endpoint(who, parent=parent)).error = ""
        command = {
            "command": "cmd_start_endpoint",
            "args": [],
            "globus_effective_identity": who,
            "globus_identity_set": [identity(who)],
            "globus_username": identity(who)["username"],
            "kwargs": {
                "name": f"uep.{parent}.{child}",
                "amqp_creds": {
                    "endpoint_id": child,
                    "task_queue_info": self.broker.reading("tasks", child),
                    "result_queue_info": self.broker.writing("results", child),
                    "heartbeat_queue_info": self.broker.writing("heartbeats", child),
                },
                "user_opts": options,
                "user_runtime": runtime,
            },
        }
        self.broker.publish(
            "commands",
            f"{parent}.commands",
            json.dumps(command).encode(),
            content_type="application/json",
            timestamp=int(time.time()),
        )
        return child

    def _send(self, task: str, function: Doc, payload: str, doc: Doc) -> None:
        code = function["function_code"]
        if not function.get("serialized", True):  # source: the service packs it as the SDK's strategy "st" does
            buffer = f"st\n{function['function_name']}:{code}"
            code = f"{len(buffer)}\n{buffer}"
        headers = {
            "function_uuid": self.s.work[task].function,
            "task_uuid": task,
            "resource_specification": json.dumps(doc.get("resource_specification")),
        }
        if doc.get("result_serializers"):
            headers["result_serializers"] = doc["result_serializers"]
        self.broker.publish(
            "tasks",
            f"{self.s.work[task].target}.tasks",
            pack(Task(task_id=task, task_buffer=code + payload)),
            headers=headers,
            content_type="application/json",
            content_encoding="utf-8",
        )

    def _on_result(self, body: bytes) -> None:
        message = unpack(body)
        if isinstance(message, Result):
            self._finish(message, body)

    def _finish(self, result: Result, body: bytes) -> None:
        with self.s.lock:
            work = self.s.work.get(str(result.task_id))
            if work is None or work.status in ("success", "failed"):
                return
            work.status = "failed" if result.is_error else "success"
            kind = "exception" if result.is_error else "result"
            work.document = {"completion_t": str(time.time()), kind: result.data}
            queue = self.s.groups[work.group].queue
        if queue:
            self.broker.publish("", queue, body, timestamp=int(time.time()))

    def _on_heartbeat(self, body: bytes) -> None:
        message = unpack(body)
        if not isinstance(message, EPStatusReport):
            return
        said, endpoint = message.global_state, str(message.endpoint_id)
        with self.s.lock:
            known = self.s.endpoints.get(endpoint)
            if known is not None:
                known.seen_at, known.period_s = time.time(), said.get("heartbeat_period", 30)
                known.details, known.error = said, str(said.get("error") or "")
                known.stopped = said.get("heartbeat_period") == 0 or said.get("active") is False
            for task, transitions in message.task_statuses.items():
                work = self.s.work.get(task)
                if work is not None and transitions and work.status not in ("success", "failed"):
                    work.status = transitions[-1].state.value
            failed = [t for t, w in self.s.work.items() if w.target == endpoint and w.status == "pending"]
        if said.get("error"):  # it could not start: the service ends what waits for it
            for task in failed:
                details = ResultErrorDetails(code="ENDPOINT_START_FAILURE", user_message=said["error"])
                result = Result(task_id=task, data=said["error"], error_details=details)
                self._finish(result, pack(result))
