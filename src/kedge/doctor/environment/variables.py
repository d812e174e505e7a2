# SPDX-License-Identifier: BSD-3-Clause
"""Variables of this shell that kedge reads: old names, contradictions, names that nobody knows, and PATH."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Mapping

from kedge.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.doctor.surroundings import Surroundings
from kedge.errors import KedgeError
from kedge.model.counting import count_things
from kedge.model.nearest import propose
from kedge.posix.programs import find_program
from kedge.runtime.command_line.binds import collect_binds
from kedge.runtime.command_line.flag_table import FLAGS
from kedge.runtime.options import RunOptions
from kedge.settings import PREFIXES, SETTINGS

# read elsewhere than by settings and flags
_OWN = (
    *("SITE_CONFIG", "SITES", "TRUSTED_REALMS", "SQUASHFUSE", "UNPACK_LIMIT", "KEYSDIR", "GLOBAL_KEYSDIR", "KEYSERVER"),
    *("SIGN_PASSPHRASE", "DOCKER_USERNAME", "DOCKER_PASSWORD", "USERNAME", "PASSWORD", "LINES", "CONFIGDIR"),
    *("PREPEND_LD_LIBRARY_PATH", "APPEND_LD_LIBRARY_PATH"),
)
_DOCS = "kedge help doctor variables"
_SET_BY_KEDGE = ("JOB_", "ARRAY_", "LOCAL_", "ACTION_", "CONTAINER", "NAME", "COMMAND", "ENVIRONMENT", "INSTANCE")


def list_known() -> set[str]:
    """The names behind KEDGE_, APPTAINER_ and SINGULARITY_ that mean something to kedge."""
    known = set(_OWN)
    for setting in SETTINGS.values():
        known |= {name.removeprefix("KEDGE_") for name in setting.variables}
    for flag in FLAGS:
        known |= {name.removeprefix("KEDGE_") for name in flag.variables}
    return known


def check_variables(surroundings: Surroundings) -> list[Finding]:
    """All variables with one of the three prefixes."""
    return judge_variables(surroundings.environ, list_known())


def judge_variables(environ: Mapping[str, str], known: set[str]) -> list[Finding]:
    """Misspelled ones, contradictions, and old names, in this order."""
    findings = [*_judge_misspelled(environ, known), *_judge_contradictions(environ, known)]
    old = sorted(name for name in environ if name.startswith("SINGULARITY_") and name[12:] in known)
    if old:
        why = "they still count, where neither KEDGE_ nor APPTAINER_ says otherwise; scripts that others wrote may "
        why += "have set them"
        fix = f"nothing, if they are meant; else: unset {' '.join(old)}"
        findings.append(Finding("variables", NOTE, f"old names are in use: {', '.join(old)}", why, fix, _DOCS))
    if findings:
        return findings
    count = sum(name.startswith(PREFIXES) for name in environ)
    shown = f"{count_things(count, 'variable')} of kedge, Apptainer or Singularity {'is' if count == 1 else 'are'} set"
    return [Finding("variables", OK, shown if count else "none is set")]


def _judge_misspelled(environ: Mapping[str, str], known: set[str]) -> list[Finding]:
    findings = []
    for name in sorted(environ):
        bare = name.removeprefix("KEDGE_")
        if bare == name or bare in known or bare.startswith(_SET_BY_KEDGE):
            continue
        near = propose(name, [f"KEDGE_{each}" for each in known])
        why = "a misspelled setting is no setting: what you meant is not done"
        fix = near or "'kedge config show' lists the settings and where each comes from"
        findings.append(Finding("variables", WARNING, f"{name} means nothing to kedge", why, fix, _DOCS))
    return findings


def _judge_contradictions(environ: Mapping[str, str], known: set[str]) -> list[Finding]:
    findings = []
    for bare in sorted(known):
        names = [prefix + bare for prefix in PREFIXES if environ.get(prefix + bare)]
        if len({environ[name] for name in names}) > 1 and "PASSWORD" not in bare:
            why = f"only {names[0]} counts"
            fix = f"unset {' '.join(names[1:])}, or let them be the same"
            findings.append(Finding("variables", NOTE, f"{' and '.join(names)} differ", why, fix, _DOCS))
    return findings


def check_binds(surroundings: Surroundings) -> list[Finding]:
    """The directories that variables bind into every container: one that is missing keeps them all from starting."""
    docs = "kedge help doctor binds"
    try:
        binds = collect_binds(RunOptions(), surroundings.environ, "/")
    except KedgeError as problem:
        why = "no container starts with it"
        return [Finding("binds", FAIL, problem.message, why, problem.hint or "mend or unset the variable", docs)]
    missing = [bind for bind in binds if not os.path.lexists(bind.source)]
    if missing:
        shown = ", ".join(f"{bind.source} ({bind.origin})" for bind in missing)
        why = "a container that is to have a directory which is not here does not start"
        fix = f"unset {' '.join(sorted({bind.origin for bind in missing}))}, or name directories that every node has"
        return [Finding("binds", FAIL, f"not on this machine: {shown}", why, fix, docs)]
    return [Finding("binds", OK, f"{len(binds)} from variables" if binds else "none from variables")]


def check_search_path(surroundings: Surroundings) -> list[Finding]:
    """PATH: whether programs are found, and which."""
    path = surroundings.environ.get("PATH", "")
    return [judge_search_path(path, find_program("kedge", path, also="") or "", sysconfig.get_path("scripts"))]


def judge_search_path(path: str, own: str, installed: str) -> Finding:
    """Whether kedge itself is found in it, and whether it has entries that depend on the current directory."""
    docs = "kedge help doctor search-path"
    if not path:
        why = "no program is found: not the scheduler's, not kedge"
        return Finding("search-path", WARNING, "PATH is empty", why, "export PATH=/usr/local/bin:/usr/bin:/bin", docs)
    if not own:
        why = "jobs start kedge by its name, and so do the shims 'apptainer' and 'singularity'"
        fix = f"export PATH={installed}:$PATH, in ~/.bashrc; or install kedge where programs are looked for"
        return Finding("search-path", WARNING, "the command 'kedge' is not in PATH", why, fix, docs)
    if any(not folder.startswith("/") for folder in path.split(":")):
        why = "kedge skips them, but your shell starts programs of whatever directory you are in"
        fix = "take '.', empty and relative entries out of PATH"
        return Finding("search-path", NOTE, "PATH has entries that depend on the current directory", why, fix, docs)
    return Finding("search-path", OK, f"kedge is {own}")
