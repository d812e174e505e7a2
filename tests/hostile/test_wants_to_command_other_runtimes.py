# SPDX-License-Identifier: BSD-3-Clause
"""An image wants to command the program of another runtime on the host (`--runtime`), by variables that it sets.

podman runs the program that STORAGE_OPTS names, glibc loads what GCONV_PATH names: no list of such names is ever whole.
So what an image sets is said to the runtime, as the container's, and is never in its environment.
"""

from __future__ import annotations

import shlex

from tests.builders.containers import Runner, give_to, make_sandbox
from tests.builders.rows import each_row

HARMFUL = {
    "STORAGE_OPTS": "overlay.mount_program=/tmp/evil",
    "GCONV_PATH": "/tmp/evil",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/tmp/evil",
    "CONTAINER_HOST": "tcp://evil:1",
    "NOTIFY_SOCKET": "/tmp/evil",
    "_CONTAINERS_USERNS_CONFIGURED": "done",
    "PERL5OPT": "-Mevil",
}
PROGRAMS = {"podman": "podman", "enroot": "enroot", "charliecloud": "ch-run"}
# prints what it was told, and what it was given itself
TOLD = """#!/bin/sh
[ "$1" != --version ] || exec echo 9.9.0
printf 'word %s\\n' "$@"
/usr/bin/env | /bin/sed 's/^/own /'
"""


@each_row("runtime", PROGRAMS)
def test_variables_of_an_image(runner: Runner, runtime: str) -> None:
    folder = runner.folder / runtime
    lines = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in HARMFUL.items())
    image = make_sandbox(folder / "image", environment=lines)
    give_to(runner, folder)
    if runtime == "enroot":  # which takes files only
        runner.read("convert", str(image), str(image := folder / "image.sqsh"))
    program = folder / "bin" / PROGRAMS[runtime]
    program.parent.mkdir(parents=True)
    program.write_text(TOLD)
    program.chmod(0o755)
    done = runner.run(
        *("exec", "--runtime", str(program), "--env", "TOKEN=t0ken", str(image), "true"),
        env={"PATH": f"{program.parent}:/usr/bin:/bin", "MINE": "mine"},
    )
    assert done.returncode == 0, done.stderr
    own = dict(line[4:].split("=", 1) for line in done.stdout.splitlines() if line.startswith("own ") and "=" in line)
    words = [line[5:] for line in done.stdout.splitlines() if line.startswith("word ")]
    assert own["MINE"] == "mine"
    assert own["TOKEN"] == "t0ken"  # where no process list shows it
    assert not any("t0ken" in word for word in words)
    for name, value in HARMFUL.items():
        assert name not in own
        assert any(word.endswith(f"{name}={value}") for word in words), name  # the container has it
