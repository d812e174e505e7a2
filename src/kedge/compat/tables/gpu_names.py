# SPDX-License-Identifier: BSD-3-Clause
"""GPUs by the names that people, schedulers, site profiles and drivers call them.

Nothing is guessed: a name that may mean boards of different compute capability is refused with those that would do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kedge.base.frozen import replace
from kedge.base.nearest import find_near
from kedge.base.patterns import late_pattern
from kedge.compat.tables.gpu_index import has_model_first, split_name
from kedge.compat.tables.load import Tables
from kedge.compat.tables.rows import GpuModel
from kedge.compat.target import Gpu
from kedge.errors import UnknownGpu

_GRES = late_pattern(r"(?:gres[:/=])?gpus?[:=]|(?::\d+)?(?:\((?:S|IDX):.*\))?\Z", re.IGNORECASE)  # `gpu:a100:4(S:0-1)`
_SM = late_pattern(r"(?:sm|compute)_?(\d{1,2})(\d)[af]?\Z|(?:cc ?)?(\d{1,2})\.(\d)\Z", re.IGNORECASE)
_GLUED = late_pattern(r"\b(rtx|gtx|geforce|quadro|titan)(?=[a-z0-9])|(?<=[0-9])(?=(?:ti|super)\b)")  # rtx3090, 2080ti
_FORM = late_pattern(r"(?:sxm|hbm)\d?e?|pcie|nvl|fhhl|smx\d?|\d{1,3}gb?|oam|exx?|generation")
_MEMORY = late_pattern(r"(\d{1,3})(?:gb?)?\Z")
_OPTIONAL = frozenset(("geforce", "quadro", "rtx", "gtx", "ada", "pro", "blackwell", "pascal", "generation", "edition"))
_AMD = late_pattern(r"(?:amd )?(?:radeon |instinct )*mi\d{2,3}[a-z]?\Z")
AMD = "amd"  # the brand of GPUs that are not NVIDIA's
_LONGEST = 120
_SHOWN = 6


def find_gpu(text: str, tables: Tables) -> Gpu:
    """The GPU that somebody means: `H200`, `gpu:a100`, `Tesla K40m`, `RTX_3090`, `sm_90`, `9.0`, `Hopper`.

    UnknownGpu proposes the nearest name, or the names that tell apart what was meant.
    """
    name = " ".join(_GRES.sub("", text.strip()).split())
    if not name or len(name) > _LONGEST or not name.isprintable():
        raise _refuse(f"{text[:40]!r}{'…' * (len(text) > 40)} is no name of a GPU", "", tables)
    gpu = _find_capability(name, tables) or _find_family(name, tables) or _find_amd(name)
    if gpu is not None:
        return gpu
    rows = find_models(name, tables)
    if not rows:
        raise _refuse(f"no GPU is known by the name '{name}'", name, tables)
    if len({row.capability for row in rows}) > 1:
        meant = ", ".join(f"{row.name} ({row.capability})" for row in rows[:_SHOWN])
        raise UnknownGpu(f"'{name}' may mean GPUs of different compute capability: {meant}", hint="name one of them")
    return _describe(rows, _name_variants(rows), _read_memory(name, rows))


def make_gpu(model_name: str, tables: Tables) -> Gpu:
    """Return what is known about a GPU under the name its driver reports; of an unknown one, the name alone."""
    rows = find_models(model_name, tables)
    if not rows or len({row.capability for row in rows}) > 1:
        is_consumer = {"geforce", "titan"} & set(split_name(model_name))
        kind, forward = ("consumer", False) if is_consumer else ("", None)
        return Gpu(model_name, kind=kind, brand=_find_brand(model_name, kind), takes_forward_compat=forward)
    return _describe(rows, model_name, _read_memory(model_name, rows))


def find_models(name: str, tables: Tables) -> list[GpuModel]:
    """The rows that a name may mean: those of exactly this name, or else those that differ in what is left out."""
    wanted = _split(name)
    if not wanted:
        return []
    named = [(row, [_split(model) for model in (row.name, *row.smi_names)]) for row in tables.gpus]
    exact = [row for row, names in named if wanted in names]
    if exact:
        return exact
    scored = [(score, row) for row, names in named if (score := _score(wanted, row, names)) is not None]
    best = max((score for score, _ in scored), default=0)
    return [row for score, row in scored if score == best]


def _split(text: str) -> list[str]:
    return _GLUED.sub(lambda match: f"{match[1] or ''} ", " ".join(split_name(text))).split()


def _score(wanted: Sequence[str], row: GpuModel, names: Iterable[Sequence[str]]) -> int | None:
    """How well a row fits; None where it does not. Forms (sxm4, pcie, 40gb) may be missing on either side."""
    scores = []
    for words in names:
        asked, there = set(wanted) - set(words), set(words) - set(wanted)
        if any(not _is_left_out(word) for word in there):
            continue
        if set(wanted) & set(words) <= _OPTIONAL or not all(_is_form(word, row) for word in asked):
            continue
        forms = [word.rstrip("0123456789e") for word in asked if not word[0].isdigit()]
        agreed = sum(any(word.startswith(form) for form in forms) for word in words if _FORM.fullmatch(word))
        agreed += any(_tell_memory(word) in _list_memories(row) for word in wanted if _tell_memory(word))
        others = [word for word in there if _FORM.fullmatch(word) and not _tell_memory(word)]
        missing = sum(not any(word.startswith(form) for form in forms) for word in others)
        scores.append(4 * agreed - (missing if forms else 0))
    return max(scores, default=None)


def _is_left_out(word: str) -> bool:
    return word in _OPTIONAL or _FORM.fullmatch(word) is not None


def _is_form(word: str, row: GpuModel) -> bool:
    """A form; a number without `gb` is one where it is the row's memory: `a100_80`."""
    if word.isdigit():
        return word in _list_memories(row)
    return _FORM.fullmatch(word) is not None


