# SPDX-License-Identifier: BSD-3-Clause
"""What `enroot ...` means in kedge's words, when kedge has taken that name.

Images are SquashFS files, containers are directories below ENROOT_DATA_PATH, as Enroot has them: `import` pulls,
`create` and `export` convert, `start` runs (`enroot_start`). What kedge cannot do it says, with its own way.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from kedge.base.release import VERSION
from kedge.cli.container import print_text
from kedge.cli.shims.shim_meaning import ENROOT_SPOKEN, Meaning, run_shim
from kedge.system.confined_paths import remove_tree
from kedge.system.files import explained

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# `enroot start` and `enroot exec` in kedge's words: a container as Enroot's users expect it.
#
# Nothing of the host is inside but what -m names (ENROOT_MOUNT_HOME: and the home directory); of its variables only
# TERM and what -e names. The root is read-only, unless -w. The image's command script or entrypoint gets the command.

_SWITCHES = {
    **{"-r": "--root", "--root": "--root", "-w": "--rw", "--rw": "--rw"},
    **{name: name for name in ("--pid", "--net", "--ipc", "--uts")},
}
_ENV = {"-e": "--env", "--env": "--env"}
_VALUES = {**_ENV, "-m": "--mount", "--mount": "--mount", "--rc": "--rc", "-c": "--conf", "--conf": "--conf"}
# a switch of the command line, and the variable that says the same
_ENROOT_START_SETTINGS = {
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
    wanted = {switch for switch, name in _ENROOT_START_SETTINGS.items() if given.has(switch) or is_set(environ, name)}
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


_ARCH = {"-a": "--arch", "--arch": "--arch"}
_OUTPUT = {"-o": "--output", "--output": "--output"}
_NAME = {"-n": "--name", "--name": "--name"}
_FORCE = {"-f": "--force", "--force": "--force"}
# Enroot's settings that have a setting of kedge's: where that is not set itself, it follows
_SETTINGS = {"ENROOT_CACHE_PATH": "KEDGE_CACHEDIR", "ENROOT_TEMP_PATH": "KEDGE_TMPDIR"}
_MISSING = {
    "batch": "write the options on the command line: enroot start -e NAME=VALUE -m SOURCE:DESTINATION IMAGE COMMAND",
    "bundle": "a SIF file runs without unpacking: kedge convert IMAGE.sqsh IMAGE.sif, then ./IMAGE.sif",
}


def main(program: str, argv: Sequence[str] | None = None) -> int:
    """Do what the words say to enroot; returns the exit status: 1 for whatever kedge cannot do, as Enroot's is."""
    return run_shim(program, argv, lambda words: translate(program, words, os.environ), own_failure=1)


def translate(program: str, words: Sequence[str], environ: Mapping[str, str]) -> Meaning:
    """Translate an enroot command to kedge's words; raises an error that names kedge's own way where there is none."""
    verb, rest = "".join(words[:1]), list(words[1:])
    if verb in ("", "help", "-h", "--help"):
        return Meaning(text=_explain(program))
    if verb in ("version", "-V", "--version"):
        return Meaning(text=f"{ENROOT_SPOKEN}\n")
    if verb in _VERBS and {"-h", "--help"} & set(rest[:1]):
        return Meaning(text=f"usage: {program} {_USAGES[verb]}\n")
    if verb not in _VERBS:
        from kedge.base.nearest import propose
        from kedge.errors import UsageError  # late, both: only for an error

        if verb in _MISSING:
            raise UsageError(f"kedge does not support '{program} {verb}'", hint=_MISSING[verb])
        hint = propose(verb, [*_VERBS]) or f"to list the verbs: {program} --help"
        raise UsageError(f"'{program}' has no verb '{verb}'", hint=hint)
    meant = _VERBS[verb](rest, environ)
    for name, own in _SETTINGS.items():
        if environ.get(name, "").startswith("/") and own not in environ:
            meant.environ[own] = environ[name]
    return meant


def _import(words: list[str], _: Mapping[str, str]) -> Meaning:
    given = read_options("import", words, values={**_ARCH, **_OUTPUT}, names=1)
    (uri,) = given.names
    output = given.get("--output") or f"{_name_image(uri)}.sqsh"
    return Meaning(["pull", "--format", "squashfs", *_choose_arch(given), "--name", output, _speak_uri(uri)])


def _load(words: list[str], environ: Mapping[str, str]) -> Meaning:
    given = read_options("load", words, values={**_ARCH, **_NAME}, switches=_FORCE, names=1)
    (uri,) = given.names
    folder = _make_place(given.get("--name") or _name_image(uri), environ)
    force = _choose_force(given, environ)
    return Meaning(["pull", "--format", "sandbox", *_choose_arch(given), *force, "--name", folder, _speak_uri(uri)])


