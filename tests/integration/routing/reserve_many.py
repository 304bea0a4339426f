"""One process of the parallel test: reserve a cent for USER in each of N threads at once, and say how each ended."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import django
from django.db import connection


def main(user_id: int, count: int) -> None:
    django.setup()
    from routing import ledger
    from routing.types import Tier
    from stream_site.errors import BudgetError

    def one(number: int) -> str:
        call = ledger.CallRef(uuid4(), number, user_id, Tier.CLOUD, "big")
        try:
            ledger.reserve(call=call, upper_micro=10_000)
        except BudgetError:
            return "refused"
        finally:
            connection.close()
        return "held"

    print("ready", flush=True)
    sys.stdin.readline()
    with ThreadPoolExecutor(count) as pool:
        print(*pool.map(one, range(count)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
