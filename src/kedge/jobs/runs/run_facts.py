# SPDX-License-Identifier: BSD-3-Clause
"""What a record says of a run before it begins: command, variables, host, job. Secrets are masked here."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.base.image_argument import find_path
from kedge.base.release import VERSION
from kedge.base.secret_text import HIDDEN, mask_value, mask_words, redact
from kedge.cluster.ranks import find_rank
from kedge.cluster.schedulers.current_job import find_allocation, find_current_job
from kedge.cluster.this_host import read_this_host
from kedge.errors import KedgeError
from kedge.image.image_file import make_absolute
from kedge.jobs.runs.run_record import MARK, RUNNING, SCHEMA
from kedge.system.host.limits import read_limits

TYPE_CHECKING = False  # as typing has it, whose import costs every recorded run
if TYPE_CHECKING:
    from typing import Any

# What changes how a program runs or how fast; all else in an environment is noise, or private.
_PREFIXES = (
    *("KEDGE_", "KEDGEENV_", "APPTAINER", "SINGULARITY", "CUDA_", "NVIDIA_", "NCCL_", "OMP_", "GOMP_", "KMP_", "MKL_"),
    *("OPENBLAS_", "BLIS_", "UCX_", "UCC_", "FI_", "OMPI_MCA_", "MPICH_", "I_MPI_", "MV2_", "TORCH", "PYTORCH_"),
    *("TF_", "XLA_", "JAX_", "HOROVOD_", "TRITON_", "HF_", "TRANSFORMERS_", "WANDB_MODE", "PYTHON", "LD_", "MALLOC_"),
)
_NAMES = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK")
_LONGEST = 4096  # characters of a value


@frozen
class RunRequest:
    """What was asked for."""

    verb: str  # exec, run or launch
    image: str
    options: tuple[str, ...]  # words between the verb and the image
    command: tuple[str, ...]
    record_to: str = ""  # the file of the record; empty: one in the current directory, named by kedge
    has_gpus: bool = False
    launch: Mapping[str, object] | None = None  # how ranks are started


def describe_run(request: RunRequest, environ: Mapping[str, str], began: float) -> dict[str, Any]:
    """The record of a run that begins now."""
    return {
        MARK: SCHEMA,
        "kedge": VERSION,
        "state": RUNNING,
        "verb": request.verb,
        "image": _name_image(request.image),
        "options": mask_words(request.options),
        "command": mask_words(request.command),
        "directory": str(Path.cwd()),
        "environment": choose_variables(environ),
        "host": describe_host(environ),
        "driver": None,
        "gpus": [],
        "launch": dict(request.launch) if request.launch else None,
        "job": _describe_job(environ),
        "times": {"started": format_time(began), "ended": None, "seconds": None},
        "exit": {"status": None, "signal": None},
        "usage": {},
    }


def _name_image(word: str) -> dict[str, Any]:
    """What is known at once, also of a run that ends before anybody has looked into its image."""
    path = find_path(word)
    return {"name": redact(word), "path": make_absolute(path) if path else None}


def choose_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter, sorted; values of secrets are stars."""
    chosen = sorted(name for name in environ if name in _NAMES or name.startswith(_PREFIXES))
    return {name: _mask(name, environ[name]) for name in chosen}


def _mask(name: str, value: str) -> str:
    value = redact(value)
    return HIDDEN if mask_value(name, value) != value or len(value) > _LONGEST else value


def describe_host(environ: Mapping[str, str]) -> dict[str, Any]:
    """Describe this host, and what a process may use of it."""
    name, limits = os.uname(), read_limits()
    return {
        "name": name.nodename,
        "machine": name.machine,
        "kernel": name.release,
        "cpus": limits.cpus,
        "memory_limit": limits.memory,
        "user": environ.get("USER") or environ.get("LOGNAME") or str(os.getuid()),
    }


def _describe_job(environ: Mapping[str, str]) -> dict[str, Any] | None:
    job = find_current_job(environ)
    known: dict[str, Any] = {"queue": job.queue or None if job else None}
    if job is not None:
        known |= {"scheduler": job.scheduler, "id": job.id}
    with contextlib.suppress(KedgeError, OSError):
        allocation = find_allocation(environ, lambda path: Path(path).read_text(), read_this_host(environ))
        known |= {"scheduler": allocation.scheduler, "id": known.get("id") or allocation.job_id}
        known["index"] = allocation.array_index or None
        known["nodes"] = [node.as_dict() for node in allocation.nodes[:1000]]
    return known if known.get("id") else None


def is_silent_rank(environ: Mapping[str, str]) -> bool:
    """Whether another rank of the same launch writes the record: the first one does."""
    with contextlib.suppress(KedgeError):
        rank = find_rank(environ)
        return rank is not None and rank.size > 1 and rank.rank > 0
    return False


def format_time(moment: float) -> str:
    """`2026-11-16T22:50:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
