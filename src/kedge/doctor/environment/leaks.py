# SPDX-License-Identifier: BSD-3-Clause
"""What of this shell would change programs in a container: Python's paths and packages, and the loader's variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kedge.doctor.finding import NOTE, OK, WARNING, Finding
from kedge.doctor.surroundings import Surroundings
from kedge.model.counting import count_things
from kedge.runtime.environment.env_requests import REQUEST_PREFIXES
from kedge.runtime.environment.leaks import is_guarded
from kedge.settings import home_directory

_LOADER = ("LD_PRELOAD", "LD_AUDIT", "GCONV_PATH", "LOCPATH")
_QUIET = ("BASH_ENV", "ENV", "BASH_FUNC_")  # every login on a cluster has these
_HARMLESS = ("VIRTUAL_ENV", "CONDA_", "MAMBA_", "_CE_")  # kedge itself may be installed in one


def check_python_leaks(surroundings: Surroundings) -> list[Finding]:
    """PYTHONPATH and its kind, environments that are active, and packages below ~/.local."""
    environ = surroundings.environ
    found = sorted(name for name in environ if is_guarded(name) and not name.startswith((*_QUIET, *_LOADER)))
    return _judge_python_leaks(environ, found, list_user_sites(home_directory(environ)))


def list_user_sites(home: Path) -> list[str]:
    """`python3.10 (12 packages)` for each directory below ~/.local/lib that has any."""
    found = []
    try:
        for folder in sorted((home / ".local/lib").glob("python*/site-packages")):
            count = sum(name.endswith((".dist-info", ".egg-info")) for name in os.listdir(folder))  # noqa: PTH208
            if count:
                found.append(f"{folder.parent.name} ({count} {'package' if count == 1 else 'packages'})")
    except OSError:
        return found
    return found


def _judge_python_leaks(environ: Mapping[str, str], variables: list[str], sites: list[str]) -> list[Finding]:
    """They stay outside, unless KEDGE_KEEP lets them in; with other runtimes they do not."""
    docs = "kedge help doctor python-leaks"
    kept = {name.strip() for name in environ.get("KEDGE_KEEP", "").split(",")}
    variables = [name for name in variables if not name.startswith(_HARMLESS)]
    parts = [", ".join(variables)] if variables else []
    if sites and not environ.get("PYTHONNOUSERSITE"):
        parts.append(f"packages in ~/.local/lib/{', '.join(sites)}")
    if not parts:
        return [Finding("python-leaks", OK, "nothing of this shell's Python would get into a container")]
    let_in = "all" in kept or (bool(sites) and "user-site" in kept) or bool(kept & set(variables))
    what = "; ".join(parts)
    why = "programs of an image would take modules and settings of this machine instead of their own: wrong versions, "
    why += "'undefined symbol', 'No module named'"
    if let_in:
        fix = "unset KEDGE_KEEP, or name in it only what the image really needs"
        return [Finding("python-leaks", WARNING, f"{what} (KEDGE_KEEP lets them in)", why, fix, docs)]
    fix = "none is needed: kedge keeps them outside (--keep NAME lets one in). For Apptainer and Singularity: "
    fix += f"unset {' '.join(variables)}; export PYTHONNOUSERSITE=1" if variables else "export PYTHONNOUSERSITE=1"
    return [Finding("python-leaks", NOTE, what, why, fix, docs)]


def check_loader_leaks(surroundings: Surroundings) -> list[Finding]:
    """LD_PRELOAD, and the directories of libraries that are forced into containers."""
    return judge_loader_leaks(surroundings.environ)


def judge_loader_leaks(environ: Mapping[str, str]) -> list[Finding]:
    """What the loader of every program here, and of every container, is told."""
    docs = "kedge help doctor loader-leaks"
    findings = []
    forced = [f"{prefix}{name}" for prefix in REQUEST_PREFIXES for name in ("LD_LIBRARY_PATH", "LD_PRELOAD")]
    names = [name for name in forced if environ.get(name)]
    if names:
        why = "libraries of this machine are then loaded by programs of the image, whose C library may be older: "
        why += '"version `GLIBC_2.38\' not found", or crashes'
        fix = f"unset {' '.join(names)}; --nv brings what a GPU needs"
        findings.append(Finding("loader-leaks", WARNING, f"{', '.join(names)} set for every container", why, fix, docs))
    if environ.get("LD_PRELOAD"):
        why = (
            "it is loaded into every program of this shell; kedge keeps it outside of containers, other runtimes do not"
        )
        what = f"LD_PRELOAD={environ['LD_PRELOAD']}"
        findings.append(Finding("loader-leaks", NOTE, what, why, "unset LD_PRELOAD, if nothing needs it", docs))
    searched = environ.get("LD_LIBRARY_PATH", "")
    if searched and any(not each.startswith("/") for each in searched.split(":")):
        why = "programs of this shell, kedge's Python too, load libraries that lie in whatever directory you are in"
        fix = "take '.', empty and relative entries out of LD_LIBRARY_PATH: a colon at its end is one"
        what = "LD_LIBRARY_PATH has entries that depend on the current directory"
        findings.append(Finding("loader-leaks", NOTE, what, why, fix, docs))
    if findings:
        return findings
    directories = [each for each in searched.split(":") if each]
    shown = (
        f"what LD_LIBRARY_PATH names stays outside: {count_things(len(directories), 'directory')}"
        if directories
        else "no variable of the loader"
    )
    return [Finding("loader-leaks", OK, shown)]
