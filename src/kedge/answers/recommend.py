# SPDX-License-Identifier: BSD-3-Clause
"""The tag of an image to take for a host: the newest that runs natively there, of those that can still be pulled."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from kedge.answers.tags import ask_registry, list_newer
from kedge.answers.targets import require_gpus
from kedge.base.counting import count_things
from kedge.base.frozen import frozen
from kedge.compat.contents.needs import VARIANTS, Need, choose_by_needs, has_variant, is_before_release, read_need
from kedge.compat.known_tables import Repository, propose_image
from kedge.compat.recommend import (
    NO_KERNELS,
    NOT_KNOWN,
    OTHER_MAKER,
    Recommendation,
    TagChoice,
    recommend,
    tell_other_image,
)
from kedge.compat.tables.learned import was_read
from kedge.compat.tables.load import Tables
from kedge.compat.tables.rows import NgcRelease
from kedge.compat.target import Target
from kedge.errors import NothingFits
from kedge.image.workplace import Workplace

_SHOWN = 3


@frozen
class Advice:
    """What to take, how to get it, and what else there is."""

    recommendation: Recommendation
    best: TagChoice | None  # None: it depends on the driver, which is unknown
    name: str  # nvcr.io/nvidia/pytorch:24.03-py3; nvcr.io/nvidia/pytorch where there is no one tag
    command: str  # to pull it; empty where there is no one tag
    is_from_registry: bool  # the registry was asked, so it can be pulled
    newer: tuple[str, ...] = ()  # tags that the tables do not know yet
    caveats: tuple[str, ...] = ()  # what the recommendation rests on
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return all of the advice, as `--json` prints it."""
        return {
            **self.recommendation.as_dict(),
            "reference": self.name if self.best is not None else None,
            "command": self.command or None,
            "is_from_registry": self.is_from_registry,
            "newer": list(self.newer),
            "notes": [*self.caveats, *self.notes],
        }


def recommend_tag(
    repository: Repository,
    workplace: Workplace,
    tables: Tables,
    *,
    target: Target,
    match: str = "",
    needs: Sequence[str] = (),
    variant: str = "",
    offline: bool = False,
) -> Advice:
    """The tag for a target, or one for each driver branch where its driver is unknown.

    Raises NothingFits, which says why, where there is none.
    """
    known = tables.list_releases(repository.image)
    if not known:
        raise _explain_unknown(repository, tables)
    require_gpus(target)
    notes = [repository.note] if repository.note else []
    there = None if offline else ask_registry(repository, workplace, notes, has_tables=True)
    if offline:
        notes.append(f"{repository.registry} was not asked (--offline): it is unknown whether it still has the tag")
    wanted = match or repository.tag
    tags = _choose_tags([row.tag for row in known] if there is None else there, wanted)
    tags, conditions = _narrow(tags, repository, known, needs=[read_need(need) for need in needs], variant=variant)
    recommendation = recommend(repository.image, target, tables, tags=tags)
    newer = tuple(tag for tag in list_newer(repository.image, there or (), tables) if not match or tag in tags)
    # What the target says about an unknown driver, the recommendation says better.
    caveats = [*(note for note in target.notes if target.driver or "driver" not in note), *recommendation.notes]
    if wanted:
        caveats.append(f"only tags that match '{wanted}' were considered")
    caveats += conditions
    best = next((row for row in known if row.tag == recommendation.tag), None)
    if best is not None and is_before_release(best, [read_need(need) for need in needs]):
        caveats.append(
            f"{best.framework} {best.framework_version} is NVIDIA's build from before that version's release"
        )
    notes += _tell_newer(newer)
    if recommendation.best is None and not recommendation.by_driver:
        hint = _find_remedy(recommendation, repository, target, tables)
        raise _explain_nothing(recommendation, caveats, match=wanted, hint=hint)
    name, command = repository.name, ""
    if recommendation.best is not None:
        name = f"{repository.name}:{recommendation.best.tag}"
        command = f"kedge pull docker://{name}"
    caveats = list(dict.fromkeys(caveats))
    return Advice(
        recommendation=recommendation,
        best=recommendation.best,
        name=name,
        command=command,
        is_from_registry=there is not None,
        newer=newer,
        caveats=tuple(caveats),
        notes=tuple(notes),
    )


