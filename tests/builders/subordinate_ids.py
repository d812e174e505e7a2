# SPDX-License-Identifier: BSD-3-Clause
"""An ordinary user to whom this machine gives subordinate ids: /etc is another one for each of its programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.builders.containers import Runner, each_role
from tests.builders.own_etc import Account, make_etc
from tests.requirements import require_program, require_root

NAME = "subject"
FIRST, COUNT = 300_000, 65536


@dataclass(frozen=True, slots=True)
class RunnerWithIds(Runner):
    """Runs `kedge` where /etc/subuid and /etc/subgid have a line for its user."""

    etc: Path = Path("/etc")
    setup: str = "true"  # what root does to the machine besides, in a mount namespace of its own

    def argv(self, *words: str) -> list[str]:
        """The command line; the process that it starts becomes kedge."""
        script = f'mount --bind "$0" /etc && {self.setup} && exec "$@"'
        plain = Runner.argv(self, *words)
        return [require_program("unshare"), "--mount", "sh", "-c", script, str(self.etc), *plain]


def give_ids(runner: Runner, first: int = FIRST, count: int = COUNT, *, setup: str = "true") -> RunnerWithIds:
    """The same user, with so many ids from `first` on."""
    require_root()
    require_program("newuidmap")
    etc = runner.folder / f"etc-{first}-{count}"
    if not etc.exists():
        lines = dict.fromkeys(("subuid", "subgid"), f"{NAME}:{first}:{count}\n" if count else "")
        make_etc(etc, [Account(NAME, runner.uid, runner.home)], **lines)
    return RunnerWithIds(runner.folder, runner.uid, runner.environment, etc=etc, setup=setup, program=runner.program)


def each_with_ids() -> Iterator[RunnerWithIds]:
    """A fixture's body."""
    require_root()
    for runner in each_role("user"):
        yield give_ids(runner)


def list_foreign(runner: Runner) -> list[str]:
    """Files in the directories of the runner's kedge that are somebody else's."""
    places = [runner.folder / name for name in ("home", "node", "cache", "changes")]
    found = [path for place in places if place.exists() for path in (place, *place.rglob("*"))]
    return sorted(str(path) for path in found if os.lstat(path).st_uid != runner.uid)
