# SPDX-License-Identifier: BSD-3-Clause
"""`kedge help`: the topics, guides and sections in a terminal and in a pipe. Needs nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.cli.entry import main
from kedge.cli.help import resolve_links
from kedge.cli.topics import TOPICS, find_guide, list_sections, read_topic
from kedge.cli.verbs import VERBS
from kedge.errors import UsageError
from tests.builders.installed import write_wheel
from tests.builders.rows import each_row
from tests.functional.test_cli_main import run_on_terminal, run_plain
from tests.requirements import REPOSITORY
from tests.wording import assert_reads

WITHOUT_GUIDE = {"config", "completion", "version", "help"}


def test_help_lists_every_guide() -> None:
    shown = run_plain("help").stdout
    assert all(f"\n  {topic:<17} {line}\n" in shown for topic, (_, line) in TOPICS.items())
    assert max(map(len, shown.splitlines())) <= 100
    listed = {page for page, _ in TOPICS.values()}
    docs = REPOSITORY / "docs"
    pages = {str(page.relative_to(docs)) for page in (*docs.glob("guides/*.md"), *docs.glob("tasks/*.md"))}
    assert len(pages) > 40
    assert pages <= listed


def test_help_topics_as_json() -> None:
    topics = json.loads(run_plain("help", "--json").stdout)["topics"]
    assert [entry["topic"] for entry in topics] == list(TOPICS)
    assert json.loads(run_plain("help", "errors", "--json").stdout)["text"] == read_topic("errors")


def test_help_shows_every_guide_in_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for topic in TOPICS:
        assert main(["help", topic]) == 0, topic
        shown = capsys.readouterr().out
        widest = max(map(len, shown.splitlines()))
        odd = re.search(r"\x1b|<!--|\]\([^h)]|[ \t]$", shown, re.MULTILINE)
        if len(shown) <= 500 or widest > 80 or odd:
            wrong.append(f"{topic}: {len(shown)} characters, {widest} columns, {odd}")
    assert not wrong, "\n".join(wrong)


def test_help_shows_one_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "doctor", "fuse"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("fuse\n")
    assert "squashfuse" in shown
    assert len(shown.splitlines()) < 12


def test_help_of_a_verb_without_a_guide_shows_its_options(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "exec"]) == 0
    assert capfd.readouterr().out.startswith("usage: kedge exec")
    assert main(["help", "pyxis", "get"]) == 0
    assert capfd.readouterr().out.startswith("usage: kedge pyxis get")


@each_row(
    "words, hint",
    [
        (["doctr"], "did you mean 'doctor'?"),
        (["submi"], "did you mean 'submit'?"),
        (["weather"], "to list the topics: kedge help"),
        (["doctor", "fus"], "did you mean 'fuse'?"),
        (["doctor", "nothing"], "to read the whole guide: kedge help doctor"),
    ],
)
def test_help_on_nothing_known(words: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", *words]) == UsageError.exit_code
    assert capsys.readouterr().err.endswith(f"hint: {hint}\n")


def test_help_turns_links_into_commands() -> None:
    text = "<!-- run -->\nSee [Run](run.md#bind-directories), [below](#fuse), [exit codes](../errors.md), [x](a/b.md)."
    assert_reads(resolve_links(text, "doctor"), "cli/see-run-help-run-bind-directories")
    assert resolve_links("[web](https://example.org)", "run") == "[web](https://example.org)"


def test_help_leaves_out_pictures() -> None:
    assert resolve_links("# A\n\n![Two\nlines](../pictures/a.svg)\n\nText.\n", "run") == "# A\n\nText.\n"


def test_help_sections_end_where_the_next_begins() -> None:
    text = "# Top\n\n## One\n1\n### Inner\n2\n```\n# a comment\n```\n## Two, and `more`\n3\n"
    sections = list_sections(text)
    assert list(sections) == ["top", "one", "inner", "two-and-more"]
    assert sections["one"] == "## One\n1\n### Inner\n2\n```\n# a comment\n```\n"


def test_help_every_verb_has_a_guide() -> None:
    assert {verb for verb in VERBS if find_guide(verb) is None} == WITHOUT_GUIDE


def test_help_on_a_terminal_has_colours_and_goes_through_the_pager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho PAGED\nexec cat\n")
    pager.chmod(0o755)
    monkeypatch.setenv("PAGER", str(pager))
    status, shown = run_on_terminal(tmp_path, "help", "errors")
    assert (status, shown.startswith(b"PAGED")) == (0, True)
    assert b"\x1b[" in shown
    status, shown = run_on_terminal(tmp_path, "help", "errors", term="dumb")
    assert (status, b"PAGED" in shown, b"\x1b[" in shown) == (0, False, False)


@pytest.mark.parametrize("pager", ['less "', "no-such-pager --now"])
def test_help_is_shown_without_a_pager_that_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pager: str
) -> None:
    monkeypatch.setenv("PAGER", pager)
    status, shown = run_on_terminal(tmp_path, "help", "errors")
    assert status == 0
    assert b"exit code" in shown.lower()


def test_help_guides_and_man_pages_are_in_the_wheel(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path)
    place = tmp_path / "installed"
    options = ["-q", "--no-compile", "--no-deps", "--no-index", "--target", str(place)]
    pip = [sys.executable, "-m", "pip", "install", *options, str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    assert {path.name for path in (place / "share/man/man1").iterdir()} >= {"kedge.1", "kedge-exec.1"}
    environ = {**os.environ, "PYTHONPATH": str(place)}
    code = (
        "import sys; from kedge.cli import entry; print(entry.__file__, file=sys.stderr); entry.main(['help', 'run'])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
    assert done.stderr.startswith(str(place))
    assert len(done.stdout) > 500
    assert (place / "kedge/docs/guides/run.md").read_bytes() == (REPOSITORY / "docs/guides/run.md").read_bytes()
