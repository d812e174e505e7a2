# SPDX-License-Identifier: BSD-3-Clause
"""The check of one image for `kedge doctor IMAGE`: the answer of explain as findings, in bounded time."""

from __future__ import annotations

from functools import partial

from kedge.answers.doctor.finding import WARNING, Finding
from kedge.answers.doctor.image_findings import NAME, explain_problem, judge_image
from kedge.answers.doctor.surroundings import Check, Surroundings
from kedge.answers.explain import Explanation, chart_explanation, explain
from kedge.answers.targets import find_target
from kedge.base.frozen import replace
from kedge.base.progress import Silent
from kedge.base.reference import Reference
from kedge.cluster.site import Site
from kedge.compat.driver_chart import Chart
from kedge.compat.known_tables import load_known_tables
from kedge.compat.tables.load import Tables
from kedge.compat.target import Target
from kedge.errors import KedgeError
from kedge.image.workplace import Workplace
from kedge.system.bounded_threads import answer_within

_REGISTRY_SECONDS = 1.2  # then the tables alone are asked
_SECONDS = 1.7


def make_image_check(text: str) -> Check:
    """The check of the image that `text` names; raises InvalidReference at once where it names none."""
    reference = Reference.parse(text)
    return Check(NAME, "image", "Image", partial(_check_image, reference), _SECONDS)


def _check_image(reference: Reference, surroundings: Surroundings) -> list[Finding]:
    settings, environ = surroundings.settings, surroundings.environ
    try:
        tables = load_known_tables(environ, Silent())
        target = _choose_target(surroundings, tables)
        answer = _explain(reference, surroundings, target, tables)
    except KedgeError as problem:
        return [explain_problem(reference.redacted, problem)]
    late = []
    if isinstance(answer, str):
        why = "the findings lack the registry's data about the image; a pull would be slow, too"
        late = [
            Finding(
                NAME, WARNING, answer, why=why, fix="see the check 'registries'", docs="kedge help doctor registries"
            )
        ]
        try:
            answer = explain(reference, Workplace(settings), target=target, offline=True, tables=tables)
        except KedgeError:
            return late
    return [*judge_image(answer.traits, answer.verdict, answer.target, environ), *late]


def explain_checked(text: str, surroundings: Surroundings) -> tuple[Explanation, Chart | None] | None:
    """The explanation of a checked image for a page, from the cache, where the check left it, and the tables."""
    settings, environ = surroundings.settings, surroundings.environ
    try:
        tables = load_known_tables(environ, Silent())
        target = _choose_target(surroundings, tables)
        explanation = explain(Reference.parse(text), Workplace(settings), target=target, offline=True, tables=tables)
        return explanation, chart_explanation(explanation, tables)
    except KedgeError:
        return None  # the check has said why


def _explain(reference: Reference, surroundings: Surroundings, target: Target, tables: Tables) -> Explanation | str:
    """The explanation, or a sentence where the registry did not answer in time."""
    workplace = Workplace(replace(surroundings.settings, retries=0))
    seconds = _REGISTRY_SECONDS * surroundings.patience

    def ask() -> Explanation | KedgeError:
        try:
            return explain(reference, workplace, target=target, tables=tables)
        except KedgeError as problem:
            return problem

    if reference.is_local or surroundings.is_offline:
        return explain(reference, workplace, target=target, offline=surroundings.is_offline, tables=tables)
    answer = answer_within(seconds, {NAME: ask}).get(NAME)
    if isinstance(answer, KedgeError):
        raise answer
    return answer or f"{reference.registry} did not describe {reference.name} within {seconds:g} s"


def _choose_target(surroundings: Surroundings, tables: Tables) -> Target:
    """The target: the requested site, or this host; if the host has no GPU, the queues of its site."""
    settings, environ, site = surroundings.settings, surroundings.environ, surroundings.site
    name = settings.site if settings.site and settings.sources["site"].kind in ("flag", "environment") else ""
    if name:
        return find_target(site=name, environ=environ, settings=settings, tables=tables)
    here = find_target(environ=environ, settings=settings, tables=tables)
    if here.has_gpus is False and site is not None and _has_gpu_queues(site):
        return find_target(site=site.name, environ=environ, settings=settings, tables=tables)
    return here


def _has_gpu_queues(site: Site) -> bool:
    return any(queue.gpu and not queue.is_retired for queue in site.queues)
