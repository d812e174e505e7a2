# SPDX-License-Identifier: BSD-3-Clause
"""'make site' builds the documentation without network: all pages, links that lead somewhere, and search.

Needs mkdocs-material from PyPI, user namespaces to be without network, and a browser.
"""

from __future__ import annotations

import html.parser
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.builders.browser import start_browser
from tests.builders.made_pages import make_pages
from tests.builders.pypi_tools import TOOLS, require_tool
from tests.builders.waiting import wait_until
from tests.requirements import REPOSITORY, require_user_namespaces


def list_pages() -> set[Path]:
    """Those of the repository, and those that are made."""
    return {path.relative_to(place) for place in (REPOSITORY / "docs", make_pages()) for path in place.rglob("*.md")}


class Page(html.parser.HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.anchors.add(str(given["id"]))
        if tag == "a" and given.get("href"):
            self.links.append(unquote(str(given["href"])))
        if tag in ("script", "img", "link") and given.get("rel") != "canonical":
            self.loaded.append(given.get("src") or given.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tools = require_tool("site").parent
    require_user_namespaces()
    place = tmp_path_factory.mktemp("documentation") / "site"
    command = ["unshare", "--map-root-user", "--net", str(REPOSITORY / "scripts/build-site"), str(place)]
    environ = {**os.environ, "SITE_TOOLS": str(tools), "PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def test_site_has_every_page_in_its_navigation(site: Path, pages: dict[Path, Page]) -> None:
    """mkdocs itself refuses pages that the navigation leaves out; here that it does so."""
    wanted = {path.with_suffix(".html") for path in list_pages()}
    linked = {Path(os.path.normpath(link)) for link in pages[site / "index.html"].links if "://" not in link}
    assert len(wanted) > 100
    assert sorted(wanted - linked - {Path("index.html")}) == []


def test_site_links_lead_somewhere(pages: dict[Path, Page]) -> None:
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link) or path.name == "404.html":
                continue
            found = pages.get(Path(os.path.normpath(path.parent / target)) if target else path)
            if found is None or (anchor and anchor not in found.anchors):
                wrong.append(f"{path.name}: {link}")
    assert wrong == []


def test_site_loads_nothing_from_elsewhere(pages: dict[Path, Page]) -> None:
    assert [link for page in pages.values() for link in page.loaded if re.match(r"(?:https?:)?//", link)] == []


def test_site_search_knows_every_page(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    wanted = {str(path.with_suffix(".html")) for path in list_pages()}
    assert sorted(wanted - found) == []


def test_site_shows_bars_of_tables_as_they_are(site: Path) -> None:
    assert "<code>TagChoice | None</code>" in (site / "reference/python.html").read_text(encoding="utf-8")


def test_site_is_built_with_the_same_tools_here_and_by_make() -> None:
    assert f"'{TOOLS['site'][0]}'" in (REPOSITORY / "scripts/build-site").read_text()


def test_site_can_be_searched_as_files(site: Path) -> None:
    """In a browser, without server and without network."""
    with start_browser() as browser:
        browser.open(site / "guides/run.html")
        browser.evaluate("document.querySelector('.md-search__input').focus()")
        typed = "field.value = 'torchrun'; field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}))"
        browser.evaluate(f"(() => {{ const field = document.querySelector('.md-search__input'); {typed} }})()")
        count = "document.querySelectorAll('.md-search-result__item').length"
        wait_until("results of the search", lambda: browser.evaluate(count) > 3)
        assert browser.complaints == []
        assert [address for address in browser.requests if not address.startswith(("file:", "data:"))] == []


def test_site_fits_a_phone_and_copies_commands_alone(site: Path) -> None:
    """Pages of tasks are no wider than a phone, and no command is cut on a desktop."""
    tasks = sorted((site / "tasks").glob("*.html"))
    assert len(tasks) > 10
    with start_browser() as browser:
        for page in (site / "index.html", *tasks):
            browser.open(page, width=390)
            assert browser.evaluate("document.documentElement.scrollWidth") <= 390, page.name
        for page in tasks:
            browser.open(page, width=1280)
            blocks = "[...document.querySelectorAll('pre > code')]"
            assert browser.evaluate(f"{blocks}.every(code => code.scrollWidth <= code.clientWidth)"), page.name
        browser.open(site / "tasks/first-gpu.html")
        code = "document.querySelector('pre > code')"
        copied = browser.evaluate(f"{code}.toggleAttribute('data-md-copying'), {code}.innerText").split("\n")
        assert [line for line in copied if line] == [
            "kedge pull docker://nvcr.io/nvidia/pytorch:24.03-py3",
            "kedge exec pytorch_24.03-py3.sif python --version",
        ]
