# SPDX-License-Identifier: BSD-3-Clause
"""An explanation as people read it on a terminal: the verdict first, then what is in the image and what it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kedge.cli.redaction import escape_controls
from kedge.compat.image.table_facts import TABLE_ONLY
from kedge.compat.image.traits import TITLES
from kedge.compat.verdict import FAIL, NOTE, OK, OPEN, WARNING
from kedge.errors import KedgeError
from kedge.model.counting import count_things
from kedge.model.size import format_size

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.compat.image.traits import ImageTraits, Layer
    from kedge.compat.tables.load import Tables
    from kedge.compat.target import Target
    from kedge.compat.verdict import Verdict
    from kedge.ops.explain.explain import Explanation

NOT_KNOWN = "not known"
# of a name with a registry, what stands before tag and digest
_REGISTRY_NAME = re.compile(r"((?:localhost|[\w-]+(?:\.[\w-]+)+|[\w.-]+(?=:\d))(?::\d+)?/[^:@]+)")
_WIDTH = 19  # of the names of facts
_BAR = 24
_LAYERS = 6
_LONGEST_COMMAND = 70
_EMPTY_REQUIREMENT = "cuda>=9.0"
_MARKS = {OK: "ok", NOTE: "note", WARNING: "warning", FAIL: "NO", OPEN: "open"}
_SHORT = {
    "native": "runs natively",
    "minor-version": "runs, minor version",
    "forward-compatible": "runs, forward compatibility",
    "ptx": "runs, from PTX",
    "no": "does not run",
    "unknown": NOT_KNOWN,
}


def show_explanation(found: Explanation, tables: Tables, console: Console, *, sources: bool = False) -> None:
    """Print all of it; long sentences are wrapped on a terminal."""
    for begin, text in _list_parts(found, tables, sources=sources):
        console.print_hanging(begin, escape_controls(text).replace("\n", " "))


def list_lines(found: Explanation, tables: Tables, *, sources: bool = False) -> Iterator[str]:
    """The lines, the verdict's first."""
    return (f"{begin}{text}".rstrip() for begin, text in _list_parts(found, tables, sources=sources))


def _list_parts(found: Explanation, tables: Tables, *, sources: bool) -> Iterator[tuple[str, str]]:
    """What each line begins with, and its text."""
    traits, verdict = found.traits, found.verdict
    yield "", f"{traits.name}: {verdict.headline}" if verdict is not None else traits.name
    yield from (("  ", note) for note in traits.notes if note.startswith(TABLE_ONLY))
    if verdict is not None and verdict.judgements:
        yield "", ""
        yield from _list_judgements(verdict)
    yield "", ""
    yield from _list_facts(traits, sources=sources)
    yield "", ""
    yield from _list_needs(traits, tables)
    yield "", ""
    yield from _list_shape(traits)
    yield from _list_notes(traits, found.target)
    if found.requests:
        yield "", ""
        yield "", f"nothing was pulled: {format_size(found.received)} were read"


def _list_judgements(verdict: Verdict) -> Iterator[tuple[str, str]]:
    for each in verdict.judgements:
        yield f"  {_MARKS.get(each.level, each.level):8}", each.sentence
        if each.remedy:
            yield f"  {'':8}-> ", each.remedy


def _list_facts(traits: ImageTraits, *, sources: bool) -> Iterator[tuple[str, str]]:
    """Each fact, known or not; release and HPC-X are of NGC's images alone."""
    for name, fact in traits.known.items():
        if not fact and name in ("release", "hpcx", "ucx", "framework_version"):
            continue
        if name == "framework_version" and traits.framework:
            continue
        value = fact.value
        if name == "framework" and fact and traits.framework_version:
            value = f"{value} {traits.framework_version.value}"
        told = f"   [{fact.source}]" if sources and fact else ""
        yield _name(TITLES[name]), (value or NOT_KNOWN) + told


