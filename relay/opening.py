"""`park` and `open`: who gets which seat. Pure."""

from __future__ import annotations

from hpc_worker import handshake
from hpc_worker.wire import Close
from relay.admission import Admission, role_of
from relay.channel import Channel
from relay.lifecycle import Lifecycle
from relay.peer import Conn, Stage


class Opening:
    """Admits connections and seats them. The caller has parsed the message; drain is the caller's matter too."""

    def __init__(self, life: Lifecycle, admission: Admission, epoch: bytes) -> None:
        self._life = life
        self._registry = life.registry
        self._limits = life.limits
        self._admission = admission
        self._epoch = epoch

    def greet(self, conn: Conn, now: float) -> None:
        """Challenge a new connection, or close it at a limit."""
        life, most = self._life, self._limits
        group = conn.group
        full = life.fresh.total() >= most.unauthenticated or life.fresh[group] >= most.unauthenticated_per_address
        life.fresh[group] += 1
        life.unopened.add(conn)
        if full or life.failed.blocked(group, now):
            life.end(conn, Close.LIMIT, now)
        else:
            conn.deadline = now + most.open_timeout_s
            self._challenge(conn)

    def admit(self, conn: Conn, message: handshake.Authenticated, now: float) -> None:
        """Take `park` or `open` of a connection without a channel."""
        life = self._life
        if life.failed.blocked(conn.group, now):
            life.end(conn, Close.LIMIT, now)
        elif not self._admission.admits(conn, message) or (conn.kid and conn.kid != message.kid):
            life.end(conn, Close.DENIED, now)
        elif isinstance(message, handshake.Park):
            self._park(conn, message, now)
        elif isinstance(message, handshake.ConsumerOpen):
            self._name(conn, message)
            self._consumer(conn, message, now)
        else:
            self._name(conn, message)
            self._producer(conn, message, now)

    def tick(self, now: float) -> None:
        """Close what did not open in time; renew the nonces of parked sockets."""
        life = self._life
        for conn in [c for c in life.unopened if now >= c.deadline]:
            if conn.stage is Stage.FRESH:
                life.end(conn, Close.TIMEOUT, now)
            else:
                self._renew(conn, now)

    # -- parked

    def _name(self, conn: Conn, message: handshake.Open) -> None:
        self._life.uncount(conn)
        conn.kid, conn.role, conn.stage, conn.cid = message.kid, role_of(message), Stage.OPEN, message.cid

    def _park(self, conn: Conn, message: handshake.Park, now: float) -> None:
        life = self._life
        if conn.stage is Stage.PARKED:
            life.end(conn, Close.MALFORMED, now)
        elif life.parked[message.kid] >= self._limits.parked_per_kid:
            life.end(conn, Close.LIMIT, now)
        else:
            life.uncount(conn)
            conn.kid, conn.role, conn.stage = message.kid, role_of(message), Stage.PARKED
            life.parked[conn.kid] += 1
            life.unopened.add(conn)
            self._renew(conn, now)

    def _renew(self, conn: Conn, now: float) -> None:
        conn.deadline = now + self._limits.nonce_life_s
        self._challenge(conn)

    def _challenge(self, conn: Conn) -> None:
        if len(conn.texts) > 1:  # it reads nothing: more unread challenges would only fill memory
            conn.texts.clear()
        conn.texts.append(self._admission.challenge(conn, self._epoch))
        self._life.wake(conn)

    # -- consumer

    def _consumer(self, conn: Conn, message: handshake.ConsumerOpen, now: float) -> None:
        life = self._life
        conn.last = message.last
        channel = self._registry.get(message.cid)
        if message.fin:
            self._stored_all(conn, channel, message, now)
            return
        if channel is None:
            if self._registry.finished(message.cid, now):
                life.end(conn, Close.FINISHED, now)
                return
            if not self._registry.has_room(conn.kid):
                life.end(conn, Close.LIMIT, now)
                return
            channel = self._registry.create(message.cid, conn, now)
        if channel.consumer is not None:
            life.end(channel.consumer, Close.REPLACED, now)
        channel.consumer, channel.mailbox, conn.channel = conn, message.mailbox, channel
        ring = channel.ring
        # More than the ring ever held belongs to another attempt: offer all there is, the consumer knows what it wants.
        conn.sent = conn.last if conn.last <= ring.top else ring.base - 1
        if conn.last:
            life.counters["resumed"] += 1
        self._ok(conn, handshake.ConsumerOk(self._epoch, channel.producer is not None, ring.top))
        conn.last_take = now
        life.settle_control(channel)

    def _stored_all(self, conn: Conn, channel: Channel | None, message: handshake.ConsumerOpen, now: float) -> None:
        self._ok(conn, handshake.ConsumerOk(self._epoch, False, message.last))
        if channel is None:  # a relay that knows nothing of it still refuses a late producer
            self._registry.bury(message.cid, now)
        else:
            self._life.finish(channel, message.last, now)
        self._life.end(conn, Close.DONE, now)

    # -- producer

    def _producer(self, conn: Conn, message: handshake.ProducerOpen, now: float) -> None:
        life, channel = self._life, self._registry.get(message.cid)
        if channel is None:
            gone = self._registry.finished(message.cid, now)
            life.end(conn, Close.FINISHED if gone else Close.NO_CHANNEL, now)
            return
        if message.attempt < channel.attempt:
            life.end(conn, Close.STALE_ATTEMPT, now)
            return
        if message.attempt > channel.attempt:
            self._new_attempt(channel, message, now)
        elif channel.producer_kid != conn.kid:
            life.end(conn, Close.DENIED, now)
            return
        elif channel.head and channel.instance != message.instance:  # a task that was started twice
            life.end(conn, Close.REPLACED, now)
            return
        if channel.producer is not None:
            life.end(channel.producer, Close.REPLACED, now)
        channel.producer, channel.instance, conn.channel = conn, message.instance, channel
        have = channel.ring.top if channel.head else -1
        if have >= 0:
            life.counters["resumed"] += 1
        conn.told = channel.acked
        self._ok(conn, handshake.ProducerOk(self._epoch, have, channel.acked))
        if channel.ring.full:
            life.hold(conn)
        elif self._registry.starved:
            life.starved.add(channel)
            life.hold(conn)

    def _new_attempt(self, channel: Channel, message: handshake.ProducerOpen, now: float) -> None:
        if channel.producer is not None:
            self._life.end(channel.producer, Close.STALE_ATTEMPT, now)
        # A consumer that saw the old HEAD must not mix two attempts: it comes back and decides.
        if channel.consumer is not None and channel.consumer.head_sent:
            self._life.end(channel.consumer, Close.STALE_ATTEMPT, now)
        self._registry.start_attempt(channel, message.attempt, message.kid)
        self._life.settle_control(channel)
        self._life.make_room(channel)

    def _ok(self, conn: Conn, ok: handshake.ConsumerOk | handshake.ProducerOk) -> None:
        conn.texts.clear()  # an unread challenge says nothing any more
        conn.texts.append(handshake.build_text(ok))
        self._life.counters[f"opened_{conn.role}"] += 1
        self._life.wake(conn)
