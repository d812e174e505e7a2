# SPDX-License-Identifier: BSD-3-Clause
"""The page around the parts: one file that asks nothing of anybody, and that no value makes large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kedge.answers.pages.markup import Markup, clean_text, draw_marks, join_markup, make_element
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


# How the pages look: on screens wide and narrow, light and dark, and on paper. Contrast is 4.5:1 or more.

STYLE = """
:root{color-scheme:light dark;
--paper:#fff;--panel:#f5f7f9;--line:#d3d9e0;--text:#1a1f25;--quiet:#566070;
--good:#11702f;--good-soft:#dff3e4;--fair:#875200;--fair-soft:#fdefd0;--bad:#b3201c;--bad-soft:#fde4e2;
--other:#0b57a8;--other-soft:#e0edfb;--plain:#566070;--plain-soft:#e9edf1;
--bar1:#1f4e79;--bar2:#2f6ea5;--bar3:#4c8cc4;--bar4:#79abd6;--bar5:#a8c9e4;--bar6:#c9d3dd}
@media (prefers-color-scheme:dark){:root{
--paper:#11151a;--panel:#1a2027;--line:#343d48;--text:#e7ebef;--quiet:#a3afbc;
--good:#5fd081;--good-soft:#15351f;--fair:#f0b84a;--fair-soft:#3a2c0c;--bad:#ff8a82;--bad-soft:#43191a;
--other:#7db8f5;--other-soft:#15304d;--plain:#a3afbc;--plain-soft:#28303a;
--bar1:#b5d5f2;--bar2:#86b8e4;--bar3:#5f9ad0;--bar4:#437db3;--bar5:#2f5f8c;--bar6:#3d4a57}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--text);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"DejaVu Sans",sans-serif;overflow-wrap:anywhere}
main,header,footer{max-width:60rem;margin:0 auto;padding:0 1rem}
header{padding-top:1.25rem}
h1{font-size:1.3rem;line-height:1.3;margin:.1rem 0 .8rem}
h2{font-size:1.1rem;margin:2.2rem 0 .6rem;padding-bottom:.3rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:0}
p{margin:.35rem 0}
ul,ol{margin:0;padding:0;list-style:none}
code,pre,.code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.9em}
code{background:var(--plain-soft);border-radius:3px;padding:.1em .3em}
pre{margin:.4rem 0;padding:.6rem .75rem;background:var(--plain-soft);border-radius:6px;white-space:pre-wrap}
pre code{background:none;padding:0}
code,td,dd,.text{unicode-bidi:isolate}
.quiet,.source{color:var(--quiet)}
.small,.source{font-size:.85rem}
.good{color:var(--good)}.fair{color:var(--fair)}.bad{color:var(--bad)}.other{color:var(--other)}.plain{color:var(--plain)}
.shapes{position:absolute}
.mark,symbol{fill:none;stroke:currentColor;stroke-width:2.2;stroke-linecap:round;stroke-linejoin:round}
.mark{width:1em;height:1em;flex:none;vertical-align:-.12em}
.verdict{display:flex;gap:1rem;padding:1.1rem 1.2rem;border-radius:10px;border:1px solid;border-left-width:8px;
print-color-adjust:exact;-webkit-print-color-adjust:exact}
.verdict.good{background:var(--good-soft)}.verdict.fair{background:var(--fair-soft)}
.verdict.bad{background:var(--bad-soft)}.verdict.other{background:var(--other-soft)}
.verdict.plain{background:var(--plain-soft)}
.verdict .mark{width:2.4rem;height:2.4rem;margin-top:.1rem}
.verdict h2{border:0;margin:0;padding:0;font-size:.9rem;font-weight:600}
.verdict .headline{margin:.1rem 0 0;font-size:1.45rem;line-height:1.3;font-weight:650;color:var(--text)}
.verdict p{color:var(--text)}
.points>li{display:flex;gap:.7rem;padding:.7rem 0;border-bottom:1px solid var(--line);break-inside:avoid}
.points>li:last-child{border-bottom:0}
.points .mark{margin-top:.28em}
.points .body{flex:1;min-width:0}
.level{font-weight:650}
.remedy{margin-top:.4rem;padding-left:.8rem;border-left:3px solid var(--line)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(13rem,1fr));gap:.6rem;margin:0}
.cards>div{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:.55rem .75rem}
.cards dt{color:var(--quiet);font-size:.85rem}
.cards dd{margin:0;font-weight:550}
.cards .source{font-weight:400;display:block}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.4rem .6rem .4rem 0;border-bottom:1px solid var(--line)}
thead th{color:var(--quiet);font-size:.85rem;font-weight:600}
tbody th{font-weight:550;overflow-wrap:break-word}
.summary{table-layout:fixed}.summary th{width:9rem}
.facts{table-layout:fixed}
.facts th:first-child{width:27%}.facts th:nth-child(2){width:33%}
.strip{display:block;width:100%;height:2rem;border-radius:5px;margin:.5rem 0 1rem}
.strip rect{stroke:var(--paper);stroke-width:1;vector-effect:non-scaling-stroke}
.bars li{display:grid;grid-template-columns:5.5rem 1fr;gap:0 .7rem;padding:.28rem 0;break-inside:avoid}
.bars .size{text-align:right;font-variant-numeric:tabular-nums;font-weight:600}
.bars .line{min-width:0;font-size:.86rem}
.bars svg{display:block;width:100%;height:.7rem;margin:.35rem 0 .1rem}
.bar1{fill:var(--bar1)}.bar2{fill:var(--bar2)}.bar3{fill:var(--bar3)}.bar4{fill:var(--bar4)}.bar5{fill:var(--bar5)}
.bar6{fill:var(--bar6)}
.wide{overflow-x:auto;margin-top:.8rem}
.chart{display:block;width:100%;height:auto;font-size:11px}
.chart text{fill:var(--text)}
.chart .faint{fill:var(--quiet)}
.chart .head{font-size:10px}
.chart .strong{font-weight:700}
.chart .own{fill:var(--plain-soft)}
.chart .host{fill:none;stroke:var(--text);stroke-width:2}
.chart .pointer{fill:var(--text)}
.chart .cell{stroke:none}
.chart .cell.good{fill:var(--good-soft)}.chart .cell.fair{fill:var(--fair-soft)}.chart .cell.bad{fill:var(--bad-soft)}
.chart .cell.other{fill:var(--other-soft)}.chart .cell.plain{fill:var(--plain-soft)}
.treemap .light{fill:var(--paper)}.treemap .dark{fill:var(--text)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;margin:.7rem 0;font-size:.9rem}
.matrix td,.matrix th{font-size:.8rem;padding:.25rem .4rem .25rem 0}
details{margin:.8rem 0}
summary{cursor:pointer;color:var(--other);padding:.3rem 0}
footer{margin-top:2.5rem;padding-top:.8rem;padding-bottom:2rem;border-top:1px solid var(--line)}
@media (max-width:34rem){
.verdict{padding:.9rem;gap:.7rem}.verdict .mark{width:1.7rem;height:1.7rem}.verdict .headline{font-size:1.2rem}
.facts,.facts tbody,.facts tr,.facts th,.facts td{display:block;width:auto}
.facts thead{position:absolute;clip-path:inset(50%);height:1px;width:1px;overflow:hidden}
.facts tr{padding:.45rem 0;border-bottom:1px solid var(--line)}
.facts th,.facts td{border:0;padding:0}.facts tbody th:first-child{width:auto;color:var(--quiet);font-size:.85rem}
.bars li{grid-template-columns:4.6rem 1fr}.summary th{width:6.5rem}
}
@media print{
:root{--panel:#fff}
body{font-size:10.5pt}
main,header,footer{max-width:none;padding:0}
summary{list-style:none}
details::details-content{content-visibility:visible;display:block;height:auto}
.chart{max-width:16cm}
}
"""