def _choose_tags(tags: Sequence[str], match: str) -> list[str]:
    chosen = [tag for tag in tags if not match or fnmatchcase(tag, match)]
    if not chosen and match:
        raise NothingFits(f"no tag matches '{match}'", hint="leave out --match, or write it as in '*-tf2-py3'")
    return chosen


def _narrow(
    tags: Sequence[str], repository: Repository, known: Sequence[NgcRelease], *, needs: Sequence[Need], variant: str
) -> tuple[list[str], list[str]]:
    """The tags of a variant that have what is needed, and what to say of those that were left out."""
    chosen, conditions = list(tags), []
    if variant:
        chosen = [tag for tag in chosen if has_variant(tag, variant)]
        if variant not in VARIANTS or not chosen:
            hint = f"the variants are those of CUDA images, as in: kedge recommend cuda --variant {variant}"
            raise NothingFits(f"no tag of {repository.name} is of the variant '{variant[:40]}'", hint=hint)
        conditions.append(f"only tags of the variant '{variant}' were considered: {VARIANTS[variant]}")
    if not needs:
        return chosen, conditions
    rows = {row.tag: row for row in known}
    answer = choose_by_needs([rows.get(tag) or NgcRelease(repository.image, tag) for tag in chosen], needs)
    wanted = " and ".join(need.text for need in needs)
    counts = ", ".join(f"{title}: {count}" for title, count in answer.unknown.items())
    skipped = f"of {count_things(answer.left_out, 'tag')} it is unknown ({counts})" if answer.left_out else ""
    if not answer.tags:
        hint = f"'kedge data update' learns it from the registry: {skipped}" if skipped else "ask for less"
        raise NothingFits(f"no tag of {repository.name} is known to have {wanted}", hint=hint)
    conditions.append(
        f"only the {count_things(len(answer.tags), 'tag')} that are known to have {wanted} were considered"
    )
    if skipped:
        conditions.append(f"{skipped}: 'kedge data update' learns it")
    return list(answer.tags), conditions


def _tell_newer(newer: Sequence[str]) -> list[str]:
    if not newer:
        return []
    shown = ", ".join(newer[:_SHOWN]) + (", …" if len(newer) > _SHOWN else "")
    are = "is newer, but not" if len(newer) == 1 else "are newer, but not"
    return [f"{shown} {are} in kedge's tables: 'kedge data update' learns what is in such tags"]


def _explain_unknown(repository: Repository, tables: Tables) -> NothingFits:
    return NothingFits(
        f"kedge's tables know no tags of {repository.name}, so none can be recommended",
        hint=f"{propose_image(repository.path, tables)}; or look at its tags: kedge tags {repository.name} --look",
    )


def _find_remedy(recommendation: Recommendation, repository: Repository, target: Target, tables: Tables) -> str:
    """What to do where nothing fits."""
    if recommendation.reason == NO_KERNELS:
        return tell_other_image(repository.image, target, tables).rstrip(".")
    if recommendation.reason == OTHER_MAKER:
        return "AMD's own are on Docker Hub, such as rocm/pytorch: 'kedge tags docker.io/rocm/pytorch'"
    if recommendation.reason == NOT_KNOWN and _can_learn(tables.list_releases(repository.image)):
        return f"'kedge data update' learns what the configs of {repository.name} say"
    if recommendation.reason == NOT_KNOWN:
        return f"'kedge explain {repository.name}:TAG' shows what is known; 'kedge run --nv' on such a node tries it"
    return f"'kedge tags {repository.name}' with the same options shows what each tag needs"


def _can_learn(rows: Sequence[NgcRelease]) -> bool:
    """Whether configs can tell what is missing: CUDA they do; kernels those of some images, of which one is known."""
    lists_kernels = any(row.capabilities for row in rows)
    return any(not row.cuda or (lists_kernels and not row.capabilities and not was_read(row)) for row in rows)


def _explain_nothing(recommendation: Recommendation, caveats: Sequence[str], *, match: str, hint: str) -> NothingFits:
    if match:
        hint += "; without --match other tags may fit"
    context = {
        "target": recommendation.target,
        "tags judged": str(recommendation.judged),
        "tags skipped": str(recommendation.skipped),
    }
    context |= {f"note {number}": note for number, note in enumerate(caveats, 1)}
    return NothingFits(recommendation.sentence.rstrip("."), context=context, hint=hint)
