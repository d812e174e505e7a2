# SPDX-License-Identifier: BSD-3-Clause
"""The page of `kedge explain`: whether an image runs on a machine, why, and what is in it."""

from __future__ import annotations

from kedge.answers.pages.chart_picture import make_chart_picture
from kedge.answers.pages.document import Imprint, fit_page, make_facts, make_machine, make_page
from kedge.answers.pages.layers_picture import make_layers_picture
from kedge.answers.pages.verdict_part import make_judgements, make_verdict_banner
from kedge.compat.driver_chart import Chart
from kedge.compat.target import Target
from kedge.compat.traits import ImageTraits
from kedge.compat.verdict import Verdict


def render_explanation(
    traits: ImageTraits,
    verdict: Verdict | None,
    target: Target | None,
    chart: Chart | None,
    *,
    made: str,
    version: str,
) -> str:
    """Return one HTML document that loads nothing; `made` is when, as it is to be read."""
    return fit_page(_make_page, traits, verdict, target, chart, Imprint(made, version))


def _make_page(
    traits: ImageTraits, verdict: Verdict | None, target: Target | None, chart: Chart | None, imprint: Imprint
) -> str:
    offered = next((column.cuda for column in chart.columns if column.is_host), "") if chart else ""
    parts = [
        make_verdict_banner(verdict),
        make_judgements(verdict),
        make_machine(target, offered),
        make_chart_picture(chart),
        make_facts(traits),
        make_layers_picture(traits.layers),
    ]
    return make_page(traits.name, "kedge explain", parts, imprint)
