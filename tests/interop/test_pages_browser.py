# SPDX-License-Identifier: BSD-3-Clause
"""The pages in a real browser that has no network: what is seen, where, in which colours, and that nothing runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.answers.pages.doctor_page import render_diagnosis
from kedge.answers.pages.explain_page import render_explanation
from tests.builders.browser import Browser, start_browser
from tests.builders.pages import SIZES, SUMMARY, make_findings, make_small_chart, make_target, make_traits, make_verdict
from tests.builders.rows import each_row
from tests.builders.warm_kedge import kedge
from tests.unit.answers.pages.test_pages import HOSTILE, fill_pages

WIDTHS = (360, 800, 1400)
IMPRINT = {"made": "2026-09-20 14:05 UTC", "version": "0.1.0"}

# Elements whose text needs more room than they have, and pictures' texts that leave the picture.
OVERFLOWS = """[...document.querySelectorAll('main *, header *, footer *')].filter(each => {
    if (each.closest('svg') && each.tagName !== 'text') return false;
    const box = each.getBoundingClientRect();
    if (each.tagName === 'text') {
        const picture = each.ownerSVGElement.getBoundingClientRect();
        return box.left < picture.left - 1 || box.right > picture.right + 1 || box.top < picture.top - 1;
    }
    if (each.closest('.wide')) return false;  // what is in it can be scrolled
    const head = each.closest('thead');
    if (head && getComputedStyle(head).clipPath !== 'none') return false;  // for those who hear the page
    return each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0 || box.right > innerWidth + 1;
}).map(each => each.tagName + ' ' + each.className + ' ' + each.textContent.slice(0, 60))"""

# Every text with the contrast it has against what is painted behind it.
CONTRASTS = """(() => {
    const parse = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = colour => {
        const [r, g, b] = parse(colour).slice(0, 3).map(v => v / 255)
            .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ratio = (one, other) => {
        const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const behind = element => {
        for (let each = element; each; each = each.parentElement) {
            const colour = getComputedStyle(each).backgroundColor;
            if ((parse(colour)[3] ?? 1) > 0) return colour;
        }
        return 'rgb(255, 255, 255)';
    };
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const text = walker.currentNode.textContent.trim(), parent = walker.currentNode.parentElement;
        if (!text || ['title', 'desc', 'STYLE'].includes(parent.tagName)) continue;
        const style = getComputedStyle(parent);
        found.push([text.slice(0, 40), ratio(parent.tagName === 'text' ? style.fill : style.color, behind(parent))]);
    }
    const row = document.querySelector('.chart .own');
    if (row) for (const each of document.querySelectorAll('.chart .code.strong, .chart .faint'))
        found.push([each.textContent, ratio(getComputedStyle(each).fill, getComputedStyle(row).fill)]);
    const marks = [...document.querySelectorAll('.chart use')].map(each =>
        ['mark', ratio(getComputedStyle(each).color, getComputedStyle(each.previousElementSibling).fill)]);
    return {texts: found, marks};
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_browser() as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    traits, chart = make_traits(), make_small_chart()
    texts = {
        "explanation": render_explanation(traits, make_verdict(), make_target(), chart, **IMPRINT),
        "diagnosis": render_diagnosis(
            make_findings(),
            title="login2",
            tally="47 checks, 1 problem, 1 warning, 0.5 s",
            summary=SUMMARY,
            verdict=make_verdict("no"),
            traits=traits,
            chart=chart,
            **IMPRINT,
        ),
    }
    made = {name: folder / f"{name}.html" for name in texts}
    for name, text in texts.items():
        made[name].write_text(text, encoding="utf-8")
    return made


@pytest.fixture(params=["explanation", "diagnosis"])
def page(request: pytest.FixtureRequest, pages: dict[str, Path]) -> Path:
    return pages[request.param]


def test_browser_asks_for_nothing_and_complains_of_nothing(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.requests == [page.as_uri()]
    assert browser.complaints == []
    assert browser.evaluate("document.compatMode") == "CSS1Compat"
    assert browser.evaluate("document.scripts.length + document.images.length + document.links.length") == 0


def test_browser_is_one_that_would_complain(browser: Browser, tmp_path: Path) -> None:
    loud = tmp_path / "loud.html"
    loud.write_text("<!DOCTYPE html><script>console.error('x'); nothing()</script><img src='http://192.0.2.1/x.png'>")
    browser.open(loud)
    assert browser.requests == [loud.as_uri(), "http://192.0.2.1/x.png"]
    assert len(browser.complaints) >= 3  # the word, the exception, the address that cannot be reached
    barred = tmp_path / "barred.html"
    text = render_explanation(make_traits(), None, None, None, **IMPRINT)
    barred.write_text(text.replace("</main>", "<script>window.ran = 1</script><img src='http://192.0.2.1/'/></main>"))
    browser.open(barred)
    assert browser.evaluate("typeof window.ran") == "undefined"  # the page's own policy bars scripts and pictures
    assert len(browser.complaints) >= 2


@each_row("width, height", [(360, 640), (800, 600), (1400, 800)])
def test_browser_shows_the_verdict_at_once(browser: Browser, page: Path, width: int, height: int) -> None:
    browser.open(page, width=width, height=height)
    box = browser.evaluate("document.querySelector('#verdict').getBoundingClientRect().toJSON()")
    assert 0 <= box["top"] < box["bottom"] <= height
    assert 0 <= box["left"] < box["right"] <= width
    words = browser.evaluate("document.querySelector('#verdict .headline').innerText")
    seen = browser.evaluate(
        "(() => { const box = document.querySelector('#verdict .headline').getBoundingClientRect();"
        "return document.elementFromPoint(box.left + 5, box.top + 5).innerText })()"
    )
    assert words == seen
    assert words[0].isupper() or words[0].isdigit()
    size = "parseFloat(getComputedStyle(document.querySelector('#verdict .headline')).fontSize)"
    assert browser.evaluate(size) >= 19


@each_row("width", WIDTHS)
def test_browser_fits_all_text_into_its_boxes(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width=width)
    browser.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate(OVERFLOWS) == []
    least = browser.evaluate(
        "Math.min(...[...document.querySelectorAll('main *')].filter(each => each.innerText)"
        ".map(each => parseFloat(getComputedStyle(each).fontSize)))"
    )
    assert least >= 12


def test_browser_keeps_texts_of_the_chart_apart(browser: Browser, page: Path) -> None:
    for width in WIDTHS:
        browser.open(page, width=width)
        boxes = browser.evaluate(
            "[...document.querySelectorAll('.chart text')].map(each => [each.textContent,"
            "...['left', 'right', 'top', 'bottom'].map(side => each.getBoundingClientRect()[side])])"
        )
        assert len(boxes) > 25
        for place, (text, left, right, top, bottom) in enumerate(boxes):
            for other, left2, right2, top2, bottom2 in boxes[place + 1 :]:
                across, down = min(right, right2) - max(left, left2), min(bottom, bottom2) - max(top, top2)
                assert across <= 0.5 or down <= 4, f"{text} and {other} overlap at {width}"
        assert browser.evaluate("document.querySelector('.chart text').getBoundingClientRect().height") >= 9


def test_browser_draws_bars_in_proportion(browser: Browser, page: Path) -> None:
    for width in WIDTHS:
        browser.open(page, width=width)
        bars = browser.evaluate(
            "[...document.querySelectorAll('.bars rect')].map(each => each.getBoundingClientRect().width)"
        )
        expected = [*sorted(SIZES, reverse=True)[:7], make_traits().size - sum(sorted(SIZES, reverse=True)[:7])]  # type: ignore[operator]
        assert bars == pytest.approx([bars[0] * size / expected[0] for size in expected], abs=0.6)
        strip = browser.evaluate(
            "[...document.querySelectorAll('.strip rect')].map(each => each.getBoundingClientRect().width)"
        )
        whole = browser.evaluate("document.querySelector('.strip').getBoundingClientRect().width")
        assert sum(strip) == pytest.approx(whole, abs=3)
        assert strip[0] / whole == pytest.approx(expected[0] / sum(expected), abs=0.01)
        labels = browser.evaluate("[...document.querySelectorAll('.bars .size')].map(each => each.innerText)")
        assert labels[0] == "3.91 GB"


def test_browser_outlines_the_machine_and_the_image(browser: Browser, page: Path) -> None:
    for width in WIDTHS:
        browser.open(page, width=width)
        found: dict[str, Any] = browser.evaluate("""(() => {
            const box = each => each.getBoundingClientRect();
            const host = box(document.querySelector('.chart .host')), own = box(document.querySelector('.chart .own'));
            const cells = [...document.querySelectorAll('.chart .cell')].map(each => [box(each), each.dataset.outcome]);
            const middle = part => [(part.left + part.right) / 2, (part.top + part.bottom) / 2];
            const texts = [...document.querySelectorAll('.chart text')]
                .map(each => [middle(box(each)), each.textContent]);
            const isWithin = (point, part) => point[0] > part.left && point[0] < part.right
                && point[1] > part.top && point[1] < part.bottom;
            return {
                column: cells.filter(each => isWithin(middle(each[0]), host)).map(each => each[1]),
                row: cells.filter(each => isWithin(middle(each[0]), own)).map(each => each[1]),
                head: texts.filter(each => isWithin(each[0], host)).map(each => each[1]),
                label: texts.filter(each => isWithin(each[0], own)).map(each => each[1]),
                stroke: parseFloat(getComputedStyle(document.querySelector('.chart .host')).strokeWidth),
            };
        })()""")
        chart = make_small_chart()
        assert found["head"] == ["535", "12.2"]
        assert found["column"] == [row.cells[2] for row in chart.rows]
        assert found["label"] == ["24.03-py3", "12.4"]
        assert found["row"] == list(next(row.cells for row in chart.rows if row.is_image))
        assert found["stroke"] >= 2


@each_row("is_dark", [False, True])
def test_browser_paints_with_contrast(browser: Browser, page: Path, is_dark: bool) -> None:
    browser.open(page, is_dark=is_dark)
    browser.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is not is_dark
    found = browser.evaluate(CONTRASTS)
    assert len(found["texts"]) > 100
    assert [text for text in found["texts"] if text[1] < 4.5] == []
    assert [mark for mark in found["marks"] if mark[1] < 3] == []


def test_browser_shows_letters_as_they_were_meant(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["explanation"])
    text = browser.evaluate("document.body.innerText")
    assert browser.evaluate("document.characterSet") == "UTF-8"
    assert "8 × NVIDIA A100-SXM4-40GB" in text
    assert "\ufffd" not in text
    assert "Ã" not in text
    assert "â€" not in text


def test_browser_prints_what_is_folded_away(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.open(page)
    shown = "document.querySelector('details table').checkVisibility({contentVisibilityAuto: true})"
    assert browser.evaluate(shown) is False
    browser.ask("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate("document.querySelector('details table').getBoundingClientRect().height") > 20
    assert browser.evaluate(shown) is True
    browser.print_page(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF-")


NGC = "docker://nvcr.io/nvidia"


@each_row(
    "words",
    [
        f"explain {NGC}/pytorch:24.03-py3 --gpu A100 --driver 535.104.05 --offline",
        f"explain {NGC}/tensorflow:22.03-tf2-py3 --gpu K40 --driver 470 --offline",
        f"explain {NGC}/cuda:12.4.1-devel-ubuntu22.04 --gpu H200 --offline",
        "doctor --offline",
    ],
)
def test_browser_shows_what_the_verbs_write(browser: Browser, tmp_path: Path, words: str) -> None:
    page = tmp_path / f"{len(words)}.html"
    done = kedge(*words.split(), "--html", page, cache=tmp_path / "cache", check=False)
    assert page.exists(), done.stderr
    for width in WIDTHS:
        browser.open(page, width=width, height=640)
        browser.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        assert browser.complaints == []
        assert browser.requests == [page.as_uri()]
        assert browser.evaluate("document.querySelector('#verdict').getBoundingClientRect().bottom") < 640
        assert browser.evaluate(OVERFLOWS) == []
    contrasts = browser.evaluate(CONTRASTS)
    assert [text for text in contrasts["texts"] if text[1] < 4.5] == []
    assert page.stat().st_size < 100_000


@each_row("text", HOSTILE, ids=lambda text: ascii(text[:24]))
def test_browser_runs_nothing_of_hostile_values(browser: Browser, tmp_path: Path, text: str) -> None:
    for number, made in enumerate(fill_pages(text)):
        page = tmp_path / f"{number}.html"
        page.write_text(made, encoding="utf-8")
        browser.open(page, width=360)
        assert browser.evaluate("typeof window.hacked") == "undefined"
        assert browser.requests == [page.as_uri()]
        assert browser.complaints == []
        strange = "document.querySelectorAll('script, img, iframe, a, b, i, object, embed, link, form').length"
        assert browser.evaluate(strange) == 0
        assert browser.evaluate("document.documentElement.scrollWidth") == 360
        assert browser.evaluate("document.documentElement.scrollHeight") < 60_000
        assert browser.evaluate("document.querySelector('#verdict').getBoundingClientRect().top") < 640
