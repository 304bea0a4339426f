"""Run the relay alone: `python -m relay --host 127.0.0.1 --port 8600`."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import socket
import sys
import time

import uvicorn

from hpc_worker.wire import MAX_FRAME_BYTES
from relay.asgi import RelayApp
from relay.config import RelayConfig, RelayConfigError
from relay.uvicorn_ws import RelayWebSocket

PING_S = 15.0


class RelayServer(uvicorn.Server):
    """uvicorn that drains the relay before it closes connections, with the port free for a successor at once."""

    def __init__(self, config: uvicorn.Config, app: RelayApp) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, drain, then shut down as usual."""
        for server in self.servers:
            server.close()
        await self._app.drain()
        await super().shutdown(sockets)


def server_config(app: RelayApp, host: str, port: int) -> uvicorn.Config:
    """Return how uvicorn must run to carry a relay."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        http="h11",
        ws=RelayWebSocket,
        ws_max_size=MAX_FRAME_BYTES + 1024,  # a little more, so that the hub can answer 4413 itself
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_per_message_deflate=False,
        lifespan="off",
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=2,
    )


def main() -> int:
    """Parse the command line and serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m relay", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8600)
    options = parser.parse_args()
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(level=logging.INFO, format="%(asctime)sZ %(name)s %(message)s", datefmt="%Y-%m-%dT%H:%M:%S")
    try:
        app = RelayApp(RelayConfig.from_environ(os.environ))
    except RelayConfigError as error:
        sys.stderr.write(f"{error.happened} {error.kept} {error.todo}\n")
        return 2
    gc.freeze()  # what is loaded stays: a collection in the middle of streams need not look at it
    server = RelayServer(server_config(app, options.host, options.port), app)
    server.run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
