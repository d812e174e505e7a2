# SPDX-License-Identifier: BSD-3-Clause
"""Pages: well-formed, small, complete, and harmless whatever is put into them."""

from __future__ import annotations

import ast
import re
import time
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kedge.answers.doctor
from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, SKIPPED, WARNING, Finding
from kedge.answers.pages.chart_picture import describe_host
from kedge.answers.pages.doctor_page import render_diagnosis
from kedge.answers.pages.document import (
    LARGEST_PAGE,
    VERBS,
    Markup,
    clean_text,
    format_advice,
    format_sentence,
    make_element,
)
from kedge.answers.pages.explain_page import render_explanation
from kedge.answers.pages.layers_picture import fold_layers
from kedge.base.frozen import list_names, replace
from kedge.cli.verbs import VERBS as CLI_VERBS
from kedge.compat.driver_chart import Chart
from kedge.compat.target import Target
from kedge.compat.traits import TITLES, ImageTraits, Layer
from kedge.compat.verdict import MINOR, NATIVE, NO, OPEN, OUTCOMES, UNKNOWN, Judgement, Verdict
from tests.builders.pages import SIZES, SUMMARY, make_findings, make_small_chart, make_target, make_traits, make_verdict
from tests.builders.rows import each_row
from tests.wording import assert_begins, assert_reads, assert_says

MADE, VERSION = "2026-09-20 14:05 UTC", "0.1.0"
ELEMENTS = {"html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section", "h1", "h2", "h3"}
ELEMENTS |= {"p", "div", "span", "strong", "code", "pre", "ul", "ol", "li", "dl", "dt", "dd", "details", "summary"}
ELEMENTS |= {"table", "thead", "tbody", "tr", "th", "td", "svg", "symbol", "path", "use", "rect", "text", "desc"}
HOSTILE = [
    "<script>window.hacked=1</script>", '"><img src=x onerror=window.hacked=1>', "'><svg onload=window.hacked=1>",
    "</style><script>window.hacked=1</script>", "javascript:window.hacked=1",
    "\x1b[31m\x00\x07\u202eevil\u2066\u200f\ufeff\u2028\ud800", "a" + "\u0300\u0489" * 500,
    "&#60;script&#62; ]]> <!-- --!> <?php ?> &nbsp;", "`</code><b>`'kedge <i>'", "$ rm\n    <b>\n$ <script>\n",
    "x" * 200_000, "\U0010ffff" * 60_000,
]  # fmt: skip


def explain(
    traits: ImageTraits | None = None,
    verdict: Verdict | None = None,
    target: Target | None = None,
    chart: Chart | None = None,
) -> str:
    return render_explanation(traits or make_traits(), verdict, target, chart, made=MADE, version=VERSION)


TALLY = "47 checks, 1 problem, 1 warning, 0.5 s"


def diagnose(findings: list[Finding], **more: Any) -> str:
    values = {"title": "login2", "tally": TALLY, "summary": SUMMARY, "made": MADE, "version": VERSION}
    return render_diagnosis(findings, **{**values, **more})  # type: ignore[arg-type]


def full_explanation() -> str:
    return explain(make_traits(), make_verdict(), make_target(), make_small_chart())


def full_diagnosis() -> str:
    return diagnose(make_findings(), verdict=make_verdict(NO), traits=make_traits(), chart=make_small_chart())


def parse(page: str) -> ElementTree.Element:
    return ElementTree.fromstring(page)


def fill(value: Any, text: str) -> Any:
    """The same value with every text in it replaced."""
    if isinstance(value, str):
        return text
    if isinstance(value, tuple | list):
        return tuple(fill(each, text) for each in value)
    if isinstance(value, dict):
        return {f"{text}{number}": text for number, _ in enumerate(value)}
    if hasattr(type(value), "__slots__") and not isinstance(value, int | frozenset):
        return replace(value, **{name: fill(getattr(value, name), text) for name in list_names(type(value))})
    return value


