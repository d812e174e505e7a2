# SPDX-License-Identifier: BSD-3-Clause
"""Tools of others from PyPI, each in an environment of its own that stays on this machine for the next run."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_TORCH = "torch"  # a build for CPUs, see _find_torch
# name in tests and guides -> what is installed; versions are the newest, because users have those
TOOLS = {
    "snakemake": ("snakemake",),
    "cwltool": ("cwltool",),
    "reframe": ("ReFrame-HPC",),
    "submitit": ("submitit",),
    "parsl": ("parsl",),
    "dask-jobqueue": ("dask-jobqueue",),
    "jupyter": ("jupyter-client", "ipykernel"),
    "nf-core": ("nf-core",),
    "site": ("mkdocs-material>=9.5,<10",),
    "learning": (_TORCH, "lightning", "jax"),
    "training": (_TORCH, "lightning", "matplotlib", "mpi4py"),
    "arrays": ("numpy", "mpi4py"),
}
PYTHON = "/usr/bin/python3"  # the system's: every user can read it
UNREACHABLE = "PyPI cannot be reached, so no tool of others can be installed"
_PATIENCE = 240  # seconds


def require_tool(name: str, *more: str) -> Path:
    """The directory with the programs of a tool; installed now where it is missing. Skips where it cannot be."""
    place = Path(f"/var/tmp/kedge-tools-{os.getuid()}")
    place.mkdir(mode=0o755, exist_ok=True)
    home = place / "-".join((name, *more))
    with (place / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "ready").exists():
            _install(home, [_find_torch() if package == _TORCH else package for package in (*TOOLS[name], *more)])
            (home / "ready").touch()
    return home / "bin"


def _find_torch() -> str:
    """PyTorch for CPUs: PyPI has it for arm64; for x86_64 pip may be told of a file (find-links). Skips without."""
    if os.uname().machine == "aarch64":
        return "torch==2.4.1" if sys.version_info < (3, 13) else "torch==2.6.0"  # the first that knows 3.13
    options = ["--quiet", "--dry-run", "--ignore-installed", "--no-index", "--no-deps", "--report", "-"]
    done = subprocess.run(
        [PYTHON, "-m", "pip", "install", *options, "torch"], capture_output=True, text=True, timeout=60, check=False
    )
    found = json.loads(done.stdout)["install"] if done.returncode == 0 else []
    if not found or "+cpu" not in found[0]["metadata"]["version"]:
        pytest.skip("torch for this CPU comes with CUDA, which is ten times as large")
    return "torch @ " + str(found[0]["download_info"]["url"])


def _install(home: Path, packages: list[str]) -> None:
    uv = Path(sys.executable).with_name("uv")
    if uv.exists():
        make = [str(uv), "venv", "--quiet", "--clear", "--python", PYTHON, str(home)]
        fill = [str(uv), "pip", "install", "--quiet", "--compile-bytecode", "--python"]  # users cannot write it there
        fill += [str(home / "bin/python"), *packages]
    else:
        make = [PYTHON, "-m", "venv", "--clear", str(home)]
        fill = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", *packages]
    for command in (make, fill):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(UNREACHABLE)
        if done.returncode:
            pytest.skip(f"{UNREACHABLE}: {done.stderr.strip()[-300:]}")
