# SPDX-License-Identifier: BSD-3-Clause
"""What is known of the image and of the machine, and where from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kedge.answers.pages.document import make_section, make_table
from kedge.answers.pages.markup import Markup, format_sentence, make_element
from kedge.base.size import format_size
from kedge.compat.target import Gpu, Target
from kedge.compat.traits import TITLES, Fact, ImageTraits

UNKNOWN_VALUE = Markup('<span class="quiet">unknown</span>')
_MOST_ROWS = 60
_CONFIG = "image config"


def make_facts(traits: ImageTraits) -> Markup:
    """The table of an image's facts; what is not known is in it, too, and says so."""
    facts = [(TITLES[name], fact) for name, fact in traits.known.items()] + _list_more_facts(traits)
    rows = [_make_row(title, fact) for title, fact in facts[:_MOST_ROWS]]
    table = make_table(("What", "Value", "Known from"), rows, "facts")
    notes = [make_element("p", format_sentence(note), class_="text") for note in traits.notes[:20]]
    return make_section("What is in the image", table, *notes)


def _make_row(title: str, fact: Fact) -> Markup:
    value = make_element("span", fact.value, class_="text") if fact else UNKNOWN_VALUE
    source = make_element("td", fact.source if fact else "", class_="source")
    return make_element("tr", make_element("th", title, scope="row"), make_element("td", value), source)


def _list_more_facts(traits: ImageTraits) -> list[tuple[str, Fact]]:
    """What is no software: libraries for older drivers, demands, architectures, what starts, and where it is from."""
    size = Fact(format_size(traits.size), "sum of what is fetched") if traits.size is not None else Fact()
    facts = [
        ("Libraries for older drivers", traits.compat),
        ("… for host driver branches", traits.compat_branches),
        *((name, Fact(value, _CONFIG)) for name, value in traits.requires[:8]),
        ("CPU architecture", Fact(traits.architecture, _CONFIG)),
        ("Architectures under this name", Fact(", ".join(traits.architectures[:12]), "image index")),
        ("Entrypoint", Fact(" ".join(traits.entrypoint[:20]), _CONFIG)),
        ("Command", Fact(" ".join(traits.command[:20]), _CONFIG)),
        ("Size", size),
        ("Created", Fact(traits.created, _CONFIG)),
        ("Digest", Fact(traits.digest, "registry")),
    ]
    if traits.disables_requires:
        facts.append(("Demands", Fact("switched off by the image", "image config, NVIDIA_DISABLE_REQUIRE")))
    return facts


def make_machine(target: Target | None, offered: str = "") -> Markup | None:
    """The machine that the image was judged against; `offered` is its driver's CUDA by the table."""
    if target is None:
        return None
    gpus = "none" if target.has_gpus is False else ", ".join(_describe_gpu(gpu) for gpu in target.gpus[:12])
    cpu = " · ".join(part for part in (target.architecture, target.cpu) if part)
    cards = [
        _make_card("GPU", gpus),
        _make_card("Driver", target.driver, target.driver_source),
        _make_card("CUDA that the driver offers", target.cuda or offered, "" if target.cuda else "by the table"),
        _make_card("CPU", cpu),
        _make_card("glibc", target.glibc),
        _make_card("MPI", target.mpi),
    ]
    notes = [make_element("p", format_sentence(note), class_="text") for note in target.notes[:20]]
    return make_section(f"The machine: {target.title}", make_element("dl", *cards, class_="cards"), *notes)


def _describe_gpu(gpu: Gpu) -> str:
    count = f"{gpu.count} × " if gpu.count > 1 else ""
    more = [gpu.architecture, f"capability {gpu.capability}" if gpu.capability else ""]
    words = ", ".join(word for word in more if word)
    return f"{count}{gpu.name} ({words})" if words else f"{count}{gpu.name}"


def _make_card(title: str, value: str, source: str = "") -> Markup:
    shown = make_element("dd", value or UNKNOWN_VALUE)
    return make_element(
        "div",
        make_element("dt", title),
        shown,
        make_element("dd", source, class_="source") if source and value else None,
    )


def make_summary(summary: Mapping[str, str] | Iterable[tuple[str, str]], title: str) -> Markup | None:
    """Names and values that the caller has gathered."""
    pairs = list(summary.items() if isinstance(summary, Mapping) else summary)[:_MOST_ROWS]
    if not pairs:
        return None
    rows = (
        make_element("tr", make_element("th", name, scope="row"), make_element("td", value or UNKNOWN_VALUE))
        for name, value in pairs
    )
    return make_section(title, make_element("table", make_element("tbody", *rows), class_="summary"))