def _create(words: list[str], environ: Mapping[str, str]) -> Meaning:
    from pathlib import Path  # late: a start needs none of it

    given = read_options("create", words, values=_NAME, switches=_FORCE, names=1)
    (image,) = given.names
    name = given.get("--name") or Path(image).name.removesuffix(".sqsh")
    folder = _make_place(name, environ)
    return Meaning(["convert", "--format", "sandbox", *_choose_force(given, environ), str(Path.cwd() / image), folder])


def _export(words: list[str], environ: Mapping[str, str]) -> Meaning:
    from pathlib import Path  # late: a start needs none of it

    given = read_options("export", words, values=_OUTPUT, switches=_FORCE, names=1)
    (name,) = given.names
    folder = find_container(name, environ)
    output = given.get("--output") or f"{name}.sqsh"
    force = _choose_force(given, environ)
    return Meaning(["convert", "--format", "squashfs", *force, folder, str(Path.cwd() / output)])


def _list(words: list[str], environ: Mapping[str, str]) -> Meaning:
    fancy = {"-f": "--fancy", "--fancy": "--fancy"}
    given = read_options("list", words, switches=fancy, names=0)

    return Meaning(action=lambda: list_containers(data_folder(environ), is_fancy=given.has("--fancy")))


def _remove(words: list[str], environ: Mapping[str, str]) -> Meaning:
    given = read_options("remove", words, switches=_FORCE)
    folders = [find_container(name, environ) for name in given.names]

    return Meaning(action=lambda: remove_containers(folders, is_asked=not _choose_force(given, environ)))


def _digest(words: list[str], _: Mapping[str, str]) -> Meaning:
    given = read_options("digest", words, values=_ARCH, names=1)
    return Meaning(["registry", "digest", *_choose_arch(given), _speak_uri(given.names[0])])


def _info(words: list[str], environ: Mapping[str, str]) -> Meaning:
    read_options("info", words, names=0)
    known = "".join(f"  {name}={value}\n" for name, value in sorted(environ.items()) if name.startswith("ENROOT_"))
    places = f"Containers: {data_folder(environ)}\n\nEnvironment variables:\n{known}"
    return Meaning(text=f"Enroot version: {ENROOT_SPOKEN} (kedge {VERSION})\n{places}")


_VERBS = {
    **{"import": _import, "load": _load, "create": _create, "start": translate_start, "exec": translate_exec},
    **{"list": _list, "remove": _remove, "export": _export, "digest": _digest, "info": _info},
}
_USAGES = {
    "import": "import [-o FILE] [-a ARCH] docker://[USER@][REGISTRY#]IMAGE[:TAG]",
    "load": "load [-n NAME] [-f] [-a ARCH] docker://[USER@][REGISTRY#]IMAGE[:TAG]",
    "create": "create [-n NAME] [-f] IMAGE.sqsh",
    "start": "start [-r] [-w] [-e NAME[=VALUE]] [-m SOURCE:DESTINATION[:OPTIONS]] [--rc FILE]"
    " [--pid] [--net] [--ipc] [--uts] NAME|IMAGE.sqsh [COMMAND ...]",
    "exec": "exec [-e NAME[=VALUE]] PID COMMAND ...",
    "list": "list [-f]",
    "remove": "remove [-f] NAME ...",
    "export": "export [-o FILE] [-f] NAME",
    "digest": "digest [-a ARCH] docker://[USER@][REGISTRY#]IMAGE[:TAG]",
    "info": "info",
}


def _name_image(uri: str) -> str:
    """What Enroot calls an image that nobody gave a name: `nvidia+cuda+12.4.1`, without the registry."""
    from kedge.base.reference import Reference  # late: only where no name is given

    reference = Reference.parse(_speak_uri(uri))
    tag = reference.digest.hex[:12] if reference.digest else reference.tag or ""
    path = reference.repository.removeprefix("library/")
    return "+".join(part for part in (path.replace("/", "+"), tag) if part)


def _speak_uri(uri: str) -> str:
    """`dockerd://` and `podman://` are images of an engine on this host."""
    scheme, _, rest = uri.partition("://")
    return {"dockerd": f"docker-daemon:{rest}", "podman": f"containers-storage:{rest}"}.get(scheme, uri)


def _make_place(name: str, environ: Mapping[str, str]) -> str:
    """The directory of a container that is to be made, with those above it."""
    if "/" in name or name in ("", ".", ".."):
        from kedge.errors import UsageError  # late: only for an error

        raise UsageError(f"'{name}' is no name for a container", hint="choose another one, without slashes: -n NAME")
    from pathlib import Path  # late, both: a start needs none of it

    from kedge.system.private_files import make_private

    folder = data_folder(environ)
    make_private(Path(folder))
    return f"{folder}/{name}"


def _choose_arch(given: Given) -> list[str]:
    return ["--arch", given.get("--arch")] if given.get("--arch") else []


def _choose_force(given: Given, environ: Mapping[str, str]) -> list[str]:
    return ["--force"] if given.has("--force") or is_set(environ, "ENROOT_FORCE_OVERRIDE") else []


