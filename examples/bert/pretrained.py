# SPDX-License-Identifier: BSD-3-Clause
"""BERT's published weights and word pieces, read with PyTorch alone: a directory, or a name that is downloaded.

The directory is what Hugging Face calls a model: config.json, vocab.txt, model.safetensors or pytorch_model.bin.
"""

import json
import os
import pathlib
import shutil
import struct
import unicodedata
import urllib.request

import torch
from bert_model import PAD, BertClassifier

FILES = ("config.json", "vocab.txt", "tokenizer_config.json", "model.safetensors")
_KINDS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}
_LONGEST_WORD = 100  # characters; a longer one is unknown
# published name -> ours, below bert.encoder.layer.N and encoder.layers.N; query, key and value become one
_LAYER = {
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "linear1",
    "output.dense": "linear2",
    "output.LayerNorm": "norm2",
}


def load_pretrained(name, length):
    """Tokenizer and model for texts of `length` tokens."""
    folder = pathlib.Path(name)
    if not folder.is_dir():
        folder = _download(name)
    config = _read_json(folder / "config.json")
    width, layers, heads = (config.get(key) for key in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
    if config.get("model_type", "bert") != "bert" or not (width and layers and heads):
        _stop(f"{folder} is not a BERT model: {config.get('model_type', 'config.json says no sizes')}")
    if (config.get("intermediate_size"), config.get("hidden_act")) != (4 * width, "gelu"):
        _stop(f"{folder}: only models with inner layers of four times the width and GELU can be read")
    if length > config["max_position_embeddings"]:
        _stop(f"--length {length} is more than the {config['max_position_embeddings']} tokens of {name}")
    settings = folder / "tokenizer_config.json"
    is_lower = _read_json(settings).get("do_lower_case", True) if settings.exists() else True
    tokenizer = WordPieces(folder / "vocab.txt", is_lower=is_lower)
    model = BertClassifier(config["vocab_size"], config["max_position_embeddings"], (layers, width, heads))
    _fill(model, _read_weights(folder), layers)
    return tokenizer, model


class WordPieces:
    """BERT's tokenizer: words and signs, each cut into the longest pieces that the vocabulary has."""

    def __init__(self, path, *, is_lower):
        try:
            pieces = path.read_text(encoding="utf-8").split("\n")
        except OSError as problem:
            _stop(f"cannot read {path}: {problem.strerror}")
        self.numbers = {piece.rstrip("\r"): number for number, piece in enumerate(pieces) if piece}
        self.is_lower = is_lower
        missing = [sign for sign in ("[PAD]", "[UNK]", "[CLS]", "[SEP]") if sign not in self.numbers]
        if missing or self.numbers["[PAD]"] != PAD:
            _stop(f"{path} is not a vocabulary of BERT's: {missing or '[PAD] is not its first piece'}")

    def encode(self, texts, length):
        """A tensor of `length` numbers a text, padded or cut."""
        rows = torch.full((len(texts), length), PAD)
        first, last = self.numbers["[CLS]"], self.numbers["[SEP]"]
        for row, text in zip(rows, texts):
            pieces = []
            for word in self.split(text):
                if len(pieces) >= length - 2:
                    break
                pieces += self.cut(word)
            numbers = [first, *pieces[: length - 2], last]
            row[: len(numbers)] = torch.tensor(numbers)
        return rows

    def split(self, text):
        """Words, signs of punctuation and Chinese characters, each by itself."""
        if self.is_lower:
            text = "".join(
                sign for sign in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(sign) != "Mn"
            )
        spaced = []
        for sign in text:
            kind = unicodedata.category(sign)
            if sign in "\t\n\r" or kind == "Zs":
                spaced.append(" ")
            elif _is_alone(sign, kind):
                spaced.append(f" {sign} ")
            elif kind[0] != "C" and sign != "\ufffd":
                spaced.append(sign)
        return "".join(spaced).split()

    def cut(self, word):
        """The numbers of a word's pieces; one unknown piece where they do not suffice."""
        numbers, start = [], 0
        while start < len(word) <= _LONGEST_WORD:
            prefix = "##" if start else ""
            ends = (end for end in range(len(word), start, -1) if prefix + word[start:end] in self.numbers)
            end = next(ends, 0)
            if not end:
                break
            numbers.append(self.numbers[prefix + word[start:end]])
            start = end
        return numbers if start == len(word) else [self.numbers["[UNK]"]]


def _is_alone(sign, kind):
    """Punctuation, every printable ASCII sign that is neither letter nor digit, and Chinese characters."""
    is_chinese = 0x4E00 <= ord(sign) <= 0x9FFF or 0x3400 <= ord(sign) <= 0x4DBF or 0xF900 <= ord(sign) <= 0xFAFF
    is_chinese = is_chinese or 0x20000 <= ord(sign) <= 0x2CEAF or 0x2F800 <= ord(sign) <= 0x2FA1F
    return is_chinese or kind[0] == "P" or ("!" <= sign <= "~" and not sign.isalnum())


def _fill(model, weights, layers):
    """Copy the published tensors to ours; the two classes stay random where they are not published."""
    state = {}

    def take(name):
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        for full in (f"bert.{name}", f"bert.{old}", name, old):
            if full in weights:
                return weights[full].float()
        return _stop(f"the weights have no {name}")

    kinds = take("embeddings.token_type_embeddings.weight")[0]  # every text is the first of its pair
    state["word.weight"] = take("embeddings.word_embeddings.weight")
    state["place.weight"] = take("embeddings.position_embeddings.weight") + kinds
    pairs = [("embeddings.LayerNorm", "norm"), ("pooler.dense", "pooler")]
    for number in range(layers):
        theirs, ours = f"encoder.layer.{number}", f"encoder.layers.{number}"
        pairs += [(f"{theirs}.{name}", f"{ours}.{own}") for name, own in _LAYER.items()]
        for end in ("weight", "bias"):
            parts = [take(f"{theirs}.attention.self.{name}.{end}") for name in ("query", "key", "value")]
            state[f"{ours}.self_attn.in_proj_{end}"] = torch.cat(parts)
    state.update({f"{own}.{end}": take(f"{name}.{end}") for name, own in pairs for end in ("weight", "bias")})
    if len(weights.get("classifier.bias", ())) == 2:
        state.update({f"classes.{end}": weights[f"classifier.{end}"].float() for end in ("weight", "bias")})
    missing = set(model.state_dict()) - set(state) - {"classes.weight", "classes.bias"}
    assert not missing, missing
    model.load_state_dict(state, strict=False)


def _read_weights(folder):
    """The tensors by name."""
    if (folder / "model.safetensors").exists():
        return read_safetensors(folder / "model.safetensors")
    if (folder / "pytorch_model.bin").exists():
        return torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    return _stop(f"{folder} has neither model.safetensors nor pytorch_model.bin")


def read_safetensors(path):
    """The tensors of a file: the length of a JSON header, the header, the values."""
    with path.open("rb") as file:
        start = file.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= size <= min(100_000_000, path.stat().st_size - 8):
            _stop(f"{path} is not a safetensors file, or it is cut")
        header = json.loads(file.read(size))
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    tensors = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        if end > len(data) or about["dtype"] not in _KINDS:
            _stop(f"{path}: {name} of {about['dtype']} cannot be read, or the file is cut")
        tensors[name] = data[begin:end].clone().view(_KINDS[about["dtype"]]).view(about["shape"])
    return tensors


def _download(name):
    """The directory of a model by its name at Hugging Face, or at HF_ENDPOINT; downloaded once."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "bert-example" / name
    folder.mkdir(parents=True, exist_ok=True)
    place = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    for file in FILES:
        if not (folder / file).exists():
            print(f"Downloading {place}/{name}/resolve/main/{file}", flush=True)
            _fetch(f"{place}/{name}/resolve/main/{file}", folder / file)
    return folder


def _fetch(address, target):
    """A file, under its name once it is whole."""
    part = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        with urllib.request.urlopen(address, timeout=60) as answer, part.open("wb") as file:
            shutil.copyfileobj(answer, file)
            expected = answer.headers.get("Content-Length")
        if expected is not None and part.stat().st_size != int(expected):
            raise OSError(f"{part.stat().st_size} of {expected} bytes came")
        part.replace(target)
    except OSError as problem:  # urllib's errors are such, too
        reason = getattr(problem, "reason", problem)
        _stop(
            f"cannot download {address}: {reason}. Download it on a node with internet access: --pretrained DIRECTORY"
        )
    finally:
        part.unlink(missing_ok=True)


def _read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        return _stop(f"cannot read {path}: {problem}")


def _stop(text):
    raise SystemExit(f"bert_classifier.py: {text}")
