"""What sealing and opening cost for each token, beside the form other token relays use: JSON in base64 in JSON.

    python -m benchmarks.crypto [--tokens 200000]

The comparison form is built here from the same cipher library: a fresh AESGCM and a random nonce for each message, as
a stateless function must do. If the package `streamrelay` is installed, its own functions are measured as well.
Prints microseconds a token, best of five, for one core.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping

from hpc_worker import crypto
from hpc_worker.wire import Direction, FrameType, Kind

KEY = bytes(range(32))
WORD = " the"
PER_FRAME = 8  # tokens that 25 ms or 512 bytes join at usual speeds


def best_us(call: Callable[[], object], count: int, rounds: int = 5) -> float:
    """Return microseconds a call: the best of `rounds`, which is what the machine's other work disturbs least."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(count):
            call()
        best = min(best, time.process_time() - start)
    return best / count * 1e6


def ours(count: int) -> Mapping[str, float]:
    """Measure seal and open of one-token frames, and of frames of eight joined tokens, a token."""
    keys = crypto.derive_stream(KEY, crypto.Scope("k1", bytes(16), 1), bytes(32), bytes(32))
    sealer, opener = crypto.Sealer(keys, Direction.P2C), crypto.Opener(keys, Direction.P2C)
    one, many = WORD.encode(), (WORD * PER_FRAME).encode()
    frame = sealer.seal(FrameType.DATA, Kind.TEXT, one)
    joined = sealer.seal(FrameType.DATA, Kind.TEXT, many)
    return {
        "seal": best_us(lambda: sealer.seal(FrameType.DATA, Kind.TEXT, one), count),
        "open": best_us(lambda: opener.open(frame), count),
        "seal_joined": best_us(lambda: sealer.seal(FrameType.DATA, Kind.TEXT, many), count) / PER_FRAME,
        "open_joined": best_us(lambda: opener.open(joined), count) / PER_FRAME,
        "bytes": len(frame),
        "bytes_joined": len(joined) / PER_FRAME,
    }


def peer(count: int) -> Mapping[str, float] | None:
    """Measure streamrelay's functions on one token a message; None when it is not installed."""
    try:
        from streamrelay.crypto import decrypt_message, encrypt_message  # type: ignore[import-not-found]
    except ImportError:
        return None
    key = KEY.hex()

    def seal() -> str:
        message: str = encrypt_message(key, json.dumps({"type": "token", "content": WORD}))
        return message

    text = seal()
    return {
        "seal": best_us(seal, count),
        "open": best_us(lambda: json.loads(decrypt_message(key, text)), count),
        "bytes": len(text),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=100_000)
    count = parser.parse_args().tokens
    report = {"ours": ours(count), "streamrelay": peer(count)}
    print(json.dumps(report, indent=1))
    theirs = report["streamrelay"]
    if theirs is not None:
        mine = report["ours"]
        assert mine is not None
        both = theirs["seal"] + theirs["open"]
        print(f"one token a frame: {(mine['seal'] + mine['open']) / both:.2f} of streamrelay's time")
        print(f"eight tokens a frame: {(mine['seal_joined'] + mine['open_joined']) / both:.2f} of streamrelay's time")


if __name__ == "__main__":
    main()
