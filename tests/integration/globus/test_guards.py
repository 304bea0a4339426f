"""What keeps one Executor usable for months: rebuilds, limits, forks, identities, exits, expired credentials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from globus_sdk import AccessTokenAuthorizer

from routing.backends.hpc.control import ControlError, JobHandle, WorkerJob
from routing.backends.hpc.globus import Deadlines, GlobusControl
from routing.backends.hpc.globus_identity import UserIdentity
from tests.globus_processes import EndpointDaemon, GlobusService
from tests.integration.globus.campus import GLOBUS, Campus, mailbox_job
from tests.integration.globus.test_control import refused
from tests.integration.hpc_worker.test_worker import channel
from tests.setting_names import ROOT

pytestmark = GLOBUS
Make = Callable[..., GlobusControl]
PERSON = "alice@example.edu"


def short_job() -> WorkerJob:
    """Return a job that the worker refuses at once: it has no such key."""
    job = mailbox_job(channel("ws://127.0.0.1:9/v1", mailbox=True))
    return WorkerJob(job.mode, {**job.arguments, "kid": "k9"})


def came_back(handle: JobHandle) -> bool:
    """Return whether the job ran and its result, the worker's refusal, came back."""
    try:
        handle.result(30)
    except ControlError as error:
        return "The worker refused the job" in error.happened
    return False


def test_an_executor_that_died_is_made_anew(
    globus_control: Make, globus_service: GlobusService, campus: Campus
) -> None:
    control = globus_control()
    before = control.start(short_job())
    globus_service.fault("/submit", count=1, status=502)
    after = control.start(short_job())
    assert control.executor.built == 2
    assert came_back(after)
    assert came_back(before), "results of the first Executor's tasks still arrive"
    assert globus_service.submits() == [200, 502, 200]


def test_too_many_requests_are_asked_again_a_little_later(
    globus_control: Make, globus_service: GlobusService, campus: Campus
) -> None:
    globus_service.fault("/submit", status=429)
    handle = globus_control().start(short_job())
    assert globus_service.submits() == [429, 200]
    assert came_back(handle)


def test_a_failing_service_is_asked_three_times_and_then_said_to_fail(
    globus_control: Make, globus_service: GlobusService, campus: Campus
) -> None:
    control = globus_control()
    globus_service.fault("/submit", count=9, status=502)
    with refused("The Globus services fail (502)"):
        control.start(short_job())
    assert globus_service.submits() == [502] * 3
    globus_service.reset()
    assert came_back(control.start(short_job()))


def test_a_service_that_does_not_answer_is_not_waited_for(globus_control: Make, globus_service: GlobusService) -> None:
    control = globus_control(deadlines=Deadlines(submit_s=1))
    globus_service.fault("/submit", delay_s=3)
    began = time.monotonic()
    with refused("did not accept the job within 1 s"):
        control.start(short_job())
    assert time.monotonic() - began < 2.5


def test_an_expired_credential_is_said_and_does_not_last(
    globus_control: Make, globus_service: GlobusService, campus: Campus
) -> None:
    control = globus_control()
    globus_service.secret("another")
    with refused("needs re-authorisation"):
        control.start(short_job())
    health = control.health()
    assert not health.online
    assert "no longer accepts the credential" in health.why
    assert "needs re-authorisation" in health.todo
    assert len(globus_service.submits()) <= 1, "a refused credential is not tried again"
    globus_service.reset()
    assert control.health().online
    assert came_back(control.start(short_job()))


def test_twenty_submits_stay_within_the_limit_of_the_service(
    globus_control: Make, globus_service: GlobusService, campus: Campus
) -> None:
    control = globus_control()
    with ThreadPoolExecutor(20) as pool:
        together = list(pool.map(lambda _: control.start(short_job()), range(20)))
    assert all(came_back(handle) for handle in together)
    requests_together = len(globus_service.submits())
    assert requests_together <= 20
    globus_service.reset()
    one_by_one = [control.start(short_job()) for _ in range(20)]
    assert len({handle.id for handle in one_by_one}) == 20
    assert globus_service.submits() == [200] * 20
    assert globus_service.refused_for_rate() == 0


def test_a_forked_child_has_an_executor_of_its_own(globus_control: Make, campus: Campus) -> None:
    control = globus_control()
    assert came_back(control.start(short_job()))
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads, which is the point here
        child = os.fork()
    if child == 0:
        ok = b"0"
        try:
            ok = b"1" if came_back(control.start(short_job())) else b"0"
        finally:
            os.write(writing, ok)
            os._exit(0)
    assert came_back(control.start(short_job())), "the parent goes on"
    assert os.read(reading, 1) == b"1"
    os.waitpid(child, 0)


def test_one_identity_is_never_sent_anothers_task_group(
    endpoint: EndpointDaemon, globus_control: Make, globus_service: GlobusService, campus: Campus
) -> None:
    service = globus_control()
    assert came_back(service.start(short_job()))
    token = globus_service.token(PERSON)
    person = UserIdentity(PERSON, AccessTokenAuthorizer(token), environment="local")
    theirs = globus_control(identity=person)
    with refused("not shared with our identity"):
        theirs.start(short_job())
    assert came_back(service.start(short_job()))


def test_a_persons_expired_token_says_so(globus_control: Make, globus_service: GlobusService) -> None:
    token = globus_service.token(PERSON, seconds=-1)
    control = globus_control(identity=UserIdentity(PERSON, AccessTokenAuthorizer(token), environment="local"))
    assert "needs re-authorisation" in control.health().todo


SCRIPT = """
import json, sys
from routing.backends.hpc.control import JobMode, WorkerJob
from tests.fixtures_globus import make_control
given = json.load(sys.stdin)
control = make_control(given["endpoint"], function_id=given["function"])
handle = control.start(WorkerJob(JobMode.RESIDENT, given["arguments"]))
control.close()
print(handle.id, flush=True)
"""


def test_a_process_with_a_running_job_can_exit(
    endpoint: EndpointDaemon, globus_service: GlobusService, function_id: str, campus: Campus
) -> None:
    arguments = dict(mailbox_job(channel(campus.relay.url, mailbox=True)).arguments)
    given = {"endpoint": endpoint.endpoint_id, "function": function_id, "arguments": arguments}
    with subprocess.Popen(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", SCRIPT],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(given))
        process.stdin.close()
        assert process.stdout.readline().strip()
        began = time.monotonic()
        assert process.wait(20) == 0
        assert time.monotonic() - began < 6
