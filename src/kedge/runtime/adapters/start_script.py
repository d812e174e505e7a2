# SPDX-License-Identifier: BSD-3-Clause
"""What runtimes that know nothing of `/.singularity.d` start instead: the image's shell, with a script of ours.

The script reads the image's environment scripts, sets what the user asked for, and becomes the program. It travels in
a variable, because everybody may read the words of a command line; in one line, because Enroot keeps variables in
lines.
"""

from __future__ import annotations

import csv
import re
import shlex
from dataclasses import dataclass, field

from kedge.runtime.adapters.request import Request

VARIABLE = "KEDGE_ENTER"
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KEPT_CLEAN = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "ftp_proxy")
_FORWARDED = ("SINGULARITYENV_", "APPTAINERENV_", "KEDGEENV_")  # the last wins
_NOT_FORWARDED = ("APPTAINER_", "SINGULARITY_", "KEDGE_", *_FORWARDED)
_NOT_TAKEN = ("HOME", "PATH", "LD_LIBRARY_PATH")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIBRARIES = "/.singularity.d/libs"
_SOURCE = (
    'for KEDGE_EACH in /.singularity.d/env/*.sh; do [ -f "$KEDGE_EACH" ] && . "$KEDGE_EACH"; done; unset KEDGE_EACH'
)


@dataclass(frozen=True, slots=True)
class Started:
    """The program's words, and its environment; `home` is where the home folder is inside."""

    argv: list[str]
    environ: dict[str, str]
    refused: list[tuple[str, str]] = field(default_factory=list)


def plan_start(request: Request, home: str) -> Started:
    """What the runtime is to start, and with which environment."""
    environ = take_host(request)
    if request.image.has_shell:
        script = make_script(request, home)
        environ[VARIABLE] = script.replace("\\", "\\\\").replace("\n", "\\n")
        # printf %b undoes the two replacements
        words = ["/bin/sh", "-c", f'eval "$(printf %b "${VARIABLE}")"', "kedge"]
        return Started([*words, *request.options.arguments], environ)
    return _start_directly(request, environ, home)


def take_host(request: Request) -> dict[str, str]:
    """The host's variables that go in; the image's own beat them, so those are left out."""
    options, environ = request.options, request.host.environ
    if options.cleanenv:
        kept = {"TERM", *_KEPT_CLEAN, *(name.upper() for name in _KEPT_CLEAN)}
        return {name: value for name, value in environ.items() if name in kept} | {"LANG": "C"}
    absent = {name.strip() for names in options.no_env for name in names.split(",")}
    absent.update(entry.partition("=")[0] for entry in request.image.environment)
    absent.update(_NOT_TAKEN)
    return {
        name: value
        for name, value in environ.items()
        if name not in absent and not name.startswith(_NOT_FORWARDED) and _NAME.fullmatch(name)
    }


def user_variables(request: Request) -> dict[str, str]:
    """What --env and the APPTAINERENV_ variables set, the stronger ones over the weaker; files come in between."""
    return {**_forwarded(request), **_assigned(request)}