def _tell_memory(word: str) -> str:
    match = _MEMORY.match(word)
    return match[1] if match else ""


def _list_memories(row: GpuModel) -> list[str]:
    return re.findall(r"\d+", row.memory.rpartition("x")[2])


def _read_memory(name: str, rows: Sequence[GpuModel]) -> str:
    """Return the memory in GB, where the name or all that it may mean say the same."""
    known = {row.memory for row in rows}
    memories = [memory for word in _split(name) if word.endswith("b") and (memory := _tell_memory(word))]
    is_processors = any("GH200" in row.name and memories[:1] != [_list_memories(row)[0]] for row in rows)
    if memories and not is_processors:  # `GH200 480GB` tells the CPU's memory
        return memories[0]
    return known.pop() if len(known) == 1 else ""


def _describe(rows: Sequence[GpuModel], name: str, memory: str) -> Gpu:
    """What all rows have in common."""

    def share(values: Iterable[str]) -> str:
        distinct = set(values)
        return distinct.pop() if len(distinct) == 1 else ""

    forward = {row.takes_forward_compat for row in rows}
    branches = {row.last_driver_branch for row in rows}
    return Gpu(
        name,
        capability=share(row.capability for row in rows),
        architecture=share(row.architecture for row in rows),
        kind=share(row.kind for row in rows),
        brand=share(_find_brand(row.name, row.kind) for row in rows),
        takes_forward_compat=forward.pop() if len(forward) == 1 else None,
        last_driver_branch=branches.pop() if len(branches) == 1 else None,
        first_cuda=share(row.first_cuda for row in rows),
        last_cuda=share(row.last_cuda for row in rows),
        memory=memory,
        processor=share(row.processor for row in rows),
    )


