# SPDX-License-Identifier: BSD-3-Clause
"""A site page walked through from its first line to its last: one user types every command of it, on a real scheduler.

What is expected of a command is found by how the command begins, as the page has it. A command that nothing is expected
of is a fault, and so is an expectation whose command the page no longer has: page and test cannot part.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.builders.bundles import make_bundle
from tests.builders.containers import make_runner
from tests.builders.images import MACHINE
from tests.cluster.users import ClusterUser
from tests.requirements import REPOSITORY
from tests.tutorials.documents import Found, Kind
from tests.tutorials.internet import KEY, Internet
from tests.tutorials.lessons import Expect, Step
from tests.tutorials.reader import Reader, write_startup
from tests.tutorials.site_images import PACKAGES, find_packages
from tests.tutorials.site_pages import read_site_page

Key = str | tuple[str, int]  # how a command begins; of those that begin so, the one with this number
FILE = f"kedge-{os.uname().machine}"
# The way to the cluster is played: what is sent there lies in the reader's home, and commands run there.
_SSH = """\
#!/bin/sh
[ "$1" = {name} ] || {{ echo "ssh: there is no host $1" >&2; exit 255; }}
shift; cd {home} && exec sh -c "$*"
"""
_SCP = """\
#!/bin/sh
case $2 in
    {name}:/*) exec cp "$1" "${{2#*:}}" ;;
    {name}:*) exec cp "$1" "{home}/${{2#*:}}" ;;
esac
echo "scp: there is no host ${{2%%:*}}" >&2; exit 255
"""
# The reader's own host has kedge as it is developed here, and `kedge bundle` was run once for all pages.
_KEDGE = """\
#!/bin/sh
[ "$*" = bundle ] && exec cp -v {bundle} {file}
exec {python} -m kedge "$@"
"""


# the directories of the tests, and their Python
_FORGET = "unset KEDGE_CACHEDIR KEDGE_KEEP PYTHONPATH PYTHONDONTWRITEBYTECODE\n"


def expect_job(says: str, **more: object) -> Expect:
    """A job is submitted, ends well, and its output says so."""
    then = "kedge wait --timeout 120s && kedge logs"
    return Expect(says=r"(?m)^\d+", then=then, then_says=says, seconds=130, **more)  # type: ignore[arg-type]


# the user name of keys is proposed, and the key is not shown
LOGIN = Expect(
    keys=((r"user name \[\$oauthtoken\]: ?\Z", ""), (r"(?i)(key|password)[^\n]*: ?\Z", KEY)), says="(?i)logged in"
)
OWN_HOST = {"kedge bundle": Expect(is_elsewhere=True, says=rf"-> '{FILE}'"), "ssh": Expect(is_elsewhere=True)}


@dataclass(frozen=True, slots=True)
class Walk:
    """A page, and what is expected of its commands."""

    page: str
    expectations: Mapping[Key, Expect]
    fills: Mapping[str, str] = field(default_factory=dict)
    sections: tuple[str, ...] = ()  # where only these are walked through here: how their titles begin

    def list_steps(self, page: Sequence[Found]) -> tuple[list[Step], list[str]]:
        """What is typed of a page, in order, and what does not fit together."""
        steps, faults, unused = [], [], set(self.expectations)
        counts: dict[str, int] = {}
        for found in page:
            if self.sections and not found.host.startswith(self.sections):
                continue
            if found.kind is Kind.SCRIPT:
                steps.append(Step(found, found.text, Expect(save="kedge.toml")))
                continue
            key = self._find_key(found.text, counts)
            if key is None:
                faults.append(f"line {found.line}: nothing is expected of: {found.text}")
                continue
            unused.discard(key)
            steps.append(Step(found, found.text, self.expectations[key]))
            faults += _judge_expectation(steps[-1])
        return steps, [*faults, *(f"the page has no command that begins: {key}" for key in sorted(unused, key=str))]

    def _find_key(self, text: str, counts: dict[str, int]) -> Key | None:
        beginnings = {key if isinstance(key, str) else key[0] for key in self.expectations}
        fitting = [each for each in beginnings if f"{text} ".startswith(each)]
        if not fitting:
            return None
        begins = max(fitting, key=len)
        number = counts.get(begins, 0)
        counts[begins] = number + 1
        return next((key for key in ((begins, number), begins) if key in self.expectations), None)


def _judge_expectation(step: Step) -> Iterator[str]:
    """What is looked for must come from the command: terminals show what is typed, too."""
    expect = step.expect
    for typed, says in ((expect.typed or step.text, expect.says), (expect.then, expect.then_says)):
        if typed and says and re.search(says, typed):
            yield f"line {step.found.line}: /{says}/ is in the command itself"
    if re.match(r"kedge submit", step.text) and not (expect.then_says or "--wait" in step.text):
        yield f"line {step.found.line}: nobody looks at what the job did: {step.text}"


@dataclass(frozen=True, slots=True)
class Walker:
    """One user at two terminals: of the own host, and of the login node, where nothing but the bundle is kedge."""

    own: Reader
    there: Reader

    def bring_kedge(self) -> None:
        """What the beginning of a page does, for who walks through a later part."""
        self.there.write("bin/kedge", "")
        shutil.copy(make_bundle(), self.there.folder / "bin/kedge")

    def follow(self, walk: Walk) -> None:
        """Type all of it; fails with everything that was not as expected."""
        steps, faults = walk.list_steps(read_site_page(walk.page))
        assert steps
        assert not faults, "\n".join(faults)
        with self.own.open_shell() as own, self.there.open_shell() as there:
            for step in steps:
                try:
                    self.there.take(own if step.expect.is_elsewhere else there, walk.fills, step)
                except AssertionError as problem:  # the terminal is of no more use
                    self.there.faults.append(f"line {step.found.line}: {step.text}\n{problem}")
                    break
        assert not self.there.faults, "\n\n".join(self.there.faults)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the reader of a page logs in: the name of the login node, and what `ssh` calls it."""

    page: str
    host: str = ""  # none: the cluster's own
    name: str = ""  # the same
    is_at_home: bool = False  # jobs begin in the home that /etc names


def make_walker(
    user: ClusterUser, internet: Internet, place: Place, local: Path, startup: str = "", **environment: str
) -> Walker:
    """The reader of a page, with a home of its own; `local` is a directory that every host has of its own."""
    folder = user.folder.with_name(f"{user.folder.name}-{place.page}")
    on_host = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', place.host)
    reached = {"https_proxy": internet.proxy, "no_proxy": "", "KEDGE_CA_BUNDLE": str(internet.certificate)}
    packages = {"KEDGE_BIND": f"{find_packages()}:{PACKAGES}:ro", "OPENBLAS_NUM_THREADS": "1", "UCX_TLS": "tcp,self"}
    own = _make_reader(user, folder / "own", {**reached, **packages})
    variables = {
        **reached,
        **packages,
        "KEDGE_NODEDIR": str(local / f"node-{place.page}"),
        "KEDGE_SITES": str(_write_profiles(folder / "sites", packages["KEDGE_BIND"], local)),
        **environment,
    }
    there = replace(user, prefix=(*user.prefix, *(on_host if place.host else ())))
    reader = _make_reader(there, user.folder if place.is_at_home else folder / "there", variables)
    for program, text in {"ssh": _SSH, "scp": _SCP}.items():
        own.write(f"bin/{program}", text.format(name=place.name or place.host, home=reader.folder))
    own.write("bin/kedge", _KEDGE.format(bundle=make_bundle(), file=FILE, python=sys.executable))
    write_startup(own, internet)
    write_startup(reader, internet, _FORGET + startup)
    return Walker(own, reader)


def _write_profiles(folder: Path, packages: str, local: Path) -> Path:
    """The sites' own profiles, on nodes whose processors are those of this machine, with a local disk of our own."""
    folder.mkdir()
    for path in (REPOSITORY / "src/kedge/cluster/sites/profiles").glob("*.toml"):
        text = path.read_text().replace('arch = "amd64"', f'arch = "{MACHINE}"').replace("$PBS_LOCALDIR", str(local))
        # batch jobs of Grid Engine have no variable of who submits them
        binds = f'scheduler = "gridengine"\nbinds = ["{packages}"]'
        (folder / path.name).write_text(text.replace('scheduler = "gridengine"', binds))
    return folder


def _make_reader(user: ClusterUser, folder: Path, environment: Mapping[str, str]) -> Reader:
    folder.mkdir(parents=True, exist_ok=True)
    home = make_runner(folder, user.uid).home
    path = f"{home}/bin:{user.environment.get('PATH', '/usr/bin:/bin')}"
    return Reader(replace(user, folder=folder), home, {"PATH": path, **environment})
