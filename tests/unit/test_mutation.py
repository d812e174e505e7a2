# SPDX-License-Identifier: BSD-3-Clause
"""The tool that puts faults into the source: which ones it makes, and what it says of those that no test notices."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.rows import each_row
from tests.mutation.mutants import choose_sample, list_mutants, make_mutant
from tests.mutation.records import read_record, read_subjects
from tests.requirements import REPOSITORY

TOY = '''\
"""A toy."""

from shop.errors import TooDear


def price(count: int, is_member: bool = False) -> int:
    """The price of so many."""
    if count > 10:
        raise TooDear("that many are not for sale", hint="buy fewer")
    total: int
    total = count * 3
    if is_member:
        total -= 1
    return total
'''
# What the tool is tried with, for a process each fault
SMALL = (
    TOY.replace("    total: int\n", "")
    .replace("    if is_member:\n        total -= 1\n", "")
    .replace(", is_member: bool = False", "")
)
TOY_TEST = """\
from toy import price


def test_price():
    assert price(2) == 6
"""


def list_changes(text: str) -> list[str]:
    return [mutant.change for mutant in list_mutants("toy.py", text)]


def test_faults_of_a_function() -> None:
    assert list_changes(TOY) == [
        "False -> True", "count > 10 -> count >= 10", "10 -> 11", "10 -> 9",
        "raise TooDear('that many are not for sale', hint='buy fewer') -> pass", "total = count * 3 -> pass",
        "count * 3 -> count // 3", "3 -> 4", "3 -> 2", "is_member -> not is_member", "total -= 1 -> total += 1",
        "total -= 1 -> pass", "1 -> 2", "1 -> 0", "return total -> return None",
    ]  # fmt: skip
    assert list_changes("x = [a, True, True]") == ["True -> False", "True -> False (2)"]


@each_row(("line", "changes"), [
    ("x = a and not b", ["a and (not b) -> a or not b", "not b -> b"]),
    ("x = a is None", ["a is None -> a is not None"]),
    ("x = 1 < a <= b", ["1 < a <= b -> 1 <= a <= b", "1 < a <= b -> 1 < a < b", "1 -> 2", "1 -> 0"]),
    ("x = a << b | c", ["a << b | c -> a << b & c", "a << b -> a >> b"]),
    ("x = -a", ["-a -> a"]),
    ("x = 'a'", ["'a' -> '~a~'"]),
    ("x = b'a'", ["b'a' -> b'~a~'"]),
    ("x = f'{a}:{b}'", ["':' -> '~:~'"]),
    ("x = [a for a in b if a]", ["a -> not a"]),
    ("x = 'all of this is for people'", []),
    ("x = f'there are {a} of them'", []),
    ("x: list['str'] = a", []),
    ("__all__ = ['a']", []),
    ("x = ValueError('a')", []),
    ("x = tell('a', hint='b')", ["'a' -> '~a~'"]),
])  # fmt: skip
def test_faults_of_a_line(line: str, changes: list[str]) -> None:
    assert list_changes(line) == changes


def test_every_mutant_is_another_program_and_samples_last() -> None:
    file = "src/kedge/cluster/schedulers/pbs/status.py"
    text = (REPOSITORY / file).read_text()
    mutants = list_mutants(file, text)
    assert len({mutant.identity for mutant in mutants}) == len(mutants) > 300
    made = {make_mutant(text, mutant) for mutant in mutants[::10]}
    assert len(made) == len(mutants[::10])
    for each in made:
        compile(each, file, "exec")
    before = choose_sample(list_mutants("toy.py", TOY), 6, seed=1)
    assert before == choose_sample(list_mutants("toy.py", TOY), 6, seed=1)
    after = choose_sample(list_mutants("toy.py", f"\n\n{TOY}"), 6, seed=1)
    assert [mutant.identity for mutant in before] == [mutant.identity for mutant in after]
    assert before != choose_sample(list_mutants("toy.py", TOY), 6, seed=2)


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A repository with a module, its test and a subject."""
    files = {
        "shop/errors.py": "class TooDear(Exception):\n    def __init__(self, message, hint): ...\n",
        "toy.py": SMALL,
        "test_toy.py": TOY_TEST,
        "tests/mutation/subjects.toml": '[toy]\nsources = ["toy.py::price"]\ntests = ["test_toy.py"]\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def mutate(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.mutation", "--tree", str(tree), *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=200, check=False)


def test_survivors_are_named_and_recorded(toy: Path) -> None:
    done = mutate(toy, "--jobs", "2", "--json", "--record")
    assert done.returncode == 1, done.stderr  # below the floor
    [result] = json.loads(done.stdout)
    assert (result["subject"], result["mutants"], result["killed"]) == ("toy", 9, 5)
    assert [f"{each['line']} {each['change']}" for each in result["survivors"]] == [
        "8 count > 10 -> count >= 10",
        "8 10 -> 11",
        "8 10 -> 9",
        "9 raise TooDear('that many are not for sale', hint='buy fewer') -> pass",
    ]
    record = read_record(toy)
    assert record.figures["toy"].killed == 5
    assert len(record.survivors) == 4
    assert (toy / "toy.py").read_text() == SMALL


@pytest.mark.long
def test_only_survivors_are_tried_again_after_a_new_test(toy: Path) -> None:
    mutate(toy, "--record")
    more = "\n\ndef test_most():\n    import pytest\n    assert price(10) == 30\n"
    (toy / "test_toy.py").write_text(f"{TOY_TEST}{more}    with pytest.raises(Exception):\n        price(11)\n")
    done = mutate(toy, "--survivors-only", "--record")
    assert done.returncode == 0, done.stderr
    assert "4 mutants" in done.stderr
    assert done.stdout.splitlines()[1].split()[:4] == ["toy", "9", "9", "100.0"]
    assert read_record(toy).survivors == []
    (toy / "toy.py").write_text(SMALL.replace("count * 3", "count * 4"))
    refused = mutate(toy, "--survivors-only")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "other mutants than when it was recorded" in refused.stderr


def test_tests_that_fail_without_a_fault_say_nothing(toy: Path) -> None:
    (toy / "test_toy.py").write_text(f"{TOY_TEST}    assert False, 'broken'\n")
    done = mutate(toy)
    assert (done.returncode, done.stdout) == (2, "")
    assert "fail without any fault" in done.stderr
    assert "broken" in done.stderr


def test_recorded_survivors_have_reasons_and_subjects_have_figures() -> None:
    subjects, record = read_subjects(REPOSITORY), read_record(REPOSITORY)
    assert record.figures.keys() == subjects.keys()
    assert [each for each in record.survivors if not each.reason] == []
    for name, figures in record.figures.items():
        survivors = [each for each in record.survivors if each.subject == name]
        assert figures.mutants - figures.killed == len(survivors)
        assert figures.killed >= 0.9 * figures.mutants, name


def test_subjects_name_what_is_there_and_once() -> None:
    for subject in read_subjects(REPOSITORY).values():
        for words in (subject.sources, subject.tests):
            assert len(set(words)) == len(words), subject.name
            assert [word for word in words if not (REPOSITORY / word.partition("::")[0]).exists()] == [], subject.name
