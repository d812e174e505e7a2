# SPDX-License-Identifier: BSD-3-Clause
"""Which program a verb starts: the words of `exec`, the image's scripts, or a shell."""

from __future__ import annotations

from kedge.runtime.environment.shell_words import NotPlain, read_word, split_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.posix.views import View
    from kedge.runtime.facts import ImageFacts
    from kedge.runtime.options import RunOptions

_FOLDER = "/.singularity.d"
# Scripts made from an OCI config hold this very line; with it and the two assignments their meaning is known.
_EVAL_LINE = 'eval "set ${SINGULARITY_OCI_RUN}"'
ENROOT_ENVIRONMENT = "/etc/environment"
_ENROOT_SCRIPT = "/etc/rc"
_SCRIPT_NAMES = {"run": "runscript", "test": "test", "start": "startscript"}
_KNOWN_STARTS = (
    *("if [ ", "else", "fi", "done", 'exec "$@"', _EVAL_LINE),
    *('for arg in "$@"; do', 'for word in "$@"; do', "CMDLINE_ARGS=", "SINGULARITY_OCI_RUN="),
)


class Entrypoint:
    """What is started: `words` (none: nothing, which is well), and variables that go with it."""

    def __init__(self, words: list[str], *, script: str = "") -> None:
        self.words = words
        self.script = script  # the OCI script that words come from, where they are still to be evaluated
        self.variables: dict[str, str] = {}
        self.notes: list[str] = []
        self.warnings: list[str] = []


def choose_entry(options: RunOptions, image: ImageFacts) -> Entrypoint:
    """The program and its arguments for a verb."""
    if options.app and image.view.kind(f"/scif/apps/{options.app}") != "d":
        raise _refuse_app(f"{image.name} has no app {options.app}", image.view)
    if options.verb == "exec":
        return Entrypoint(list(options.arguments))
    if options.verb == "shell":
        return _choose_shell(options, image.view)
    if options.app:
        return _choose_app_script(options, image)
    name = _SCRIPT_NAMES[options.verb]
    path = f"{_FOLDER}/{name}"
    if image.view.is_executable(path):
        script = ""
        if name == "runscript":
            text = (image.view.read(path) or b"").decode(errors="surrogateescape")
            script = text if is_oci_script(text) else ""
        return Entrypoint([path, *options.arguments], script=script)
    return _choose_without_script(options, image)


def is_enroot_image(view: View) -> bool:
    """Whether `enroot import` made the image: two files say how it starts. (RPMs own a symlink /etc/rc.)"""
    is_there = view.kind(_ENROOT_SCRIPT) == "f" and view.kind(ENROOT_ENVIRONMENT) == "f"
    return is_there and view.resolve(_ENROOT_SCRIPT) == _ENROOT_SCRIPT and not view.kind(_FOLDER)


def _choose_without_script(options: RunOptions, image: ImageFacts) -> Entrypoint:
    view = image.view
    if options.verb != "run":
        entry = Entrypoint([])
        entry.notes.append(f"the image has no {_SCRIPT_NAMES[options.verb]} script: nothing to run")
        return entry
    for path in ("/singularity", "/apptainer"):  # images of Singularity 2
        if view.is_executable(path):
            return Entrypoint([path, *options.arguments])
    words = _read_config_words(image.oci_config, options.arguments)
    if words:
        return Entrypoint(words)
    if is_enroot_image(view) and view.is_executable("/bin/sh"):
        return Entrypoint(["/bin/sh", _ENROOT_SCRIPT, *options.arguments])
    if view.is_executable("/bin/sh"):
        entry = Entrypoint(["/bin/sh", *options.arguments])
        entry.notes.append("the image has no default command: kedge starts /bin/sh")
        return entry
    from kedge.errors import CannotStart  # late: only for the message

    raise CannotStart(
        f"{image.name} has no default command and no /bin/sh",
        hint=f"name a program: kedge exec {image.name} PROGRAM",
    )


def _choose_shell(options: RunOptions, view: View) -> Entrypoint:
    if options.shell and view.is_executable(options.shell):
        return Entrypoint([options.shell, *options.arguments])
    for path, flags in (("/bin/bash", ["--norc"]), ("/bin/sh", [])):
        if view.is_executable(path):
            entry = Entrypoint([path, *flags, *options.arguments])
            entry.variables["SHELL"] = path
            if options.shell:
                entry.warnings.append(f"the image has no {options.shell}: kedge starts {path}")
            if options.record:
                from kedge.runtime.environment.record_commands import add_record  # late: few shells are recorded

                add_record(entry.variables, entry.warnings, path, is_kept=bool(options.overlay))
            return entry
    from kedge.errors import CannotStart  # late: only for the message

    raise CannotStart(
        "this image has no shell",
        hint="start a program: kedge exec IMAGE PROGRAM; or the image's default command: kedge run IMAGE",
    )


