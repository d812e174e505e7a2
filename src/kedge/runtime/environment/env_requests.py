# SPDX-License-Identifier: BSD-3-Clause
"""The variables a user asks for: APPTAINERENV_X and its relatives, --env-file, --env; and the host's that pass in."""

from __future__ import annotations

import os

from kedge.runtime.environment.env_scripts import Variables, run_script
from kedge.runtime.environment.shell_words import NotPlain, is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kedge.runtime.facts import HostFacts
    from kedge.runtime.options import RunOptions

REQUEST_PREFIXES = ("KEDGEENV_", "APPTAINERENV_", "SINGULARITYENV_")  # the first that has a name wins
_OWN_PREFIXES = (*REQUEST_PREFIXES, "KEDGE_", "APPTAINER_", "SINGULARITY_")
_OF_THE_JOB = frozenset(("KEDGE_JOB_ID", "KEDGE_JOB_NAME", "KEDGE_ARRAY_INDEX"))  # what programs ask for
NEVER_PASSED = frozenset(("HOME", "PATH", "LD_LIBRARY_PATH", "IFS", "OPTIND", "PPID", "PWD"))
_REFUSED = frozenset(("HOME", *(f"{x}_{y}" for x in ("APPTAINER", "SINGULARITY") for y in ("SHELL", "APPNAME"))))
_JOB_HOME = "KEDGEENV_HOME"  # how `kedge submit --env HOME=…` says it; Apptainer's own names for it stay refused
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "ftp_proxy")
_PASSED_CLEAN = frozenset(("TERM", *_PROXIES, *(name.upper() for name in _PROXIES)))
_SHELL_NAMES = ("EUID", "GID", "HOME", "IFS", "OPTIND", "PWD", "UID")  # a file that assigns them means its own shell
# The names that stand for a change of a path, not for a variable; the shell of old images knows the first three so.
PATH_REQUESTS = {
    "PREPEND_PATH": "SING_USER_DEFINED_PREPEND_PATH",
    "APPEND_PATH": "SING_USER_DEFINED_APPEND_PATH",
    "PATH": "SING_USER_DEFINED_PATH",
    "PREPEND_LD_LIBRARY_PATH": "KEDGE_PREPEND_LD_LIBRARY_PATH",
    "APPEND_LD_LIBRARY_PATH": "KEDGE_APPEND_LD_LIBRARY_PATH",
}


def select_host_variables(options: RunOptions, environ: Mapping[str, str]) -> dict[str, str]:
    """The host's variables that pass into the container, before any guard."""
    if options.cleanenv:
        passed = {name: value for name, value in environ.items() if name in _PASSED_CLEAN}
        passed["LANG"] = "C"
    else:
        passed = {
            name: value
            for name, value in environ.items()
            if name not in NEVER_PASSED and (not name.startswith(_OWN_PREFIXES) or name in _OF_THE_JOB)
        }
        path = environ.get("PATH", "")
        passed["USER_PATH"] = f"{path}:/bin:/usr/bin:/sbin:/usr/sbin:/usr/local/bin:/usr/local/sbin"
    for listed in options.no_env:
        for name in listed.split(","):
            passed.pop(name.strip(), None)
    return passed


def collect_requests(options: RunOptions, host: HostFacts, warnings: list[str]) -> dict[str, str]:
    """Name to value of all that the user asks for; --env before --env-file before the variables with a prefix."""
    asked: dict[str, str] = {}
    prefixed = [name for name in host.environ if name.startswith(REQUEST_PREFIXES)]
    for prefix in reversed(REQUEST_PREFIXES):
        for name in prefixed:
            if name.startswith(prefix):
                asked[name[len(prefix) :]] = host.environ[name]
    for path in (part for listed in options.env_file for part in listed.split(",")):
        asked.update(_read_environment_file(path, host))
    for text in options.env:
        asked.update(split_pairs(text))
    accepted: dict[str, str] = {}
    for name, value in asked.items():
        if name in _REFUSED and not (name == "HOME" and host.environ.get(_JOB_HOME) == value):
            hint = "; use --home" if name == "HOME" else ""
            warnings.append(f"--env and APPTAINERENV_{name} cannot set the variable {name}{hint}")
        elif not is_name(name):
            warnings.append(f"'{name}' is not a valid variable name: ignored")
        elif name not in ("UID", "GID"):
            accepted[PATH_REQUESTS.get(name, name)] = value
    return accepted


