"""One Executor of globus-compute-sdk, kept usable. Its class is made for a script; this process runs for months.

What the SDK does (4.19), and what is done about it here:

* Any failed submit ends an Executor for good: it is made anew at the next submit, at most once a second.
* An Executor made before a fork submits nothing in the child, and a new one there consumes the parent's results,
  because the last task group is kept in a class variable: in a child everything starts afresh.
* The same variable hands one identity's task group to the next: each Executor is told its own.
* Its default limiter lets 4 requests pass per 16 s; ours is the service's own limit, 20 per 10 s.
* Its threads keep a process alive that has open tasks: `close` drops their futures, the tasks go on.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from routing.backends.hpc.globus_identity import HTTP_TIMEOUT_S, Identity
from routing.backends.hpc.globus_job import TASKS_PER_REQUEST

if TYPE_CHECKING:
    from globus_compute_sdk import Client, Executor
    from globus_compute_sdk.sdk.asynchronous.compute_future import ComputeFuture

BURST_REQUESTS = 8
BURST_WINDOW_S = 4
REBUILD_EVERY_S = 1.0
LOOK_EVERY_S = 0.01
WATCHER_ENDS_S = 3.0

_all: weakref.WeakSet[GuardedExecutor] = weakref.WeakSet()


@dataclass(frozen=True)
class Destination:
    """An endpoint and how to reach it. `config` is fixed: each other one would start another user endpoint there."""

    endpoint_id: str
    config: Mapping[str, Any] = field(default_factory=dict)
    amqp_port: int | None = None  # None: as the service says; 443 passes most firewalls


class GuardedExecutor:
    """Submit to one endpoint in one name. Safe to call from many threads, also after a fork."""

    # Guards the class variable of the SDK while an Executor is made, across all of ours.
    _making: ClassVar = threading.Lock()

    def __init__(self, identity: Identity, destination: Destination) -> None:
        self._identity = identity
        self._destination = destination
        self.built = 0
        self._forget()
        _all.add(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._client: Client | None = None
        self._executor: Executor | None = None
        self._group: UUID | None = None
        self._not_before = 0.0

    def client(self) -> Client:
        """Return the client of the web service. May fetch a token at its first request."""
        with self._lock:
            return self._known_client()

    def submit(self, function_id: str, argument: Mapping[str, Any], timeout_s: float) -> ComputeFuture:
        """Return the future of a task that the service has accepted.

        Raises what the SDK raises, and `TimeoutError` when the service has not answered in time.
        """
        deadline = time.monotonic() + timeout_s
        future = self._enqueue(function_id, argument)
        while future.task_id is None:
            if future.done():
                future.result()  # raises
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(LOOK_EVERY_S)
        return future

    def _enqueue(self, function_id: str, argument: Mapping[str, Any]) -> ComputeFuture:
        while True:
            executor = self._living()
            try:
                return executor.submit_to_registered_function(function_id, (dict(argument),))
            except RuntimeError:
                if not executor._stopped:
                    raise
                # another thread's submit has just ended it; the next one is made anew

    def close(self) -> None:
        """End connections and threads. Futures that are open are cancelled; their tasks go on at the endpoint."""
        from globus_compute_sdk.sdk import executor as sdk

        with self._lock:
            executor, self._executor = self._executor, None
        if executor is None or self._pid != os.getpid():
            return
        executor.shutdown(wait=False, cancel_futures=True)
        # A submit that is on its way would start a thread for its results afterwards.
        executor._task_submitter.join(HTTP_TIMEOUT_S)
        watcher = sdk._RESULT_WATCHERS.get(executor.task_group_id)
        if watcher is not None:
            watcher.shutdown(wait=False, cancel_futures=True)
            watcher.join(WATCHER_ENDS_S)
            if watcher._connection is not None and not watcher.is_alive():
                watcher._connection.ioloop.close()  # the SDK leaves its sockets open

    def _known_client(self) -> Client:
        from globus_compute_sdk.serialize import JSONData

        if self._client is None:
            self._client = self._identity.client()
            self._client.fx_serializer.data_serializer = JSONData()
        return self._client

    def _living(self) -> Executor:
        with self._lock:
            executor = self._executor
            if executor is not None:
                self._group = executor.task_group_id or self._group
                if not executor._stopped and executor._task_submitter.is_alive():
                    return executor
                # One failing service must not be asked by as many Executors as there are callers.
                time.sleep(max(0.0, self._not_before - time.monotonic()))
            self._executor = self._make()
            self._not_before = time.monotonic() + REBUILD_EVERY_S
            return self._executor

    def _make(self) -> Executor:
        from globus_compute_sdk import Executor
        from globus_compute_sdk.serialize import JSONData

        with GuardedExecutor._making:
            # Same group as before: the thread that waits for results of earlier tasks lives on and is found by it.
            Executor._default_task_group_id = None
            made = Executor(
                endpoint_id=self._destination.endpoint_id,
                client=self._known_client(),
                task_group_id=self._group,
                user_endpoint_config=dict(self._destination.config) or None,
                result_serializers=[JSONData()],
                amqp_port=self._destination.amqp_port,
                batch_size=TASKS_PER_REQUEST,
                api_burst_limit=BURST_REQUESTS,
                api_burst_window_s=BURST_WINDOW_S,
            )
            made._task_group_id = self._group  # another identity's thread may have set the class variable meanwhile
        self.built += 1
        return made


def _after_fork() -> None:
    """Start afresh in a child: locks may be held by threads that are not there, and connections are the parent's."""
    GuardedExecutor._making = threading.Lock()
    sdk = sys.modules.get("globus_compute_sdk.sdk.executor")
    if sdk is not None:
        sdk._REGISTERED_EXECUTORS.clear()
        sdk._RESULT_WATCHERS.clear()
        sdk.Executor._default_task_group_id = None
    for one in list(_all):
        one._forget()


os.register_at_fork(after_in_child=_after_fork)
