"""Fine-tune the upper layers of the encoder to tell the three classes apart. Training only: needs torch.

The lower layers stay as published: 3,500 short rows are too few to move them, and their states are computed once.
Deterministic for one machine: one thread, fixed seeds. The result is the mean of the weights on the way (EMA).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from routing.judge.convert import HEADS, LAYERS, POOLED, WIDTH

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

READ_TOGETHER = 64


@dataclass(frozen=True)
class Recipe:
    """How to fine-tune. `rate` is the top layer's; each layer below learns `decay` times as fast."""

    epochs: int = 3
    batch: int = 32
    rate: float = 2e-4
    head_rate: float = 1e-3
    decay: float = 0.7
    smoothing: float = 0.1
    dropout: float = 0.1
    dropped_pieces: float = 0.1
    keep_mean: float = 0.95
    frozen: int = 2
    seed: int = 7


class Layer(nn.Module):
    """One transformer layer of BERT, named as in the published file."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm_out, self.norm_narrow = (nn.LayerNorm(WIDTH, eps=1e-12) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the states after this layer. `x`: (rows, pieces, width); `mask`: (rows, pieces), True where read."""
        rows, pieces, _ = x.shape
        q, k, v = (part(x).view(rows, pieces, HEADS, -1).transpose(1, 2) for part in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        x = self.norm_out(x + self.dropout(self.out(mixed.transpose(1, 2).reshape(rows, pieces, WIDTH))))
        wide = functional.gelu(self.wide(x), approximate="tanh")
        result: Tensor = self.norm_narrow(x + self.dropout(self.narrow(wide)))
        return result


_PARTS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "out": "attention.output.dense",
    "norm_out": "attention.output.LayerNorm",
    "wide": "intermediate.dense",
    "narrow": "output.dense",
    "norm_narrow": "output.LayerNorm",
}


def layers_of(tensors: dict[str, Floats], dropout: float) -> nn.ModuleList:
    """Return the first `LAYERS` layers with the published weights."""
    made = nn.ModuleList()
    for number in range(LAYERS):
        layer = Layer(dropout)
        layer.load_state_dict(
            {
                f"{mine}.{kind}": torch.tensor(tensors[f"encoder.layer.{number}.{theirs}.{kind}"])
                for mine, theirs in _PARTS.items()
                for kind in ("weight", "bias")
            }
        )
        made.append(layer)
    return made


def embed(tensors: dict[str, Floats], pieces: Sequence[int]) -> Tensor:
    """Return the embeddings of one text: (1, pieces, width)."""
    rows = tensors["embeddings.word_embeddings.weight"][np.asarray(pieces)]
    rows = rows + tensors["embeddings.position_embeddings.weight"][: len(pieces)]
    rows = rows + tensors["embeddings.token_type_embeddings.weight"][0]
    gain, bias = (torch.tensor(tensors[f"embeddings.LayerNorm.{kind}"]) for kind in ("weight", "bias"))
    return functional.layer_norm(torch.tensor(rows)[None], (WIDTH,), gain, bias, eps=1e-12)


@dataclass(frozen=True)
class Lower:
    """What the frozen layers make of each text: its states (pieces, width) and the means of its pooled layers."""

    states: Sequence[Tensor]
    pooled: Tensor


