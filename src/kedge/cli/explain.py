# SPDX-License-Identifier: BSD-3-Clause
"""`kedge explain`: what is in an image, what it needs, and whether it runs on a GPU or cluster; nothing is pulled."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.counting import count_things
from kedge.base.patterns import late_pattern
from kedge.base.release import VERSION
from kedge.base.size import format_size
from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings
from kedge.cli.progress import leave_plain
from kedge.cli.redaction import escape_controls
from kedge.cli.target_options import add_target, read_target
from kedge.compat.contents.table_facts import TABLE_ONLY
from kedge.compat.traits import TITLES
from kedge.compat.verdict import FAIL, NOTE, OK, OPEN, WARNING
from kedge.errors import KedgeError, UsageError, WillNotRun

if TYPE_CHECKING:
    from kedge.answers.explain import Explanation
    from kedge.cli.console import Console
    from kedge.compat.tables.load import Tables
    from kedge.compat.target import Target
    from kedge.compat.traits import ImageTraits, Layer
    from kedge.compat.verdict import Judgement, Verdict


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "images",
        metavar="IMAGE",
        nargs="+",
        help="reference, SIF file, directory or archive; several are compared",
    )
    add_target(parser)
    parser.add_argument("--check", action="store_true", help=f"exit with {WillNotRun.exit_code} if it does not run")
    parser.add_argument("--all", action="store_true", help="also list what is unknown, one line each")
    parser.add_argument("--sources", action="store_true", help="show where each fact comes from")
    parser.add_argument("--offline", action="store_true", help="use the cache and the built-in tables only")
    parser.add_argument("--html", metavar="FILE", type=Path, help="also write the result as an HTML page; - prints it")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    add_login(parser)
    add_settings(parser, "architecture", "no_https", "ca_bundle", "library_url", "cache_directory", "retries")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Explain one image, or compare several."""
    from kedge.compat.known_tables import load_known_tables

    if arguments.html is not None:
        from kedge.system.files import HTML, refuse_existing_text

        if len(arguments.images) > 1:
            raise UsageError("--html takes one image", hint="run it once for each image")
        if not _is_printed(arguments):
            refuse_existing_text(arguments.html, force=arguments.force, beginning=HTML)  # before anything is asked
        elif console.json:
            raise UsageError(
                "--json and --html - both write to standard output", hint="leave one out, or give --html a file"
            )
    tables = load_known_tables(console.environ, console.progress)
    target = read_target(arguments, console, tables)
    if len(arguments.images) > 1:
        return _compare(arguments, console, tables, target)
    explanation = _explain(arguments.images[0], arguments, console, tables, target)
    if arguments.html is not None and not _is_printed(arguments):
        _write_page(_make_page(explanation, tables), arguments.html, force=arguments.force)
        console.progress.note(f"wrote {arguments.html}")
    if console.json:
        console.print_json(explanation.as_dict())
    elif _is_printed(arguments):
        console.write_bytes(_make_page(explanation, tables))
    else:
        show_explanation(explanation, tables, console, sources=arguments.sources, everything=arguments.all)
    return _choose_status([explanation], arguments)


def _is_printed(arguments: argparse.Namespace) -> bool:
    return bool(arguments.html == Path("-"))


def _explain(text: str, arguments: argparse.Namespace, console: Console, tables: Tables, target: Target) -> Explanation:
    from kedge.answers.explain import explain
    from kedge.base.reference import Reference
    from kedge.image.workplace import Workplace

    reference = Reference.parse(text)
    workplace = Workplace(console.settings, console.progress, read_access(arguments, console, reference))
    return explain(reference, workplace, target=target, offline=arguments.offline, tables=tables)


