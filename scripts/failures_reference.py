# SPDX-License-Identifier: BSD-3-Clause
"""For scripts/make-reference: reference/failures.md, every message that `kedge diagnose` knows, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kedge.compat.failures.catalogue import SHIPPED, read_failures
from kedge.compat.failures.catalogue import CAUSE, CERTAIN, CONSEQUENCE, GENERAL, NOTE, Failure
from kedge.compat.failures.find_clues import find_clues

# tables of data/failures.toml, and their headings, in the order of the page
_SUBJECTS = {
    "own_program": "kedge on compute nodes",
    "scheduler": "Scheduler",
    "memory": "Memory",
    "driver": "NVIDIA driver",
    "cuda": "CUDA and GPUs",
    "libraries": "Libraries",
    "mpi": "MPI",
    "pmi": "PMI",
    "fabric": "Shared memory and network",
    "rendezvous": "Rendezvous",
    "nccl": "NCCL and Gloo",
    "containers": "Containers",
    "registry": "Registries",
    "python": "Python",
    "files": "Files",
    "shell": "Shell",
    "endings": "Ranks that ended",
}
_LABELS = {CAUSE: "Cause", GENERAL: "Cause", CONSEQUENCE: "Follows from another failure", NOTE: "Note"}
_HEAD = """\
# Messages of failed jobs

Search this page for the message in your log. [`kedge diagnose`](../guides/failures.md) does it for you: it reads the
log of a job and prints the cause. For errors of kedge itself see [Troubleshooting](../guides/troubleshooting.md).

The messages are examples; kedge also recognises variants of them. "likely" and "possible" mean that the message has
other causes, too.
"""


def make_failures_page() -> str:
    """The whole page."""
    known = [failure for failure in read_failures(SHIPPED)[0] if not failure.is_exception]
    assert {failure.subject for failure in known} == set(_SUBJECTS), "a subject of the table has no heading"
    parts = {title: [each for each in known if each.subject == subject] for subject, title in _SUBJECTS.items()}
    lines = [_HEAD]
    for title, failures in parts.items():
        lines += [f"## {title}", "", *(line for failure in failures for line in _describe(failure))]
    return "\n".join(lines)


def _describe(failure: Failure) -> Iterator[str]:
    """Its message, and what kedge says about this very message."""
    example = failure.examples[0]
    clue = find_clues(example, notes=True)[0]
    label = _LABELS[failure.level] + ("" if failure.sure == CERTAIN else f" ({failure.sure})")
    yield from (f"### {failure.name}", "", "```text", *example.splitlines(), "```", "")
    yield from (f"**{label}:** {_mark(clue.cause)}.", "", f"**Remedy:** {_mark(clue.remedy)}.", "")


def _mark(sentence: str) -> str:
    """Commands of kedge as code, and no character that a page reads as markup."""
    parts = re.split(r"'(kedge [^']+)'", sentence)
    shown = [f"`{part}`" if place % 2 else re.sub(r"([\\`*<>])", r"\\\1", part) for place, part in enumerate(parts)]
    return "".join(shown)
