# SPDX-License-Identifier: BSD-3-Clause
"""Images that want to change kedge's interpreter, in the form of CVE-2019-5736, where it is the user's own file.

Whatever kedge starts in an image may say that its interpreter is /proc/self/exe: the kernel then starts the very
program that asked, with the image's dynamic loader, which opens it and writes to it as soon as nobody runs it.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.image.formats.elf import read_elf
from tests.builders.containers import as_user, make_sandbox
from tests.builders.matrices import EVERY
from tests.hostile.attacks.attack import COLUMNS, WAYS
from tests.hostile.attacks.conftest import Ground, Programs
from tests.hostile.attacks.scene import Scene, put_into
from tests.requirements import require_program, require_root

SCRIPT = "#!/proc/self/exe\n"
# What is hostile in the image, the verb, and the words behind the image
STARTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "a script": ("bin/hostile", "exec", ("/bin/hostile",)),
    "a program": ("bin/hostile-program", "exec", ("/bin/hostile-program",)),
    "the run script": (".singularity.d/runscript", "run", ()),
    "the test script": (".singularity.d/test", "test", ()),
    "the shell": ("bin/sh", "shell", ()),
    "the shell, for an environment script": ("bin/sh", "exec", ("/bin/busybox", "true")),
    "the shell, for a script without a first line": ("bin/sh", "exec", ("/bin/plain",)),
}


@pytest.fixture(scope="module")
def hostile(ground: Ground, programs: Programs) -> Iterator[Path]:
    """An image whose dynamic loader is the attacker's."""
    scene = ground.scene
    image = put_into(make_sandbox(scene.base / "hostile"), programs.attack)
    assert scene.watched is not None
    elf = read_elf(scene.watched)
    assert elf is not None
    assert elf.interpreter
    loader = image / elf.interpreter.lstrip("/")
    loader.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(programs.loader, loader)
    (image / "bin/plain").write_text("echo started by a shell\n")
    (image / "bin/plain").chmod(0o755)
    source = scene.base / "program.c"
    source.write_text("void _start(void) { for (;;) ; }\n")
    words = [
        "-nostdlib",
        "-fPIE",
        "-pie",
        "-Wl,--dynamic-linker=/proc/self/exe",
        "-o",
        str(image / "bin/hostile-program"),
    ]
    subprocess.run([require_program("gcc"), *words, str(source)], check=True)
    scene.own(image)
    yield image
    shutil.rmtree(image)


def spoil(scene: Scene, hostile: Path, start: str) -> Path:
    """A copy of the image in which one thing is hostile."""
    place, _, _ = STARTS[start]
    image = scene.base / "spoilt"
    shutil.rmtree(image, ignore_errors=True)
    shutil.copytree(hostile, image, symlinks=True)
    if start != "a program":
        (image / place).unlink(missing_ok=True)
        (image / place).write_text(SCRIPT)
        (image / place).chmod(0o755)
    if "environment" in start:
        (image / ".singularity.d/env/50-asks.sh").write_text("export WHAT=$(busybox echo asked)\n")
    return scene.own(image)


@EVERY
@pytest.mark.parametrize("start", STARTS)
def test_an_image_does_not_change_the_interpreter(ground: Ground, hostile: Path, start: str, is_every: bool) -> None:
    """A script in all columns, each of which has a caller of its own; the others, which a program starts, in two."""
    scene = ground.scene
    number = list(STARTS).index(start)
    others = [*WAYS.values()] if is_every else [*COLUMNS.values()]
    ways = others if is_every or not number else [(), [*WAYS.values()][1 + number % (len(WAYS) - 1)]]
    image = spoil(scene, hostile, start)
    _, verb, words = STARTS[start]
    scene.mend_interpreter()
    wrong = []
    for flags in ways:
        for more in ((), ("--no-init",)) if "--containall" in flags or "--pid" in flags else ((),):
            done = scene.run(*limited(ground.kedge), verb, *flags, *more, image, *words)
            changed = scene.mend_interpreter()
            if changed:
                wrong.append(f"{verb} {' '.join((*flags, *more))}: {', '.join(changed)}")
            assert "Traceback" not in done.stderr
    assert not wrong, "\n".join(wrong)


def limited(kedge: Path) -> list[str]:
    """With little time: a program whose loader is the interpreter may run for ever."""
    return [require_program("timeout"), "--signal=KILL", "20", require_program("prlimit"), "--cpu=3", str(kedge)]


@pytest.mark.parametrize("way", COLUMNS)
def test_an_instance_does_not_change_the_interpreter(ground: Ground, hostile: Path, way: str) -> None:
    """Neither when it starts, nor when somebody enters it."""
    scene = ground.scene
    image = spoil(scene, hostile, "a script")
    (image / ".singularity.d/startscript").unlink(missing_ok=True)
    (image / ".singularity.d/startscript").write_text(SCRIPT)
    (image / ".singularity.d/startscript").chmod(0o755)
    scene.own(image)
    scene.mend_interpreter()
    name = f"hostile-{uuid.uuid4().hex[:8]}"
    started = scene.run(ground.kedge, "instance", "start", *WAYS[way], image, name)
    changed = scene.mend_interpreter()
    try:
        entered = scene.run(ground.kedge, "exec", f"instance://{name}", "/bin/hostile")
        changed += scene.mend_interpreter()
    finally:
        scene.run(ground.kedge, "instance", "stop", name)
    assert changed == [], f"{started.stderr}{entered.stdout}{entered.stderr}"


@pytest.mark.parametrize("flags", [(), ("--pid",)], ids=["", "--pid"])
def test_ranks_of_a_shared_container_do_not_change_the_interpreter(
    ground: Ground, hostile: Path, flags: tuple[str, ...]
) -> None:
    scene = ground.scene
    image = spoil(scene, hostile, "a script")
    scene.mend_interpreter()
    launch = {"SLURM_JOB_ID": uuid.uuid4().hex[:6], "SLURM_STEP_ID": "0", "PMIX_NAMESPACE": uuid.uuid4().hex}
    words = as_words(ground.kedge, "exec", "--sharens", *flags, image)
    script = f"{words} /bin/busybox sleep 3 & sleep 1; {words} /bin/hostile; wait"
    done = scene.run("sh", "-c", script, env=launch)
    assert scene.mend_interpreter() == [], f"{done.stdout}{done.stderr}"


def as_words(*words: object) -> str:
    return " ".join(map(str, words))


@pytest.mark.root
def test_where_no_program_in_memory_starts_contain_is_refused(ground: Ground) -> None:
    """The setting is one of a process-id namespace, which root makes here."""
    require_root()
    if not Path("/proc/sys/vm/memfd_noexec").exists():
        pytest.skip("root may forbid programs in memory since Linux 6.3")
    scene = ground.scene

    def start(*flags: str) -> subprocess.CompletedProcess[str]:
        words = as_user(scene.uid, [str(ground.kedge), "exec", *flags, str(ground.sandbox), "/bin/busybox", "true"])
        setup = 'echo 2 >/proc/sys/vm/memfd_noexec && exec "$@"'
        closed = [require_program("unshare"), "--pid", "--fork", "--mount-proc", "sh", "-c", setup, "sh", *words]
        return subprocess.run(
            closed, env=scene.variables({}), cwd=scene.home, capture_output=True, text=True, timeout=60, check=False
        )

    for flags in (("--contain",), ("--containall",), ("--fakeroot", "--contain")):
        done = start(*flags)
        assert done.returncode == 255
        assert "vm.memfd_noexec" in done.stderr
    assert start().returncode == 0
