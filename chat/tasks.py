"""Background work of the chat. A lost task loses nothing: the next beat does it."""

from __future__ import annotations

from asgiref.sync import async_to_sync
from celery import shared_task

from chat import services
from chat.ending import turn_abandon
from chat.live import conversation_group, ring
from chat.runner.runner import ring_runners
from chat.selectors import done_event


@shared_task(ignore_result=True)
def sweep_turns() -> int:
    """Restart or end the turns whose runner died. Return how many there were."""
    expired = services.turns_expired()
    for turn in expired:
        if services.is_free_to_restart(turn):
            if services.turn_requeue(turn):
                async_to_sync(ring_runners)("turn.queued", turn.id)
            continue
        ended = turn_abandon(turn)
        if ended is not None:
            async_to_sync(ring)(
                conversation_group(ended.conversation_id),
                {"type": "turn.events", "turn": str(ended.id), "fence": ended.fence, "events": [done_event(ended)]},
            )
    return len(expired)
