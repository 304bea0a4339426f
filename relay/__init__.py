"""The data plane: pairs producer and consumer sockets and forwards sealed frames that it cannot read.

Pure: ring, channel, registry, limits, admission, opening, lifecycle, peer, actions, hub, rendezvous.
Async edge: sockets, asgi, uvicorn_ws, client. Environment: config.
"""
