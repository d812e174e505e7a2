# SPDX-License-Identifier: BSD-3-Clause
"""Settings of this shell that would affect programs in a container: Python's paths and packages, loader variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kedge.answers.doctor.finding import NOTE, OK, WARNING, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.base.counting import count_things
from kedge.container.env_scripts import REQUEST_PREFIXES
from kedge.container.payload import is_guarded
from kedge.system.settings import home_directory

_LOADER = ("LD_PRELOAD", "LD_AUDIT", "GCONV_PATH", "LOCPATH")
_QUIET = ("BASH_ENV", "ENV", "BASH_FUNC_")  # every login on a cluster has these
_HARMLESS = ("VIRTUAL_ENV", "CONDA_", "MAMBA_", "_CE_")  # kedge itself may be installed in one


def check_python_leaks(surroundings: Surroundings) -> list[Finding]:
    """Check PYTHONPATH and similar variables, active environments, and packages below ~/.local."""
    environ = surroundings.environ
    guarded = sorted(name for name in environ if is_guarded(name) and not name.startswith((*_QUIET, *_LOADER)))
    return _judge_python_leaks(environ, guarded, list_user_sites(home_directory(environ)))


def list_user_sites(home: Path) -> list[str]:
    """`python3.10 (12 packages)` for each directory below ~/.local/lib that has any."""
    sites: list[str] = []
    try:
        for directory in sorted((home / ".local/lib").glob("python*/site-packages")):
            count = sum(name.endswith((".dist-info", ".egg-info")) for name in os.listdir(directory))  # noqa: PTH208
            if count:
                sites.append(f"{directory.parent.name} ({count} {'package' if count == 1 else 'packages'})")
    except OSError:
        return sites
    return sites


def _judge_python_leaks(environ: Mapping[str, str], variables: list[str], sites: list[str]) -> list[Finding]:
    """kedge passes them into containers only with KEDGE_KEEP; other runtimes always pass them."""
    docs = "kedge help doctor python-leaks"
    kept = {name.strip() for name in environ.get("KEDGE_KEEP", "").split(",")}
    variables = [name for name in variables if not name.startswith(_HARMLESS)]
    parts = [", ".join(variables)] if variables else []
    if sites and not environ.get("PYTHONNOUSERSITE"):
        parts.append(f"packages in ~/.local/lib/{', '.join(sites)}")
    if not parts:
        return [Finding("python-leaks", OK, "no Python setting of this shell affects containers")]
    is_passed = "all" in kept or (bool(sites) and "user-site" in kept) or bool(kept & set(variables))
    what = "; ".join(parts)
    why = "programs of an image would load modules of this host instead of their own: wrong versions, "
    why += "'undefined symbol', 'No module named'"
    if is_passed:
        fix = "unset KEDGE_KEEP, or name in it only the variables that the image needs"
        return [Finding("python-leaks", WARNING, f"{what} (KEDGE_KEEP passes them on)", why=why, fix=fix, docs=docs)]
    fix = "no action needed: kedge does not pass them on (--keep NAME does). For Apptainer and Singularity: "
    fix += f"unset {' '.join(variables)}; export PYTHONNOUSERSITE=1" if variables else "export PYTHONNOUSERSITE=1"
    return [Finding("python-leaks", NOTE, what, why=why, fix=fix, docs=docs)]


def check_loader_leaks(surroundings: Surroundings) -> list[Finding]:
    """Check LD_PRELOAD, and library directories that variables force into containers."""
    return judge_loader_leaks(surroundings.environ)


def judge_loader_leaks(environ: Mapping[str, str]) -> list[Finding]:
    """Report variables that change which libraries programs and containers load."""
    docs = "kedge help doctor loader-leaks"
    findings = []
    forced = [f"{prefix}{name}" for prefix in REQUEST_PREFIXES for name in ("LD_LIBRARY_PATH", "LD_PRELOAD")]
    names = [name for name in forced if environ.get(name)]
    if names:
        why = "programs of the image then load libraries of this host, which may need a newer C library: "
        why += '"version `GLIBC_2.38\' not found", or crashes'
        fix = f"unset {' '.join(names)}; --nv provides the libraries that GPUs need"
        findings.append(
            Finding("loader-leaks", WARNING, f"{', '.join(names)} set for every container", why=why, fix=fix, docs=docs)
        )
    if environ.get("LD_PRELOAD"):
        why = "every program of this shell loads it; kedge does not pass it into containers, other runtimes do"
        what = f"LD_PRELOAD={environ['LD_PRELOAD']}"
        findings.append(
            Finding("loader-leaks", NOTE, what, why=why, fix="if nothing needs it: unset LD_PRELOAD", docs=docs)
        )
    searched = environ.get("LD_LIBRARY_PATH", "")
    if searched and any(not entry.startswith("/") for entry in searched.split(":")):
        why = "programs of this shell, including kedge's Python, load libraries from the current directory"
        fix = "remove '.', empty and relative entries from LD_LIBRARY_PATH; a trailing colon is an empty entry"
        what = "LD_LIBRARY_PATH has entries that depend on the current directory"
        findings.append(Finding("loader-leaks", NOTE, what, why=why, fix=fix, docs=docs))
    if findings:
        return findings
    directories = [entry for entry in searched.split(":") if entry]
    shown = (
        f"LD_LIBRARY_PATH ({count_things(len(directories), 'directory')}) is not passed into containers"
        if directories
        else "no loader variable is set"
    )
    return [Finding("loader-leaks", OK, shown)]
