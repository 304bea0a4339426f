"""Many calls at once, from threads and from processes (A-COST-07). Runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection
from pytest_django import Settings

from accounts.models import User
from routing import ledger
from routing.ledger_check import verify
from routing.models import Budget, LedgerEntry, Scope
from routing.spend import budget_state
from routing.types import Price, Usage
from stream_site.errors import BudgetError
from tests.integration.routing.conftest import NewCall

pytestmark = [pytest.mark.data, pytest.mark.django_db(transaction=True)]

CENT = 10_000
PRICE = Price(input=1_000_000)


def at_once(count: int, act: Callable[[int], str]) -> Counter[str]:
    """Run `act` in that many threads, let go together, and count what they return."""
    gate = Barrier(count)

    def one(number: int) -> str:
        try:
            gate.wait(30)
            return act(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return Counter(pool.map(one, range(count)))


def reserve_a_cent(call: ledger.CallRef) -> str:
    try:
        ledger.reserve(call=call, upper_micro=CENT)
    except BudgetError as error:
        return "refused" if error.retry_after_s else "refused, and no word until when"
    return "held"


@pytest.fixture(autouse=True)
def a_cent_each(settings: Settings) -> None:
    settings.USER_MONTHLY_BUDGET_USD = 0.01
    settings.PLATFORM_MONTHLY_BUDGET_USD = 1


def test_of_twenty_first_calls_of_a_new_user_one_gets_through(alice: User, new_call: NewCall) -> None:
    calls = [new_call() for _ in range(20)]
    assert at_once(20, lambda n: reserve_a_cent(calls[n])) == {"held": 1, "refused": 19}
    assert budget_state(alice.pk).reserved_micro == CENT
    assert verify() == []


def test_of_twenty_calls_on_the_last_cent_one_gets_through(settings: Settings, alice: User, new_call: NewCall) -> None:
    settings.USER_MONTHLY_BUDGET_USD = 0.05
    ledger.settle(call=new_call(), usage=Usage(prompt=4 * CENT), price=PRICE)
    calls = [new_call() for _ in range(20)]
    assert at_once(20, lambda n: reserve_a_cent(calls[n])) == {"held": 1, "refused": 19}
    assert budget_state(alice.pk).left_micro == 0
    assert verify() == []


def test_the_platforms_last_cent_goes_to_one_of_twenty_people(settings: Settings, new_call: NewCall) -> None:
    settings.PLATFORM_MONTHLY_BUDGET_USD = 0.01
    calls = [new_call(user_id=1_000 + n) for n in range(20)]
    assert at_once(20, lambda n: reserve_a_cent(calls[n])) == {"held": 1, "refused": 19}
    assert Budget.objects.get(scope=Scope.PLATFORM).reserved_micro == CENT
    assert verify() == []


def test_the_same_call_reserved_and_settled_twenty_times_counts_once(alice: User, new_call: NewCall) -> None:
    call = new_call()
    assert at_once(20, lambda n: reserve_a_cent(call)) == {"held": 20}
    usage = Usage(prompt=123)
    lines = at_once(20, lambda n: str(ledger.settle(call=call, usage=usage, price=PRICE).pk))
    assert list(lines.values()) == [20]
    state = budget_state(alice.pk)
    assert (state.spent_micro, state.reserved_micro) == (123, 0)
    assert LedgerEntry.objects.count() == 2
    assert verify() == []


def test_settling_and_releasing_the_same_call_at_once_keeps_the_books(alice: User, new_call: NewCall) -> None:
    calls = [new_call() for _ in range(10)]
    for call in calls:
        ledger.reserve(call=call, upper_micro=CENT // 10)

    def end(number: int) -> str:
        if number % 2:
            ledger.release(call=calls[number // 2])
        else:
            ledger.settle(call=calls[number // 2], usage=Usage(prompt=7), price=PRICE)
        return "done"

    assert at_once(20, end) == {"done": 20}
    state = budget_state(alice.pk)
    assert (state.spent_micro, state.reserved_micro) == (70, 0)
    assert verify() == []


def test_fifty_threads_of_whole_calls_wait_for_each_other(settings: Settings, alice: User, new_call: NewCall) -> None:
    """On SQLite a writer waits for the lock: "database is locked" would come out of `at_once`."""
    settings.USER_MONTHLY_BUDGET_USD = 10
    settings.PLATFORM_MONTHLY_BUDGET_USD = 10
    calls = [[new_call() for _ in range(4)] for _ in range(50)]

    def whole_calls(number: int) -> str:
        for call in calls[number]:
            ledger.reserve(call=call, upper_micro=CENT)
            ledger.settle(call=call, usage=Usage(prompt=11), price=PRICE)
        return "done"

    assert at_once(50, whole_calls) == {"done": 50}
    assert budget_state(alice.pk).spent_micro == 50 * 4 * 11
    assert verify() == []


def test_checking_beside_live_calls_raises_no_false_alarm(settings: Settings, new_call: NewCall) -> None:
    settings.USER_MONTHLY_BUDGET_USD = settings.PLATFORM_MONTHLY_BUDGET_USD = 10
    calls = [[new_call() for _ in range(15)] for _ in range(4)]

    def work(number: int) -> str:
        if number == 4:
            return f"{sum(len(verify()) for _ in range(25))} differences"
        for call in calls[number]:
            ledger.reserve(call=call, upper_micro=CENT)
            ledger.settle(call=call, usage=Usage(prompt=11), price=PRICE)
        return "done"

    assert at_once(5, work) == {"done": 4, "0 differences": 1}


def test_of_twenty_calls_from_two_processes_one_gets_through(alice: User) -> None:
    environment = {**os.environ, "DATABASE_URL": url_of_test_database(), "USER_MONTHLY_BUDGET_USD": "0.01"}
    command = [sys.executable, "-m", "tests.integration.routing.reserve_many", str(alice.pk), "10"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env=environment, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    said = Counter(line for process in processes for line in process.communicate(timeout=60)[0].split())
    assert [process.returncode for process in processes] == [0, 0]
    assert said == {"held": 1, "refused": 19}
    assert budget_state(alice.pk).reserved_micro == CENT
    assert verify() == []


def url_of_test_database() -> str:
    database = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{database['NAME']}"
    host = database["HOST"] or database["OPTIONS"].get("host", "")
    return f"postgresql://{database['USER']}:@/{database['NAME']}?host={host}"
