"""Local days and months."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.periods import Period, day_range, midnight, next_start, period_start

BERLIN, KOLKATA, LOS_ANGELES = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata"), ZoneInfo("America/Los_Angeles")
CHICAGO, KIRITIMATI = ZoneInfo("America/Chicago"), ZoneInfo("Pacific/Kiritimati")
zones = st.sampled_from([UTC, BERLIN, KOLKATA, LOS_ANGELES, CHICAGO, KIRITIMATI])
instants = st.datetimes(datetime(2000, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))


def test_a_picked_day_is_the_local_day() -> None:
    """A-COST-02."""
    first, until = day_range(date(2026, 11, 30), date(2026, 11, 30), KOLKATA)
    assert (first, until) == (datetime(2026, 11, 29, 18, 30, tzinfo=UTC), datetime(2026, 11, 30, 18, 30, tzinfo=UTC))


@pytest.mark.parametrize(("day", "hours"), [(date(2026, 3, 29), 23), (date(2026, 10, 25), 25), (date(2026, 6, 1), 24)])
def test_a_day_of_the_clock_change_is_shorter_or_longer(day: date, hours: int) -> None:
    """A-COST-02."""
    first, until = day_range(day, day, BERLIN)
    assert until - first == timedelta(hours=hours)


def test_the_evening_west_of_utc_is_still_today() -> None:
    """A-COST-03."""
    now = datetime(2026, 11, 29, 21, 30, tzinfo=LOS_ANGELES)
    today = period_start(Period.DAY, now.astimezone(UTC), LOS_ANGELES)
    first, until = day_range(today, today, LOS_ANGELES)
    assert today == date(2026, 11, 29)
    assert first <= now < until


def test_the_month_is_the_months_of_the_zone() -> None:
    at = datetime(2026, 11, 30, 19, 0, tzinfo=UTC)
    assert period_start(Period.MONTH, at, UTC) == date(2026, 11, 1)
    assert period_start(Period.MONTH, at, KOLKATA) == date(2026, 12, 1)


def test_the_next_period() -> None:
    assert next_start(Period.MONTH, date(2026, 12, 1)) == date(2027, 1, 1)
    assert next_start(Period.MONTH, date(2028, 2, 1)) == date(2028, 3, 1)
    assert next_start(Period.DAY, date(2026, 12, 31)) == date(2027, 1, 1)
    assert next_start(Period.TOTAL, period_start(Period.TOTAL, datetime(2026, 1, 1, tzinfo=UTC), UTC)) is None


@given(st.sampled_from([Period.DAY, Period.MONTH]), instants, zones)
def test_every_instant_is_in_exactly_one_period(period: Period, at: datetime, zone: ZoneInfo) -> None:
    """A-COST-06."""
    start = period_start(period, at, zone)
    after = next_start(period, start)
    assert after is not None
    assert midnight(start, zone) <= at < midnight(after, zone)
