# SPDX-License-Identifier: BSD-3-Clause
"""Hands a container to another runtime: finds its program, brings the image into a format it takes, and becomes it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from kedge.container.facts import Additions, HostFacts, ImageFacts, gather_host
from kedge.container.flags import collect_binds
from kedge.container.options import RunOptions
from kedge.container.others import Adapter, ForeignPlan, apply_rules, find_adapter, plan_foreign
from kedge.container.others.other_runtime_image import open_image
from kedge.container.shim_file import is_shim
from kedge.errors import KedgeError, RuntimeUnsuited, UsageError
from kedge.system.process import run_program
from kedge.system.spawn import replace_process

Say = Callable[[str, str], None]

_PLACES = ("/usr/local/bin", "/usr/bin", "/bin", "/opt/apptainer/bin", "/opt/singularity/bin")
_OLDEST = {"charliecloud": ((0, 36), "older ones have no --write-fake")}
_PATIENCE = 10.0  # seconds that a program may take to tell its version
_STARTERS = {"apptainer": "libexec/apptainer/bin/starter-suid", "singularity": "libexec/singularity/bin/starter-suid"}


def run_foreign(options: RunOptions, say: Say | None = None) -> int:
    """Become the other runtime's program; returns only after a dry run, or where there is nothing to start.

    `options.runtime` is one of the names in `adapters.RUNTIMES`, or the path of such a program. `say(level, text)`
    hears warnings, notes and, at level `out`, the command line of a dry run.
    """
    say = say or _stay_silent
    environ = dict(os.environ)
    adapter, program = find_runtime(options.runtime, environ)
    early = ForeignPlan(adapter.name)
    apply_rules(adapter.name, options, early)
    early.require_suited()  # before anything is fetched for it
    _require_version(adapter, program, environ)
    host = gather_host(environ)
    with contextlib.ExitStack() as closing:
        image = open_image(adapter, options, host, say, closing)
        options.warnings.clear()  # said before, where kedge itself tried first
        binds = [
            bind
            for bind in collect_binds(options, environ, host.cwd)
            if not bind.is_optional or Path(bind.source).exists()
        ]
        for text in options.warnings:
            say("warn", text)
        plan = plan_foreign(
            adapter.name,
            options,
            binds,
            image,
            host=host,
            additions=_find_additions(adapter, options, host, image.facts),
            has_terminal=os.isatty(0) and os.isatty(1),
        )
    plan.require_suited()
    return _become(program, plan, options, say)


def _become(program: str, plan: ForeignPlan, options: RunOptions, say: Say) -> int:
    for text in plan.notes:
        say("warn", text)
    for text in plan.details:
        say("note", text)
    if plan.is_idle:
        say("note", "nothing to start")
        return 0
    shown = shlex.join([program, *plan.argv[1:]])
    if options.dry_run:
        say("out", shown)
        return 0
    say("note", f"runs: {shown}")
    try:
        replace_process(program, plan.argv, plan.environ)
    except OSError as problem:
        raise RuntimeUnsuited(
            f"cannot start {program}: {problem.strerror}", context={"runtime": plan.runtime, "program": program}
        ) from None


def find_runtime(text: str, environ: Mapping[str, str]) -> tuple[Adapter, str]:
    """The runtime and its program, from a name or a path; RuntimeUnsuited says where it was looked for."""
    if text in ("", "kedge", "auto"):
        raise UsageError("--runtime names no other runtime", hint="for example --runtime apptainer")
    if "/" in text:
        adapter = find_adapter(_name_of_program(Path(text).name))
        if not os.access(text, os.X_OK):
            raise RuntimeUnsuited(f"{text} is not an executable program", context={"runtime": adapter.name})
        return adapter, str(Path(text).absolute())
    adapter = find_adapter(text)
    folders = _list_folders(environ)
    for folder in folders:
        path = f"{folder}/{adapter.program}"
        if os.access(path, os.X_OK) and Path(path).is_file() and not is_shim(path):
            return adapter, path
    module = {"ch-run": "charliecloud"}.get(adapter.program, adapter.program)
    raise RuntimeUnsuited(
        f"cannot find {adapter.name}: no program {adapter.program} in {', '.join(folders)}",
        context={"runtime": adapter.name, "program": adapter.program},
        hint=f"load it first, for example 'module load {module}', or leave out --runtime to use kedge",
    )


def _require_version(adapter: Adapter, program: str, environ: Mapping[str, str]) -> None:
    """Raise for a program that is too old for the words it would get; one that does not tell is tried."""
    oldest, reason = _OLDEST.get(adapter.name, ((), ""))
    if not oldest:
        return
    try:
        asked = run_program([program, "--version"], environment={"USER": "kedge", **environ}, timeout=_PATIENCE)
    except KedgeError:
        return
    found = re.match(rb"\D*(\d+)\.(\d+)", asked.output + asked.errors)
    if found and tuple(map(int, found.groups())) < oldest:
        wanted, shown = ".".join(map(str, oldest)), b".".join(found.groups()).decode()
        raise RuntimeUnsuited(
            f"{program} is {adapter.name} {shown}; kedge needs {wanted} or newer: {reason}",
            context={"runtime": adapter.name, "version": shown},
            hint=f"load a newer version, or leave out --runtime {adapter.name} to use kedge",
        )


def _name_of_program(program: str) -> str:
    return {"ch-run": "charliecloud"}.get(program, program)


def _list_folders(environ: Mapping[str, str]) -> list[str]:
    own = [folder for folder in environ.get("PATH", "").split(":") if folder.startswith("/")]
    return list(dict.fromkeys([*own, *_PLACES]))


def find_setuid_apptainer(environ: Mapping[str, str] | None = None) -> str:
    """An installed Apptainer or Singularity whose starter is setuid root, which needs no user namespaces; else empty.

    It is looked for in files, because asking the program would start it.
    """
    for name, starter in _STARTERS.items():
        for folder in _list_folders(os.environ if environ is None else environ):
            program = Path(folder) / name
            if not os.access(program, os.X_OK) or is_shim(str(program)):
                continue
            prefixes = dict.fromkeys((program.parent.parent, program.resolve().parent.parent))
            others = [Path("/"), Path("/usr"), Path("/usr/local")] if folder in ("/usr/bin", "/bin") else []
            if any(
                _is_setuid_root(prefix / path) for prefix in (*prefixes, *others) for path in _starter_paths(starter)
            ):
                return str(program)
    return ""


def _starter_paths(starter: str) -> tuple[str, ...]:
    """Debian keeps such programs in lib and not in libexec."""
    return starter, starter.replace("libexec/", "lib/", 1), starter.replace("libexec/", "lib64/", 1)


def _is_setuid_root(path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & stat.S_ISUID) and status.st_uid == 0


def _find_additions(adapter: Adapter, options: RunOptions, host: HostFacts, image: ImageFacts) -> Additions:
    """What devices add, for runtimes that do not find them themselves."""
    if adapter.reads_scripts or not options.asks_devices:
        return Additions()
    from kedge.container.devices import plan_devices  # late, both: most containers ask for no device
    from kedge.container.devices.cdi import refuse_strangers

    if options.device:
        refuse_strangers(options, host.view)
    return plan_devices(options, host, image)


def _stay_silent(level: str, text: str) -> None:
    """Says nothing."""
