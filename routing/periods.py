"""Days and months of the reporting zone, as dates and as instants. Pure: the time and the zone are passed in.

A local day lasts 23, 24 or 25 hours; its bounds are made from local midnights, never by adding 24 hours.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import StrEnum


class Period(StrEnum):
    """How long a budget lasts before it starts anew."""

    DAY = "day"
    MONTH = "month"
    TOTAL = "total"


THE_BEGINNING = date(1970, 1, 1)  # the start of every TOTAL period: it never starts anew


def period_start(period: Period, at: datetime, zone: tzinfo) -> date:
    """Return the first local day of the period that holds the instant `at`."""
    if period is Period.TOTAL:
        return THE_BEGINNING
    today = at.astimezone(zone).date()
    return today if period is Period.DAY else today.replace(day=1)


def next_start(period: Period, start: date) -> date | None:
    """Return the first day of the following period, or None when there is none."""
    if period is Period.TOTAL:
        return None
    if period is Period.DAY:
        return start + timedelta(days=1)
    return (start.replace(day=28) + timedelta(days=4)).replace(day=1)


def midnight(day: date, zone: tzinfo) -> datetime:
    """Return the instant at which `day` starts in `zone`, in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def day_range(first: date, last: date, zone: tzinfo) -> tuple[datetime, datetime]:
    """Return (from, until) of the local days `first` to `last`, both included; `until` itself is outside."""
    return midnight(first, zone), midnight(last + timedelta(days=1), zone)