def split_pairs(text: str) -> dict[str, str]:
    """`A=1,B=2` as a table; commas belong to the value where there is one equals sign or quotes go around a pair."""
    pairs = [text.strip('"')] if text.count("=") == 1 else _split_quoted(text)
    values = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            from kedge.errors import UsageError  # late: only for the message

            raise UsageError(
                f"--env {text}: '{pair}' is not NAME=VALUE",
                hint="write --env NAME=VALUE, or --env 'A=1,B=2' for several",
            )
        if name:
            values[name] = value
    return values


def _split_quoted(text: str) -> list[str]:
    """The fields of one line of comma separated values; a quoted field may hold commas, and quotes written twice."""
    fields: list[str] = []
    at = 0
    while at <= len(text):
        if text.startswith('"', at):
            field, at = _read_field(text, at + 1)
        else:
            end = text.find(",", at)
            end = len(text) if end < 0 else end
            field, at = text[at:end], end
        fields.append(field)
        if at < len(text) and text[at] != ",":
            raise _refuse_quotes(text)
        at += 1
    return fields


def _read_field(text: str, at: int) -> tuple[str, int]:
    pieces: list[str] = []
    while True:
        end = text.find('"', at)
        if end < 0:
            raise _refuse_quotes(text)
        pieces.append(text[at:end])
        if not text.startswith('""', end):
            return '"'.join(pieces), end + 1
        at = end + 2


def _refuse_quotes(text: str) -> Exception:
    from kedge.errors import UsageError  # late: only for the message

    return UsageError(
        f"--env {text}: a quotation mark is missing or misplaced",
        hint="use one --env per variable, or quote whole pairs: '\"A=1,2\",B=3'",
    )


def _read_environment_file(path: str, host: HostFacts) -> dict[str, str]:
    """What a file of `NAME=VALUE` lines sets, evaluated as a shell does; it may use the host's variables."""
    data = _read_file(path, host)
    variables = Variables(dict(host.environ))
    variables.exports_all = True
    try:
        run_script(data.decode(errors="surrogateescape"), variables, None)
    except NotPlain as problem:
        from kedge.errors import UsageError  # late: only for the message

        shown = str(problem).strip().partition("\n")[0][:60]
        raise UsageError(
            f"'{shown}' in the environment file {path} is not NAME=VALUE",
            hint="write one NAME=VALUE per line and quote values with spaces or special characters",
        ) from None
    return {name: value for name, value in variables.exports().items() if name not in _SHELL_NAMES}


def _read_file(path: str, host: HostFacts) -> bytes:
    """The file's contents; `/dev/fd/63` is what the shell's `<(command)` gives."""
    number = path.removeprefix("/dev/fd/").removeprefix("/proc/self/fd/")
    if path == "/dev/stdin":
        number = "0"
    data: bytes | None = None
    if number.isdigit() and number != path:
        try:
            with open(int(number), "rb", closefd=False) as stream:
                data = stream.read()
        except (OSError, OverflowError, TypeError):  # the last two for numbers that no descriptor can have
            from kedge.errors import FileProblem  # late: only for the message

            raise FileProblem(
                f"kedge cannot read the environment file {path}: its file descriptor {number} is not open for reading",
                hint="a program between the shell and kedge, such as sudo, srun or ssh, closes what <(command) opens: "
                "write the variables to a file, and give --env-file that",
            ) from None
    else:
        data = host.view.read(os.path.join(host.cwd, path))
    if data is None:
        from kedge.errors import FileProblem  # late: only for the message

        raise FileProblem(
            f"kedge cannot read the environment file {path}",
            hint="give --env-file an existing file that you may read",
        )
    return data
