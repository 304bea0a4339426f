"""The platform's side of the cipher on one channel: HEAD gives the keys, frames are opened, CTRL frames sealed. Pure."""

from __future__ import annotations

from hpc_worker import crypto, wire
from hpc_worker.bodies import Record
from hpc_worker.crypto import Opened, Opener, Scope, Sealer, StreamKeys
from hpc_worker.keyring import Keyring
from hpc_worker.transcript import open_transcript, split_transcript
from hpc_worker.wire import Direction, FrameType, Kind


class Unsealer:
    """Open what the producer of one channel sends. `fault` keeps why a frame was refused, for words.

    `first_seq` is above every CTRL sequence that anybody sealed with this channel's salts before.
    """

    def __init__(self, ring: Keyring, scope: Scope, salt_c: bytes, first_seq: int = 1) -> None:
        self._ring, self._scope, self._salt_c = ring, scope, salt_c
        self.next_control = first_seq
        self._opener: Opener | None = None
        self._sealer: Sealer | None = None
        self._keys: StreamKeys | None = None
        self._opened = 0
        self.fault = ""

    @property
    def kid(self) -> str:
        """The content key that the producer uses; empty before its HEAD."""
        return self._keys.scope.kid if self._keys else ""

    @property
    def is_ready(self) -> bool:
        """Whether HEAD came, so that CTRL frames can be sealed."""
        return self._sealer is not None

    def open(self, frame: bytes) -> Opened | None:
        """Return what a frame holds, None for HEAD. Raises `ValueError` for a frame that is not genuine."""
        try:
            head = wire.parse_frame(frame) if frame[:1] == bytes((FrameType.HEAD,)) else None
            if isinstance(head, wire.Head):
                self._accept(head)
                return None
            if self._opener is None:
                raise crypto.CryptoError("not_sealed")
            opened = self._opener.open(frame)
        except crypto.CryptoError as error:
            self.fault = error.reason
            raise
        self._opened += 1
        return opened

    def open_rest(self, transcript: bytes) -> list[Record]:
        """Return the frames' contents of a transcript. Raises `ValueError` when it is not genuine, or another producer's."""
        head, _ = split_transcript(transcript)
        self.open(head)
        try:
            return open_transcript(self._ring, self._scope, self._salt_c, transcript)
        except crypto.CryptoError as error:
            self.fault = error.reason
            raise

    def seal(self, kind: Kind, body: bytes) -> bytes:
        """Return the next CTRL frame. Call it only when `is_ready`; raises `CryptoError`."""
        if self._sealer is None:
            raise crypto.CryptoError("not_sealed")
        frame = self._sealer.seal(FrameType.CTRL, kind, body)
        self.next_control = self._sealer.next_seq
        return frame

    def _accept(self, head: wire.Head) -> None:
        keys = crypto.accept_head(self._ring, self._scope, self._salt_c, head)
        if self._keys is not None and keys.commit == self._keys.commit:
            return
        if self._opened:  # a second producer may not go on where the first one was
            raise crypto.CryptoError("sequence")
        self._keys = keys
        self._opener = Opener(keys, Direction.P2C)
        self._sealer = Sealer(keys, Direction.C2P, self.next_control)