def _compare(arguments: argparse.Namespace, console: Console, tables: Tables, target: Target) -> int:
    """Compare all references that can be explained; returns the status of the first that cannot."""
    explanations: list[Explanation | KedgeError] = []
    for text in arguments.images:
        try:
            explanations.append(_explain(text, arguments, console, tables, target))
        except KedgeError as problem:
            explanations.append(problem)
    if console.json:
        documents = [
            {"name": text, **({"problem": result.as_dict()} if isinstance(result, KedgeError) else result.as_dict())}
            for text, result in zip(arguments.images, explanations, strict=True)
        ]
        console.print_json(documents)
    else:
        show_comparison(arguments.images, explanations, target, console)
    problems = [result for result in explanations if isinstance(result, KedgeError)]
    if problems:
        return problems[0].exit_code
    return _choose_status([result for result in explanations if not isinstance(result, KedgeError)], arguments)


def _choose_status(explanations: list[Explanation], arguments: argparse.Namespace) -> int:
    runs = [explanation.verdict.runs for explanation in explanations if explanation.verdict is not None]
    return WillNotRun.exit_code if arguments.check and False in runs else 0


def _make_page(explanation: Explanation, tables: Tables) -> bytes:
    from kedge.answers.explain import chart_explanation
    from kedge.answers.pages.explain_page import render_explanation

    page = render_explanation(
        explanation.traits,
        explanation.verdict,
        explanation.target,
        chart_explanation(explanation, tables),
        made=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=VERSION,
    )
    return page.encode("utf-8", "replace")


def _write_page(page: bytes, path: Path, *, force: bool) -> None:
    from kedge.system.files import atomic_output

    with atomic_output(path, force=force) as file:
        file.write(page)


# An explanation as people read it on a terminal: the verdict first, then what is in the image and what it needs.

UNKNOWN = "unknown"
# of a name with a registry, what stands before tag and digest
_REGISTRY_NAME = late_pattern(r"((?:localhost|[\w-]+(?:\.[\w-]+)+|[\w.-]+(?=:\d))(?::\d+)?/[^:@]+)")
_WIDTH = 19  # of the names of facts
_BAR = 24
_LAYERS = 6
_LONGEST_COMMAND = 70
_EMPTY_REQUIREMENT = "cuda>=9.0"
_RARE = ("release", "hpcx", "ucx", "framework_version")  # facts that most images do not have
_TOOLS = ("horovod", "dali", "apex", "jupyterlab")  # what NVIDIA's framework images are expected to tell
# The word before a judgement, and the meaning that paints it
_MARKS = {
    OK: ("ok", "good"),
    NOTE: ("note", "note"),
    WARNING: ("warning", "warning"),
    FAIL: ("NO", "bad"),
    OPEN: ("unknown", "dim"),
}
_SHORT = {
    "native": "runs natively",
    "minor-version": "runs, minor version",
    "forward-compatible": "runs, forward compatibility",
    "ptx": "runs, from PTX",
    "no": "does not run",
    "unknown": UNKNOWN,
}

Paint = Callable[[str, str], str]


def show_explanation(
    explanation: Explanation, tables: Tables, console: Console, *, sources: bool = False, everything: bool = False
) -> None:
    """Print it; long sentences are wrapped on a terminal. Unknown facts share one line, unless `everything` is set."""
    headline, *parts = _list_parts(explanation, tables, console.paint, sources=sources, everything=everything)
    console.print_hanging(*headline, indent=2)
    for begin, text in parts:
        console.print_hanging(begin, escape_controls(text).replace("\n", " "))


def list_lines(explanation: Explanation, tables: Tables) -> Iterator[str]:
    """The lines as a pipe gets them, the verdict's first."""
    parts = _list_parts(explanation, tables, leave_plain, sources=False, everything=False)
    return (f"{begin}{text}".rstrip() for begin, text in parts)


