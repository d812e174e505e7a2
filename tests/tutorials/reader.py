# SPDX-License-Identifier: BSD-3-Clause
"""A reader of a tutorial on a cluster: types every command of the document in order, and notes what came of it."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kedge.container.shim_file import ALL_PROGRAMS
from tests.builders.shims import write_shims
from tests.cluster.users import ClusterUser
from tests.requirements import require_shared
from tests.tutorials.documents import Kind, read_document
from tests.tutorials.internet import Internet
from tests.tutorials.lessons import Lesson, Step
from tests.tutorials.session import STARTUP, Answer, Session


@dataclass
class Reader:
    """A user whose shells are ready to be typed at: the shims on the PATH, servers reached through the proxy."""

    user: ClusterUser
    folder: Path  # where the reader works
    environment: dict[str, str]
    faults: list[str] = field(default_factory=list)

    def write(self, name: str, text: str, mode: int = 0o755) -> Path:
        """A file of the reader."""
        path = self.folder / name
        new = [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        for each in (path, *new):
            os.chown(each, self.user.uid, self.user.uid)
        return path

    def open_shell(self) -> Session:
        """A shell on the login node."""
        return Session(self.user.words("bash"), self.user.variables(self.environment), self.folder)

    def follow(self, lesson: Lesson) -> list[Step]:
        """Type all of a tutorial; fails with everything that was not as expected."""
        steps = list_steps(lesson)
        with self.open_shell() as session, self.open_shell() as second:
            for step in steps:
                is_second = step.expect.is_elsewhere or (lesson.has_two_terminals and step.found.host == "login")
                try:
                    self.take(second if is_second else session, lesson.fills, step)
                except AssertionError as problem:  # the terminal is of no more use
                    self.faults.append(f"line {step.found.line}: {step.text}\n{problem}")
                    break
        assert not self.faults, "\n\n".join(self.faults)
        return steps

    def take(self, session: Session, fills: Mapping[str, str], step: Step) -> None:
        """Type one command, with what goes before and after it; what is not as expected becomes a fault."""
        expect = step.expect
        if expect.save:
            self.write(expect.save, _fill(fills, step.found.text))
        for text in expect.before:
            session.type(_fill(fills, text))
        if step.is_typed or expect.typed:
            text = _fill(fills, expect.typed or step.text)
            answer = session.type(text, *expect.keys, timeout=expect.seconds)
            self._judge(step, text, answer, expect.says, expect.status)
        if expect.then:
            answer = session.type(_fill(fills, expect.then), timeout=expect.seconds)
            self._judge(step, expect.then, answer, expect.then_says, 0)
        for _ in range(expect.leaves):
            session.type("exit")

    def _judge(self, step: Step, text: str, answer: Answer, says: str, status: int) -> None:
        if answer.status != status or not re.search(says, answer.text):
            wanted = f"wanted {status} and /{says}/"
            self.faults.append(
                f"line {step.found.line}: {text}\nstatus {answer.status}, {wanted}:\n{answer.text[-1500:]}"
            )


def list_steps(lesson: Lesson) -> list[Step]:
    """All that a reader of the tutorial types, saves or downloads."""
    [path] = require_shared("tutorials").glob(f"{lesson.document}_*")
    return lesson.list_steps(read_document(path.read_text(encoding="utf-8")))


def count_kinds(steps: list[Step]) -> dict[Kind, int]:
    """How many there are of each."""
    return {kind: sum(step.found.kind is kind for step in steps) for kind in Kind}


def make_reader(user: ClusterUser, internet: Internet, name: str, startup: str = "", **environment: str) -> Reader:
    """A reader with a directory of this name in the home of a cluster's user; `startup` is read by every shell."""
    folder = user.home / name
    folder.mkdir(mode=0o755, exist_ok=True)
    shims = write_shims(user.home / "shims", ALL_PROGRAMS)
    variables = {
        "PATH": f"{shims}:{user.home}/bin:{user.environment.get('PATH', '/usr/bin:/bin')}",
        "https_proxy": internet.proxy,
        "no_proxy": "",
        "KEDGE_CA_BUNDLE": str(internet.certificate),
        **environment,
    }
    reader = Reader(user, folder, variables)
    for path in (folder, user.home):
        os.chown(path, user.uid, user.uid)
    add_programs(reader, {"kedge": f'#!/bin/sh\nexec {sys.executable} -m kedge "$@"\n'})
    write_startup(reader, internet, startup)
    return reader


def write_startup(reader: Reader, internet: Internet, startup: str = "") -> None:
    """What the shells of the reader read, and how its programs reach the servers."""
    settings = {**reader.user.variables(reader.environment), "PWD": ""}
    exports = "".join(
        f"export {key}={shlex.quote(value)}\n" for key, value in settings.items() if key not in ("PWD", "HOME")
    )
    for file in (".bashrc", ".bash_profile"):
        reader.write(f"{reader.user.home}/{file}", exports + startup + STARTUP, 0o644)
    reader.write(
        f"{reader.user.home}/.wgetrc",
        f"ca_certificate = {internet.certificate}\nhttps_proxy = {internet.proxy}\n",
        0o644,
    )
    reader.write(f"{reader.user.home}/.curlrc", f"cacert = {internet.certificate}\nproxy = {internet.proxy}\n", 0o644)


def add_programs(reader: Reader, programs: Mapping[str, str]) -> None:
    """Commands that only the tutorial's site has."""
    for name, text in programs.items():
        reader.write(f"{reader.user.home}/bin/{name}", text)


def _fill(fills: Mapping[str, str], text: str) -> str:
    for gap, value in fills.items():
        text = text.replace(gap, value)
    return text
