"""Turn all-MiniLM-L6-v2 weights into our own small int8 encoder. train.py uses it on the fine-tuned weights.

    python -m routing.judge.convert --safetensors model.safetensors --vocab vocab.txt --out routing/judge/weights

Both inputs are files of sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), known by their SHA-256.
Needs requirements-train.txt. Writes encoder.onnx (first layers, int8 per output column) and vocab.txt.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

SOURCE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
VOCAB_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
LAYERS = 4
POOLED = (2, 3, 4)
HEADS = 12
WIDTH = 384
OPSET = 20  # the first with GELU
IR_VERSION = 9

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


def quantize(matrix: Floats, axis: int) -> tuple[NDArray[np.int8], Floats]:
    """Return signed bytes and one scale per slice along `axis`: symmetric, the largest weight is 127."""
    scale = np.maximum(np.abs(matrix).max(axis=axis), 1e-9) / 127
    return np.rint(matrix / np.expand_dims(scale, axis)).astype(np.int8), scale.astype(np.float32)


class GraphBuilder:
    """Collects nodes and constants of one ONNX graph; every method returns the name of its result."""

    def __init__(self, tensors: dict[str, Floats]) -> None:
        self.tensors = tensors
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind: str, *inputs: str, results: int = 1, **attributes: Any) -> str:
        """Add a node. Of several results, the names are `name`, `name.1`, `name.2`."""
        name = f"n{len(self.nodes)}"
        names = [name, *(f"{name}.{i}" for i in range(1, results))]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return name

    def norm(self, x: str, source: str) -> str:
        gain, bias = (self.constant(self.tensors[f"{source}.{part}"]) for part in ("weight", "bias"))
        return self.node("LayerNormalization", x, gain, bias, epsilon=1e-12, axis=-1)

    def linear(self, x: str, *sources: str) -> str:
        """Multiply by the int8 matrices of `sources`, side by side; `x` is quantised on the way."""
        matrix = np.concatenate([self.tensors[f"{s}.weight"] for s in sources]).T
        weights, scale = quantize(matrix, axis=0)
        bias = np.concatenate([self.tensors[f"{s}.bias"] for s in sources])
        q = self.node("DynamicQuantizeLinear", x, results=3)
        zero = self.constant(np.array(0, np.int8))
        product = self.node("MatMulInteger", q, self.constant(weights), f"{q}.2", zero)
        wide = self.node("Cast", product, to=TensorProto.FLOAT)
        scales = self.node("Mul", f"{q}.1", self.constant(scale))
        return self.node("Add", self.node("Mul", wide, scales), self.constant(bias))

    def embeddings(self) -> str:
        words, scale = quantize(self.tensors["embeddings.word_embeddings.weight"], axis=1)
        # Every piece has segment 0, so its vector is part of the position.
        segment = self.tensors["embeddings.token_type_embeddings.weight"][0]
        positions = self.constant(self.tensors["embeddings.position_embeddings.weight"][:128] + segment)
        rows = self.node("Cast", self.node("Gather", self.constant(words), "ids"), to=TensorProto.FLOAT)
        rows = self.node("Mul", rows, self.node("Gather", self.constant(scale[:, None]), "ids"))
        zero = self.constant(np.array([0], np.int64))
        rows = self.node("Add", rows, self.node("Slice", positions, zero, self.node("Shape", "ids"), zero))
        return self.norm(rows, "embeddings.LayerNorm")

    def layer(self, x: str, number: int) -> str:
        at = f"encoder.layer.{number}"
        depth = WIDTH // HEADS
        qkv = self.linear(x, *(f"{at}.attention.self.{part}" for part in ("query", "key", "value")))
        split = self.node("Reshape", qkv, self.constant(np.array([-1, 3, HEADS, depth])))
        query = self.node("Split", self.node("Transpose", split, perm=[1, 2, 0, 3]), results=3, axis=0, num_outputs=3)
        scores = self.node("MatMul", query, self.node("Transpose", f"{query}.1", perm=[0, 1, 3, 2]))
        scores = self.node("Mul", scores, self.constant(np.array(1 / math.sqrt(depth), np.float32)))
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), f"{query}.2")
        mixed = self.node("Transpose", mixed, perm=[0, 2, 1, 3])
        mixed = self.node("Reshape", mixed, self.constant(np.array([-1, WIDTH])))
        out = self.linear(mixed, f"{at}.attention.output.dense")
        x = self.norm(self.node("Add", x, out), f"{at}.attention.output.LayerNorm")
        wide = self.node("Gelu", self.linear(x, f"{at}.intermediate.dense"), approximate="tanh")
        return self.norm(self.node("Add", x, self.linear(wide, f"{at}.output.dense")), f"{at}.output.LayerNorm")


def build(tensors: dict[str, Floats]) -> Any:
    """Return the ONNX model: ids (n,) to the means of the pooled layers, joined."""
    graph = GraphBuilder(tensors)
    axis = graph.constant(np.array([0], np.int64))
    x = graph.embeddings()
    pooled = []
    for number in range(LAYERS):
        x = graph.layer(x, number)
        if number + 1 in POOLED:
            pooled.append(graph.node("ReduceMean", x, axis, keepdims=0))
    graph.nodes.append(helper.make_node("Concat", pooled, ["pooled"], axis=0))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["pieces"])
    out = helper.make_tensor_value_info("pooled", TensorProto.FLOAT, [WIDTH * len(POOLED)])
    made = helper.make_graph(graph.nodes, "encoder", [ids], [out], graph.constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def checked(path: Path, sha256: str) -> bytes:
    """Return the bytes of `path`; exit when they are not the published ones."""
    raw = path.read_bytes()
    found = hashlib.sha256(raw).hexdigest()
    if found != sha256:
        sys.exit(f"{path} is not the published file: its SHA-256 is {found}, not {sha256}. Nothing was written.")
    return raw


def main() -> None:
    """Check the inputs and write encoder.onnx and vocab.txt."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--safetensors", type=Path, required=True)
    parser.add_argument("--vocab", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "weights")
    args = parser.parse_args()
    model = build(read_safetensors(checked(args.safetensors, SOURCE_SHA256)))
    vocabulary = checked(args.vocab, VOCAB_SHA256)
    onnx.checker.check_model(model)
    args.out.mkdir(parents=True, exist_ok=True)
    onnx.save(model, args.out / "encoder.onnx")
    (args.out / "vocab.txt").write_bytes(vocabulary)


if __name__ == "__main__":
    main()
