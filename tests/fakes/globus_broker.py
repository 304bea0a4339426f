"""The AMQP side of the stand-in for Globus Compute: a publishing connection under a lock, a consuming one in a thread.

Exchanges and queues as the endpoint daemon expects them: it declares passively, so the service must have made them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pika

log = logging.getLogger(__name__)
EXCHANGES = {"tasks": "direct", "commands": "direct", "results": "topic", "heartbeats": "topic"}


class Broker:
    """Publish to and consume from RabbitMQ at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._own = f"{url}?heartbeat=0"
        self._lock = threading.Lock()
        self._connection: Any = None
        self._channel: Any = None
        self._do(self._declare)

    def listen(self, on_result: Callable[[bytes], None], on_heartbeat: Callable[[bytes], None]) -> None:
        """Call back for each message of an endpoint, in one thread."""
        handlers = {"results": on_result, "heartbeats": on_heartbeat}
        threading.Thread(target=self._consume, args=(handlers,), daemon=True).start()

    def queue(self, name: str, exchange: str = "") -> None:
        """Declare a queue, bound to `exchange` under its own name."""

        def act(channel: Any) -> None:
            channel.queue_declare(name, durable=True)
            if exchange:
                channel.queue_bind(name, exchange, routing_key=name)

        self._do(act)

    def publish(self, exchange: str, key: str, body: bytes, **properties: Any) -> None:
        """Publish a persistent message."""
        told = pika.BasicProperties(delivery_mode=2, **properties)
        self._do(lambda channel: channel.basic_publish(exchange, key, body, told))

    def reading(self, exchange: str, owner: str) -> dict[str, Any]:
        """Return what an endpoint needs to consume its queue, and make the queue."""
        name = f"{owner}.{exchange}"
        self.queue(name, exchange)
        return {"connection_url": self.url, "exchange": exchange, "queue": name}

    def writing(self, exchange: str, owner: str) -> dict[str, Any]:
        """Return what an endpoint needs to publish."""
        how = {
            "exchange": exchange,
            "routing_key": f"{owner}.{exchange}",
            "mandatory": True,
            "properties": {"delivery_mode": 2},
        }
        return {
            "connection_url": self.url,
            "exchange": exchange,
            "queue": exchange,
            "queue_publish_kwargs": how,
        }

    def _do(self, act: Callable[[Any], None]) -> None:
        with self._lock:
            for last in (False, True):
                try:
                    if self._connection is None or self._connection.is_closed:
                        self._connection = pika.BlockingConnection(pika.URLParameters(self._own))
                        self._channel = self._connection.channel()
                    act(self._channel)
                    return
                except pika.exceptions.AMQPError:
                    self._connection = None
                    if last:
                        raise

    @staticmethod
    def _declare(channel: Any) -> None:
        for name, kind in EXCHANGES.items():
            channel.exchange_declare(name, exchange_type=kind, durable=True)
        for name in ("results", "heartbeats"):
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, name, routing_key="#")

    def _consume(self, handlers: dict[str, Callable[[bytes], None]]) -> None:
        def deliver(channel: Any, method: Any, _properties: Any, body: bytes) -> None:
            handlers[method.exchange](body)
            channel.basic_ack(method.delivery_tag)

        while True:
            try:
                channel = pika.BlockingConnection(pika.URLParameters(self._own)).channel()
                channel.basic_qos(prefetch_count=64)
                for name in handlers:
                    channel.basic_consume(name, deliver)
                channel.start_consuming()
            except pika.exceptions.AMQPError as error:
                log.warning("broker connection lost (%s), trying again", type(error).__name__)
                time.sleep(0.5)
