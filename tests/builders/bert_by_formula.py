# SPDX-License-Identifier: BSD-3-Clause
"""BERT by the formulas of its paper, step by step, beside the example's model: prints the largest difference.

Runs with PyTorch's Python: bert_by_formula.py EXAMPLE WEIGHTS. Prints also how a sentence is cut into pieces.
"""

import json
import math
import struct
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import torch
from pretrained import load_pretrained

TEXT = "Shocking Cafés, the\tNEWS!世"


def read(path: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a safetensors file, value by value."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, about in header.items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in about["data_offsets"])
            values = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
            tensors[name.removeprefix("bert.")] = torch.tensor(values).reshape(about["shape"])
    return tensors


def linear(weights: dict[str, torch.Tensor], name: str, value: torch.Tensor) -> torch.Tensor:
    return value @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def norm(weights: dict[str, torch.Tensor], name: str, value: torch.Tensor) -> torch.Tensor:
    middle = value - value.mean(-1, keepdim=True)
    spread = (middle.pow(2).mean(-1, keepdim=True) + 1e-12).sqrt()
    return middle / spread * weights[f"{name}.gamma"] + weights[f"{name}.beta"]


def attend(weights: dict[str, torch.Tensor], place: str, state: torch.Tensor, heads: int) -> torch.Tensor:
    """One text without padding: every head looks at every word."""
    parts = [linear(weights, f"{place}.attention.self.{name}", state) for name in ("query", "key", "value")]
    query, key, value = (part.reshape(len(state), heads, -1).transpose(0, 1) for part in parts)
    shares = (query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])).softmax(-1)
    return (shares @ value).transpose(0, 1).reshape(state.shape)


def pool(weights: dict[str, torch.Tensor], config: dict[str, int], words: torch.Tensor) -> torch.Tensor:
    """What BERT says of one text."""
    tables = [weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")]
    state = norm(weights, "embeddings.LayerNorm", tables[0][words] + tables[1][: len(words)] + tables[2][0])
    for number in range(config["num_hidden_layers"]):
        place = f"encoder.layer.{number}"
        seen = linear(weights, f"{place}.attention.output.dense", attend(weights, place, state, 2))
        state = norm(weights, f"{place}.attention.output.LayerNorm", state + seen)
        inner = linear(weights, f"{place}.intermediate.dense", state)
        inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
        state = norm(weights, f"{place}.output.LayerNorm", state + linear(weights, f"{place}.output.dense", inner))
    return linear(weights, "pooler.dense", state[0]).tanh()


def main() -> None:
    """Compare."""
    folder = Path(sys.argv[2])
    tokenizer, model = load_pretrained(str(folder), 32)
    model.eval()
    words = tokenizer.encode([TEXT], 32)
    known = json.loads((folder / "config.json").read_text())
    expected = pool(read(folder / "model.safetensors"), known, words[0][words[0] != 0])
    pooled = []
    model.pooler.register_forward_hook(lambda _module, _inputs, output: pooled.append(output.tanh()))
    with torch.no_grad():
        model(words)
    names = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    sys.stdout.write(" ".join(names[number] for number in words[0].tolist() if number) + "\n")
    sys.stdout.write(f"{(pooled[0][0] - expected).abs().max().item():.9f} of {expected.abs().max().item():.3f}" + "\n")


main()
