# SPDX-License-Identifier: BSD-3-Clause
"""What `enroot ...` means in kedge's words, when kedge has taken that name.

Images are SquashFS files, containers are directories below ENROOT_DATA_PATH, as Enroot has them: `import` pulls,
`create` and `export` convert, `start` runs (`enroot_start`). What kedge cannot do it says, with its own way.
"""

from __future__ import annotations

import os

from kedge.base.release import VERSION
from kedge.cli.shims.enroot_start import data_folder, find_container, is_set, translate_exec, translate_start
from kedge.cli.shims.shim_meaning import ENROOT_SPOKEN, Meaning, run_shim
from kedge.cli.shims.shim_options import read_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kedge.cli.shims.shim_options import Given

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
    from kedge.cli.shims.enroot_containers import list_containers  # late: a start needs none of it

    return Meaning(action=lambda: list_containers(data_folder(environ), is_fancy=given.has("--fancy")))


def _remove(words: list[str], environ: Mapping[str, str]) -> Meaning:
    given = read_options("remove", words, switches=_FORCE)
    folders = [find_container(name, environ) for name in given.names]
    from kedge.cli.shims.enroot_containers import remove_containers  # late: a start needs none of it

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
