"""Write tests/vectors/channel-v1.json: what suite 1 makes of fixed inputs and what it must refuse.

Nothing of `hpc_worker` is imported. The key schedule, framing and padding are written here a second time from the
specification, with `hmac` and `hashlib` only; the cipher is the one part shared. The output depends on SEED alone.

    python tools/make_vectors.py            write the file
    python tools/make_vectors.py --check    exit 1 if the file differs
"""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SEED = 20260301
TARGET = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "channel-v1.json"
RNG = random.Random(SEED)
P2C, C2P = 0, 1
HEAD, DATA, FIN, ALIVE, CTRL = 0x01, 0x02, 0x03, 0x04, 0x11
TEXT, K_FIN, K_ALIVE, REASONING, TOOL, OFFER, CANCEL = 1, 2, 3, 4, 5, 16, 17
WORDS = ["Hi", "", "ü", "数", "🙂", "the ", "a" * 29, "a" * 30, "Zürich ", "\x00", "x" * 512, "line\nline"]


def hkdf(key: bytes, salt: bytes, info: bytes, size: int) -> bytes:
    """RFC 5869 with SHA-256."""
    prk = hmac.new(salt, key, hashlib.sha256).digest()
    out, block, counter = b"", b"", 1
    while len(out) < size:
        block = hmac.new(prk, block + info + bytes([counter]), hashlib.sha256).digest()
        out += block
        counter += 1
    return out[:size]


@dataclass(frozen=True)
class Setup:
    """One stream's inputs."""

    key: bytes
    kid: str
    cid: bytes
    attempt: int
    salt_c: bytes
    salt_p: bytes

    def context(self, label: str) -> bytes:
        head = label.encode() + b"\x00\x01" + bytes([len(self.kid)]) + self.kid.encode()
        return head + self.cid + self.attempt.to_bytes(2, "big")

    def stream(self) -> dict[str, bytes]:
        out = hkdf(self.key, self.salt_c + self.salt_p, self.context("channel/v1 keys"), 120)
        return {
            "k_p2c": out[0:32],
            "iv_p2c": out[32:44],
            "k_c2p": out[44:76],
            "iv_c2p": out[76:88],
            "commit": out[88:120],
        }

    def head(self) -> bytes:
        kid = self.kid.encode()
        start = b"\x01\0\0\0\0\x01" + bytes([len(kid)]) + kid
        return start + self.attempt.to_bytes(2, "big") + self.salt_p + self.stream()["commit"]

    def as_json(self) -> dict[str, Any]:
        return {
            "key": self.key.hex(),
            "kid": self.kid,
            "cid": self.cid.hex(),
            "attempt": self.attempt,
            "salt_c": self.salt_c.hex(),
            "salt_p": self.salt_p.hex(),
        }


def pad(kind: int, body: bytes) -> bytes:
    plain = bytes([kind]) + len(body).to_bytes(2, "big") + body
    return plain + b"\0" * (-len(plain) % 32)


def frame(setup: Setup, direction: int, frame_type: int, seq: int, plain: bytes) -> bytes:
    """Seal a ready plaintext, right or wrong, as one frame."""
    keys = setup.stream()
    name = "p2c" if direction == P2C else "c2p"
    header = bytes([frame_type]) + seq.to_bytes(4, "big")
    nonce = (int.from_bytes(keys["iv_" + name], "big") ^ seq).to_bytes(12, "big")
    aad = b"channel/v1 aad\0" + setup.cid + setup.attempt.to_bytes(2, "big") + bytes([direction]) + header
    return header + AESGCM(keys["k_" + name]).encrypt(nonce, plain, aad)


def bulk(setup: Setup, label: str, salt: bytes, plain: bytes) -> bytes:
    out = hkdf(setup.key, salt, setup.context(label), 44)
    return AESGCM(out[:32]).encrypt(out[32:], plain, setup.context(label))


def bulk_pad(body: bytes) -> bytes:
    plain = len(body).to_bytes(4, "big") + body
    return plain + b"\0" * (-len(plain) % 256)


