# SPDX-License-Identifier: BSD-3-Clause
"""`srun --container-image=...` on a cluster without Pyxis: the site's srun starts kedge on the nodes.

Words without containers, and all words where the site's srun has Pyxis, go to it unchanged. Otherwise the options of
Pyxis become those of `kedge exec`, and all other options stay with srun.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from kedge.cluster.schedulers.slurm import FACTS
from kedge.container.shim_file import is_shim
from kedge.errors import UsageError
from kedge.system.files import explained, write_atomically
from kedge.system.private_files import make_private
from kedge.system.settings import xdg_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_SIGNS = ("--container-", "--no-container-")
# whether a node has GPUs is known there alone
_ON_NODE = '[ ! -e /proc/driver/nvidia/version ] || export KEDGE_NV=1; exec "$@"'
_ALWAYS = ("--no-mount", "cwd")
_SWITCHES = {"--container-remap-root": "--fakeroot", "--container-writable": "--writable-tmpfs"}
_IDLE = (
    *("--no-container-mount-home", "--no-container-remap-root", "--no-container-entrypoint", "--container-readonly"),
    *("--container-entrypoint-log", "--container-entrypoint", "--container-mount-home", "--container-image"),
    "--container-name",
)
_UNSHARED = {"net": ["--net", "--network", "none"], "ipc": ["--ipc"], "uts": ["--uts"]}
_SAVE = "to keep changes, use an overlay: kedge exec --overlay DIRECTORY, then kedge commit DIRECTORY FILE.sqsh"


def main(program: str, argv: Sequence[str] | None = None) -> int:
    """Become the site's srun, with other words where containers are named that it does not know."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        path = _find_srun(os.environ)
        environ = dict(os.environ)
        if any(word.startswith(_SIGNS) for word in words) and not _has_pyxis(path):
            words, variables = translate(words, environ)
            environ |= variables
        from kedge.system.spawn import replace_process  # late: as in `shim_meaning`

        replace_process(path, [program, *words], environ)
    except BaseException as problem:
        from kedge.cli.options import GlobalOptions  # late, both: only a mistake needs them
        from kedge.cli.report import report_failure

        status = report_failure(problem, [program, *words], GlobalOptions())
        return status if status >= 128 else 1


