# SPDX-License-Identifier: BSD-3-Clause
"""The real Apptainer, run as an ordinary user in a directory that it shares with the tests."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.builders.removal import remove_beside
from tests.requirements import require_peer

PEER_USER = 1500


@dataclass(frozen=True)
class Apptainer:
    """Runs commands in `folder`, which belongs to its user."""

    folder: Path
    script: Path

    variables: tuple[str, ...] = ()  # NAME=VALUE, besides HOME

    def run(
        self, *words: str | Path, check: bool = True, shell: bool = False, input: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """`apptainer WORDS` without its own chatter, or with `shell` any command there."""
        program = [*self.variables, *([] if shell else ["apptainer", "-s"])]
        command = [self.script, "run", "-d", self.folder, "--", "env", f"HOME={self.folder}", *program]
        environment = {"PATH": os.environ["PATH"], "KEDGE_PEERS": os.environ.get("KEDGE_PEERS", "")}
        done = subprocess.run(
            [*map(str, command), *map(str, words)],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=environment,
            input=input,
            timeout=120,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"{shlex.join(map(str, words))}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def answer(self, *commands: tuple[str | Path, ...]) -> list[tuple[int, str]]:
        """The status and the output of several commands of Apptainer, for which its tree is entered once."""
        lines = [f"apptainer -s {shlex.join(map(str, words))}; printf '\\0%d\\0' $?" for words in commands]
        fields = self.run("sh", "-c", "\n".join(lines), shell=True).stdout.split("\0")
        assert len(fields) == 2 * len(commands) + 1, fields
        return [(int(status), output) for output, status in zip(fields[:-1:2], fields[1::2], strict=True)]

    def own(self, path: Path) -> Path:
        """Give a file or directory to its user."""
        for each in (path, *(path.rglob("*") if path.is_dir() else ())):
            os.chown(each, PEER_USER, PEER_USER, follow_symlinks=False)
        return path


@contextlib.contextmanager
def apptainer_folder() -> Iterator[Apptainer]:
    """A directory for Apptainer and us; removed with all that is in it."""
    script = require_peer()
    folder = Path(tempfile.mkdtemp(prefix="kedge-apptainer-"))
    folder.chmod(0o755)
    os.chown(folder, PEER_USER, PEER_USER)
    try:
        yield Apptainer(folder, script)
    finally:
        remove_beside(folder)
