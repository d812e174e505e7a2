# SPDX-License-Identifier: BSD-3-Clause
"""The tests that may be tried again when they fail beside others: those of `tests/flaky.toml`, and no other.

`python -m tests.flaky CACHE` says what failed; its status is 0 where all of it is in the list. scripts/run-tests asks.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).with_name("flaky.toml")
MOST = 10


class Flaky(NamedTuple):
    """A test, why it may fail, and since when that is known."""

    test: str
    cause: str
    since: date

    def covers(self, id: str) -> bool:
        """Whether this is the test with that id, or it is among these."""
        return id == self.test or id.startswith((f"{self.test}::", f"{self.test}["))


def read_list(path: Path = LIST) -> list[Flaky]:
    """The list; raises where one has another form."""
    return [Flaky(**each) for each in tomllib.loads(path.read_text(encoding="utf-8"))["flaky"]]


def read_failed(cache: Path) -> list[str]:
    """What failed in the last run with this cache of pytest's."""
    path = cache / "v/cache/lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


def main() -> int:
    """Say which of those that failed are in the list."""
    listed = read_list(Path(os.environ.get("KEDGE_FLAKY_LIST") or LIST))
    failed = read_failed(Path(sys.argv[1]))
    known = [id for id in failed if any(each.covers(id) for each in listed)]
    count = sum(any(each.covers(id) for id in known) for each in listed)
    heading = f"flaky: of {len(listed)} listed tests {count} failed beside others{':' if known else ''}"
    sys.stdout.write("\n  ".join([heading, *known]) + "\n")
    return 0 if failed and failed == known else 1


if __name__ == "__main__":
    sys.exit(main())