def _list_parts(
    explanation: Explanation, tables: Tables, paint: Paint, *, sources: bool, everything: bool
) -> Iterator[tuple[str, str]]:
    """What each line begins with, and its text; groups are parted by empty lines."""
    traits, verdict = explanation.traits, explanation.verdict
    yield _make_headline(traits, verdict, paint)
    yield from (("  ", note) for note in traits.notes if note.startswith(TABLE_ONLY))
    groups = (
        list(_list_judgements(verdict, paint, everything=everything)) if verdict is not None else [],
        list(_list_facts(traits, sources=sources, everything=everything)),
        list(_list_needs(traits, tables, everything=everything)),
        list(_list_shape(traits, everything=everything)),
        [] if everything else list(_list_unknown(traits, verdict)),
        list(_list_notes(traits, explanation.target)),
    )
    for group in filter(None, groups):
        yield "", ""
        yield from group
    if explanation.requests:
        yield "", ""
        yield "", f"Nothing was pulled; {format_size(explanation.received)} were read."


def _make_headline(traits: ImageTraits, verdict: Verdict | None, paint: Paint) -> tuple[str, str]:
    if verdict is None:
        return "", escape_controls(traits.name)
    answer, place, reason = verdict.headline.partition(" on ")
    return f"{escape_controls(traits.name)}: {paint(answer, _find_meaning(verdict))}{place}", escape_controls(reason)


def _find_meaning(verdict: Verdict) -> str:
    return {True: "good", False: "bad", None: "dim"}[verdict.runs]


def _list_judgements(verdict: Verdict, paint: Paint, *, everything: bool) -> Iterator[tuple[str, str]]:
    for judgement in verdict.judgements:
        if _is_plainly_unknown(judgement) and not everything:
            continue
        word, meaning = _MARKS.get(judgement.level, (judgement.level, ""))
        yield f"  {paint(f'{word:8}', meaning)}", judgement.sentence
        if judgement.remedy:
            yield f"  {'':8}-> ", judgement.remedy


def _is_plainly_unknown(judgement: Judgement) -> bool:
    """Whether nothing can be done about a judgement: `unknown: …` says it with all the others."""
    return judgement.level == OPEN and not judgement.remedy


def _list_facts(traits: ImageTraits, *, sources: bool, everything: bool) -> Iterator[tuple[str, str]]:
    for name, fact in traits.known.items():
        if not fact and not (everything and _is_expected(name, traits)):
            continue
        if name == "framework_version" and traits.framework:
            continue
        value = fact.value
        if name == "framework" and fact and traits.framework_version:
            value = f"{value} {traits.framework_version.value}"
        yield _name(TITLES[name]), (value or UNKNOWN) + (f"   [{fact.source}]" if sources and fact else "")


def _is_expected(name: str, traits: ImageTraits) -> bool:
    """Whether a reader misses a fact that is unknown: nobody asks for the Apex of an image of TensorFlow."""
    if name in _TOOLS:
        return bool(traits.release) and (name != "apex" or traits.framework.value == "PyTorch")
    return name not in _RARE


def _list_needs(traits: ImageTraits, tables: Tables, *, everything: bool) -> Iterator[tuple[str, str]]:
    from kedge.compat.rules.image_needs_text import describe_driver_need, describe_gpu_need

    drivers = describe_driver_need(traits, tables) or ([UNKNOWN] if everything else [])
    for place, line in enumerate(drivers):
        yield _name("" if place else "Driver required"), f"or {line}" if place else line
    gpus = describe_gpu_need(traits, tables) or (UNKNOWN if everything else "")
    if gpus:
        yield _name("GPU required"), gpus
    if traits.requires:
        shown = _shorten("; ".join(value for _, value in traits.requires), 90)
        is_empty = traits.release and shown == _EMPTY_REQUIREMENT
        remark = " (all of NVIDIA's framework images declare this, whatever they need)" if is_empty else ""
        yield _name("Declares"), shown + remark


def _list_shape(traits: ImageTraits, *, everything: bool) -> Iterator[tuple[str, str]]:
    architectures = ", ".join(traits.architectures)
    if traits.architecture and len(traits.architectures) > 1:
        architectures += f" (shown: {traits.architecture})"
    architectures = architectures or (traits.architecture if traits.tells_processors or everything else "")
    if architectures or everything:
        yield _name("Architectures"), architectures or UNKNOWN
    command = _describe_command(traits)
    if command or everything:
        yield _name("Default command"), command or UNKNOWN
    if traits.created:
        yield _name("Created"), traits.created[:10]
    if traits.digest:
        yield _name("Digest"), traits.digest
        pinned = _pin_name(traits)
        if pinned:
            yield _name("Pinned name"), f"{pinned} (a tag can be replaced, a digest cannot)"
    if traits.size is not None or everything:
        size = format_size(traits.size) if traits.size is not None else UNKNOWN
        count = f" in {count_things(len(traits.layers), 'layer')}" if traits.layers else ""
        yield _name("Size"), size + count
    yield from list_layers(traits.layers)


