# SPDX-License-Identifier: BSD-3-Clause
"""The page around the parts: one file that asks nothing of anybody, and that no value makes large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kedge.answers.pages.markup import Markup, clean_text, join_markup, make_element
from kedge.answers.pages.stylesheet import STYLE
from kedge.answers.pages.symbols import draw_marks
from kedge.base.frozen import frozen, list_names, replace

T = TypeVar("T")
LARGEST_PAGE = 100_000  # bytes
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_LONGEST_TITLE = 160
_LENGTHS = (800, 250, 80, 24, 16)  # of one piece of text; the first with which the page stays small is taken


@frozen
class Imprint:
    """Where a page is from."""

    made: str  # when, as it is to be read
    version: str  # of kedge


def make_page(title: str, kind: str, parts: Sequence[Markup | None], imprint: Imprint) -> str:
    """The whole document: `kind` is the small line above the title."""
    head = make_element(
        "head",
        make_element("meta", charset="utf-8"),
        make_element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        make_element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        make_element("meta", name="referrer", content="no-referrer"),
        make_element("meta", name="generator", content=f"kedge {imprint.version}"),
        make_element("title", clean_text(title, _LONGEST_TITLE)),
        make_element("style", Markup(STYLE)),
    )
    header = make_element(
        "header",
        make_element("div", f"{kind} · {clean_text(imprint.made, 40)}", class_="quiet small"),
        make_element("h1", clean_text(title, _LONGEST_TITLE), class_="text"),
    )
    footer = make_element(
        "footer",
        f"Written by kedge {imprint.version}, {imprint.made}. This page is one file; it loads and sends nothing.",
        class_="quiet small",
    )
    body = make_element("body", draw_marks(), header, make_element("main", join_markup(parts)), footer)
    return f"<!DOCTYPE html>\n{make_element('html', head, body, lang='en')}\n"


def make_section(title: str, *children: object) -> Markup:
    """A part of the page with its heading."""
    return make_element("section", make_element("h2", title), *children)


def make_table(names: Sequence[str], rows: Iterable[Markup], look: str) -> Markup:
    """Rows below the names of their columns."""
    head = make_element("thead", make_element("tr", *(make_element("th", name, scope="col") for name in names)))
    return make_element("table", head, make_element("tbody", *rows), class_=look)


def fit_page(make: Callable[..., str], *values: Any) -> str:
    """The page of these values; where they make it too large, of the same with shorter texts."""
    page = ""
    for length in _LENGTHS:
        page = make(*(shorten(value, length) for value in values))
        if len(page.encode()) <= LARGEST_PAGE:
            break
    return page


def shorten(value: T, length: int) -> T:
    """Return the value with every text in it cut."""
    changed: Any = value
    if isinstance(value, str):
        changed = value if len(value) <= length else value[: length - 1] + "…"
    elif isinstance(value, tuple | list):
        changed = tuple(shorten(each, length) for each in value)
    elif isinstance(value, Mapping):
        changed = {shorten(name, length): shorten(each, length) for name, each in value.items()}
    elif hasattr(type(value), "__defaults__"):  # a frozen class
        changed = replace(value, **{name: shorten(getattr(value, name), length) for name in list_names(type(value))})
    return changed  # type: ignore[no-any-return]