class FineTuner:
    """Holds the frozen layers' reading of `texts`, so that folds can be trained one after the other."""

    def __init__(self, tensors: dict[str, Floats], texts: Sequence[Sequence[int]], recipe: Recipe) -> None:
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        self.tensors, self.recipe = tensors, recipe
        self.lower = self._read_lower(texts)

    @torch.no_grad()
    def _read_lower(self, texts: Sequence[Sequence[int]]) -> Lower:
        layers = layers_of(self.tensors, 0.0).eval()
        order = np.argsort([len(pieces) for pieces in texts], kind="stable")
        found: dict[int, tuple[Tensor, Tensor]] = {}
        for start in range(0, len(order), READ_TOGETHER):
            batch = order[start : start + READ_TOGETHER]
            x = nn.utils.rnn.pad_sequence([embed(self.tensors, texts[i])[0] for i in batch], batch_first=True)
            lengths = torch.tensor([len(texts[i]) for i in batch])
            mask = torch.arange(x.shape[1])[None] < lengths[:, None]
            share = mask[..., None].float() / lengths[:, None, None]
            means = [torch.zeros(len(batch), 0)]
            for number in range(self.recipe.frozen):
                x = layers[number](x, mask)
                if number + 1 in POOLED:
                    means.append((x * share).sum(dim=1))
            pooled = torch.cat(means, dim=1)
            found |= {int(i): (x[at, : lengths[at]].clone(), pooled[at]) for at, i in enumerate(batch)}
        inorder = [found[i] for i in range(len(texts))]
        return Lower([states for states, _ in inorder], torch.stack([means for _, means in inorder]))

    def train(self, rows: Ints, y: Ints) -> dict[str, Floats]:
        """Return the upper layers' tensors, trained on `rows` whose classes are `y` (same length as `rows`)."""
        recipe = self.recipe
        torch.manual_seed(recipe.seed)
        random = np.random.default_rng(recipe.seed)
        upper = layers_of(self.tensors, recipe.dropout)[recipe.frozen :].train()
        head = nn.Linear(WIDTH * len(POOLED), 3)
        groups = [{"params": head.parameters(), "lr": recipe.head_rate}]
        for depth, layer in enumerate(reversed(upper)):
            groups.append({"params": layer.parameters(), "lr": recipe.rate * recipe.decay**depth})
        optimiser = torch.optim.AdamW(groups, weight_decay=0.01)
        steps = recipe.epochs * math.ceil(len(rows) / recipe.batch)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: min((step + 1) / (0.1 * steps), (steps - step) / (0.9 * steps))
        )
        mean = torch.optim.swa_utils.AveragedModel(
            upper, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(recipe.keep_mean)
        )
        for _ in range(recipe.epochs):
            for batch in self._batches(rows, random):
                scores = head(functional.dropout(self._pool(upper, rows[batch], random), 0.1))
                loss = functional.cross_entropy(scores, torch.tensor(y[batch]), label_smoothing=recipe.smoothing)
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(upper.parameters(), 1.0)
                optimiser.step()
                schedule.step()
                mean.update_parameters(upper)
        return _named(mean.module, recipe.frozen)

    @torch.no_grad()
    def states(self, tensors: dict[str, Floats]) -> Floats:
        """Return the pooled states of every text under `tensors`, as the encoder would give them unrounded."""
        upper = layers_of(tensors, 0.0)[self.recipe.frozen :].eval()
        order = np.argsort([len(s) for s in self.lower.states], kind="stable")
        made = np.zeros((len(order), WIDTH * len(POOLED)), dtype=np.float32)
        for start in range(0, len(order), READ_TOGETHER):
            batch = order[start : start + READ_TOGETHER]
            made[batch] = self._pool(upper, batch, None).numpy()
        return made

    def _batches(self, rows: Ints, random: np.random.Generator) -> list[Ints]:
        """Return places in `rows`, texts of like length together, batches in random order."""
        lengths = np.array([len(self.lower.states[i]) for i in rows])
        order = np.argsort(lengths + random.uniform(0, 6, len(rows)), kind="stable")
        batches = [order[i : i + self.recipe.batch] for i in range(0, len(order), self.recipe.batch)]
        random.shuffle(batches)
        return batches

    def _pool(self, upper: nn.ModuleList, batch: Ints, random: np.random.Generator | None) -> Tensor:
        x = nn.utils.rnn.pad_sequence([self.lower.states[i] for i in batch], batch_first=True)
        lengths = torch.tensor([len(self.lower.states[i]) for i in batch])
        mask = torch.arange(x.shape[1])[None] < lengths[:, None]
        if random is not None:
            dropped = torch.tensor(random.random(tuple(mask.shape)) < self.recipe.dropped_pieces)
            dropped[:, 0] = False
            mask = mask & ~dropped
        pooled = [self.lower.pooled[torch.tensor(batch)]]
        share = mask[..., None].float() / mask.sum(dim=1)[:, None, None]
        for number, layer in enumerate(upper, start=self.recipe.frozen + 1):
            x = layer(x, mask)
            if number in POOLED:
                pooled.append((x * share).sum(dim=1))
        return torch.cat(pooled, dim=1)


def _named(upper: nn.ModuleList, first: int) -> dict[str, Floats]:
    named = {}
    for number, layer in enumerate(upper, start=first):
        for name, value in layer.state_dict().items():
            mine, kind = name.split(".")
            named[f"encoder.layer.{number}.{_PARTS[mine]}.{kind}"] = value.detach().numpy().copy()
    return named