def _list_needs(traits: ImageTraits, tables: Tables) -> Iterator[tuple[str, str]]:
    from kedge.compat.rules.image_needs_text import describe_driver_need, describe_gpu_need

    first, *others = describe_driver_need(traits, tables)
    yield _name("Needs of the driver"), first
    for line in others:
        yield _name(""), f"or {line}"
    yield _name("Needs of the GPU"), describe_gpu_need(traits, tables)
    if traits.requires:
        shown = _shorten("; ".join(value for _, value in traits.requires), 90)
        is_empty = traits.release and shown == _EMPTY_REQUIREMENT
        told = " (as all of NVIDIA's framework images: it says nothing)" if is_empty else ""
        yield _name("States itself"), shown + told


def _list_shape(traits: ImageTraits) -> Iterator[tuple[str, str]]:
    architectures = ", ".join(traits.architectures)
    if traits.architecture and len(traits.architectures) > 1:
        architectures += f" (this is about {traits.architecture})"
    yield _name("Processors"), architectures or traits.architecture or NOT_KNOWN
    words = [*traits.entrypoint, *traits.command]
    idle = NOT_KNOWN if traits.size is None and not traits.digest else "nothing of its own"
    yield _name("Starts"), _shorten(" ".join(words), 90) if words else idle
    if traits.created:
        yield _name("Made"), traits.created[:10]
    if traits.digest:
        yield _name("Digest"), traits.digest
        pinned = _pin_name(traits)
        if pinned:
            yield _name(""), f"a tag can be made anew; {pinned} stays this very image"
    size = format_size(traits.size) if traits.size is not None else NOT_KNOWN
    count = f" in {count_things(len(traits.layers), 'layer')}" if traits.layers else ""
    yield _name("Size"), size + count
    yield from list_layers(traits.layers)


def _pin_name(traits: ImageTraits) -> str:
    """`NAME@DIGEST`, which means this image for ever; empty for one that is in no registry."""
    found = _REGISTRY_NAME.match(traits.name)
    return f"{found[1]}@{traits.digest}" if found else ""


def list_layers(layers: Sequence[Layer]) -> Iterator[tuple[str, str]]:
    """A bar for each of the largest layers, in the order they were made, and its command; the rest in one line."""
    if not layers:
        return
    large = sorted(range(len(layers)), key=lambda place: -layers[place].size)[:_LAYERS]
    most = max(layers[place].size for place in large) or 1
    for place in sorted(large):
        layer = layers[place]
        bar = "#" * max(1, round(_BAR * layer.size / most))
        yield f"  {bar:{_BAR}} {format_size(layer.size):>10}  ", _shorten(layer.created_by, _LONGEST_COMMAND)
    rest = [layer.size for place, layer in enumerate(layers) if place not in large]
    if rest:
        yield (
            f"  {'':{_BAR}} {format_size(sum(rest)):>10}  ",
            f"{len(rest)} smaller {'ones' if len(rest) > 1 else 'one'}",
        )


def _list_notes(traits: ImageTraits, target: Target | None) -> Iterator[tuple[str, str]]:
    notes = [note for note in traits.notes if not note.startswith(TABLE_ONLY)]
    notes += target.notes if target is not None else ()
    if notes:
        yield "", ""
    yield from (("note: ", note) for note in notes)


def show_comparison(
    names: Sequence[str], found: Sequence[Explanation | KedgeError], target: Target, console: Console
) -> None:
    """A table with a row for each image."""
    rows: list[tuple[str, ...]] = []
    for name, each in zip(names, found, strict=True):
        if isinstance(each, KedgeError):
            rows.append((name, f"problem: {_shorten(each.message, 80)}", "", "", "", "", ""))
            continue
        traits = each.traits
        framework = f"{traits.framework.value} {traits.framework_version.value}".strip()
        size = format_size(traits.size) if traits.size is not None else NOT_KNOWN
        outcome = _SHORT.get(each.verdict.outcome, each.verdict.outcome) if each.verdict is not None else NOT_KNOWN
        facts = (framework, traits.cuda.value, traits.python.value, traits.os.value)
        rows.append((name, outcome, *(value or NOT_KNOWN for value in facts), size))
    cells = [tuple(escape_controls(cell) for cell in row) for row in rows]
    console.print_table(("image", f"on {target.title}", "framework", "CUDA", "Python", "system", "size"), cells)
    for note in target.notes:
        console.progress.note(note)


def _name(title: str) -> str:
    return f"{title:{_WIDTH}} "


def _shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"
