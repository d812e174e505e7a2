# SPDX-License-Identifier: BSD-3-Clause
"""The tag of an image to take for a machine: the newest that runs natively there, of those that can still be pulled."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from kedge.compat.recommend import Choice, Recommendation, recommend
from kedge.compat.tables.load import Tables
from kedge.compat.target import Target
from kedge.errors import NothingFits, UsageError
from kedge.frozen import frozen
from kedge.ops.known_tables import Repository, propose_image
from kedge.ops.tags import ask_registry, list_newer
from kedge.ops.workplace import Workplace

_SHOWN = 3


@frozen
class Advice:
    """What to take, how to get it, and what else there is."""

    recommendation: Recommendation
    best: Choice | None  # None: it depends on the driver, which is not known
    name: str  # nvcr.io/nvidia/pytorch:24.03-py3; nvcr.io/nvidia/pytorch where there is no one tag
    command: str  # to pull it; empty where there is no one tag
    is_from_registry: bool  # the registry was asked, so it can be pulled
    newer: tuple[str, ...] = ()  # tags that the tables do not know yet
    caveats: tuple[str, ...] = ()  # what the recommendation rests on
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """All of it, as `--json` prints it."""
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
    offline: bool = False,
) -> Advice:
    """The tag for a target, or one for each driver branch where its driver is not known.

    Raises NothingFits, which says why, where there is none.
    """
    known = tables.list_releases(repository.image)
    if not known:
        raise _explain_unknown(repository, tables)
    if not target.gpus and not target.driver:
        raise UsageError(
            f"neither a GPU nor a driver is known of {target.title}",
            hint="name the queue that is meant with --on SITE:QUEUE, or a GPU: --gpu A100 --driver 535.104.05",
        )
    notes = [repository.note] if repository.note else []
    there = None if offline else ask_registry(repository, workplace, notes, has_tables=True)
    if offline:
        notes.append(f"{repository.registry} was not asked: whether it still has the tag is not known")
    wanted = match or repository.tag
    tags = _choose_tags([row.tag for row in known] if there is None else there, wanted)
    found = recommend(repository.image, target, tables, tags=tags)
    newer = tuple(tag for tag in list_newer(repository.image, there or (), tables) if not match or tag in tags)
    # What the target says about a driver that is not known, the recommendation says better.
    caveats = [*(note for note in target.notes if target.driver or "driver" not in note), *found.notes]
    notes += _tell_newer(newer)
    if found.best is None and not found.by_driver:
        raise _explain_nothing(found, repository, caveats, match=wanted)
    name, command = repository.name, ""
    if found.best is not None:
        name = f"{repository.name}:{found.best.tag}"
        command = f"kedge pull docker://{name}"
    told = tuple(dict.fromkeys(caveats))
    return Advice(found, found.best, name, command, there is not None, newer, told, tuple(notes))


def _choose_tags(tags: Sequence[str], match: str) -> list[str]:
    chosen = [tag for tag in tags if not match or fnmatchcase(tag, match)]
    if not chosen and match:
        raise NothingFits(
            f"there is no tag that fits '{match}'", hint="leave out --match, or write it as in '*-tf2-py3'"
        )
    return chosen


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


def _explain_nothing(
    found: Recommendation, repository: Repository, caveats: Sequence[str], *, match: str
) -> NothingFits:
    hint = f"'kedge tags {repository.name}' with the same options shows what each tag needs"
    if match:
        hint += "; without --match there may be others"
    elif found.skipped and not found.judged:
        hint = f"'kedge data update' learns what is in the tags of {repository.name}"
    context = {"target": found.target, "tags judged": str(found.judged), "tags not known enough": str(found.skipped)}
    context |= {f"note {number}": note for number, note in enumerate(caveats, 1)}
    return NothingFits(found.sentence.rstrip("."), context=context, hint=hint)
