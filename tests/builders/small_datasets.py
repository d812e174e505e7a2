# SPDX-License-Identifier: BSD-3-Clause
"""Small sets of data in the formats of the large ones: ImageNet's pictures and archives, MNIST's files, BERT's weights.

Each can be learned: pictures by their colour, digits by the place of a bar.
"""

from __future__ import annotations

import array
import csv
import gzip
import io
import json
import math
import random
import struct
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

CLASSES = ("n01440764", "n01443537", "n02102040")
PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "news", "the", "##s", "shock", "##ing", "report", ",", "!", "cafe", "世")
_PAINT = """
import random, sys
from pathlib import Path
from PIL import Image
root, rng = Path(sys.argv[1]), random.Random(1)
for part, count in (("train", 16), ("val", 5)):
    for number, name in enumerate(sys.argv[2:]):
        folder = root / part / name
        folder.mkdir(parents=True)
        for each in range(count):
            colour = [20, 20, 20]
            colour[number] = 230
            picture = Image.new("RGB", (40 + each, 48), tuple(value + rng.randint(-15, 15) for value in colour))
            kinds = {0: "CMYK", 1: "L"} if part == "train" and number == 0 else {}  # printed colours; grey
            picture.convert(kinds.get(each, "RGB")).save(folder / f"{name}_{each}.JPEG", "JPEG")
"""


def write_pictures(python: Path, folder: Path) -> Path:
    """train/ and val/ with JPEGs in a directory per class; `python` has Pillow."""
    subprocess.run([python, "-c", _PAINT, folder, *CLASSES], check=True, timeout=120)
    return folder


def write_archives(pictures: Path, folder: Path) -> None:
    """The same as ImageNet is published: a tar of a tar per class, a tar of all pictures to judge by, their classes."""
    with tarfile.open(folder / "ILSVRC2012_img_train.tar", "w") as outer:
        for name in CLASSES:
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as archive:
                for path in sorted((pictures / "train" / name).iterdir()):
                    archive.add(path, path.name)
            about = tarfile.TarInfo(f"{name}.tar")
            about.size = len(inner.getvalue())
            outer.addfile(about, io.BytesIO(inner.getvalue()))
    files = sorted((pictures / "val").glob("*/*"))
    random.Random(2).shuffle(files)
    names = {f"ILSVRC2012_val_{number:08}": path for number, path in enumerate(files, start=1)}
    with tarfile.open(folder / "ILSVRC2012_img_val.tar", "w") as archive:
        for name, path in names.items():
            archive.add(path, f"{name}.JPEG")
    rows = [f"{name},{path.parent.name} 1 2 30 40 " for name, path in names.items()]
    (folder / "LOC_val_solution.csv").write_text("\n".join(["ImageId,PredictionString", *rows, ""]))


def write_mnist(folder: Path, *, train: int, test: int) -> Path:
    """MNIST's four files, those to train on packed by gzip: the number is the place of a bar."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(3)
    for part, count in (("train", train), ("t10k", test)):
        labels = bytes(number % 10 for number in range(count))
        pictures = b"".join(_draw_bar(label, rng) for label in labels)
        for kind, dimensions, values in (("images", (count, 28, 28), pictures), ("labels", (count,), labels)):
            head = struct.pack(f">4B{len(dimensions)}I", 0, 0, 8, len(dimensions), *dimensions)
            name, data = f"{part}-{kind}-idx{len(dimensions)}-ubyte", head + values
            packed = gzip.compress(data) if part == "train" else data
            (folder / (f"{name}.gz" if part == "train" else name)).write_bytes(packed)
    return folder


def _draw_bar(label: int, rng: random.Random) -> bytes:
    first = 2 + 2 * label
    rows = [[255 if first <= row < first + 4 else 0 for _ in range(28)] for row in range(28)]
    return bytes(max(0, min(255, value + rng.randint(-60, 60))) for row in rows for value in row)


def write_news(folder: Path, *, train: int, valid: int, test: int) -> Path:
    """CSV files with the tutorial's columns: quotes, line breaks, other alphabets, and a text of 200,000 characters."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("valid", valid), ("test", test)):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("label", "title", "text", "titletext"))
            for number in range(count):
                label = number % 2
                title = 'Shocking, "the" news!' if label else "The report, café 世\n"
                text = title * (200_000 // len(title)) if number == 0 else title
                writer.writerow((label, title, text, f"{title} {text}"))
    return folder


def write_bert(
    folder: Path, pieces: Sequence[str] = PIECES, *, width: int = 32, layers: int = 2, length: int = 64
) -> Path:
    """A BERT as it is published: config.json, vocab.txt, and weights with the names of bert-base-uncased."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": max(2, width // 64)}
    more = {"intermediate_size": 4 * width, "hidden_act": "gelu", "model_type": "bert", "layer_norm_eps": 1e-12}
    rows = {"word": len(pieces), "position": length, "token_type": 2}
    counts = {"vocab_size": len(pieces), "max_position_embeddings": length, "type_vocab_size": 2}
    (folder / "config.json").write_text(json.dumps({**sizes, **more, **counts}))
    (folder / "vocab.txt").write_text("\n".join([*pieces, ""]), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    shapes = {f"embeddings.{name}_embeddings.weight": (count, width) for name, count in rows.items()}
    linear = {"pooler.dense": (width, width)}
    norms = ["embeddings.LayerNorm"]
    for number in range(layers):
        place = f"encoder.layer.{number}"
        linear.update({f"{place}.attention.self.{name}": (width, width) for name in ("query", "key", "value")})
        linear[f"{place}.attention.output.dense"] = (width, width)
        linear[f"{place}.intermediate.dense"] = (4 * width, width)
        linear[f"{place}.output.dense"] = (width, 4 * width)
        norms += [f"{place}.attention.output.LayerNorm", f"{place}.output.LayerNorm"]
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    shapes |= {f"{name}.{end}": (width,) for name in norms for end in ("gamma", "beta")}
    named = {f"bert.{name}": shape for name, shape in shapes.items()}
    _write_safetensors(folder / "model.safetensors", named, 1.7 / math.sqrt(width))
    return folder


def _write_safetensors(path: Path, shapes: dict[str, tuple[int, ...]], spread: float) -> None:
    """Random values, of which the same stretch comes again and again: a length, a header, the values."""
    rng, header, start = random.Random(5), {}, 0
    stretch = [rng.gauss(0, spread) for _ in range(65521)]
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, start + size]}
        start += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for number, (name, shape) in enumerate(shapes.items()):
            moved = stretch[37 * number :] + stretch[: 37 * number]  # no two tensors begin alike
            middle = 1.0 if name.endswith("gamma") else 0.0
            values = array.array("f", (middle + value for value in moved))
            times = -(-math.prod(shape) // len(values))
            file.write((values * times)[: math.prod(shape)].tobytes())
