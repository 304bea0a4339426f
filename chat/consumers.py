"""The browser's WebSocket. The message table stands in `chat.protocol`; the message type picks the method."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from redis.exceptions import RedisError

from chat import protocol, selectors, services
from chat.feed import Feed
from chat.live import conversation_group, ring, session_group, user_group
from chat.runner.embedded import embedded_runner, wake_runner
from chat.runner.runner import ring_runners
from stream_site.database import in_database
from stream_site.error_shapes import translate, words
from stream_site.errors import InputError, StreamError

log = logging.getLogger("stream.socket")


class ChatConsumer(AsyncWebsocketConsumer):
    """One socket of one signed-in person, watching at most one conversation at a time."""

    async def connect(self) -> None:
        self.user = self.scope["user"]
        if not self.user.is_authenticated:
            await self.accept()
            await self.close(4401)
            return
        self.feed = Feed(self.send_message)
        self.heard_at = time.monotonic()
        self.watched: uuid.UUID | None = None
        self.groups_joined: set[str] = set()
        await self.accept()
        await self.join(user_group(self.user.pk))
        await self.join(session_group(self.scope["session"].session_key or ""))
        self.tasks = [asyncio.create_task(self.run_feed()), asyncio.create_task(self.close_when_idle())]
        hello = {"protocol": protocol.PROTOCOL_VERSION, "heartbeat_s": protocol.HEARTBEAT_S}
        await self.send_message({"t": "hello", "user": self.user.shown_name, **hello})

    async def disconnect(self, code: int) -> None:
        for task in getattr(self, "tasks", []):
            task.cancel()
        for group in list(getattr(self, "groups_joined", ())):
            await self.leave(group)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        self.heard_at = time.monotonic()
        subject: uuid.UUID | None = None
        try:
            if text_data is None:
                raise InputError("The page sent a message that is not text.")
            message = protocol.parse(text_data)
            subject = getattr(message, "id", None)
            await self.handlers[type(message)](self, message)
        except Exception as error:  # noqa: BLE001 - the edge: every fault becomes words, the socket stays
            await self.send_error(translate(error), subject)

    # ── what the browser asks ─────────────────────────────────────────────

    async def on_ping(self, message: protocol.Ping) -> None:
        await self.send_message({"t": "pong", "at": message.at})

    async def on_ack(self, message: protocol.Ack) -> None:
        self.feed.ack(str(message.turn), message.seq)

    async def on_watch(self, message: protocol.Watch) -> None:
        """Join first, then read what is missing: an event between the two comes twice, never not at all."""
        conversation = await in_database(selectors.watched_conversation, self.user, message.conversation)
        group = conversation_group(message.conversation)
        if self.watched and self.watched != message.conversation:
            await self.leave(conversation_group(self.watched))
            self.feed.clear()
        self.watched = message.conversation
        await self.join(group)
        await self.send_message({"t": "watching", "conversation": str(message.conversation)})
        if conversation is None:
            return
        for turn in await in_database(selectors.turns_to_tell, conversation, message.turns, message.after):
            await self.send_message(
                {"t": "turn.accepted", "for": None, "turn": selectors.told_turn(turn), "duplicate": False}
            )
            self.feed.watch(turn.id, 0)
        own = await in_database(selectors.turns_now, message.turns)
        for turn_id, last in message.turns.items():
            if turn_id in own and own[turn_id].owner_id == self.user.pk:
                self.feed.watch(turn_id, last)

    async def on_start(self, message: protocol.TurnStart) -> None:
        runner = embedded_runner()
        started = await in_database(
            services.turn_start, owner=self.user, message=message, claim=runner.claim_for_start if runner else None
        )
        await self.accepted(message.id, started)

    async def on_again(self, message: protocol.TurnAgain) -> None:
        await self.once_more(message.id, turn_id=message.turn, tier=message.tier, model=message.model)

    async def on_continue(self, message: protocol.TurnContinue) -> None:
        await self.once_more(message.id, turn_id=message.turn, carry_on=True)

    async def once_more(self, client_id: uuid.UUID, **how: Any) -> None:
        runner = embedded_runner()
        started = await in_database(
            services.turn_again,
            owner=self.user,
            client_id=client_id,
            claim=runner.claim_for_start if runner else None,
            **how,
        )
        await self.accepted(client_id, started)

    async def accepted(self, client_id: uuid.UUID, started: services.Started) -> None:
        """Watch the turn, see that a runner has it, and tell this page and all others that show the conversation."""
        turn = started.turn
        if self.watched != turn.conversation_id:
            if self.watched:
                await self.leave(conversation_group(self.watched))
                self.feed.clear()
            self.watched = turn.conversation_id
            await self.join(conversation_group(turn.conversation_id))
        self.feed.watch(turn.id, 0, is_new=not started.duplicate)
        shown = selectors.told_turn(turn)
        await self.send_message(
            {"t": "turn.accepted", "for": str(client_id), "turn": shown, "duplicate": started.duplicate}
        )
        if started.duplicate:
            return
        await wake_runner(turn)
        await ring(conversation_group(turn.conversation_id), {"type": "turn.new", "turn": shown})
        await self.tell_conversation(turn.conversation_id)

    async def tell_conversation(self, conversation_id: uuid.UUID) -> None:
        conversation = await in_database(services.own_conversation, self.user, conversation_id)
        await ring(user_group(self.user.pk), selectors.conversation_message(conversation))

    async def on_stop(self, message: protocol.TurnStop) -> None:
        turn = await in_database(services.turn_stop, owner=self.user, turn_id=message.turn)
        runner = embedded_runner()
        if runner is None or not runner.stop(turn.id):
            await ring_runners("turn.stop", turn.id)
        self.feed.nudge()

    handlers: dict[type, Callable[..., Awaitable[None]]] = {
        protocol.Ping: on_ping,
        protocol.Ack: on_ack,
        protocol.Watch: on_watch,
        protocol.TurnStart: on_start,
        protocol.TurnAgain: on_again,
        protocol.TurnContinue: on_continue,
        protocol.TurnStop: on_stop,
    }

    # ── what the groups ring ──────────────────────────────────────────────

    async def turn_events(self, message: dict[str, Any]) -> None:
        self.feed.offer(message["turn"], message["fence"], message["events"])

    async def turn_new(self, message: dict[str, Any]) -> None:
        turn = message["turn"]
        if self.feed.watch(uuid.UUID(turn["id"]), 0, is_new=True):
            await self.send_message({"t": "turn.accepted", "for": None, "turn": turn, "duplicate": False})

    async def conversation_changed(self, message: dict[str, Any]) -> None:
        await self.send_message({"t": "conversation.changed", **message["conversation"]})

    async def session_ended(self, message: dict[str, Any]) -> None:
        await self.close(4401)

    # ── helpers ───────────────────────────────────────────────────────────

    async def join(self, group: str) -> None:
        """Join a group. Without the channel layer the socket still works: it reads the database now and then."""
        if group in self.groups_joined:
            return
        try:
            await self.channel_layer.group_add(group, self.channel_name)
            self.groups_joined.add(group)
        except (OSError, RedisError) as error:
            log.warning("no live rings for a socket: %s", error)

    async def leave(self, group: str) -> None:
        self.groups_joined.discard(group)
        with contextlib.suppress(OSError, RedisError):
            await self.channel_layer.group_discard(group, self.channel_name)

    async def run_feed(self) -> None:
        try:
            await self.feed.run()
        except Exception:
            log.exception("a socket's feed ended")
            await self.close(1011)

    async def close_when_idle(self) -> None:
        while (idle_s := time.monotonic() - self.heard_at) < protocol.IDLE_TIMEOUT_S:  # noqa: ASYNC110
            await asyncio.sleep(protocol.IDLE_TIMEOUT_S - idle_s)
        await self.close(4408)

    async def send_message(self, message: dict[str, Any]) -> int:
        """Send one message; return its size in bytes."""
        text = protocol.encode(message)
        await self.send(text_data=text)
        return len(text.encode())

    async def send_error(self, error: StreamError, subject: uuid.UUID | None) -> None:
        shown = {"t": "error", "for": str(subject) if subject else None, "error": words(error).as_dict()}
        await self.send_message(shown)