def _describe_command(traits: ImageTraits) -> str:
    """Empty where it is unknown."""
    words = [*traits.entrypoint, *traits.command]
    if words[:2] == ["/bin/sh", "-c"] and words[2:] and words[2].startswith("#!"):  # a %runscript
        words = words[2].split()[1:]
    if words:
        return _shorten(" ".join(words), 90)
    return "" if traits.size is None and not traits.digest else "none"


def _list_unknown(traits: ImageTraits, verdict: Verdict | None) -> Iterator[tuple[str, str]]:
    """Yield one line of all facts that are unknown, if there are any."""
    subjects = {"gpu": "kernels for the GPU", "driver": "driver"}
    judgements = verdict.judgements if verdict is not None else ()
    names = [
        subjects.get(judgement.subject, f"{traits.architecture} support".strip())
        for judgement in judgements
        if _is_plainly_unknown(judgement)
    ]
    names += [TITLES[name] for name, fact in traits.known.items() if not fact and _is_expected(name, traits)]
    names += [] if traits.architectures or traits.architecture else ["architectures"]
    names += [] if _describe_command(traits) else ["default command"]
    names += ["size"] if traits.size is None else []
    if names:
        yield f"{UNKNOWN}: ", ", ".join(dict.fromkeys(names))


def _pin_name(traits: ImageTraits) -> str:
    """`NAME@DIGEST`, which means this image for ever; empty for one that is in no registry."""
    match = _REGISTRY_NAME.match(traits.name)
    return f"{match[1]}@{traits.digest}" if match else ""


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
    small = [layer.size for place, layer in enumerate(layers) if place not in large]
    if small:
        yield f"  {'':{_BAR}} {format_size(sum(small)):>10}  ", count_things(len(small), "smaller layer")


def _list_notes(traits: ImageTraits, target: Target | None) -> Iterator[tuple[str, str]]:
    notes = [note for note in traits.notes if not note.startswith(TABLE_ONLY)]
    notes += target.notes if target is not None else ()
    yield from (("note: ", note) for note in notes)


def show_comparison(
    names: Sequence[str], explanations: Sequence[Explanation | KedgeError], target: Target, console: Console
) -> None:
    """A table with a row for each image."""
    rows: list[tuple[str, ...]] = []
    for name, explanation in zip(names, explanations, strict=True):
        if isinstance(explanation, KedgeError):
            problem = console.paint(f"problem: {_shorten(explanation.message, 80)}", "bad")
            rows.append((escape_controls(name), problem, "", "", "", "", ""))
            continue
        traits, verdict = explanation.traits, explanation.verdict
        framework = f"{traits.framework.value} {traits.framework_version.value}".strip()
        size = format_size(traits.size) if traits.size is not None else ""
        facts = (framework, traits.cuda.value, traits.python.value, traits.os.value, size)
        cells = (escape_controls(value or UNKNOWN) for value in facts)
        rows.append((escape_controls(name), _paint_outcome(verdict, console.paint), *cells))
    console.print_table(("image", f"on {target.title}", "framework", "CUDA", "Python", "system", "size"), rows)
    for note in target.notes:
        console.progress.note(note)


def _paint_outcome(verdict: Verdict | None, paint: Paint) -> str:
    if verdict is None:
        return UNKNOWN
    return paint(_SHORT.get(verdict.outcome, verdict.outcome), _find_meaning(verdict))


def _name(title: str) -> str:
    return f"{title:{_WIDTH}} "


def _shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"
