# SPDX-License-Identifier: BSD-3-Clause
"""`scripts/mutate`: how many small faults in a subject's source its tests notice, and which ones they do not."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from tests.mutation.mutants import BY_PLACE, Mutant, choose_sample, identify_sample, list_mutants
from tests.mutation.records import (
    Figures,
    Record,
    Subject,
    read_record,
    read_subjects,
    replace_subject,
    write_record,
)
from tests.mutation.trials import TestsFailed, TreeCopy, Trial, load_slow_modules, try_mutants
from tests.requirements import REPOSITORY

_FLOOR = 90  # percent of a subject's mutants that its tests must kill
_SAMPLE = 200
_STEP = 20  # mutants between two lines of progress


class Result(NamedTuple):
    """What came out for a subject; with --survivors-only the figures hold those killed before, too."""

    subject: str
    figures: Figures
    survivors: list[Mutant]
    minutes: float

    @property
    def percent(self) -> float:
        """How many were killed."""
        return 100 * self.figures.killed / max(self.figures.mutants, 1)


def main(words: Sequence[str] | None = None) -> int:
    """The status is 1 where a subject is below the floor, 2 where tests fail without a fault."""
    options = _read_options(words)
    subjects = read_subjects(options.tree)
    if unknown := set(options.subjects) - set(subjects):
        print(f"mutate: no subject {unknown.pop()}: there are {', '.join(subjects)}", file=sys.stderr)
        return 2
    if options.list:
        for subject in subjects.values():
            count = len(_list_all(subject, options))
            print(f"{subject.name:22} {count:5} mutants in {len(subject.sources)} files")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that copies are removed
    load_slow_modules()
    results = []
    for name in options.subjects or subjects:
        try:
            results.append(_try_subject(subjects[name], options))
        except TestsFailed as problem:
            print(f"{problem}\nmutate: the tests of {name} fail without any fault", file=sys.stderr)
            return 2
        if options.record:
            last = results[-1]
            write_record(replace_subject(read_record(options.tree), name, last.figures, last.survivors), options.tree)
    _print_results(results, read_record(options.tree), as_json=options.json)
    return 0 if all(result.percent >= _FLOOR for result in results) else 1


def _read_options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help="default: all of --list")
    parser.add_argument("--list", action="store_true", help="list the subjects")
    parser.add_argument("--sample", type=int, default=_SAMPLE, help="mutants of each subject (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time (default: %(default)s)")
    parser.add_argument("--only", metavar="FILE", default="", help="mutants of this file only")
    parser.add_argument("--survivors-only", action="store_true", help="try those again that are recorded as survivors")
    parser.add_argument("--record", action="store_true", help="write figures and survivors to survivors.toml")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--tree", type=Path, default=REPOSITORY, help="another repository than this one")
    options = parser.parse_args(words)
    if options.record and options.only:
        parser.error("--record is for whole subjects, not with --only")
    return options


def _list_all(subject: Subject, options: argparse.Namespace) -> list[Mutant]:
    found: list[Mutant] = []
    for source in subject.sources:
        file, _, name = source.partition("::")
        if not options.only or Path(options.only) == Path(file):
            mutants = list_mutants(file, (options.tree / file).read_text(encoding="utf-8"))
            found += [each for each in mutants if not name or f"{each.function}.".startswith(f"{name}.")]
    return found


def _try_subject(subject: Subject, options: argparse.Namespace) -> Result:
    began = time.monotonic()
    sample = choose_sample(_list_all(subject, options), options.sample, options.seed)
    mark = identify_sample(sample)
    wanted = _list_known(subject, sample, mark, options.tree) if options.survivors_only else sample
    trials = _try_sample(subject, wanted, options)
    survivors = [trial.mutant for trial in trials if trial.outcome == "survived"]
    figures = Figures(date.today(), options.seed, mark, len(sample), len(sample) - len(survivors))
    return Result(subject.name, figures, sorted(survivors, key=BY_PLACE), (time.monotonic() - began) / 60)


def _list_known(subject: Subject, sample: list[Mutant], mark: str, tree: Path) -> list[Mutant]:
    """Those that are recorded as survivors: where the others are the same ones, they were killed."""
    record = read_record(tree)
    if subject.name not in record.figures or record.figures[subject.name].sample != mark:
        sys.exit(f"mutate: {subject.name} has other mutants than when it was recorded: leave out --survivors-only")
    known = {each.identity for each in record.survivors if each.subject == subject.name}
    return [mutant for mutant in sample if mutant.identity in known]


def _try_sample(subject: Subject, mutants: list[Mutant], options: argparse.Namespace) -> list[Trial]:
    trials: list[Trial] = []
    with tempfile.TemporaryDirectory(prefix="kedge-mutate-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        copy = TreeCopy(Path(name, "copy0"), subject.tests)
        copy.fill(options.tree)
        seconds = copy.measure()
        print(f"{subject.name}: {len(mutants)} mutants, {seconds:.1f} s unmutated", file=sys.stderr)
        for trial in try_mutants(copy, mutants, jobs=options.jobs, seconds=seconds):
            trials.append(trial)
            if trial.outcome == "survived":
                print(trial.mutant, file=sys.stderr)
            if len(trials) % _STEP == 0:
                killed = sum(each.outcome != "survived" for each in trials)
                print(f"{subject.name}: {killed} of {len(trials)} killed", file=sys.stderr)
    return trials


def _print_results(results: list[Result], record: Record, *, as_json: bool) -> None:
    reasons = {(each.subject, each.identity): each.reason for each in record.survivors}
    if as_json:
        print(json.dumps([_describe(result, reasons) for result in results], indent=2))
        return
    print(f"{'subject':22} {'mutants':>7} {'killed':>7} {'%':>6} {'minutes':>8}")
    for result in results:
        figures = result.figures
        print(f"{result.subject:22} {figures.mutants:7} {figures.killed:7} {result.percent:6.1f} {result.minutes:8.1f}")
    for result in results:
        for mutant in result.survivors:
            reason = reasons.get((result.subject, mutant.identity), "")
            print(f"{mutant}  # {reason}" if reason else str(mutant))


def _describe(result: Result, reasons: dict[tuple[str, tuple[str, str, str]], str]) -> dict[str, object]:
    survivors = [
        {**mutant._asdict(), "reason": reasons.get((result.subject, mutant.identity), "")}
        for mutant in result.survivors
    ]
    figures = {**result.figures._asdict(), "date": str(result.figures.date)}
    return {"subject": result.subject, **figures, "minutes": round(result.minutes, 1), "survivors": survivors}


if __name__ == "__main__":
    sys.exit(main())