def _choose_app_script(options: RunOptions, image: ImageFacts) -> Entrypoint:
    name = _SCRIPT_NAMES[options.verb]
    path = f"/scif/apps/{options.app}/scif/{name}"
    if image.view.is_executable(path):
        return Entrypoint([path, *options.arguments])
    raise _refuse_app(f"the app {options.app} of {image.name} has no {name}", image.view)


def _refuse_app(message: str, view: View) -> Exception:
    from kedge.errors import CannotStart  # late: only for the message

    return CannotStart(message, hint=f"apps in this image: {', '.join(view.names('/scif/apps')) or 'none'}")


def is_oci_script(text: str) -> bool:
    """Whether a runscript was made from ENTRYPOINT and CMD, and nothing was added to it by hand."""
    if _EVAL_LINE not in text or not text.startswith("#!/bin/sh\nOCI_ENTRYPOINT="):
        return False
    try:
        at = _read_assigned(text)[1]
        while at < len(text):
            end = text.find("\n", at) + 1 or len(text)
            line = text[at:end].strip()
            if line.startswith("set -- "):
                end = _skip_words(text, text.index("set -- ", at) + len("set -- "))
            elif line and not line.startswith(("#", *_KNOWN_STARTS)):
                return False
            at = end
    except NotPlain:
        return False
    return True


def _skip_words(text: str, at: int) -> int:
    """Past the quoted words of a `set`, which may go over lines."""
    while at < len(text) and text[at] not in ";\n":
        if text[at] == " ":
            at += 1
        elif text.startswith('"$@"', at):
            at += len('"$@"')
        else:
            at = read_word(text, at, _refuse_name)[1]
    return at + 1


def resolve_oci_words(entry: Entrypoint, lookup: Callable[[str], str | None], *, is_literal: bool) -> list[str]:
    """Entrypoint with the arguments or CMD; unless `is_literal` all of them go through one evaluation, as a shell does.

    Raises NotPlain where that needs a shell.
    """
    (entrypoint, command), _ = _read_assigned(entry.script)
    arguments = entry.words[1:]
    if is_literal:
        parts = [split_words(text, _refuse_name) for text in (entrypoint, command)]
        return [*parts[0], *(arguments or parts[1])]
    given = " ".join(f'"{word}"' for word in arguments)
    return split_words(f"{entrypoint} {given if arguments else command}", lookup)


def _refuse_name(name: str) -> str | None:
    raise NotPlain(name)  # the words were written with every dollar escaped; this one is somebody else's


def _read_assigned(script: str) -> tuple[tuple[str, str], int]:
    """The texts of OCI_ENTRYPOINT and OCI_CMD, and where they end."""
    texts: list[str] = []
    at = len("#!/bin/sh\n")
    for name in ("OCI_ENTRYPOINT=", "OCI_CMD="):
        if not script.startswith(name, at):
            raise NotPlain(script)
        text, at = read_word(script, at + len(name), _refuse_name)
        texts.append(text)
        at += 1
    return (texts[0], texts[1]), at


def _read_config_words(config: bytes, arguments: list[str]) -> list[str]:
    """Entrypoint and CMD from an OCI config, for a root file system that has no scripts; exactly as they are."""
    if b'"Entrypoint"' not in config and b'"Cmd"' not in config:
        return []
    import json  # late: only for images without a runscript

    try:
        section = json.loads(config).get("config") or {}
        entrypoint, command = ([str(word) for word in section.get(key) or ()] for key in ("Entrypoint", "Cmd"))
    except (ValueError, AttributeError, TypeError):
        return []
    return [*entrypoint, *(arguments or command)]


def read_workdir(config: bytes) -> str:
    """WORKDIR of an OCI config, empty when it says nothing; found without a JSON parser where that is safe."""
    key = b'"WorkingDir"'
    if config.count(key) == 0:
        return ""
    rest = config.partition(key)[2].lstrip()
    if config.count(key) == 1 and rest.startswith(b":"):
        rest = rest[1:].lstrip()
        value = rest[1:].partition(b'"')[0]
        if rest.startswith(b'"') and b"\\" not in value:
            return _clean_workdir(value.decode(errors="surrogateescape"))
    import json  # late: only for a config that says it twice or with escapes

    try:
        return _clean_workdir(str((json.loads(config).get("config") or {}).get("WorkingDir") or ""))
    except (ValueError, AttributeError):
        return ""


def _clean_workdir(value: str) -> str:
    """An absolute path; `/`, which is what images without one have too, says nothing."""
    return value if value.startswith("/") and value.strip("/") else ""