def fill_pages(text: str) -> list[str]:
    """Both pages with this text in every place."""
    verdict, traits, chart = fill(make_verdict(NO), text), fill(make_traits(), text), fill(make_small_chart(), text)
    summary = fill(SUMMARY, text)
    findings = [*fill(make_findings(), text), *(fill(Finding("", "", ""), text) for _ in range(3))]
    levels = (FAIL, WARNING, NOTE, OK, SKIPPED)
    findings += [replace(finding, level=level) for finding in findings[:3] for level in levels]
    imprint = {"made": text, "version": text}
    return [
        render_explanation(traits, verdict, fill(make_target(), text), chart, **imprint),
        render_diagnosis(
            findings, title=text, tally=text, summary=summary, verdict=verdict, traits=traits, chart=chart, **imprint
        ),
    ]


class Balance(HTMLParser):
    """Which elements there are, and whether each is closed by its own end."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.met: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self._note(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.met[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]


def check_harmless(page: str) -> None:
    """Well-formed both ways, small, with known elements only, and nothing in them that runs or loads."""
    assert len(page.encode()) <= LARGEST_PAGE
    parse(page)
    balance = Balance()
    balance.feed(page)
    balance.close()
    assert not balance.open
    assert set(balance.met) <= ELEMENTS
    assert balance.met["style"] == balance.met["html"] == balance.met["body"] == 1
    for tag, name, value in balance.attributes:
        assert not name.startswith("on")
        assert name not in ("src", "srcset", "action", "formaction", "background", "data")
        if name == "href":
            assert tag == "use"
            assert re.fullmatch(r"#mark-[a-z]+", value)
        if name == "style":
            assert re.fullmatch(r"max-width:\d+px;min-width:\d+px", value)
    assert "url(" not in page
    assert "@import" not in page


@each_row("make", [full_explanation, full_diagnosis])
def test_pages_are_well_formed_small_and_load_nothing(make: Any) -> None:
    page = make()
    check_harmless(page)
    assert len(page.encode()) < 60_000
    policy = parse(page).find("head/meta[@http-equiv='Content-Security-Policy']")
    assert_begins(policy.get("content", ""), "explain/default-src-none-style-src-unsafe-inline-img-src")
    assert "http://" not in page
    assert "https://" not in page


@each_row("make", [full_explanation, full_diagnosis])
def test_pages_can_be_read_by_those_who_do_not_see(make: Any) -> None:
    root = parse(make())
    assert root.get("lang") == "en"
    levels = [int(each.tag[1]) for each in root.iter() if re.fullmatch(r"h[1-6]", each.tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(each.get("scope") in ("row", "col") for each in root.iter("th"))
    ids = [each.get("id") for each in root.iter() if each.get("id")]
    assert len(set(ids)) == len(ids)
    for picture in root.iter("svg"):
        if picture.get("aria-hidden") == "true":
            continue
        assert picture.get("role") == "img"
        named = (picture.get("aria-labelledby") or "").split()
        assert [each.tag for each in picture if each.get("id") in named] == ["title", "desc"]


@each_row("text", HOSTILE, ids=lambda text: ascii(text[:24]))
def test_pages_hostile_values_stay_harmless_and_short(text: str) -> None:
    start = time.process_time()
    for page in fill_pages(text):
        check_harmless(page)
        shown = "".join(parse(page).itertext())
        assert not set(shown) & {chr(code) for code in (0x202E, 0x2066, 0x200F, 0xFEFF, 0x2028, 0x1B, 7)}
    assert time.process_time() - start < 20


@settings(max_examples=10, deadline=None)
@given(st.text(max_size=60))
def test_pages_any_text_is_escaped(text: str) -> None:
    for page in fill_pages(text):
        check_harmless(page)
        assert clean_text(text) in " ".join("".join(parse(page).itertext()).split()) or "`" in text or "'" in text


@given(st.text(max_size=300), st.integers(2, 100))
def test_pages_cleaned_text_is_short_and_visible(text: str, limit: int) -> None:
    cleaned = clean_text(text, limit)
    assert len(cleaned) <= limit
    cleaned.encode()
    assert clean_text(cleaned, limit) == cleaned
    assert cleaned.isprintable()


@given(st.text(max_size=80))
def test_pages_elements_give_back_their_text(text: str) -> None:
    made = ElementTree.fromstring(make_element("p", text, title=text))
    assert (made.text or "") == clean_text(text)
    assert made.get("title") == clean_text(text)


def test_pages_elements_and_commands() -> None:
    assert make_element("p", None, "a", class_=None, data_x=1) == '<p data-x="1">a</p>'
    assert make_element("div", Markup("<b>"), "<b>") == "<div><b>&lt;b&gt;</div>"
    assert format_sentence("run `a < b` or 'kedge pull x': users' own, the site's, export A='b' (so)") == (
        "run <code>a &lt; b</code> or <code>kedge pull x</code>: users&#x27; own, the site&#x27;s,"
        " export A=&#x27;b&#x27; (so)"
    )
    assert format_advice("Do this:\n    one <x>\n$ two\nThen `three`.") == (
        "<p>Do this:</p><pre><code>one &lt;x&gt;\ntwo</code></pre><p>Then <code>three</code>.</p>"
    )


@each_row(("advice", "commands"), [
    ("kedge registry login nvcr.io; for public images alone: kedge registry logout nvcr.io", 2),
    ("export LANG=C.UTF-8", ["export LANG=C.UTF-8"]),
    ("export NAME='$oauthtoken' (in single quotes)", ["export NAME='$oauthtoken'"]),
    ("nothing, if they are meant; else: unset A B", ["unset A B"]),
    ("unset A, or name in it only what the image needs.", ["unset A"]),
    ("administrators can start 'nvidia-persistenced' or run 'nvidia-smi -pm 1'",
     ["nvidia-persistenced", "nvidia-smi -pm 1"]),
    ("none is needed: kedge keeps them outside", []),
    ("'kedge site init' writes one from what the scheduler says", ["kedge site init"]),
    ("it is the administrators' to raise; ask for the users' sake", []),
])  # fmt: skip
def test_pages_advice_shows_its_commands(advice: str, commands: list[str] | int) -> None:
    made = format_advice(advice)
    found = [unescape(each) for each in re.findall("<code>(.*?)</code>", made)]
    assert (len(found) if isinstance(commands, int) else found) == commands


def test_pages_advice_knows_kedges_verbs_and_sentences() -> None:
    assert set(VERBS) <= set(CLI_VERBS)
    # `kedge site init writes one` was set as code, to the last word
    sources = Path(kedge.answers.doctor.__file__).parent.rglob("*.py")
    texts = [
        each.value
        for source in sources
        for each in ast.walk(ast.parse(source.read_text()))
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    commands = [code for text in texts for code in re.findall("<code>(.*?)</code>", format_advice(text))]
    assert "kedge site init" in commands
    english = r"\b(unset|export) (them|the|it)\b|kedge \w+ \w+ (writes|shows|says|lists)\b"
    assert [command for command in commands if re.search(english, command)] == []


def find_texts(page: str, path: str) -> list[str]:
    return [" ".join("".join(each.itertext()).split()) for each in parse(page).findall(path)]


def test_pages_explanation_begins_with_the_verdict_or_what_is_missing() -> None:
    page = full_explanation()
    main = parse(page).find("body/main")
    assert main[0].get("id") == "verdict"
    assert main[0].get("class") == "verdict fair"
    assert_reads(
        find_texts(page, ".//section[@id='verdict']//p"), "compat/runs-minor-version-compatibility-nvidia-driver"
    )
    points = find_texts(page, ".//ul[@class='points']/li")
    assert [point.split(":")[0] for point in points] == ["Note", "Unknown", "OK"]
    assert "or take 23.10-py3, which runs natively." in points[0]
    verdict = make_verdict(UNKNOWN)
    assert any(each.level == OPEN for each in verdict.judgements)
    points = find_texts(explain(verdict=verdict), ".//ul[@class='points']/li")
    assert points[0].startswith("Unknown: MPI")
    page = explain()
    assert_says(page, "explain/no-machine-judge-against-known")
    assert "The machine" not in page
    assert 'class="chart"' not in page


@each_row(("outcome", "tone", "answer"), [
    (NATIVE, "good", "It runs"), (MINOR, "fair", "It runs, with a limit"), (NO, "bad", "It does not run"),
    (UNKNOWN, "plain", "Unknown whether it runs"),
])  # fmt: skip
def test_pages_verdicts_differ_in_word_mark_and_colour(outcome: str, tone: str, answer: str) -> None:
    page = explain(verdict=make_verdict(outcome))
    assert find_texts(page, ".//section[@id='verdict']//h2") == [answer]
    assert f'class="verdict {tone}"' in page


def test_pages_facts_and_machine_say_what_is_not_known() -> None:
    page = full_explanation()
    rows = {row[0].text: row for row in parse(page).findall(".//table[@class='facts']/tbody/tr")}
    assert set(TITLES.values()) <= set(rows)
    assert ["".join(cell.itertext()) for cell in rows["CUDA"]] == ["CUDA", "12.4.0.041", "image config, CUDA_VERSION"]
    assert ["".join(cell.itertext()) for cell in rows["UCX"]] == ["UCX", "unknown", ""]
    assert rows["UCX"][1][0].get("class") == "quiet"
    page = explain(target=replace(make_target(), mpi="", driver=""))
    cards = find_texts(page, ".//dl/div")
    assert "GPU8 × NVIDIA A100-SXM4-40GB (Ampere, capability 8.0)" in cards
    assert "MPIunknown" in cards
    assert "Driverunknown" in cards
    by_chart = explain(target=replace(make_target(), cuda=""), chart=make_small_chart())
    assert_says(find_texts(by_chart, ".//dl/div"), "explain/cuda-driver-table")
    assert "GPUnone" in find_texts(explain(target=Target("login", has_gpus=False)), ".//dl/div")


def test_pages_layers_are_largest_first_and_odd_ones_left_out() -> None:
    bars = fold_layers(make_traits().layers)
    assert [bar.size for bar in bars[:-1]] == sorted(SIZES, reverse=True)[:7]
    assert bars[-1].line == "40 more, each smaller"
    assert sum(bar.size for bar in bars) == make_traits().size
    page = full_explanation()
    assert "9.29 GB in 47 layers" in page
    widths = [float(each.get("width", "")) for each in parse(page).findall(".//ol[@class='bars']//rect")]
    assert widths == pytest.approx([1000 * bar.size / bars[0].size for bar in bars], abs=0.01)
    assert fold_layers([Layer(5), Layer(3)])[-1].line == "history unknown"
    for sizes in ([], [0], [0, 0], [-5]):
        page = explain(replace(make_traits(), layers=tuple(Layer(size) for size in sizes)))
        assert "Layers by size" not in page
    for sizes in ([1], [10**30, 1], [7, -3, 2], [1] * 5000):
        page = explain(replace(make_traits(), layers=tuple(Layer(size) for size in sizes)))
        check_harmless(page)
        shares = [float(each.get("width", "")) for each in parse(page).findall(".//svg[@class='strip']/rect")]
        assert sum(shares) == pytest.approx(1000, abs=0.5)


def test_pages_chart_marks_host_image_and_every_outcome() -> None:
    chart = make_small_chart()
    page = explain(chart=chart)
    drawn = parse(page).find(".//svg[@class='chart']")
    assert len(drawn.findall("rect[@class='host']")) == 1
    assert len(drawn.findall("rect[@class='own']")) == 1
    cells = [each.get("data-outcome") for each in drawn.iter("rect") if each.get("data-outcome")]
    assert cells == [outcome for row in chart.rows for outcome in row.cells]
    uses = [each.get("href") for each in drawn.iter("use")]
    assert len(uses) == len(cells)
    assert len(set(zip(cells, uses, strict=True))) == len(set(cells))  # each outcome has a shape of its own
    legend = find_texts(page, ".//ul[@class='legend']/li")
    assert len(legend) == len(set(cells))
    table = find_texts(page, ".//table[@class='matrix']/thead/tr/th")
    assert table[:5] == ["Tag", "CUDA", "470", "525", "535 (here)"]
    chart = make_small_chart()
    row = replace(chart.rows[0], cells=OUTCOMES)
    page = explain(chart=replace(chart, rows=(row,), columns=chart.columns[: len(OUTCOMES)]))
    assert len(find_texts(page, ".//ul[@class='legend']/li")) == len(OUTCOMES)


def test_pages_chart_says_what_it_means_for_the_host() -> None:
    chart = make_small_chart()
    assert_reads(describe_host(chart), "explain/driver-newest-tags-runs-natively")
    none = replace(chart, rows=chart.rows[:3])
    assert_reads(describe_host(none), "explain/driver-none-tags-known-run", "535.104.05")
    old = replace(chart, rows=tuple(replace(row, cells=(NO,) * len(row.cells)) for row in chart.rows))
    assert_reads(describe_host(old), "explain/driver-none-tags-runs-nvidia", "535.104.05")
    nowhere = replace(chart, columns=tuple(replace(each, is_host=False) for each in chart.columns))
    assert_reads(describe_host(nowhere), "explain/no-driver-machine-known-none")
    assert_says(
        explain(chart=replace(chart, tag="27.01-py3", rows=tuple(replace(row, is_image=False) for row in chart.rows))),
        "explain/tables-do-not",
    )


def test_pages_diagnosis_tells_problems_first() -> None:
    page = full_diagnosis()
    titles = find_texts(page, ".//main/section/h2")
    assert titles[:2] == ["Problems", "Warnings"]
    assert titles[-1] == "The other checks"
    plain = diagnose(make_findings())
    assert find_texts(plain, ".//section[@id='verdict']//p") == ["1 problem and 1 warning", f"{TALLY}."]
    problem = find_texts(page, ".//ul[@class='points']/li")[0]
    assert "Problem: user-namespaces" in problem
    assert "guides/run.md#user-namespaces" in problem
    assert find_texts(page, ".//pre/code")[0] == (
        "sysctl -w kernel.unprivileged_userns_clone=1 sysctl -w user.max_user_namespaces=15000"
    )
    assert find_texts(page, ".//details/summary")[-1] == "3 in order, 1 not checked"
    assert "login2" in page
    page = diagnose([Finding("overlay", OK, "works")])
    assert find_texts(page, ".//section[@id='verdict']//h2") == ["All in order"]
    warned = diagnose([Finding("overlay", WARNING, "is slow")])
    assert find_texts(warned, ".//section[@id='verdict']//p")[0] == "1 warning"
    assert "Problems" not in warned
    in_order = [Finding("overlay", OK, "works")]
    said = find_texts(diagnose(in_order, verdict=make_verdict(NO)), ".//section[@id='verdict']//p")
    assert_begins(said[0], "explain/does-not-run-site-zih-alpha")
    assert said[1] == "Of this machine: nothing that kedge looks for is wrong. " + f"{TALLY}."
    fine = diagnose(in_order, verdict=make_verdict(NATIVE))
    assert find_texts(fine, ".//section[@id='verdict']//h2") == ["All in order"]
    assert_says(find_texts(fine, ".//section[@id='verdict']//p")[1], "explain/image-runs-natively-nvidia")
    assert "very odd" in diagnose([Finding("x", "odd", "very odd")])


def test_pages_of_much_are_cut_and_stay_small() -> None:
    page = diagnose([Finding(f"check-{number}", FAIL, "broken " * 40, "why " * 40, "fix") for number in range(500)])
    check_harmless(page)
    assert_says(page, "explain/more-not-shown", 440)
    judgement = Judgement("driver", "fail", "'" * 5000, "'" * 5000)
    check_harmless(explain(verdict=Verdict(NO, "'" * 5000, (judgement,) * 2000)))
