# SPDX-License-Identifier: BSD-3-Clause
"""tests/wording.py: sentences by name, and what `scripts/reword` does to them."""

from __future__ import annotations

import multiprocessing
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import wording

OLD = {"no-tag": "no tag {0} in {1}", "took": "{0} of {1} ranks took {1} s\n", "other": "another sentence, not touched"}


@pytest.fixture
def golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file of sentences of their own; what is rewritten is noted beside it."""
    monkeypatch.delenv(wording.REWRITE, raising=False)
    monkeypatch.setattr(wording, "GOLDEN", tmp_path)
    wording.read_subject.cache_clear()
    wording.write_subject("pull", {f"pull/{slug}": sentence for slug, sentence in OLD.items()})
    yield tmp_path / "pull.toml"
    wording.read_subject.cache_clear()


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As under scripts/reword."""
    monkeypatch.setenv(wording.REWRITE, str(tmp_path / "notes"))
    return tmp_path / "notes"


def read(golden: Path) -> dict[str, str]:
    return tomllib.loads(golden.read_text())


@pytest.mark.usefixtures("golden")
def test_wording_values_are_filled_in() -> None:
    wording.assert_says("kedge: no tag 9.9 in r.io/x: look again", "pull/no-tag", "9.9", "r.io/x")
    wording.assert_says({"no tag 9.9 in r.io/x", "other"}, "pull/no-tag", 9.9, "r.io/x")
    wording.assert_reads("2 of 4 ranks took 4 s\n", "pull/took", 2, 4)
    wording.assert_reads(["no tag a in b"], "pull/no-tag", "a", "b")
    wording.assert_begins("no tag a in b, nor in c", "pull/no-tag", "a", "b")
    wording.assert_ends("kedge: no tag a in b", "pull/no-tag", "a", "b")


@pytest.mark.usefixtures("golden")
def test_wording_other_texts_fail_and_show_both() -> None:
    with pytest.raises(AssertionError) as caught:
        wording.assert_says("kedge: there is no tag 9.8 in x\nhint: look", "pull/no-tag", "9.9", "x")
    assert str(caught.value) == (
        "pull/no-tag\n  wanted:  no tag 9.9 in x\n  nearest: no tag 9.8 in x\n"
        "  got:     kedge: there is no tag 9.8 in x\n           hint: look"
    )
    for assertion in (wording.assert_reads, wording.assert_begins, wording.assert_ends):
        with pytest.raises(AssertionError):
            assertion("(no tag 9.9 in x)", "pull/no-tag", "9.9", "x")
    for text in (None, ["no tag 9.9 in x", "more"]):
        with pytest.raises(AssertionError):
            wording.assert_reads(text, "pull/no-tag", "9.9", "x")


@pytest.mark.usefixtures("golden")
def test_wording_names_and_numbers_of_values_are_checked() -> None:
    with pytest.raises(KeyError, match="pull/nothing is not in"):
        wording.assert_says("a", "pull/nothing")
    for values in (("9.9",), ("9.9", "x", "y")):
        with pytest.raises(AssertionError, match=rf"has not the places for {len(values)} values: no tag \{{0\}} in"):
            wording.assert_says("no tag 9.9 in x", "pull/no-tag", *values)


CHANGED = [
    (wording.assert_says, "kedge: x has no tag '9.9'.\nhint: a", "no-tag", ("9.9", "x"), "{1} has no tag '{0}'."),
    (wording.assert_says, "a\nkedge: there is no tag 9.9 at x: b", "no-tag", ("9.9", "x"), "no tag {0} at {1}"),
    (wording.assert_says, ["a", "no tag 9.9 at x", "b"], "no-tag", ("9.9", "x"), "no tag {0} at {1}"),
    (wording.assert_says, "no tag 9.9 in x, y", "no-tag", ("9.9", "x", "y"), "no tag {0} in {1}, {2}"),
    (wording.assert_says, "no tag 9.9 in x, y", "no-tag", ("9.9",), "no tag {0} in x, y"),
    (wording.assert_says, "a\nkedge: in x is no tag 9.9\nb", "no-tag", ("9.9", "x"), "in {1} is no tag {0}"),
    (wording.assert_reads, "took 4 s: 4 of 4 ranks\n", "took", (4, 4), "took {0} s: {1} of {1} ranks\n"),
    (wording.assert_reads, "all 2 of 4 ranks took 4 s", "took", (2, 4), "all {0} of {1} ranks took {1} s"),
    (wording.assert_begins, "There is no tag 9.9 in x: a", "no-tag", ("9.9", "x"), "There is no tag {0} in {1}"),
    (wording.assert_ends, "a: no tag 9.9 in x; stop", "no-tag", ("9.9", "x"), "no tag {0} in {1}; stop"),
]


@pytest.mark.parametrize("case", CHANGED)
def test_wording_changed_sentences_are_rewritten_and_no_other(golden: Path, notes: Path, case: tuple[Any, ...]) -> None:
    assertion, text, slug, values, new = case
    before = golden.read_text()
    assertion(text, f"pull/{slug}", *values)
    assert read(golden) == OLD | {slug: new}
    assert len(set(golden.read_text().splitlines()) - set(before.splitlines())) == 1
    assert notes.read_text().splitlines()[0] == f"pull/{slug}"
    assertion(text, f"pull/{slug}", *values)  # now it is so


def test_wording_what_is_no_new_wording_fails(golden: Path, notes: Path) -> None:
    for text in ("Segmentation fault", "", "no tag 9.8 in x", "no tag in x"):  # another message, or without its value
        with pytest.raises(AssertionError):
            wording.assert_says(text, "pull/no-tag", "9.9", "x")
    with pytest.raises(AssertionError):
        wording.assert_reads(None, "pull/no-tag", "9.9", "x")
    assert read(golden) == OLD
    assert not notes.exists()


def test_wording_two_tests_that_contradict_are_told(golden: Path, notes: Path) -> None:
    wording.assert_reads("no tag 9.9 at x", "pull/no-tag", "9.9", "x")
    with pytest.raises(AssertionError):
        wording.assert_reads("no tag 9.9 under x", "pull/no-tag", "9.9", "x")
    assert read(golden)["no-tag"] == "no tag {0} at {1}"


def test_wording_processes_at_once_lose_nothing(golden: Path, notes: Path) -> None:
    def rewrite_every_second(first: int) -> None:
        for number in range(first, 40, 2):
            wording.assert_reads(f"the new sentence number {number}", f"run/sentence-{number:02}")

    wording.write_subject("run", {f"run/sentence-{number:02}": f"the sentence number {number}" for number in range(40)})
    wording.read_subject("run")  # and both begin with the old ones
    processes = [multiprocessing.get_context("fork").Process(target=rewrite_every_second, args=[i]) for i in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    told = tomllib.loads(golden.with_name("run.toml").read_text())
    assert told == {f"sentence-{number:02}": f"the new sentence number {number}" for number in range(40)}
    assert list(told) == sorted(told)
    assert len(notes.read_text().splitlines()) == 4 * 40
    assert sorted(path.name for path in golden.parent.iterdir()) == ["notes", "pull.toml", "run.toml"]