def _explain(program: str) -> str:
    return (
        f"usage: {program} VERB ...\n\n"
        f"This {program} is kedge {VERSION}, which accepts Enroot's command line.\n"
        "import load create start exec list remove export digest info version.\n"
        f"More verbs: kedge --help. To remove this command: kedge shim remove {program}\n"
    )


# `enroot list` and `enroot remove`: the directories that are containers, and the processes in them.

_COLUMNS = ("NAME", "PID", "COMM", "STATE", "STARTED", "TIME", "MNTNS", "USERNS", "COMMAND")


def list_containers(folder: str, *, is_fancy: bool) -> int:
    """Print the names, or a table with the processes of each."""
    names = sorted(path.name for path in Path(folder).iterdir() if path.is_dir()) if Path(folder).is_dir() else []
    if not is_fancy:
        return print_text("".join(f"{name}\n" for name in names))
    processes = list(_find_processes())
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for name in names:
        found = [row for image, row in processes if image == f"{folder}/{name}"]
        rows += [(name if number == 0 else "", *row) for number, row in enumerate(found)] or [(name,)]
    widths = [max(len(row[at]) for row in rows if len(row) > at) for at in range(len(_COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
    return print_text("".join(f"{line}\n" for line in lines))


def remove_containers(folders: list[str], *, is_asked: bool) -> int:
    """Delete containers, each after a question where one is wanted."""
    for folder in folders:
        if is_asked:
            sys.stderr.write(f"Do you really want to delete {folder}? [y/N] ")
            sys.stderr.flush()
            reply = sys.stdin.readline()
            if not reply:
                return 1
            if reply.strip() not in ("y", "Y"):
                continue
        with explained(folder):
            remove_tree(Path(folder))
    return 0


def _find_processes() -> Iterator[tuple[str, tuple[str, ...]]]:
    """The user's processes in containers, each with the path of its image, which its variables say."""
    for path in sorted(Path("/proc").glob("[0-9]*"), key=lambda each: int(each.name)):
        try:
            variables = (path / "environ").read_bytes().split(b"\0")
            image = next((each[20:] for each in variables if each.startswith(b"APPTAINER_CONTAINER=")), b"")
            if image and (path / "ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink():
                yield os.fsdecode(image), _describe(path)
        except OSError:
            continue  # another user's, or gone


def _describe(path: Path) -> tuple[str, ...]:
    comm, _, rest = (path / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
    fields = rest.split()
    uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    seconds = max(uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK"), 0)
    began = time.strftime("%H:%M", time.localtime(time.time() - seconds))
    spaces = [str((path / "ns" / name).readlink()).partition("[")[2].rstrip("]") for name in ("mnt", "user")]
    command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    lasted = f"{int(seconds // 60):02d}:{int(seconds % 60):02d}"
    return (path.name, comm, fields[0], began, lasted, *spaces, command)


# Reads a command line by a table of its options, for shims of programs with plain options: no bundles of letters.


class Given:
    """Options by their long names, in order, and the words behind them."""

    def __init__(self) -> None:
        self.options: list[tuple[str, str]] = []
        self.names: list[str] = []

    def get(self, name: str) -> str:
        """The last value; empty where it was not given."""
        return next((value for option, value in reversed(self.options) if option == name), "")

    def has(self, name: str) -> bool:
        """Whether an option was given."""
        return any(option == name for option, _ in self.options)


def read_options(
    verb: str,
    words: Sequence[str],
    *,
    values: Mapping[str, str] | None = None,
    switches: Mapping[str, str] | None = None,
    names: int | None = None,
) -> Given:
    """Options up to the first other word or `--`; `names` is how many words must follow, None: one or more."""
    values, switches = values or {}, switches or {}
    given = Given()
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "-":
        word = words[position]
        position += 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name in switches and not equals:
            given.options.append((switches[name], ""))
        elif name in values and (equals or position < len(words)):
            if not equals:
                value = words[position]
                position += 1
            given.options.append((values[name], value))
        else:
            raise _refuse_of_shim_options(verb, word, name in values, [*values, *switches])
    given.names = list(words[position:])
    if (names is None and not given.names) or (names is not None and len(given.names) != names):
        from kedge.errors import UsageError  # late: only for an error

        wanted = "a name" if names is None else f"{names} {'name' if names == 1 else 'names'} after its options"
        found = f", not {len(given.names)}" if names is not None else ""
        raise UsageError(f"'{verb}' takes {wanted}{found}", hint=f"to see its options: {verb} --help")
    return given


def _refuse_of_shim_options(verb: str, word: str, wants_value: bool, known: list[str]) -> Exception:
    from kedge.base.nearest import propose
    from kedge.errors import UsageError  # late, both: only for an error

    if wants_value:
        return UsageError(f"'{verb} {word}' needs a value")
    hint = propose(word, known) or f"options of '{verb}': {' '.join(known) or 'none'}"
    return UsageError(f"'{verb} {word}' is not supported", hint=hint)
