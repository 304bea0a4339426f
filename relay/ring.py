"""A bounded buffer of frames that stand at consecutive positions. Pure."""

from __future__ import annotations

from hpc_worker import wire


class Ring:
    """Frames at positions `base`..`top`; on the producer's way a position is the frame's sequence.

    Never drops: `full` says to stop reading before the next frame could overflow it.
    """

    __slots__ = ("_enough_bytes", "_frames", "_max_frames", "bytes", "full", "top")

    def __init__(self, max_bytes: int, max_frames: int, top: int = 0) -> None:
        self._max_frames = max_frames
        self._enough_bytes = max_bytes - wire.MAX_FRAME_BYTES
        self.top = top
        self.bytes = 0
        self.full = False  # a frame of the largest size might not fit
        self._frames: list[bytes] = []

    @property
    def base(self) -> int:
        """Position of the oldest frame held; `top + 1` when empty."""
        return self.top + 1 - len(self._frames)

    def append(self, frame: bytes) -> None:
        """Add `frame` at `top + 1`."""
        frames = self._frames
        frames.append(frame)
        self.bytes += len(frame)
        self.top += 1
        if self.bytes > self._enough_bytes or len(frames) >= self._max_frames:
            self.full = True

    def after(self, position: int, most: int) -> list[bytes]:
        """Return at most `most` frames that follow `position`, oldest first."""
        if position >= self.top:
            return []
        start = position - self.top + len(self._frames)
        if start < 0:
            start = 0
        return self._frames[start : start + most]

    def trim(self, position: int) -> int:
        """Forget everything up to `position`. Returns the bytes freed."""
        count = position - self.base + 1
        if count <= 0:
            return 0
        gone = self._frames[:count]
        del self._frames[:count]
        freed = sum(map(len, gone))
        self.bytes -= freed
        self.full = self.bytes > self._enough_bytes or len(self._frames) >= self._max_frames
        return freed

    def reset(self, top: int) -> int:
        """Forget everything and go on after `top`. Returns the bytes freed."""
        freed, self.bytes, self.top = self.bytes, 0, top
        self._frames.clear()
        self.full = False
        return freed

    def __len__(self) -> int:
        return len(self._frames)