def translate(words: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The words for srun, and the variables that go with them; unchanged where no container is named after all."""
    launcher, given, command = split_words(words)
    if not given:
        return list(words), {}
    image, name = given.get("--container-image", ""), given.get("--container-name", "").partition(":")[0]
    if name:
        image = remember_image(name, image, environ)
    if not image:
        raise _refuse("--container options need an image", "add --container-image=IMAGE")
    if not command:
        raise _refuse("kedge starts a command in the container, and there is none", "write it after the options")
    options, variables = _translate_options(given, environ)
    verb = "run" if "--container-entrypoint" in given else "exec"
    from kedge.system.start_kedge import own_command  # late: srun alone needs none of it

    start = own_command(verb, *_ALWAYS, *options, _name_image(image), *command)
    return [*launcher, "/bin/sh", "-c", _ON_NODE, "kedge", *start], variables


def split_words(words: Sequence[str]) -> tuple[list[str], dict[str, str], list[str]]:
    """The options of srun itself, those of Pyxis by name, and the command."""
    from kedge.cluster.schedulers.slurm.options import srun_wants_value  # late: srun alone needs none of it

    launcher: list[str] = []
    given: dict[str, str] = {}
    position = 0
    while position < len(words) and words[position].startswith("-"):
        word = words[position]
        position += 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        taken = [word]
        if not equals and srun_wants_value(name) and position < len(words):
            value = words[position]
            taken.append(value)
            position += 1
        if name.startswith(_SIGNS) and name != "--container-id":
            given[name] = value
        else:
            launcher += taken
    return launcher, given, list(words[position:])


def _translate_options(given: Mapping[str, str], environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    options = [] if "--container-mount-home" in given else ["--no-home"]
    variables: dict[str, str] = {}
    for name, value in given.items():
        if name in _SWITCHES:
            options.append(_SWITCHES[name])
        elif name == "--container-mounts":
            options += [word for mount in value.split(",") if mount for word in _mount(mount)]
        elif name == "--container-workdir":
            options += ["--pwd", value]
        elif name == "--container-env":
            variables |= {f"KEDGEENV_{each}": environ[each] for each in value.split(",") if each in environ}
        elif name == "--container-unshare":
            options += [word for each in value.split(",") for word in _UNSHARED.get(each, [])]
        elif name not in _IDLE:
            raise _refuse(f"kedge does not support '{name}'", _SAVE if name == "--container-save" else "leave it out")
    return options, variables


def _mount(text: str) -> list[str]:
    """SOURCE[:DESTINATION[:FLAG+FLAG]]; `tmpfs:DESTINATION` is an empty directory."""
    source, _, rest = text.partition(":")
    inside, _, flags = rest.partition(":")
    if source == "tmpfs":
        return ["--scratch", inside]
    if source == "umount" or not source.startswith(("/", ".")):
        raise _refuse(f"kedge cannot mount '{text}'", "write --container-mounts=/SOURCE:/DESTINATION")
    place = os.path.abspath(source)  # noqa: PTH100 - as Slurm has it: links stay
    return ["--bind", ":".join([place, inside or place, *(["ro"] if "ro" in flags.split("+") else [])])]


def _name_image(image: str) -> str:
    """Paths begin with a slash or a dot, as Pyxis wants it; all else is in a registry."""
    if image.startswith(("/", ".")):
        return os.path.abspath(image)  # noqa: PTH100 - links stay
    return image if "://" in image else f"docker://{image}"


def _has_pyxis(path: str) -> bool:
    """Whether an srun lists Pyxis' option in its help, as plugins have it do."""
    from kedge.system.process import run_program  # late: only where a container is named

    shown = run_program([path, "--help"], timeout=30, check=False)
    return b"--container-image" in shown.output + shown.errors


def _find_srun(environ: Mapping[str, str]) -> str:
    """The first srun of PATH that is none of ours."""
    for folder in environ.get("PATH", "").split(":"):
        path = f"{folder}/srun"
        if folder.startswith("/") and os.access(path, os.X_OK) and not is_shim(path):
            return path
    from kedge.errors import ProgramMissing  # late: only for an error

    raise ProgramMissing("there is no other srun in PATH", hint="load Slurm first, or: kedge shim remove srun")


def _refuse(message: str, hint: str) -> Exception:
    from kedge.errors import UsageError  # late: only for an error

    return UsageError(message, hint=hint)


# `srun --container-name`: which image a name stands for in a job.
#
# A name is a small file, as the steps of a job run on different nodes. Nobody tells kedge when a job ends, so a file
# that no step has used for 60 days is removed when the next name is given; a name from before the job began is not its
# own.

_KEPT = 60 * 86400  # seconds; longer than jobs run
_CLOCKS = 300  # seconds that the clocks of a file server and of the scheduler may differ


def remember_image(name: str, image: str, environ: Mapping[str, str]) -> str:
    """The image of a name, which a step of the job gave it: this one, or one before."""
    job = environ.get(FACTS.job_id, "")
    if "/" in name or name.startswith("."):
        raise UsageError(f"'{name}' is no name for a container", hint="write --container-name=NAME")
    if not job:  # srun makes a job of its own, which ends with the container
        return image
    path = xdg_directory(environ, "XDG_STATE_HOME", ".local/state") / "named-containers" / f"{job}.{name}"
    if image:
        _write(path, image)
        return image
    with explained(path):
        if path.is_file() and path.stat().st_mtime + _CLOCKS > _find_begin(environ):
            with contextlib.suppress(OSError):  # a file system that is full or read-only now still tells the name
                os.utime(path)
            return path.read_text(encoding="utf-8").strip()
    raise UsageError(
        f"no step of job {job} has named a container '{name}'", hint=f"add --container-image=IMAGE to name it: {name}"
    )


def _find_begin(environ: Mapping[str, str]) -> float:
    """When the job began; 0 where this Slurm does not say."""
    text = environ.get(FACTS.job_begin, "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _write(path: Path, image: str) -> None:
    if image.startswith("."):
        image = str(Path.cwd() / image)
    with explained(path):
        make_private(path.parent)
        write_atomically(path, f"{image}\n".encode())
    _remove_unused(path.parent)


def _remove_unused(folder: Path) -> None:
    """Names of jobs that ended long ago; what cannot be removed harms nobody."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # another step was first
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - _KEPT:
                    Path(entry).unlink()
