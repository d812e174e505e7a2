# SPDX-License-Identifier: BSD-3-Clause
"""Explains an image before anything is pulled: what is in it, what it needs, and whether it runs on a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.base.frozen import JsonValue, frozen, replace
from kedge.base.frozen import replace as put
from kedge.base.reference import Reference, Transport
from kedge.compat.contents.read_traits import split_name
from kedge.compat.driver_chart import Chart, make_chart
from kedge.compat.image_traits import read_image_traits, read_table_traits
from kedge.compat.judge import judge
from kedge.compat.known_tables import propose_reference
from kedge.compat.recommend import advise
from kedge.compat.tables.load import Tables
from kedge.compat.target import Target
from kedge.compat.traits import ImageTraits
from kedge.compat.verdict import Verdict
from kedge.errors import AuthenticationFailed, ImageNotFound, NetworkFailed
from kedge.image.workplace import MORE_RETRIES, Workplace

if TYPE_CHECKING:
    from kedge.image.registry.access_options import AccessOptions


@frozen
class Explanation(JsonValue):
    """What is in an image, and what becomes of it on a target."""

    json_names = (("traits", "image"),)

    traits: ImageTraits
    verdict: Verdict | None = None
    target: Target | None = None
    requests: int = 0  # answers that registries, token services and their storage gave
    received: int = 0  # bytes of their bodies


class _Meter:
    """Counts what registries answer."""

    def __init__(self) -> None:
        self.requests = self.received = 0

    def count(self, answers: int, received: int) -> None:
        self.requests += answers
        self.received += received


def explain(
    reference: Reference,
    workplace: Workplace,
    *,
    tables: Tables,
    target: Target | None = None,
    offline: bool = False,
) -> Explanation:
    """Explain what is in the image; with a target also whether it runs there.

    Of an image in a registry index, manifest and config are read, which are a few kB; the store keeps them.
    """
    meter = _Meter()
    place = _prepare(workplace, meter, reference, tables)
    prefer = target.architecture if target is not None else ""
    try:
        traits = read_image_traits(reference, place, tables, offline=offline, prefer=prefer)
    except (ImageNotFound, NetworkFailed, AuthenticationFailed) as problem:
        meant = propose_reference(reference, tables) if reference.transport is Transport.DOCKER else ""
        more = MORE_RETRIES if isinstance(problem, NetworkFailed) and place.is_hurried else ""
        problem.hint = "; ".join(part for part in (meant, problem.hint, more) if part).replace("?; ", "? ") or None
        raise
    verdict = None
    if target is not None:
        verdict = advise(judge(traits, target, tables), traits, target, tables)
    return Explanation(traits, verdict, target, meter.requests, meter.received)


def chart_explanation(explanation: Explanation, tables: Tables) -> Chart | None:
    """Driver × tag of the image's repository; None where the tables do not have it."""
    image, tag = split_name(explanation.traits.name)
    if not tables.list_releases(image):
        return None
    return make_chart(image, tables, explanation.target, tag=tag, traits=explanation.traits)


def _prepare(workplace: Workplace, meter: _Meter, reference: Reference, tables: Tables) -> Workplace:
    """Count what is asked, and do not insist where the tables know it."""
    workplace, settings = workplace.hurry(), workplace.settings
    if read_table_traits(reference, tables) is not None:
        settings = put(settings, retries=0)
    return replace(workplace, settings=settings, access=_count_with(workplace.access, meter))


def _count_with(access: AccessOptions | None, meter: _Meter) -> AccessOptions:
    from kedge.image.registry.access_options import AccessOptions  # late: a local image needs no registry

    return replace(access or AccessOptions(), count=meter.count)
