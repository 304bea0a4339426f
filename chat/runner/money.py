"""The purse of one turn: reservations in the ledger."""

from __future__ import annotations

from chat.models import Turn
from routing import ledger
from routing.engine import Attempt
from stream_site.database import in_database


class LedgerPurse:
    """Implements `routing.engine.Purse` for a turn's owner."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn

    async def reserve(self, attempt: Attempt, upper_micro: int) -> None:
        """Set `upper_micro` aside in one conditional UPDATE. Raises `BudgetError`."""
        call = ledger.CallRef(
            turn_id=self.turn.id,
            attempt=attempt.number,
            user_id=self.turn.owner_id,
            tier=attempt.model.tier,
            model=attempt.model.name,
        )
        await in_database(ledger.reserve, call=call, upper_micro=upper_micro)
