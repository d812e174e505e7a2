# SPDX-License-Identifier: BSD-3-Clause
"""The newest tag of an image that runs natively on a target; or the best that does in another way; or why none does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.base.counting import count_things
from kedge.base.frozen import JsonValue, frozen, replace
from kedge.base.versions import order
from kedge.compat.contents.read_traits import split_name
from kedge.compat.judge import judge
from kedge.compat.rules.driver_lookup import DriverChoice, find_offered_cuda, list_branches, tell_choices, tell_same
from kedge.compat.tables.gpu_names import AMD
from kedge.compat.tables.rows import NgcRelease
from kedge.compat.tag_candidates import list_candidates, read_candidate, resolve_image, tells_architecture
from kedge.compat.target import join_names
from kedge.compat.verdict import FAIL, FORWARD, MINOR, NATIVE, NO, NOTE, PTX, UNKNOWN, Judgement, Verdict

if TYPE_CHECKING:
    from kedge.compat.tables.load import Tables
    from kedge.compat.target import Target
    from kedge.compat.traits import ImageTraits

# Why nothing fits; empty where something does
NO_KERNELS, NO_DRIVER, NO_PROCESSOR, NOT_KNOWN, SEVERAL = "kernels", "driver", "processor", "not-known", "several"
OTHER_MAKER, NO_TAGS = "maker", "tags"
_ANOTHER_GPU = "Take another GPU."
_OTHER_BASE = (
    "Take another GPU; or run 'kedge recommend cuda' with the same --gpu or --on for a CUDA image that supports it."
)
_CUDA = "nvcr.io/nvidia/cuda"
WAYS = {
    NATIVE: "natively",
    MINOR: "by minor-version compatibility",
    FORWARD: "by forward compatibility",
    PTX: "with kernels compiled from PTX",
}


@frozen
class TagChoice(JsonValue):
    """One tag, and what comes of it on the target."""

    tag: str
    outcome: str
    verdict: Verdict
    is_end_of_life: bool = False  # NVIDIA deletes tags of its line


@frozen
class Recommendation(JsonValue):
    """What to take."""

    json_names = (("reason", None),)  # of a refusal, which is an error there
    json_also = ("tag", "reference")
    json_nulls = ("reference", "tag")

    image: str  # nvcr.io/nvidia/pytorch
    target: str
    sentence: str  # what a user reads
    best: TagChoice | None = None  # None: nothing fits, or it depends on the driver, which is unknown
    other: TagChoice | None = None  # newer than the best, and runs in another way
    judged: int = 0  # tags of which enough is known
    skipped: int = 0  # tags of which too little is known
    notes: tuple[str, ...] = ()
    by_driver: tuple[DriverChoice, ...] = ()  # where the driver is unknown: what to take with each branch
    reason: str = ""  # where nothing fits: NO_KERNELS, or another of the words for it

    @property
    def tag(self) -> str:
        """The best tag; empty where there is no one answer."""
        return self.best.tag if self.best else ""

    @property
    def reference(self) -> str:
        """The image to pull; empty where there is no one answer."""
        return f"{self.image}:{self.best.tag}" if self.best else ""


def recommend(
    image: str, target: Target, tables: Tables, *, tags: Sequence[str] | None = None, is_brief: bool = False
) -> Recommendation:
    """The newest tag for the target. `tags` are those that the registry has; else those that the tables know.

    Brief: the search ends with the answer, so that counts and notes are of the tags up to it alone.
    """
    name = resolve_image(image, tables)
    rows = list_candidates(name, target, tables, tags)
    if not rows:
        return Recommendation(name, target.title, _tell_no_rows(name, target, tables), reason=NO_TAGS)
    if not target.gpus:
        sentence = f"The GPU of {target.title} is unknown. Give it with --gpu, or a queue with --on SITE:QUEUE."
        return Recommendation(name, target.title, sentence)
    if all(gpu.brand == AMD for gpu in target.gpus):
        sentence = f"NGC images run on NVIDIA GPUs, and {target.gpus[0].name} is from AMD: take an image for ROCm."
        return Recommendation(name, target.title, sentence, reason=OTHER_MAKER)
    field = _Field(name, rows, target.architecture, tables, is_brief=is_brief)
    return _recommend_for(field, target) if target.driver else _recommend_by_driver(field, target)


def advise(verdict: Verdict, traits: ImageTraits, target: Target, tables: Tables) -> Verdict:
    """The verdict, with the tag of the same image that would run, where this one does not, or not natively."""
    if verdict.outcome in (NATIVE, UNKNOWN) or not target.gpus:
        return verdict
    image = split_name(traits.name)[0]
    if image not in tables.images:  # a file may be called as an image is
        return verdict
    advice = recommend(image, target, tables, is_brief=True)
    if not advice.judged or (advice.best is not None and advice.best.outcome != NATIVE and verdict.outcome != NO):
        return verdict
    judgements, remedy = verdict.judgements, ""
    if advice.best is not None:
        remedy = f"Take {advice.reference}." if verdict.outcome == NO else f"To run natively, take {advice.reference}."
    if advice.reason == NO_KERNELS:  # then no other tag helps, though each rule for itself would advise one
        judgements = tuple(
            replace(judgement, remedy="")
            if judgement.level == FAIL and judgement.subject in ("driver", "gpu")
            else judgement
            for judgement in judgements
        )
        remedy = tell_other_image(image, target, tables)
    return replace(verdict, judgements=(*judgements, Judgement("image", NOTE, advice.sentence, remedy)))


def tell_other_image(image: str, target: Target, tables: Tables) -> str:
    """What to do where no tag of an image has ever had kernels for a GPU: plain CUDA may still make code for it."""
    if image == _CUDA:
        return _ANOTHER_GPU
    plain = recommend(_CUDA, target, tables, is_brief=True)
    remedy = _OTHER_BASE if plain.best is not None or plain.by_driver else _ANOTHER_GPU
    return f"{remedy} {_tell_builds(image, target, tables)}".strip()


def _tell_builds(image: str, target: Target, tables: Tables) -> str:
    """The images of others that serve the GPU, with the warning that goes with them."""
    from kedge.compat.tables.known_images import tell_builds

    frameworks = {row.framework for row in tables.list_releases(image)}
    architectures = {gpu.architecture for gpu in target.gpus}
    if len(frameworks) != 1 or len(architectures) != 1:
        return ""
    return tell_builds(architectures.pop(), frameworks.pop())


class _Field:
    """The tags to choose from, newest first."""

    def __init__(
        self, name: str, rows: Sequence[NgcRelease], architecture: str, tables: Tables, *, is_brief: bool
    ) -> None:
        self.name, self.rows, self.tables = name, rows, tables
        self._architecture, self._is_brief = architecture, is_brief
        self._traits: list[ImageTraits] = []  # of the first rows, as far as they were asked for

    def judge(self, target: Target) -> list[TagChoice]:
        """What comes of each; in brief, up to the first that nothing can be better than."""
        return self._judge(target, is_brief=self._is_brief)

    def find_best(self, target: Target) -> TagChoice | None:
        """The one to take."""
        return _find_best(self._judge(target, is_brief=True))

    def _judge(self, target: Target, *, is_brief: bool) -> list[TagChoice]:
        judged = []
        for number, row in enumerate(self.rows):
            if number == len(self._traits):
                self._traits.append(read_candidate(row, self._architecture, self.tables))
            verdict = judge(self._traits[number], target, self.tables)
            judged.append(TagChoice(row.tag, verdict.outcome, verdict, row.is_end_of_life))
            if is_brief and verdict.outcome == NATIVE and not row.is_end_of_life:
                break
        return judged


def _recommend_for(field: _Field, target: Target) -> Recommendation:
    """Recommend an image for a target whose driver is known."""
    name, judged = field.name, field.judge(target)
    known = [choice for choice in judged if choice.outcome != UNKNOWN]
    skipped, notes = len(judged) - len(known), _note_skipped(judged)
    best = _find_best(known)
    if best is None:
        return _refuse(field, known, target, notes)
    newer = [choice for choice in known if order(choice.tag) > order(best.tag) and choice.outcome in WAYS]
    other = newer[0] if newer and not newer[0].is_end_of_life else None
    row = next(row for row in field.rows if row.tag == best.tag)
    ending = next((choice for choice in known if choice.outcome == NATIVE and choice.is_end_of_life), None)
    sentence = _tell_choice(name, best, other, target, ending=ending)
    if not tells_architecture(row, target.architecture):
        sentence += f" It is unknown whether it has an image for {target.architecture}."
    return Recommendation(
        image=name,
        target=target.title,
        sentence=sentence,
        best=best,
        other=other,
        judged=len(known),
        skipped=skipped,
        notes=tuple(notes),
    )


def _recommend_by_driver(field: _Field, target: Target) -> Recommendation:
    """Recommend for each driver branch in use, from the oldest with an answer; one answer where all give the same."""
    name, tables = field.name, field.tables
    usual = list_branches(tables)
    last = min((gpu.last_driver_branch for gpu in target.gpus if gpu.last_driver_branch), default=usual[-1])
    branches = [branch for branch in usual if branch <= last] or [last]
    by_branch = {branch: field.find_best(replace(target, driver=str(branch))) for branch in branches}
    choices = tuple(
        DriverChoice(branch, find_offered_cuda(str(branch), tables), best.tag, best.outcome)
        for branch, best in by_branch.items()
        if best is not None
    )
    if len({(choice.tag, choice.outcome) for choice in choices}) == 1:
        only = _recommend_for(field, replace(target, driver=str(choices[0].branch)))
        return _share_choice(only, choices, target)
    judged = field.judge(replace(target, driver=str(branches[-1])))
    known, notes = [choice for choice in judged if choice.outcome != UNKNOWN], _note_skipped(judged)
    if not choices:
        return _refuse(field, known, target, notes)
    sentence, skipped = tell_choices(name, _name_target(target), choices, WAYS), len(judged) - len(known)
    return Recommendation(
        image=name,
        target=target.title,
        sentence=sentence,
        best=None,
        other=None,
        judged=len(known),
        skipped=skipped,
        notes=tuple(notes),
        by_driver=choices,
    )


def _refuse(field: _Field, known: Sequence[TagChoice], target: Target, notes: Sequence[str]) -> Recommendation:
    reason = _find_reason(known)
    return Recommendation(
        field.name,
        target.title,
        _tell_nothing(field, known, target, reason),
        judged=len(known),
        skipped=len(field.rows) - len(known),
        notes=tuple(notes),
        reason=reason,
    )


def _share_choice(only: Recommendation, choices: tuple[DriverChoice, ...], target: Target) -> Recommendation:
    """Recommend what is the same with all branches; only that is said of the driver."""
    notes = (tell_same(choices), *only.notes)
    if len(choices) == 1 or only.best is None:
        return replace(only, notes=notes, by_driver=choices)
    sentence = _tell_choice(only.image, only.best, None, target)
    return replace(only, sentence=sentence, other=None, notes=notes, by_driver=choices)


def _note_skipped(judged: Sequence[TagChoice]) -> list[str]:
    """Say how many tags were skipped for lack of data, and what is missing of them."""
    skipped = [choice.verdict for choice in judged if choice.outcome == UNKNOWN]
    if not skipped:
        return []
    missing = {"kernels": 0, "CUDA": 0, "driver": 0}
    for verdict in skipped:
        for judgement in verdict.judgements:
            if judgement.outcome == UNKNOWN and judgement.subject == "gpu":
                missing["kernels"] += 1
            elif judgement.outcome == UNKNOWN and judgement.subject == "driver":
                missing["CUDA" if judgement.level == NOTE else "driver"] += 1
    counts = ", ".join(f"{what}: {count}" for what, count in missing.items() if count)
    return [f"skipped {len(skipped)} of {count_things(len(judged), 'tag')} for lack of data ({counts})"]


def _find_best(known: Sequence[TagChoice]) -> TagChoice | None:
    """Newest first; what NVIDIA deletes comes last."""
    for is_old in (False, True):
        lasting = [choice for choice in known if choice.is_end_of_life is is_old]
        for outcomes in ((NATIVE,), (MINOR, FORWARD), (PTX,)):
            for each in lasting:
                if each.outcome in outcomes:
                    return each
    return None


def _tell_choice(
    name: str, best: TagChoice, other: TagChoice | None, target: Target, *, ending: TagChoice | None = None
) -> str:
    """`ending` runs natively, but NVIDIA deletes tags of its release line."""
    where = _name_target(target)
    sentence = f"{name}:{best.tag} is the newest tag that runs natively on {where}."
    if best.outcome != NATIVE:
        way = WAYS[best.outcome]
        none = "No tag" if ending is None else "No tag that NVIDIA keeps"
        sentence = f"{none} is known to run natively on {where}; {name}:{best.tag} is the newest tag that runs {way}."
        if ending is not None and not best.is_end_of_life:
            sentence += f" {ending.tag} runs natively, but NVIDIA deletes tags of its release line."
    if best.is_end_of_life:
        sentence += " NVIDIA deletes tags of its release line, and no other tag fits: keep the SIF file."
    if other is not None and best.outcome == NATIVE:
        sentence += f" Newer tags, up to {other.tag}, run {WAYS[other.outcome]}."
    return sentence


def _tell_no_rows(name: str, target: Target, tables: Tables) -> str:
    if any(gpu.kind == "embedded" for gpu in target.gpus) and name in tables.images:
        return f"The tables have no tags of {name} for Jetson boards such as {target.gpus[0].name}; they end in -igpu."
    if name in tables.images:
        return f"The tables have no tag of {name} that fits and has an image for {target.architecture}."
    known = ", ".join(sorted(image.removeprefix("nvcr.io/nvidia/") for image in tables.images))
    return f"The tables have no tags of {name}. They have those of: {known}."


def _find_reason(known: Sequence[TagChoice]) -> str:
    """What keeps all of them from running, if it is one reason."""
    if not known:
        return NOT_KNOWN
    failing = [{each.subject for each in choice.verdict.failures} for choice in known]
    for subject, reason in (("gpu", NO_KERNELS), ("driver", NO_DRIVER), ("processor", NO_PROCESSOR)):
        if all(subject in subjects for subjects in failing):
            return reason
    return SEVERAL


def _tell_nothing(field: _Field, known: Sequence[TagChoice], target: Target, reason: str) -> str:
    """Why nothing fits; where the driver is unknown, nothing fits with any."""
    name, rows = field.name, field.rows
    frameworks = {row.framework for row in rows if row.framework}
    label = frameworks.pop() if len(frameworks) == 1 else name.rpartition("/")[2]
    where = _name_target(target)
    if reason == NOT_KNOWN:
        return f"The tables have too little data on the {label} images of NGC to choose one for {where}."
    if reason == NO_KERNELS:
        gpus = join_names(f"{gpu.name} ({gpu.architecture}, {gpu.capability})" for gpu in target.gpus)
        surely = f"{len(known)} of {len(rows)} surely have none" if len(known) < len(rows) else "none of them has any"
        return f"No {label} image of NGC is known to have kernels for {gpus}: {surely}."
    if not target.driver and reason != NO_PROCESSOR:
        return f"No {label} image of NGC is known to run on {where} with any driver."
    if reason in (NO_DRIVER, NO_PROCESSOR):
        return f"No {label} image of NGC runs on {where}. {_find_sentence(known[-1], reason)}"
    newest, oldest = known[0], known[-1]
    return (
        f"No {label} image of NGC is known to run on {where}. {newest.tag}, the newest, {newest.verdict.headline}; "
        f"{oldest.tag}, the oldest, {oldest.verdict.headline}."
    )


def _find_sentence(choice: TagChoice, subject: str) -> str:
    return next(each.sentence for each in choice.verdict.judgements if each.subject == subject and each.level == FAIL)


def _name_target(target: Target) -> str:
    where = join_names(gpu.name for gpu in target.gpus) or target.title
    return where if not target.driver or target.driver in where else f"{where} with driver {target.driver}"
