# SPDX-License-Identifier: BSD-3-Clause
"""The page around the parts: one file that asks nothing of anybody, and that no value makes large."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, TypeVar

from kedge.answers.doctor import surroundings
from kedge.base.frozen import frozen, list_names, replace
from kedge.base.size import format_size
from kedge.compat import verdict
from kedge.compat.target import Gpu, Target
from kedge.compat.traits import TITLES, Fact, ImageTraits

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


# Elements of HTML and SVG. Text becomes markup here alone, escaped and cut: what comes from outside stays text.

LONGEST_TEXT = 800  # characters of one piece of text; the pages cut shorter where they must
_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))  # these steer a reader's eye or program
_MARKS = frozenset(("Mn", "Me"))
_MOST_MARKS = 2  # combining ones on one letter; more of them paint over the lines above
# of kedge, so that a command is told from `kedge does this`
VERBS = ("alloc", "cache", "config", "data", "doctor", "exec", "explain", "inspect", "key", "logs", "pull", "recommend",
         "registry", "run", "search", "shell", "sif", "site", "status", "submit", "tags")  # fmt: skip
_VOID = frozenset(("meta", "use", "rect", "path", "br"))
# Set as code: what stands in `backquotes` or 'quotes', which are no apostrophes; in advice also commands without them,
# from where one can begin to where a sentence goes on.
_QUOTED = r"`([^`]{1,300})`|(?<![^\s(])'([^']{1,300})'(?!\w)"
_BARE = (
    r"|(?:\A|(?<=: )|(?<=; ))((?:export|unset|ulimit|kedge"
    rf" (?:{'|'.join(VERBS)}))\b[^;]{{0,300}}?)(?=;|, | \(|\.? *\Z|\. )"
)
_CODE = re.compile(_QUOTED)
_COMMANDS = re.compile(_QUOTED + _BARE)


class Markup(str):
    """Text that is markup already: nothing escapes it again."""

    __slots__ = ()


def clean_text(text: object, limit: int = LONGEST_TEXT) -> str:
    """Return one line of harmless text: spaces for all white space, invisible characters as escapes, cut at `limit`."""
    kept, marks = [], 0
    for letter in " ".join(str(text)[: 4 * limit].split())[: limit + 1]:
        category = unicodedata.category(letter)
        marks = marks + 1 if category in _MARKS else 0
        kept.append(_name_letter(letter) if category in _INVISIBLE or marks > _MOST_MARKS else letter)
    cleaned = "".join(kept)
    return cleaned if len(cleaned) <= limit else cleaned[: limit - 1] + "…"


def _name_letter(letter: str) -> str:
    return f"\\u{{{ord(letter):x}}}"


def make_element(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. `class_` is `class` and `aria_label` is `aria-label`; None leaves an attribute or a child out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(clean_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not children:
        return Markup(f"<{name}{written} />")
    return Markup(f"<{name}{written}>{join_markup(children)}</{name}>")


def join_markup(children: Iterable[object]) -> Markup:
    """Pieces after each other; what is not markup is escaped."""
    return Markup(
        "".join(each if isinstance(each, Markup) else escape(clean_text(each)) for each in children if each is not None)
    )


def format_sentence(text: str, code: re.Pattern[str] = _CODE) -> Markup:
    """A sentence in which what is quoted is set as code."""
    pieces: list[object] = []
    place = 0
    cleaned = clean_text(text)
    for found in code.finditer(cleaned):
        shown = next(group for group in found.groups() if group)
        pieces += [_keep_spaces(cleaned[place : found.start()]), make_element("code", shown)]
        place = found.end()
    return join_markup([*pieces, _keep_spaces(cleaned[place:])])


def format_advice(text: str) -> Markup:
    """Advice of several lines: those that are indented or begin with `$ ` are commands in a block of their own."""
    made: list[Markup] = []
    commands: list[str] = []
    for line in str(text)[: 8 * LONGEST_TEXT].splitlines()[:40]:
        if line.startswith(("    ", "\t", "$ ")) and line.strip():
            commands.append(clean_text(line.removeprefix("$ ")))
            continue
        made += [
            *_make_block(commands),
            *([make_element("p", format_sentence(line, _COMMANDS))] if line.strip() else []),
        ]
        commands = []
    return join_markup([*made, *_make_block(commands)])


def _make_block(commands: list[str]) -> list[Markup]:
    if not commands:
        return []
    return [make_element("pre", make_element("code", Markup("\n".join(escape(each) for each in commands))))]


def _keep_spaces(text: str) -> Markup:
    """A part of a line that is clean already, with the spaces at its ends."""
    return Markup(escape(text))


# Marks that stand before words: drawn, so that no font must have them, and of different shapes, not colours alone.

_SHAPES = {
    "check": "M3 8.6l3.3 3.2L13 4.6",
    "cross": "M4 4l8 8M12 4l-8 8",
    "waves": "M2.5 6.4c1.8-2 3.7-2 5.5 0s3.7 2 5.5 0M2.5 10.8c1.8-2 3.7-2 5.5 0s3.7 2 5.5 0",
    "arrow": "M8 13.2V3.2M3.8 7.2L8 3l4.2 4.2",
    "bolt": "M9.4 2L4.2 8.8h7.2L6.6 14.2",
    "question": "M5.3 5.6a2.7 2.7 0 1 1 4 2.4c-.9.5-1.3 1-1.3 2M8 13.1v.1",
    "exclamation": "M8 2.8v6.4M8 13v.1",
    "letter": "M8 7v6.2M8 3.2v.1",
    "dash": "M4 8h8",
}


@frozen
class MarkStyle:
    """How one outcome or level is shown: shape, tone (a class of the stylesheet) and words."""

    shape: str
    tone: str  # good, fair, other, bad, plain
    word: str
    answer: str = ""  # of an outcome: the short one, above the sentence that says all


_OUTCOME_LOOKS = {
    verdict.NATIVE: MarkStyle("check", "good", "Runs natively", "It runs"),
    verdict.MINOR: MarkStyle("waves", "fair", "Runs by minor-version compatibility", "It runs, with a limit"),
    verdict.FORWARD: MarkStyle(
        "arrow", "other", "Runs by forward compatibility", "It runs, with the image's own driver library"
    ),
    verdict.PTX: MarkStyle("bolt", "fair", "Runs from PTX, compiled at start", "It runs, but starts slowly"),
    verdict.NO: MarkStyle("cross", "bad", "Does not run", "It does not run"),
    verdict.UNKNOWN: MarkStyle("question", "plain", "Unknown", "Unknown whether it runs"),
}
_LEVEL_LOOKS = {
    verdict.FAIL: MarkStyle("cross", "bad", "Problem"),
    verdict.WARNING: MarkStyle("exclamation", "fair", "Warning"),
    verdict.NOTE: MarkStyle("letter", "other", "Note"),
    verdict.OPEN: MarkStyle("question", "plain", "Unknown"),
    verdict.OK: MarkStyle("check", "good", "OK"),
    surroundings.SKIPPED: MarkStyle("dash", "plain", "Not checked"),
}


def find_outcome_look(outcome: str) -> MarkStyle:
    """How an outcome is shown; any other text counts as unknown."""
    return _OUTCOME_LOOKS.get(outcome, _OUTCOME_LOOKS[verdict.UNKNOWN])


def find_level_look(level: str) -> MarkStyle:
    """How a level is shown."""
    return _LEVEL_LOOKS.get(level, _LEVEL_LOOKS[verdict.OPEN])


def make_mark(look: MarkStyle) -> Markup:
    """The mark before a word. The word says the same, so it is hidden from readers that speak."""
    used = make_element("use", href=f"#mark-{look.shape}")
    return make_element("svg", used, class_=f"mark {look.tone}", viewBox="0 0 16 16", aria_hidden="true")


def draw_marks() -> Markup:
    """Return all shapes, once for each page."""
    symbols = (
        make_element("symbol", make_element("path", d=path), id=f"mark-{name}", viewBox="0 0 16 16")
        for name, path in _SHAPES.items()
    )
    return make_element("svg", join_markup(symbols), class_="shapes", width=0, height=0, aria_hidden="true")


# What is known of the image and of the machine, and where from.

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
