# SPDX-License-Identifier: BSD-3-Clause
"""Variables of this shell that kedge reads: misspelled, contradicting and old names, binds, and PATH."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Mapping

from kedge.answers.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.base.counting import count_things
from kedge.base.nearest import propose
from kedge.container.flags import collect_binds
from kedge.container.options import FLAGS, RunOptions
from kedge.errors import KedgeError
from kedge.system.programs import find_program
from kedge.system.settings import PREFIXES, SETTINGS

# read elsewhere than by settings and flags
_OWN = (
    *("SITE_CONFIG", "SITES", "TRUSTED_REALMS", "SQUASHFUSE", "UNPACK_LIMIT", "KEYSDIR", "GLOBAL_KEYSDIR", "KEYSERVER"),
    *("SIGN_PASSPHRASE", "DOCKER_USERNAME", "DOCKER_PASSWORD", "USERNAME", "PASSWORD", "LINES", "CONFIGDIR"),
    *("PREPEND_LD_LIBRARY_PATH", "APPEND_LD_LIBRARY_PATH"),
)
_DOCS = "kedge help doctor variables"
_SET_BY_KEDGE = (
    "JOB_",
    "ARRAY_",
    "LOCAL_",
    "LAUNCH_",
    "ACTION_",
    "CONTAINER",
    "NAME",
    "COMMAND",
    "ENVIRONMENT",
    "INSTANCE",
    "UNPACKED_",
    "SIGNALS_",
)


def list_known() -> set[str]:
    """The names after KEDGE_, APPTAINER_ and SINGULARITY_ that kedge reads."""
    known = set(_OWN)
    for setting in SETTINGS.values():
        known |= {name.removeprefix("KEDGE_") for name in setting.variables}
    for flag in FLAGS:
        known |= {name.removeprefix("KEDGE_") for name in flag.variables}
    return known


def check_variables(surroundings: Surroundings) -> list[Finding]:
    """Check all variables with one of the three prefixes."""
    return judge_variables(surroundings.environ, list_known())


def judge_variables(environ: Mapping[str, str], known: set[str]) -> list[Finding]:
    """Report misspelled names, contradictions and old names, in this order."""
    findings = [*_judge_misspelled(environ, known), *_judge_contradictions(environ, known)]
    old = sorted(name for name in environ if name.startswith("SINGULARITY_") and name[12:] in known)
    if old:
        why = "kedge uses them unless the same name with KEDGE_ or APPTAINER_ is set; a script may have set them"
        fix = f"if you do not need them: unset {' '.join(old)}"
        findings.append(
            Finding("variables", NOTE, f"old names are set: {', '.join(old)}", why=why, fix=fix, docs=_DOCS)
        )
    if findings:
        return findings
    count = sum(name.startswith(PREFIXES) for name in environ)
    shown = f"{count_things(count, 'variable')} of kedge, Apptainer or Singularity {'is' if count == 1 else 'are'} set"
    return [Finding("variables", OK, shown if count else "none set")]


def _judge_misspelled(environ: Mapping[str, str], known: set[str]) -> list[Finding]:
    findings = []
    for name in sorted(environ):
        bare = name.removeprefix("KEDGE_")
        if bare == name or bare in known or bare.startswith(_SET_BY_KEDGE):
            continue
        near = propose(name, [f"KEDGE_{suffix}" for suffix in known])
        why = "the variable has no effect; its name may be misspelled"
        fix = near or "list the settings and their sources: kedge config show"
        findings.append(
            Finding("variables", WARNING, f"kedge does not know the variable {name}", why=why, fix=fix, docs=_DOCS)
        )
    return findings


def _judge_contradictions(environ: Mapping[str, str], known: set[str]) -> list[Finding]:
    findings = []
    for bare in sorted(known):
        names = [prefix + bare for prefix in PREFIXES if environ.get(prefix + bare)]
        if len({environ[name] for name in names}) > 1 and "PASSWORD" not in bare:
            why = f"kedge uses {names[0]} only"
            fix = f"unset {' '.join(names[1:])}, or set them to the same value"
            findings.append(Finding("variables", NOTE, f"{' and '.join(names)} differ", why=why, fix=fix, docs=_DOCS))
    return findings


def check_binds(surroundings: Surroundings) -> list[Finding]:
    """Check the directories that variables bind: with a missing one no container starts."""
    docs = "kedge help doctor binds"
    try:
        binds = collect_binds(RunOptions(), surroundings.environ, "/")
    except KedgeError as problem:
        why = "no container starts with it"
        return [
            Finding(
                "binds", FAIL, problem.message, why=why, fix=problem.hint or "correct or unset the variable", docs=docs
            )
        ]
    missing = [bind for bind in binds if not os.path.lexists(bind.source)]
    if missing:
        shown = ", ".join(f"{bind.source} ({bind.origin})" for bind in missing)
        why = "no container starts while a directory to bind is missing"
        fix = f"unset {' '.join(sorted({bind.origin for bind in missing}))}, or name directories that every node has"
        return [Finding("binds", FAIL, f"missing on this host: {shown}", why=why, fix=fix, docs=docs)]
    return [Finding("binds", OK, f"{len(binds)} from variables" if binds else "none from variables")]


def check_search_path(surroundings: Surroundings) -> list[Finding]:
    """Check PATH."""
    path = surroundings.environ.get("PATH", "")
    return [judge_search_path(path, find_program("kedge", path, also="") or "", sysconfig.get_path("scripts"))]


def judge_search_path(path: str, own: str, installed: str) -> Finding:
    """Check whether PATH has kedge, and whether it has entries that depend on the current directory."""
    docs = "kedge help doctor search-path"
    if not path:
        why = "the shell finds no program, neither the scheduler's nor kedge"
        return Finding(
            "search-path", WARNING, "PATH is empty", why=why, fix="export PATH=/usr/local/bin:/usr/bin:/bin", docs=docs
        )
    if not own:
        why = "jobs and the shims 'apptainer' and 'singularity' start kedge by its name"
        fix = f"add to ~/.bashrc: export PATH={installed}:$PATH; or install kedge in a directory of PATH"
        return Finding("search-path", WARNING, "the command 'kedge' is not in PATH", why=why, fix=fix, docs=docs)
    if any(not entry.startswith("/") for entry in path.split(":")):
        why = "kedge skips them, but your shell starts programs from the current directory"
        fix = "remove '.', empty and relative entries from PATH"
        return Finding(
            "search-path", NOTE, "PATH has entries that depend on the current directory", why=why, fix=fix, docs=docs
        )
    return Finding("search-path", OK, f"kedge is {own}")
