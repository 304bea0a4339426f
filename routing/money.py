"""US micro-dollars as people read them. Pure, and integers or decimals only."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

MICRO = 1_000_000


def format_usd(micro: int) -> str:
    """Return "$0.0042" (four decimals) under a dollar and "$3.41" above. A cost above zero never reads as zero."""
    sign, size = ("-", -micro) if micro < 0 else ("", micro)
    if 0 < size < 100:
        return f"{sign}<$0.0001"
    if size < MICRO and (ten_thousandths := (size + 50) // 100) < 10_000:
        return f"{sign}$0.{ten_thousandths:04d}"
    cents = (size + 5_000) // 10_000
    return f"{sign}${cents // 100:,}.{cents % 100:02d}"


def format_usd_exact(micro: int) -> str:
    """Return every digit that counts, and at least two decimals: "$20.00", "$0.009999"."""
    sign, size = ("-", -micro) if micro < 0 else ("", micro)
    decimals = f"{size % MICRO:06d}"
    return f"{sign}${size // MICRO:,}.{decimals[:2]}{decimals[2:].rstrip('0')}"


def usd_to_micro(usd: Decimal | str | float) -> int:
    """Return whole micro-dollars, rounded up. A float is read by its shortest decimal form, so 0.1 is exactly 0.1."""
    amount = usd if isinstance(usd, Decimal) else Decimal(str(usd))
    return int((amount * MICRO).to_integral_value(rounding=ROUND_CEILING))
