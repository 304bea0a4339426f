"""Turn the published all-MiniLM-L6-v2 weights into our own small int8 file. Run once, when the encoder changes.

    python -m routing.judge.convert --safetensors model.safetensors --vocab vocab.txt --out routing/judge/weights

The input is `model.safetensors` of sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), known by its SHA-256.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SOURCE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
VOCAB_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"

Floats = NDArray[np.float32]


def read_safetensors(raw: bytes) -> dict[str, Floats]:
    """Return the float32 tensors in `raw` (format: github.com/huggingface/safetensors#format)."""
    (header_bytes,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + header_bytes])
    body = memoryview(raw)[8 + header_bytes :]
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(body[begin:end], dtype="<f4").reshape(entry["shape"])
    return tensors


def quantize(matrix: Floats, axis: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Return signed bytes and scales along `axis`: symmetric, the largest weight is 127."""
    scale = (np.abs(matrix).max(axis=axis, keepdims=True) / 127).astype(np.float16)
    scale = np.maximum(scale, np.float16(1e-6))
    return np.clip(np.rint(matrix / scale.astype(np.float32)), -127, 127).astype(np.int8), scale


def convert(tensors: dict[str, Floats], layers: int) -> dict[str, NDArray[Any]]:
    """Return the arrays `Encoder` reads, for the first `layers` layers."""
    arrays: dict[str, NDArray[Any]] = {}
    words, scale = quantize(tensors["embeddings.word_embeddings.weight"], axis=1)
    arrays["words.q"], arrays["words.s"] = words, scale[:, 0]
    # Every piece has segment 0, so its vector is part of the position.
    segment = tensors["embeddings.token_type_embeddings.weight"][0]
    arrays["positions"] = (tensors["embeddings.position_embeddings.weight"] + segment).astype(np.float16)
    arrays["embedding_norm"] = _norm(tensors, "embeddings.LayerNorm")
    for i in range(layers):
        at = f"encoder.layer.{i}"
        parts = [f"{at}.attention.self.{part}" for part in ("query", "key", "value")]
        for name, sources in (
            ("qkv", parts),
            ("out", [f"{at}.attention.output.dense"]),
            ("up", [f"{at}.intermediate.dense"]),
            ("down", [f"{at}.output.dense"]),
        ):
            matrix = np.concatenate([tensors[f"{s}.weight"] for s in sources]).T
            arrays[f"{i}.{name}.q"], arrays[f"{i}.{name}.s"] = quantize(matrix, axis=0)
            arrays[f"{i}.{name}.b"] = np.concatenate([tensors[f"{s}.bias"] for s in sources]).astype(np.float16)
        arrays[f"{i}.norm1"] = _norm(tensors, f"{at}.attention.output.LayerNorm")
        arrays[f"{i}.norm2"] = _norm(tensors, f"{at}.output.LayerNorm")
    return arrays


def _norm(tensors: dict[str, Floats], name: str) -> NDArray[np.float16]:
    return np.stack([tensors[f"{name}.weight"], tensors[f"{name}.bias"]]).astype(np.float16)


def _checked(path: Path, sha256: str) -> bytes:
    raw = path.read_bytes()
    found = hashlib.sha256(raw).hexdigest()
    if found != sha256:
        sys.exit(f"{path} is not the published file: its SHA-256 is {found}, not {sha256}. Nothing was written.")
    return raw


def main() -> None:
    """Check the inputs and write encoder.npz and vocab.txt."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--safetensors", type=Path, required=True)
    parser.add_argument("--vocab", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "weights")
    args = parser.parse_args()
    arrays = convert(read_safetensors(_checked(args.safetensors, SOURCE_SHA256)), args.layers)
    vocabulary = _checked(args.vocab, VOCAB_SHA256)
    args.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(args.out / "encoder.npz", **arrays)  # type: ignore[arg-type]
    (args.out / "vocab.txt").write_bytes(vocabulary)


if __name__ == "__main__":
    main()
