"""Hold an installed `hpc_worker` to channel-v1.json. Needs no test framework, so it runs on a cluster as well.

python replay.py [channel-v1.json]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpc_worker import crypto, handshake, keyring, wire

FILE = Path(__file__).with_name("channel-v1.json")


def load(path: Path = FILE) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return (setup, vector) pairs."""
    book = json.loads(path.read_text(encoding="ascii"))
    return [(book["setups"][v["setup"]], v) for v in book["vectors"]]


def check(setup: Mapping[str, Any], vector: Mapping[str, Any]) -> None:
    """Raise `AssertionError` if the library does not do what the vector says."""
    run = {
        "derive": _derive,
        "head": _head,
        "frame": _frame,
        "request": _bulk,
        "result": _bulk,
        "open": _open,
        "open_bad": _open,
    }.get(vector["test"])
    if run is not None:
        run(setup, vector)
        return
    try:
        opened = _refusable(setup, vector)
    except (wire.WireError, crypto.CryptoError) as error:
        expect(error.reason, vector["reason"])
    else:
        raise AssertionError(f"accepted: {opened!r}")


def expect(got: object, wanted: object) -> None:
    """Compare."""
    if got != wanted:
        raise AssertionError(f"{got!r} is not {wanted!r}")


def _scope(setup: Mapping[str, Any]) -> crypto.Scope:
    return crypto.Scope(setup["kid"], bytes.fromhex(setup["cid"]), setup["attempt"])


def _bytes(setup: Mapping[str, Any], *names: str) -> tuple[bytes, ...]:
    return tuple(bytes.fromhex(setup[name]) for name in names)


def _keys(setup: Mapping[str, Any]) -> crypto.StreamKeys:
    key, salt_c, salt_p = _bytes(setup, "key", "salt_c", "salt_p")
    return crypto.derive_stream(key, _scope(setup), salt_c, salt_p)


def _derive(setup: Mapping[str, Any], vector: Mapping[str, Any]) -> None:
    keys = _keys(setup)
    got = {
        "k_p2c": keys.p2c[0],
        "iv_p2c": keys.p2c[1],
        "k_c2p": keys.c2p[0],
        "iv_c2p": keys.c2p[1],
        "commit": keys.commit,
    }
    for name, value in got.items():
        expect(value.hex(), vector[name])


def _head(setup: Mapping[str, Any], vector: Mapping[str, Any]) -> None:
    keys = _keys(setup)
    (salt_p,) = _bytes(setup, "salt_p")
    frame = wire.build_head(wire.Head(setup["kid"], setup["attempt"], salt_p, keys.commit))
    expect(frame.hex(), vector["frame"])
    expect(_accept(setup, frame), keys)


def _accept(setup: Mapping[str, Any], frame: bytes) -> crypto.StreamKeys:
    key, salt_c = _bytes(setup, "key", "salt_c")
    head = wire.parse_frame(frame)
    if not isinstance(head, wire.Head):
        raise AssertionError("not a HEAD")
    return crypto.accept_head(keyring.Keyring(setup["kid"], {setup["kid"]: key}), _scope(setup), salt_c, head)


def _frame(setup: Mapping[str, Any], vector: Mapping[str, Any]) -> None:
    keys, direction = _keys(setup), wire.Direction(vector["direction"])
    frame, body = _bytes(vector, "frame", "body")
    sealer = crypto.Sealer(keys, direction, vector["seq"])
    expect(sealer.seal(vector["type"], vector["kind"], body).hex(), vector["frame"])
    opened = crypto.Opener(keys, direction).open(frame)
    expect(tuple(opened), (vector["type"], vector["seq"], vector["kind"], body))
    expect(wire.peek(frame), (vector["type"], vector["seq"]))


def _bulk(setup: Mapping[str, Any], vector: Mapping[str, Any]) -> None:
    key, salt_c, salt_p = _bytes(setup, "key", "salt_c", "salt_p")
    box, body = _bytes(vector, "box", "body")
    scope = _scope(setup)
    if vector["test"] == "request":
        expect(crypto.seal_request(key, scope, salt_c, body), box)
        expect(crypto.open_request(key, scope, salt_c, box), body)
    else:
        expect(crypto.seal_result(key, scope, (salt_c, salt_p), body), box)
        expect(crypto.open_result(key, scope, (salt_c, salt_p), box), body)


def _open(setup: Mapping[str, Any], vector: Mapping[str, Any]) -> None:
    key, nonce = bytes.fromhex(setup["key"]), bytes.fromhex(vector["nonce"])
    message = handshake.parse_text(vector["text"])
    if not isinstance(message, (handshake.ConsumerOpen, handshake.ProducerOpen)):
        raise AssertionError("not an open")
    expect(keyring.admitted(key, nonce, vector["relay_name"], message), vector["test"] == "open")


def _refusable(setup: Mapping[str, Any], vector: Mapping[str, Any]) -> object:
    key, salt_c, salt_p = _bytes(setup, "key", "salt_c", "salt_p")
    if vector["test"] == "frame_bad":
        opener = crypto.Opener(_keys(setup), wire.Direction(vector["direction"]))
        return opener.open(bytes.fromhex(vector["frame"]))
    if vector["test"] == "head_bad":
        return _accept(setup, bytes.fromhex(vector["frame"]))
    if vector["test"] == "request_bad":
        return crypto.open_request(key, _scope(setup), salt_c, bytes.fromhex(vector["box"]))
    expect(vector["test"], "result_bad")
    return crypto.open_result(key, _scope(setup), (salt_c, salt_p), bytes.fromhex(vector["box"]))


def main() -> int:
    pairs = load(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
    for setup, vector in pairs:
        try:
            check(setup, vector)
        except AssertionError as error:
            sys.stderr.write(f"vector {vector['id']} ({vector['test']} {vector.get('why', '')}): {error}\n")
            return 1
    sys.stdout.write(f"{len(pairs)} vectors hold\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
