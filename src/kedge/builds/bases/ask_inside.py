# SPDX-License-Identifier: BSD-3-Clause
"""Asks a Python interpreter of this host about itself inside a container: for recipes, which strangers write.

It sees the host's programs, its own directories and those of its shared objects, all read-only, and no home. Where no
container can be made, an interpreter of the PATH is asked outside if the user cannot change it: the site installed it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from kedge.container.facts import Bind
from kedge.container.start.build_step import StepRoot
from kedge.container.start.host_script import HostScript, run_host_script
from kedge.errors import NamespaceRefused, ProgramFailed
from kedge.image.host_programs.python_environment import start_on_host
from kedge.image.workplace import Workplace
from kedge.system.confined_paths import remove_tree
from kedge.system.files import explained
from kedge.system.host.private_places import find_homes
from kedge.system.process import describe_status

_PATIENCE = 120.0  # seconds
_SHOWN = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/", "/libx32/", "/etc/")  # to every such script
_MOST = 64 << 20  # bytes of an answer


class InsideQuestions:
    """Starts interpreters in a container; the same question is asked once."""

    def __init__(self, workplace: Workplace) -> None:
        self._place = workplace.settings.temporary_directory
        self._answers: dict[tuple[str, ...], bytes] = {}

    def __call__(self, argv: Sequence[str], folders: Iterable[str]) -> bytes:
        """What the interpreter prints; `folders` hold its shared objects. Raises ProgramFailed."""
        if tuple(argv) not in self._answers:
            self._answers[tuple(argv)] = self._ask(argv, folders)
        return self._answers[tuple(argv)]

    def _ask(self, argv: Sequence[str], folders: Iterable[str]) -> bytes:
        output = bytearray()

        def keep(data: bytes) -> None:
            output.extend(data)
            if len(output) > _MOST:
                raise ProgramFailed(f"'{argv[0]}' does not stop printing")

        with explained(self._place):
            root = Path(tempfile.mkdtemp(prefix="kedge-ask-", dir=self._place))
        variables = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        binds = [Bind(place, place, readonly=True) for place in list_shown({*folders, *list_prefixes(argv[0])})]
        try:
            script = HostScript(list(argv), environment=variables)
            status = run_host_script(StepRoot(str(root)), script, keep, binds=binds, timeout=_PATIENCE)
        except NamespaceRefused:
            if os.access(argv[0], os.W_OK):
                raise
            return start_on_host(argv, folders)
        finally:
            remove_tree(root)
        if status:
            text = output[-2000:].decode(errors="replace")
            raise ProgramFailed(f"'{argv[0]}' {describe_status(status)}", context={"output": text})
        return bytes(output)


def list_prefixes(interpreter: str) -> list[str]:
    """The directories that an interpreter needs: where it lies and, through its links, where its files do."""
    found: list[str] = []
    path = os.path.abspath(interpreter)  # noqa: PTH100 - links are kept
    for _ in range(40):
        folder = os.path.dirname(path)  # noqa: PTH120
        prefix = os.path.dirname(folder)  # noqa: PTH120
        has_settings = os.path.isfile(f"{prefix}/pyvenv.cfg")  # noqa: PTH113
        if not os.path.islink(path):  # noqa: PTH114
            return [*found, prefix]
        found.append(prefix if has_settings else folder)
        path = os.path.normpath(os.path.join(folder, os.readlink(path)))  # noqa: PTH115, PTH118
    return found


def list_shown(folders: Iterable[str]) -> list[str]:
    """Return those that are directories, not shown anyway, and neither in a home nor above one; none twice."""
    homes = find_homes()
    shown: list[str] = []
    for folder in sorted({os.path.realpath(folder) for folder in folders} | set(folders)):
        place = folder.rstrip("/") + "/"
        if place == "/" or place.startswith(_SHOWN) or not os.path.isdir(folder):  # noqa: PTH112
            continue
        if any(home.startswith(place) or place.startswith(home) for home in homes):
            continue
        if not any(place.startswith(f"{other}/") for other in shown):
            shown.append(folder.rstrip("/"))
    return shown
