# SPDX-License-Identifier: BSD-3-Clause
"""`enroot start` and `enroot exec` in kedge's words: a container as Enroot's users expect it.

Nothing of the host is inside but what -m names (ENROOT_MOUNT_HOME: and the home directory); of its variables only TERM
and what -e names. The root is read-only, unless -w. The image's command script or entrypoint gets the command.
"""

from __future__ import annotations

import os

from kedge.cli.shims.shim_meaning import Meaning
from kedge.cli.shims.shim_options import read_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_SWITCHES = {
    **{"-r": "--root", "--root": "--root", "-w": "--rw", "--rw": "--rw"},
    **{name: name for name in ("--pid", "--net", "--ipc", "--uts")},
}
_ENV = {"-e": "--env", "--env": "--env"}
_VALUES = {**_ENV, "-m": "--mount", "--mount": "--mount", "--rc": "--rc", "-c": "--conf", "--conf": "--conf"}
# a switch of the command line, and the variable that says the same
_SETTINGS = {
    **{"--root": "ENROOT_REMAP_ROOT", "--rw": "ENROOT_ROOTFS_WRITABLE", "--pid": "ENROOT_UNSHARE_PID"},
    **{"--net": "ENROOT_UNSHARE_NET", "--ipc": "ENROOT_UNSHARE_IPC", "--uts": "ENROOT_UNSHARE_UTS"},
}
_PASSED = {
    **{"--root": ["--fakeroot"], "--pid": ["--pid", "--no-init"], "--net": ["--net", "--network", "none"]},
    **{"--ipc": ["--ipc"], "--uts": ["--uts"]},
}
_ALWAYS = ["--cleanenv", "--no-eval", "--no-mount", "cwd,tmp,bind-paths", "--scratch", "/tmp"]
_RC = "/etc/rc"
_NO = ("", "n", "no", "f", "false")
_DRIVER = "/proc/driver/nvidia/version"


def is_set(environ: Mapping[str, str], name: str) -> bool:
    """Whether a switch of Enroot's environment is on."""
    return environ.get(name, "").lower() not in _NO


def data_folder(environ: Mapping[str, str]) -> str:
    """Where containers are."""
    home = environ.get("HOME", "") or "/"
    return environ.get("ENROOT_DATA_PATH") or f"{environ.get('XDG_DATA_HOME') or f'{home}/.local/share'}/enroot"


def find_container(name: str, environ: Mapping[str, str]) -> str:
    """The directory of a container that is there."""
    folder = f"{data_folder(environ)}/{name}"
    if "/" in name or name in ("", ".", "..") or not os.path.isdir(folder):
        from kedge.errors import FileProblem  # late: only for an error

        raise FileProblem(
            f"there is no container '{name}' in {data_folder(environ)}",
            hint="to list them: enroot list; to create one: enroot create -n NAME IMAGE.sqsh",
        )
    return folder


def translate_start(words: list[str], environ: Mapping[str, str]) -> Meaning:
    """Kedge's words for `enroot start`."""
    given = read_options("start", words, values=_VALUES, switches=_SWITCHES)
    if given.has("--conf"):
        raise _refuse("kedge does not run Enroot's configuration scripts", "write options: -e NAME=VALUE -m SOURCE:DST")
    wanted = {switch for switch, name in _SETTINGS.items() if given.has(switch) or is_set(environ, name)}
    image, *command = given.names
    is_file = os.path.isfile(image)
    path = os.path.abspath(image) if is_file else find_container(image, environ)
    options = [*_ALWAYS, *(word for switch in _PASSED if switch in wanted for word in _PASSED[switch])]
    options += _choose_home(environ, is_root="--root" in wanted)
    if "--rw" in wanted:
        options.append("--writable-tmpfs" if is_file else "--writable")
    if os.path.exists(_DRIVER) and environ.get("NVIDIA_VISIBLE_DEVICES", "all") != "void":
        options.append("--nv")
    for option, value in given.options:
        options += _mount(value) if option == "--mount" else []
    variables = _read_variables([value for option, value in given.options if option == "--env"], environ)
    if given.has("--rc"):
        script = os.path.abspath(given.get("--rc"))
        return Meaning(
            ["exec", *options, "--bind", f"{script}:{_RC}:ro", path, "/bin/sh", _RC, *command], environ=variables
        )
    return Meaning(["run", *options, path, *command], environ=variables)


def translate_exec(words: list[str], environ: Mapping[str, str]) -> Meaning:
    """Kedge's words for `enroot exec PID COMMAND`."""
    given = read_options("exec", words, values=_ENV)
    number, *command = given.names
    if not number.isdecimal() or not command:
        raise _refuse("'enroot exec' needs a process number and a command", "to see the numbers: enroot list --fancy")
    values = [value for _, value in given.options]
    return Meaning(["exec", f"instance://pid:{number}", *command], environ=_read_variables(values, environ))


def _choose_home(environ: Mapping[str, str], *, is_root: bool) -> list[str]:
    """The home directory as a bind, because a bind is seen also where it lies below the container's own /tmp."""
    home = environ.get("HOME", "")
    if not is_set(environ, "ENROOT_MOUNT_HOME") or not home:
        return ["--no-home"]
    return ["--no-home", "--bind", f"{home}:/root" if is_root else home]


def _read_variables(values: list[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables by kedge's own names: a value may have commas, which --env takes for the next name."""
    variables = {"KEDGEENV_TERM": environ["TERM"]} if environ.get("TERM") else {}
    for value in values:
        name, equals, text = value.partition("=")
        if not name.isidentifier():
            raise _refuse(f"'-e {value}' names no variable", "write -e NAME=VALUE, or -e NAME for the host's value")
        variables[f"KEDGEENV_{name}"] = text if equals else environ.get(name, "")
    return variables


def _mount(text: str) -> list[str]:
    """A line of fstab with colons: SOURCE[:DESTINATION[:TYPE[:OPTIONS]]]; TYPE may be left out."""
    source, *rest = text.split(":")
    inside = rest[0] if rest and rest[0] not in ("ro", "rw", "bind", "rbind") else source
    flags = set(",".join(rest).split(","))
    inside = f"/{inside.lstrip('/')}" if inside != source or source.startswith("/") else os.path.abspath(source)
    if source == "tmpfs":
        return ["--scratch", inside]
    if source == "none" or "x-detach" in flags or source == "umount":
        raise _refuse(
            f"'-m {text}' is not supported: kedge mounts directories and files", "write -m SOURCE:DESTINATION"
        )
    return [
        "--bind",
        ":".join([os.path.abspath(os.path.expanduser(source)), inside, *(["ro"] if "ro" in flags else [])]),
    ]


def _refuse(message: str, hint: str) -> Exception:
    from kedge.errors import UsageError  # late: only for an error

    return UsageError(message, hint=hint)
