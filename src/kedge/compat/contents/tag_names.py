# SPDX-License-Identifier: BSD-3-Clause
"""What tags say of themselves, and the order in which people read them: newest first.

Knows the conventions of NVIDIA's images (`24.03-tf2-py3`, `12.4.1-cudnn-devel-ubuntu22.04`) and those of all others:
versions with pre-releases, dates, `latest`. What a tag does not say stays empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kedge.base.frozen import frozen
from kedge.base.patterns import late_pattern
from kedge.base.versions import order
from kedge.compat.contents.distributions import read_tag_system

# Kinds of tags, in the order in which they are listed
MOVING, VERSION, DATE, OTHER, ATTACHMENT = "moving", "version", "date", "other", "attachment"
_RANKS = {MOVING: 0, VERSION: 1, DATE: 2, OTHER: 3, ATTACHMENT: 4}

_MOVING = frozenset({"latest", "stable", "main", "master", "edge", "nightly", "dev", "devel", "lts", "current"})
_FLAVOURS = ("base", "runtime", "devel")
_MACHINES = {"aarch64": "arm64", "arm64": "arm64", "sbsa": "arm64", "amd64": "amd64", "x86_64": "amd64",
             "ppc64le": "ppc64le"}  # fmt: skip
_ATTACHMENT = late_pattern(r"sha(?:256|384|512)-[0-9a-f]{64,128}(?:\.\w+)?\Z")  # signatures and the like, of Cosign
_FIRST = late_pattern(
    r"[vr]?(\d{1,9}(?:\.\d{1,9}){0,5})(?:[._]?(a|alpha|b|beta|c|rc|dev|pre|post)\.?(\d{0,9}))?(?:\+.*)?\Z"
)
_PRERELEASE = late_pattern(r"(alpha|beta|rc|dev|pre|preview|ea|nightly|a|b)\.?(\d{0,9})\Z")
_RANKS_BEFORE = {"rc": -1, "c": -1, "b": -2, "beta": -2, "a": -3, "alpha": -3, "post": 1}  # the others: -4
_DATE = late_pattern(r"(?:.*-)?(20\d\d)[.-]?(0[1-9]|1[0-2])[.-]?(0[1-9]|[12]\d|3[01])(?:[-T.].*)?\Z")
_CUDA = late_pattern(r"(?:cuda(\d{1,2}(?:\.\d{1,3}){0,3})|cu(\d{2})(\d))\Z")  # cuda12.4, cuda12, cu121
_CUDNN = late_pattern(r"cudnn\d*\Z")
_PYTHON = late_pattern(r"(?:py|python)(\d(?:\.\d{1,2})?)\Z")
_MONTHLY = late_pattern(r"(\d\d)\.(0[1-9]|1[0-2])(?:\.\d{1,2})?\Z")
_MONTHLY_SHORT = late_pattern(r"(\d\d)\.([1-9]|1[0-2])\Z")  # the HPC SDK's 22.3
_NUMBERS = late_pattern(r"(\d{1,18})")


@frozen
class TagName:
    """One tag, taken apart."""

    text: str
    kind: str = OTHER
    version: str = ""  # 24.03 or 12.4.1, without what follows it
    prerelease: tuple[int, int] = (0, 0)  # (-1, 2) of -rc2; (0, 0): none
    month: str = ""  # 2024-03 where the version is a month, as NVIDIA's are
    cuda: str = ""  # 12.4.1; shorter where the tag says no more
    flavour: str = ""  # base, runtime or devel
    cudnn: str = ""  # `8`, or `yes` where no number stands in the tag
    system: str = ""  # Ubuntu 22.04
    python: str = ""  # 3, or 3.13
    machine: str = ""  # arm64, where the tag is for one architecture only
    series: str = ""  # what else there is: tf2, vllm-python, maxtext, sdk
    is_jetson: bool = False


def read_tag(text: str, image: str = "") -> TagName:
    """What a tag says; that its first number is CUDA's is so for images called `cuda` only."""
    if _ATTACHMENT.match(text):
        return TagName(text, ATTACHMENT)
    words = text.split("-")
    first = _FIRST.match(words[0])
    if text.lower() in _MOVING:
        return TagName(text, MOVING)
    dated = _DATE.match(text)
    if dated and (first is None or len(first[1]) >= 8 or len(words[0]) == 4):
        return TagName(
            text, DATE, ".".join(dated.groups()), month=f"{dated[1]}-{dated[2]}", system=read_tag_system(text)
        )
    if first is None:
        return TagName(text, OTHER, system=read_tag_system(text))
    return _read_words(text, first, words[1:], image)


