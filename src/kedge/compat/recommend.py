# SPDX-License-Identifier: BSD-3-Clause
"""The newest tag of an image that runs natively on a target; or the best that does in another way; or why none does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.compat.candidates import list_candidates, read_candidate, resolve_image, tells_architecture
from kedge.compat.judge import judge
from kedge.compat.rows import NgcRelease
from kedge.compat.verdict import FAIL, FORWARD, MINOR, NATIVE, NO, NOTE, PTX, UNKNOWN, Judgement, Verdict
from kedge.compat.versions import order
from kedge.frozen import as_dict, frozen, replace

if TYPE_CHECKING:
    from kedge.compat.tables import Tables
    from kedge.compat.target import Target
    from kedge.compat.traits import ImageTraits

_WAYS = {
    NATIVE: "natively",
    MINOR: "by minor-version compatibility",
    FORWARD: "by forward compatibility",
    PTX: "with kernels compiled from PTX",
}


@frozen
class Choice:
    """One tag, and what comes of it on the target."""

    tag: str
    outcome: str
    verdict: Verdict
    is_end_of_life: bool = False  # NVIDIA deletes tags of its line


@frozen
class Recommendation:
    """What to take."""

    image: str  # nvcr.io/nvidia/pytorch
    target: str
    sentence: str  # what a user reads
    best: Choice | None = None  # None: nothing fits
    other: Choice | None = None  # newer than the best, and runs in another way
    judged: int = 0  # tags of which enough is known
    skipped: int = 0  # tags of which too little is known
    notes: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """The image to pull; empty where nothing fits."""
        return f"{self.image}:{self.best.tag}" if self.best else ""

    def as_dict(self) -> dict[str, object]:
        """All of it, as `--json` prints it."""
        return {**as_dict(self), "reference": self.reference}


def recommend(image: str, target: Target, tables: Tables, *, tags: Sequence[str] | None = None) -> Recommendation:
    """The newest tag for the target. `tags` are those that the registry has; else those that the tables know."""
    name = resolve_image(image, tables)
    rows = list_candidates(name, target, tables, tags)
    if not rows:
        return Recommendation(name, target.title, _tell_no_rows(name, tables))
    if not target.driver and not target.gpus:
        sentence = f"Neither GPU nor driver of {target.title} are known: name them with --gpu and --driver, or --site."
        return Recommendation(name, target.title, sentence)
    machine, notes = _assume_driver(target, tables)
    judged = [_judge_row(row, machine, tables) for row in rows]
    known = [choice for choice in judged if choice.outcome != UNKNOWN]
    skipped = len(judged) - len(known)
    if skipped:
        tags_are = "tag is" if skipped == 1 else "tags are"
        notes.append(f"{skipped} of {len(judged)} {tags_are} left out, as too little is known about them")
    best = _find_best(known)
    if best is None:
        sentence = _tell_nothing(name, rows, known, machine)
        return Recommendation(name, machine.title, sentence, None, None, len(known), skipped, tuple(notes))
    newer = [each for each in known if order(each.tag) > order(best.tag) and each.outcome in _WAYS]
    other = newer[0] if newer and not newer[0].is_end_of_life else None
    row = next(row for row in rows if row.tag == best.tag)
    if not tells_architecture(row, machine.architecture):
        notes.append(f"whether {name}:{best.tag} has an image for {machine.architecture} is not known")
    sentence = _tell_choice(name, best, other, machine)
    return Recommendation(name, machine.title, sentence, best, other, len(known), skipped, tuple(notes))


def advise(verdict: Verdict, traits: ImageTraits, target: Target, tables: Tables) -> Verdict:
    """The verdict, with the tag of the same image that would run, where this one does not, or not natively."""
    if verdict.outcome in (NATIVE, UNKNOWN) or not (target.driver or target.gpus):
        return verdict
    found = recommend(traits.name, target, tables)
    if not found.judged or (found.best is not None and found.best.outcome != NATIVE and verdict.outcome != NO):
        return verdict
    advice = Judgement("image", NOTE, found.sentence, f"Take {found.reference}." if found.best else "")
    return replace(verdict, judgements=(*verdict.judgements, advice))


def _judge_row(row: NgcRelease, target: Target, tables: Tables) -> Choice:
    traits = read_candidate(row, target.architecture, tables)
    verdict = judge(traits, target, tables)
    outcome = verdict.outcome
    if not target.gpus and outcome == UNKNOWN:
        # nothing is known of the GPUs: what the driver says is all there is
        outcome = next((each.outcome for each in verdict.judgements if each.subject == "driver"), UNKNOWN)
    return Choice(row.tag, outcome, verdict, row.is_end_of_life)


def _find_best(known: Sequence[Choice]) -> Choice | None:
    """Newest first; what NVIDIA deletes comes last."""
    for is_old in (False, True):
        lasting = [each for each in known if each.is_end_of_life is is_old]
        for outcomes in ((NATIVE,), (MINOR, FORWARD), (PTX,)):
            for each in lasting:
                if each.outcome in outcomes:
                    return each
    return None


def _assume_driver(target: Target, tables: Tables) -> tuple[Target, list[str]]:
    """Where no driver is named, the newest that drives the GPU; it is said that this is assumed."""
    if target.driver:
        return target, []
    last = [gpu.last_driver_branch for gpu in target.gpus if gpu.last_driver_branch is not None]
    newest = max((row.min_driver for row in tables.cuda if row.min_driver), key=order)
    driver = str(min(last)) if last else newest
    why = f"{driver}, the last branch for it," if last else f"{driver}, the newest known,"
    note = f"the driver is not known: {why} is assumed; name yours with --driver"
    return replace(target, driver=driver), [note]


def _tell_choice(name: str, best: Choice, other: Choice | None, target: Target) -> str:
    where = _name_target(target)
    sentence = f"{name}:{best.tag} is the newest that runs natively on {where}."
    if best.outcome != NATIVE:
        way = _WAYS[best.outcome]
        sentence = f"No tag is known to run natively on {where}; {name}:{best.tag} is the newest that runs {way}."
    if best.is_end_of_life:
        sentence += " NVIDIA deletes tags of its line, and nothing else fits: keep the file that you make of it."
    if other is not None and best.outcome == NATIVE:
        sentence += f" Newer ones, up to {other.tag}, run {_WAYS[other.outcome]}."
    return sentence


def _tell_no_rows(name: str, tables: Tables) -> str:
    known = ", ".join(sorted(image.removeprefix("nvcr.io/nvidia/") for image in tables.images))
    return f"No tags of {name} are known. Those of NVIDIA's images are known for: {known}."


def _tell_nothing(name: str, rows: Sequence[NgcRelease], known: Sequence[Choice], target: Target) -> str:
    """Why nothing fits."""
    label = next((row.framework for row in rows if row.framework), "") or name.rpartition("/")[2]
    where = _name_target(target)
    if not known:
        return f"Too little is known about the {label} images of NGC to say which of them runs on {where}."
    failing = [{each.subject for each in choice.verdict.failures} for choice in known]
    if all("gpu" in subjects for subjects in failing):
        gpus = " and ".join(f"{gpu.name} ({gpu.architecture}, {gpu.capability})" for gpu in target.gpus)
        count = f"{len(known)} of {len(rows)} are"
        return f"{label} images of NGC have had no kernels for {gpus} in any release that is known ({count})."
    if all("driver" in subjects for subjects in failing):
        return f"No {label} image of NGC runs on {where}: {_find_sentence(known[-1], 'driver')}"
    if all("processor" in subjects for subjects in failing):
        return f"No {label} image of NGC runs on {where}: {_find_sentence(known[-1], 'processor')}"
    newest, oldest = known[0], known[-1]
    return (
        f"No {label} image of NGC is known to run on {where}. {newest.tag}, the newest, {newest.verdict.headline}; "
        f"{oldest.tag}, the oldest, {oldest.verdict.headline}."
    )


def _find_sentence(choice: Choice, subject: str) -> str:
    return next(each.sentence for each in choice.verdict.judgements if each.subject == subject and each.level == FAIL)


def _name_target(target: Target) -> str:
    gpus = " and ".join(gpu.name for gpu in target.gpus)
    where = gpus or target.title
    return where if target.driver in where else f"{where} with driver {target.driver}"