def _name_variants(rows: Sequence[GpuModel]) -> str:
    """Name a model by what its boards share: `NVIDIA A100` of 40, 64 and 80 GB; images run on all or none of them."""
    if len(rows) == 1:
        return rows[0].name
    words = [row.name.split() for row in rows]
    same = 0
    while all(len(each) > same and each[same] == words[0][same] for each in words):
        same += 1
    rest = [word.lower() for each in words for word in each[same:]]
    if same and all(_FORM.fullmatch(word) for word in rest):
        return " ".join(words[0][:same])
    return " or ".join(row.name for row in rows)


def _find_brand(name: str, kind: str) -> str:
    """The word that NVML has for a product line; empty where it is unknown."""
    words = name.lower().replace("nvidia ", "").split()
    first = words[0] if words else ""
    if first == "quadro":
        return "quadrortx" if words[1:2] == ["rtx"] else "quadro"
    if first in ("geforce", "titan", "tesla"):
        return first
    if first == "rtx":
        return "nvidiartx"
    return "nvidia" if kind == "datacenter" and has_model_first(words) else ""


def _find_capability(name: str, tables: Tables) -> Gpu | None:
    match = _SM.match(name)
    if match is None:
        return None
    capability = f"{match[1] or match[3]}.{match[2] or match[4]}"
    rows = [row for row in tables.gpus if row.capability == capability]
    if not rows:
        known = sorted({row.capability for row in tables.gpus}, key=float)
        raise UnknownGpu(f"no GPU has compute capability {capability}", hint=f"there are {', '.join(known)}")
    return _describe(rows, f"GPU of compute capability {capability}", "")


def _find_family(name: str, tables: Tables) -> Gpu | None:
    """`Hopper`; a family with several capabilities is refused: its members run different images."""
    word = name.lower()
    rows = [row for row in tables.gpus if word in (row.architecture.lower(), row.architecture.lower().split()[0])]
    rows = [row for row in rows if "jetson" in word or "Jetson" not in row.architecture]
    if not rows:
        return None
    capabilities = sorted({row.capability for row in rows}, key=float)
    if len(capabilities) > 1:
        models = [next(row.name for row in rows if row.capability == capability) for capability in capabilities]
        meant = ", ".join(f"{capability} ({model})" for capability, model in zip(capabilities, models, strict=True))
        message = f"{rows[0].architecture} GPUs have different compute capabilities: {meant}"
        raise UnknownGpu(message, hint="name the model, or the capability")
    return replace(_describe(rows, f"{rows[0].architecture} GPU", ""), architecture=rows[0].architecture)


def _find_amd(name: str) -> Gpu | None:
    """AMD's boards, which no table has: all there is to know is that CUDA does not run on them."""
    if not _AMD.match(name.lower().replace("-", " ").replace("_", " ")):
        return None
    model = name.replace("_", " ").split()[-1].upper()
    return Gpu(f"AMD {model}", kind="datacenter", brand=AMD, takes_forward_compat=False)


def _refuse(message: str, name: str, tables: Tables) -> UnknownGpu:
    """Proposes what the name is with noughts for the letters that people type, or else the nearest model."""
    typed = re.sub(r"(?<=[0-9])o+", lambda match: "0" * len(match[0]), " ".join(_split(name)))
    meant = find_models(typed, tables)
    near = meant[0].name if meant else _find_nearest(typed, tables)
    if near:
        return UnknownGpu(message, hint=f"did you mean '{near}'?")
    return UnknownGpu(message, hint="such as H200, A100, V100, 'RTX 3090' or 9.0; 'kedge data show gpus' lists them")


def _find_nearest(typed: str, tables: Tables) -> str:
    shorts: dict[str, str] = {}
    for row in tables.gpus:
        for model in (row.name, *row.smi_names):
            words = [word for word in _split(model) if not _FORM.fullmatch(word)]
            shorts.setdefault(" ".join(words), row.name)
    return shorts.get(find_near(typed, shorts) or "", "")