def _forwarded(request: Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for prefix in _FORWARDED:
        for name, value in request.host.environ.items():
            if name.startswith(prefix) and _NAME.fullmatch(name[len(prefix) :]):
                found[name[len(prefix) :]] = value
    return found


def _assigned(request: Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in request.options.env:
        for part in next(csv.reader([text]), []) if "," in text else [text]:
            name, _, value = part.partition("=")
            if _NAME.fullmatch(name):
                found[name] = value
    return found


def make_script(request: Request, home: str) -> str:
    """The script, for any POSIX shell."""
    options, image = request.options, request.image
    lines = [f"unset {VARIABLE}", f"export PATH={_DEFAULT_PATH}"]
    if options.app:
        lines.append(f"export SINGULARITY_APPNAME={shlex.quote(options.app)}")
    if options.no_eval:
        lines.append("export SINGULARITY_NO_EVAL=1")
    if image.has_scripts:
        lines.append(_SOURCE)
    else:
        lines += [_export(*_split(entry)) for entry in image.environment]
    lines += _export_additions(request)
    lines += _set_variables(request, _forwarded(request))
    lines += [f"set -a\n{text}\nset +a" for text in _read_files(request)]
    lines += _set_variables(request, _assigned(request))
    lines.append(_export("HOME", home))
    if options.pwd:
        lines.append(f"cd {shlex.quote(options.pwd)} || exit 255")
    else:
        lines.append(f'cd {shlex.quote(request.host.cwd)} 2>/dev/null || cd "$HOME" 2>/dev/null || cd /')
    return "\n".join([*lines, *_dispatch(request)]) + "\n"


def _split(entry: str) -> tuple[str, str]:
    name, _, value = entry.partition("=")
    return name, value


def _export(name: str, value: str) -> str:
    return f"export {name}={shlex.quote(value)}"


def _export_additions(request: Request) -> list[str]:
    additions = request.additions
    lines = [_export(name, value) for name, value in additions.variables.items()]
    if additions.libraries and not request.image.has_scripts:
        lines.append(f'export LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}{_LIBRARIES}"')
    if additions.prepend_library_path:
        first = shlex.quote(":".join(additions.prepend_library_path))
        lines.append(f'export LD_LIBRARY_PATH={first}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"')
    return lines


def _set_variables(request: Request, variables: dict[str, str]) -> list[str]:
    """Values are evaluated once by the shell, as Apptainer does; not with --no-eval."""
    lines = []
    for name, value in variables.items():
        text = shlex.quote(value)
        if not request.options.no_eval:
            text = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        place, _, variable = name.partition("_")
        if name == "HOME":  # --home is the way, as with Apptainer
            continue
        if place == "PREPEND" and variable in ("PATH", "LD_LIBRARY_PATH"):
            lines.append(f'export {variable}={text}"${{{variable}:+:${variable}}}"')
        elif place == "APPEND" and variable in ("PATH", "LD_LIBRARY_PATH"):
            lines.append(f'export {variable}="${{{variable}:+${variable}:}}"{text}')
        elif name == "LD_LIBRARY_PATH":
            lines.append(f'export {name}={text}":{_LIBRARIES}"')
        else:
            lines.append(f"export {name}={text}")
    return lines


def _read_files(request: Request) -> list[str]:
    found = []
    for name in request.options.env_file:
        path = name if name.startswith("/") else f"{request.host.cwd}/{name}"
        data = request.host.view.read(path)
        if data is None:
            from kedge.errors import FileProblem  # late: only for the mistake

            raise FileProblem(f"the file {path} of --env-file cannot be read", hint="check its name and permissions")
        found.append(data.decode(errors="surrogateescape").rstrip("\n"))
    return found


def _dispatch(request: Request) -> list[str]:
    options = request.options
    if options.verb == "exec":
        return ['exec "$@"']
    if options.verb == "shell":
        if options.shell:
            return [f'exec {shlex.quote(options.shell)} "$@"']
        return ['[ -x /bin/bash ] && exec /bin/bash --norc "$@"', 'exec /bin/sh "$@"']
    script = "test" if options.verb == "test" else "runscript"
    if options.app:
        return [f'exec {shlex.quote(f"/scif/apps/{options.app}/scif/{script}")} "$@"']
    lines = [f'[ -x /.singularity.d/{script} ] && exec /.singularity.d/{script} "$@"']
    if options.verb == "test":
        return [*lines, "exit 0"]
    default = [*request.image.entrypoint, *(() if options.arguments else request.image.command)]
    if not default:
        return [*lines, 'exec "$@"' if options.arguments else "exec /bin/sh"]
    return [*lines, f'exec {shlex.join(default)} "$@"']


def _start_directly(request: Request, environ: dict[str, str], home: str) -> Started:
    """Without a shell in the image: the program itself, with everything that can be said in advance."""
    options, image, refused = request.options, request.image, []
    if options.verb in ("shell", "test"):
        refused.append((f"'{options.verb}'", "there is no shell in this image"))
    if options.env_file:
        refused.append(("--env-file", "its text is for a shell, and there is none in this image"))
    environ["PATH"] = _DEFAULT_PATH
    environ |= dict(map(_split, image.environment))
    environ |= request.additions.variables | user_variables(request) | {"HOME": home}
    argv = list(options.arguments)
    if options.verb == "run":
        argv = [*image.entrypoint, *(options.arguments or image.command)]
    if not argv:
        refused.append((f"'{options.verb}'", "the image says no program to start; name one"))
    return Started(argv, environ, refused)