def _read_words(text: str, first: re.Match[str], words: list[str], image: str) -> TagName:
    fields: dict[str, str] = {}
    rest: list[str] = []
    before = _rank_prerelease(first[2], first[3])
    for word in words:
        earlier = _PRERELEASE.match(word)
        if earlier and not before[0]:
            before = _rank_prerelease(earlier[1], earlier[2])
        elif not _read_word(word, fields):
            rest.append(word)
    version = first[1]
    is_cuda = image.rpartition("/")[2] == "cuda"
    month = "" if is_cuda else _read_month(version, words, fields)
    if is_cuda:
        fields.setdefault("cuda", version)
    is_jetson = "igpu" in rest or "l4t" in image or "jetson" in image
    series = "-".join(word for word in rest if word != "igpu")
    return TagName(
        text,
        VERSION,
        version,
        before,
        month,
        system=read_tag_system(text),
        series=series,
        is_jetson=is_jetson,
        **fields,
    )


def _read_word(word: str, fields: dict[str, str]) -> bool:
    """Note what a word says; False where it says nothing that is known."""
    cuda, python = _CUDA.match(word), _PYTHON.match(word)
    if word in _FLAVOURS:
        fields["flavour"] = word
    elif cuda:
        fields["cuda"] = cuda[1] or f"{cuda[2]}.{cuda[3]}"
    elif python:
        fields["python"] = python[1]
    elif _CUDNN.match(word):
        fields["cudnn"] = word[5:] or "yes"
    elif word in _MACHINES:
        fields["machine"] = _MACHINES[word]
    else:
        return bool(read_tag_system(f"x-{word}"))
    return True


def _rank_prerelease(word: str | None, number: str | None) -> tuple[int, int]:
    return (_RANKS_BEFORE.get(word, -4), int(number or 0)) if word else (0, 0)


def _read_month(version: str, words: list[str], fields: dict[str, str]) -> str:
    """The month of `24.03-py3`: other images have such numbers, too, but not with what NVIDIA puts behind them."""
    monthly = _MONTHLY.match(version)
    if monthly is None and fields.get("flavour") and words[0] in _FLAVOURS:  # nvhpc: 22.3-devel-cuda11.6-ubuntu20.04
        monthly = _MONTHLY_SHORT.match(version)
    is_usual = "python" in fields or "cuda" in fields
    return f"20{monthly[1]}-{int(monthly[2]):02}" if monthly and is_usual else ""


def sort_names(names: Iterable[TagName]) -> list[TagName]:
    """Tags as people read them: `latest`, then the newest first; those not understood come last, in natural order."""
    return sorted(names, key=_make_key)


def is_newer(one: TagName, other: TagName) -> bool:
    """Whether a tag is a later version than another; never where they are of different kinds."""
    if one.kind != other.kind or one.kind not in (VERSION, DATE):
        return False
    return (_fill(one.version), one.prerelease) > (_fill(other.version), other.prerelease)


def _make_key(name: TagName) -> tuple[object, ...]:
    rank = _RANKS[name.kind]
    if name.kind not in (VERSION, DATE):
        return rank, name.text.lower() != "latest", _split_numbers(name.text)
    return (
        rank,
        _reverse(_fill(name.version)),
        _reverse(name.prerelease),
        name.is_jetson,
        _reverse(_fill(name.cuda)),
        not name.system.startswith("Ubuntu"),
        name.system.partition(" ")[0],
        _reverse(_fill(name.system.rpartition(" ")[2])),
        bool(name.series) and not name.series.startswith("tf"),
        name.python != "3",
        _reverse_text(name.series),
        bool(name.cudnn),
        _FLAVOURS.index(name.flavour) if name.flavour else -1,
        _split_numbers(name.text),
    )


def _fill(version: str) -> tuple[int, ...]:
    return (order(version) + (0,) * 6)[:6]


def _reverse(fields: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-field for field in fields)


def _reverse_text(text: str) -> tuple[int, ...]:
    return tuple(-ord(letter) for letter in text)


def _split_numbers(text: str) -> tuple[tuple[int, int, str], ...]:
    """Natural order: `a10` behind `a9`; the flags keep numbers and words from being compared with each other."""
    parts = (part for part in _NUMBERS.split(text) if part)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)