def flip(data: bytes, bit: int) -> bytes:
    out = bytearray(data)
    out[bit // 8] ^= 1 << (bit % 8)
    return bytes(out)


def random_setup() -> Setup:
    kid = "".join(RNG.choice("abcdefghijklmnopqrstuvwxyz0123456789-") for _ in range(RNG.randint(1, 16)))
    return Setup(
        RNG.randbytes(32), kid, RNG.randbytes(16), RNG.choice([1, 2, 7, 65535]), RNG.randbytes(32), RNG.randbytes(32)
    )


PUBLISHED = Setup(bytes(range(32)), "k1", bytes(range(16, 32)), 1, b"\xaa" * 32, b"\xbb" * 32)


class Book:
    """Collect vectors. Setups are written once and named by their place."""

    def __init__(self) -> None:
        self.setups: list[Setup] = []
        self.vectors: list[dict[str, Any]] = []

    def add(self, test: str, setup: Setup, why: str = "", **fields: Any) -> None:
        if setup not in self.setups:
            self.setups.append(setup)
        values = {k: v.hex() if isinstance(v, bytes) else v for k, v in fields.items()}
        entry = {"id": len(self.vectors) + 1, "test": test, "setup": self.setups.index(setup), **values}
        self.vectors.append({**entry, "why": why} if why else entry)

    def dump(self) -> str:
        out = {
            "protocol": "channel/v1",
            "suite": 1,
            "seed": SEED,
            "setups": [s.as_json() for s in self.setups],
            "vectors": self.vectors,
        }
        return json.dumps(out, indent=1, ensure_ascii=True) + "\n"


def good(book: Book) -> None:
    """Add what must open and derive exactly so."""
    setups = [PUBLISHED] + [random_setup() for _ in range(15)]
    for setup in setups:
        book.add("derive", setup, **setup.stream())
        book.add("head", setup, frame=setup.head())
    published = [(DATA, 1, TEXT, b"Hi"), (FIN, 2, K_FIN, b'{"finish":"stop"}')]
    for frame_type, seq, kind, body in published:
        add_frame(book, PUBLISHED, P2C, (frame_type, seq, kind, body))
    for _ in range(72):
        setup = RNG.choice(setups)
        body = (RNG.choice(WORDS) * RNG.choice([1, 1, 1, 3])).encode()
        seq = RNG.choice([1, 2, 255, 256, 65536, 2**31, 2**32 - 2, RNG.randint(1, 10**6)])
        frame_type, kind, direction = RNG.choice(
            [(DATA, TEXT, P2C)] * 4
            + [(DATA, REASONING, P2C), (DATA, TOOL, P2C), (ALIVE, K_ALIVE, P2C), (FIN, K_FIN, P2C)]
            + [(CTRL, CANCEL, C2P), (CTRL, OFFER, C2P)]
        )
        add_frame(book, setup, direction, (frame_type, seq, kind, body))
    add_frame(book, setups[1], P2C, (DATA, 9, TEXT, b"m" * 16349))
    for setup in setups[:8]:
        body = RNG.randbytes(RNG.choice([0, 1, 251, 252, 253, 4000]))
        box = bulk(setup, "channel/v1 req", setup.salt_c, bulk_pad(body))
        book.add("request", setup, box=box, body=body)
        box = bulk(setup, "channel/v1 res", setup.salt_c + setup.salt_p, bulk_pad(body))
        book.add("result", setup, box=box, body=body)


def add_frame(book: Book, setup: Setup, direction: int, what: tuple[int, int, int, bytes]) -> None:
    frame_type, seq, kind, body = what
    data = frame(setup, direction, frame_type, seq, pad(kind, body))
    book.add("frame", setup, direction=direction, type=frame_type, seq=seq, kind=kind, body=body, frame=data)


def bad_frames(book: Book) -> None:
    """Add frames that must be refused, each with the reason."""
    setups = [random_setup() for _ in range(6)]
    for setup in setups:
        good_frame = frame(setup, P2C, DATA, 5, pad(TEXT, b"the answer is 42"))

        def refuse(reason: str, data: bytes, why: str, setup: Setup = setup, direction: int = P2C) -> None:
            book.add("frame_bad", setup, why, direction=direction, frame=data, reason=reason)

        for place in ("sequence", "ciphertext", "tag"):
            low, high = {"sequence": (8, 40), "ciphertext": (40, 296), "tag": (296, 424)}[place]
            for _ in range(3):
                bit = RNG.randrange(low, high)
                refuse("forged", flip(good_frame, bit), f"bit {bit} flipped in the {place}")
        refuse("forged", bytes([FIN]) + good_frame[1:], "DATA shown as FIN")
        refuse("forged", good_frame[:1] + (6).to_bytes(4, "big") + good_frame[5:], "moved to the next sequence")
        refuse("forged", good_frame, "opened in the other direction", direction=C2P)
        refuse("forged", frame(setup, C2P, DATA, 5, pad(TEXT, b"x")), "sealed for the other direction")
        plain = bytearray(pad(TEXT, b"Hi"))
        plain[RNG.randrange(5, 32)] = RNG.randint(1, 255)
        refuse("padding", frame(setup, P2C, DATA, 5, bytes(plain)), "padding is not zero")
        refuse("padding", frame(setup, P2C, DATA, 5, pad(TEXT, b"Hi") + bytes(32)), "a block of padding too much")
        refuse(
            "padding", frame(setup, P2C, DATA, 5, b"\x01\x00\x20" + bytes(29)), "length reaches beyond the plaintext"
        )
        refuse("frame_shape", good_frame[:-1], "one byte short")
        refuse("forged", good_frame[:5] + good_frame[37:] + bytes(32), "first block cut away")
        refuse("frame_shape", good_frame[: RNG.randint(1, 52)], "truncated")
        refuse("frame_shape", frame(setup, P2C, DATA, 5, b"\x01\x00\x02Hi"), "not padded")
        refuse("frame_shape", b"\x02\0\0\0\x05Hi", "plaintext in a frame")
        refuse("forged", b"\x02\0\0\0\x05" + pad(TEXT, b"Hi") + bytes(16), "plaintext with an empty tag")
        refuse("forged", b"\x03\0\0\0\x06" + pad(K_FIN, b'{"finish":"stop"}') + RNG.randbytes(16), "forged FIN")
        refuse("kind", frame(setup, P2C, DATA, 5, pad(K_FIN, b"{}")), "FIN's kind in DATA")
        refuse("kind", frame(setup, P2C, FIN, 5, pad(TEXT, b"Hi")), "text in FIN")
        refuse("kind", frame(setup, P2C, DATA, 5, pad(99, b"Hi")), "unknown kind")
        refuse("frame_type", frame(setup, P2C, 0x05, 5, pad(TEXT, b"Hi")), "unknown type")
        refuse("frame_seq", frame(setup, P2C, DATA, 0, pad(TEXT, b"Hi")), "sequence 0")
        refuse("frame_seq", frame(setup, P2C, DATA, 2**32 - 1, pad(TEXT, b"Hi")), "sequence 2^32-1")
        refuse("not_sealed", setup.head(), "HEAD where a sealed frame belongs")
        for name, other in others(setup):
            refuse("forged", frame(other, P2C, DATA, 5, pad(TEXT, b"Hi")), f"sealed for another {name}")
    setup = setups[0]
    for size in (0, 4, 16385, 16384 + 32):
        reason = "frame_size" if size > 16384 else "frame_shape"
        data = (b"\x02\0\0\0\x05" + bytes(size))[:size]
        book.add("frame_bad", setup, f"{size} bytes", direction=P2C, frame=data, reason=reason)


def others(setup: Setup) -> list[tuple[str, Setup]]:
    return [
        ("channel", replace(setup, cid=flip(setup.cid, 3))),
        ("attempt", replace(setup, attempt=setup.attempt ^ 8)),
        ("kid", replace(setup, kid="z9" + setup.kid[:13])),
        ("master key", replace(setup, key=flip(setup.key, 17))),
        ("salt_c", replace(setup, salt_c=flip(setup.salt_c, 0))),
        ("salt_p", replace(setup, salt_p=flip(setup.salt_p, 255))),
    ]


def bad_heads_and_boxes(book: Book) -> None:
    """Add HEADs, requests and results that must be refused."""
    for setup in [random_setup() for _ in range(4)]:
        head = setup.head()
        book.add("head_bad", setup, "commitment flipped", frame=flip(head, len(head) * 8 - 9), reason="wrong_key")
        book.add("head_bad", setup, "suite 2", frame=head[:5] + b"\x02" + head[6:], reason="suite")
        book.add("head_bad", setup, "one byte short", frame=head[:-1], reason="frame_shape")
        book.add("head_bad", setup, "numbered", frame=head[:4] + b"\x01" + head[5:], reason="frame_seq")
        book.add("head_bad", setup, "upper-case kid", frame=head[:7] + b"K" + head[8:], reason="kid")
        expected = {"attempt": "wrong_attempt", "kid": "unknown_kid", "salt_p": "wrong_key"}
        for name, other in others(setup):
            data = other.head()
            if name == "salt_p":
                data = data[:-32] + head[-32:]
            book.add("head_bad", setup, f"of another {name}", frame=data, reason=expected.get(name, "wrong_key"))
        body = b'{"messages":[]}'
        salts = {"req": setup.salt_c, "res": setup.salt_c + setup.salt_p}
        for label, test in (("req", "request_bad"), ("res", "result_bad")):
            box = bulk(setup, f"channel/v1 {label}", salts[label], bulk_pad(body))
            swapped = bulk(setup, f"channel/v1 {'res' if label == 'req' else 'req'}", salts[label], bulk_pad(body))
            dirty = bulk(setup, f"channel/v1 {label}", salts[label], bulk_pad(body)[:-1] + b"\x01")
            book.add(test, setup, "a bit flipped", box=flip(box, RNG.randrange(len(box) * 8)), reason="forged")
            book.add(test, setup, "truncated", box=box[:-5], reason="forged")
            book.add(test, setup, "empty", box=b"", reason="forged")
            book.add(test, setup, "under the other label", box=swapped, reason="forged")
            book.add(test, setup, "padding is not zero", box=dirty, reason="padding")


def admissions(book: Book) -> None:
    """Add admission macs, right and wrong."""
    for number in range(10):
        setup = random_setup()
        nonce, name = RNG.randbytes(32), RNG.choice(["relay.example.edu", "127.0.0.1:9001"])
        message: dict[str, Any] = {"t": "open", "v": 1, "kid": setup.kid, "cid": setup.cid.hex()}
        if number % 2:
            message |= {"role": "producer", "attempt": setup.attempt, "instance": setup.salt_p[:16].hex()}
        else:
            message |= {"role": "consumer", "last": RNG.randint(0, 9999), "fin": number == 4}
        body = json.dumps(message, sort_keys=True, separators=(",", ":")).encode()
        data = b"channel/v1 auth\0" + nonce + name.encode() + b"\0" + body
        mac = hmac.new(setup.key, data, hashlib.sha256).digest()
        text = json.dumps({**message, "mac": mac.hex()})
        book.add("open", setup, nonce=nonce, relay_name=name, text=text)
        wrong = {"nonce": flip(nonce, 0), "relay_name": name + "x"}
        for field, value in wrong.items():
            values = {"nonce": nonce, "relay_name": name, field: value}
            book.add("open_bad", setup, f"another {field}", text=text, **values)
        kid = {**message, "kid": "other", "mac": mac.hex()}
        book.add("open_bad", setup, "another kid", nonce=nonce, relay_name=name, text=json.dumps(kid))


def make() -> str:
    """Return the file's text."""
    book = Book()
    good(book)
    bad_frames(book)
    bad_heads_and_boxes(book)
    admissions(book)
    return book.dump()


def main() -> int:
    text = make()
    if "--check" in sys.argv[1:]:
        return 0 if TARGET.read_text(encoding="ascii") == text else 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text, encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
