# SPDX-License-Identifier: BSD-3-Clause
"""The schedulers by name. Each is a package beside this module; only what is asked for of it is loaded."""

from __future__ import annotations

import importlib

from kedge.cluster.schedulers.facts import RefusalAdvice, SchedulerFacts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kedge.cluster.schedulers.backend import Backend, Discover, ReadAllocation, UsageReader
    from kedge.cluster.schedulers.language import Language

# A new scheduler is a package and a word here; where signs of several are found, the first one counts.
SCHEDULERS = (
    "slurm",
    "gridengine",
    "pbs",
    "local",
)


def find_backend(name: str) -> Backend:
    """What writes its scripts and reads its answers."""
    if name not in SCHEDULERS:
        from kedge.errors import NoScheduler  # late: only for an error

        raise NoScheduler(f"kedge does not know the scheduler '{name}'", hint=f"use one of: {', '.join(SCHEDULERS)}")
    backend: Backend = _load(name, "backend").BACKEND
    return backend


def find_facts(name: str) -> SchedulerFacts:
    """Return what a scheduler calls its programs and variables; also one that is only recognised."""
    if name in SCHEDULERS:
        facts: SchedulerFacts = importlib.import_module(f"kedge.cluster.schedulers.{name}").FACTS
        return facts
    from kedge.cluster.schedulers.recognised import RECOGNISED  # late: rare

    return RECOGNISED[name]


def list_facts(*, also_recognised: bool = False) -> list[SchedulerFacts]:
    """Return the facts of all schedulers, in the order in which their signs count."""
    known = [find_facts(name) for name in SCHEDULERS]
    if not also_recognised:
        return known
    from kedge.cluster.schedulers.recognised import RECOGNISED

    return [*known, *RECOGNISED.values()]


def find_language(name: str) -> Language:
    """Return how a scheduler reads a script; of one only recognised, how its directives are told from comments."""
    if name in SCHEDULERS:
        language: Language = _load(name, "language").LANGUAGE
        return language
    from kedge.cluster.schedulers.language import LANGUAGES

    return LANGUAGES[name]


def list_languages() -> list[Language]:
    """Return the languages of all schedulers whose directives can be told from comments."""
    return [find_language(facts.name) for facts in list_facts(also_recognised=True)]


def find_discovery(name: str) -> Discover | None:
    """What describes a site by asking its scheduler; None for a scheduler that is not asked."""
    from importlib.util import find_spec

    if find_spec(f"kedge.cluster.schedulers.{name}.discover") is None:
        return None
    discover: Discover = _load(name, "discover").discover
    return discover


def find_allocation_reader(name: str) -> ReadAllocation:
    """What tells the nodes of a job from its environment."""
    reader: ReadAllocation = _load(name, "allocation").read_allocation
    return reader


def find_usage_reader(name: str) -> UsageReader | None:
    """What tells from accounting what jobs used; None for a scheduler that keeps none."""
    from importlib.util import find_spec

    if find_spec(f"kedge.cluster.schedulers.{name}.usage") is None:
        return None
    reader: UsageReader = _load(name, "usage")
    return reader


def list_advice() -> list[RefusalAdvice]:
    """What the programs of all schedulers say when they refuse, and what to do about it."""
    return [_load(name, "advice").ADVICE for name in SCHEDULERS]


def _load(name: str, part: str) -> Any:
    return importlib.import_module(f"kedge.cluster.schedulers.{name}.{part}")
