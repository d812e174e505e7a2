# SPDX-License-Identifier: BSD-3-Clause
"""The table of checks: what is looked at, in the order it is told, and the module that looks; imported only then.

A check that is added here must have an anchor in docs/guides/doctor.md for its findings.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

from kedge.doctor.finding import Finding
from kedge.doctor.surroundings import Check, Surroundings


def _late(module: str, function: str) -> Callable[[Surroundings], list[Finding]]:
    """A check's function that imports its module when it is called: a broken or slow one costs only itself."""

    def run(surroundings: Surroundings) -> list[Finding]:
        loaded = getattr(importlib.import_module(f"kedge.doctor.{module}"), function)
        return cast("Callable[[Surroundings], list[Finding]]", loaded)(surroundings)

    return run


# name, title, group, module, function; and how many seconds it may take, where that is not one
_ROWS: tuple[tuple[str | float, ...], ...] = (
    ("kernel", "kernel", "Containers", "kernel", "check_kernel"),
    ("user-namespaces", "namespaces", "Containers", "namespaces", "check_user_namespaces"),
    ("outer-container", "outer container", "Containers", "namespaces", "check_outer_container"),
    ("overlay", "overlay", "Containers", "overlay", "check_overlay"),
    ("fuse", "FUSE", "Containers", "fuse", "check_fuse"),
    ("overlay-files", "overlays in files", "Containers", "fuse", "check_overlay_files"),
    ("seccomp", "seccomp", "Containers", "seccomp", "check_seccomp"),
    ("setuid-programs", "setuid programs", "Containers", "seccomp", "check_new_privileges"),
    ("subordinate-ids", "subordinate ids", "Containers", "subordinate", "check_subordinate_ids"),
    ("gpu-driver", "GPU driver", "GPU", "gpu", "check_driver"),
    ("gpu-devices", "GPU devices", "GPU", "gpu", "check_devices"),
    ("gpu-answer", "GPU answer", "GPU", "gpu", "check_nvml", 1.7),
    ("gpu-libraries", "driver libraries", "GPU", "libraries", "check_libraries"),
    ("gpu-selection", "GPU selection", "GPU", "gpu", "check_selection"),
    ("cdi", "CDI", "GPU", "cdi", "check_cdi"),
    ("fabric", "fast network", "GPU", "fabric", "check_fabric"),
    ("mpi", "MPI", "Cluster", "mpi", "check_mpi"),
    ("site", "site", "Cluster", "site", "check_site"),
    ("scheduler", "scheduler", "Cluster", "scheduler", "check_scheduler", 1.5),
    ("mpi-plugins", "MPI under srun", "Cluster", "scheduler", "check_mpi_plugins", 1.5),
    ("accounts", "accounts", "Cluster", "scheduler", "check_accounts", 1.5),
    ("shared-folders", "shared folders", "Cluster", "site", "check_shared_folders"),
    ("job-records", "records of jobs", "Cluster", "site", "check_job_records"),
    ("proxies", "proxies", "Network", "network", "check_proxies", 1.5),
    ("registries", "registries", "Network", "network", "check_registries", 1.5),
    ("certificates", "certificates", "Network", "certificates", "check_certificates"),
    ("credentials", "credentials", "Network", "credentials", "check_credentials"),
    ("logins", "logins", "Network", "credentials", "check_logins", 1.5),
    ("store", "store", "Storage", "storage", "check_store", 1.5),
    ("home", "home", "Storage", "storage", "check_home", 1.5),
    ("old-caches", "old caches", "Storage", "storage", "check_old_caches"),
    ("temporary", "temporary files", "Storage", "temporary", "check_temporary"),
    ("node-place", "unpacked images", "Storage", "temporary", "check_node_place"),
    ("shared-memory", "shared memory", "Storage", "temporary", "check_shared_memory"),
    ("memory", "memory", "Environment", "memory_limits", "check_memory"),
    ("processes", "processes", "Environment", "process_limits", "check_processes"),
    ("open-files", "open files", "Environment", "process_limits", "check_open_files"),
    ("locked-memory", "locked memory", "Environment", "process_limits", "check_locked_memory"),
    ("core-files", "core files", "Environment", "process_limits", "check_core_files"),
    ("clock", "clock", "Environment", "clock", "check_clock"),
    ("locale", "locale", "Environment", "locales", "check_locale"),
    ("python-leaks", "Python of this shell", "Environment", "leaks", "check_python_leaks"),
    ("loader-leaks", "loader of this shell", "Environment", "leaks", "check_loader_leaks"),
    ("variables", "variables", "Environment", "variables", "check_variables"),
    ("binds", "binds of variables", "Environment", "variables", "check_binds"),
    ("search-path", "PATH", "Environment", "variables", "check_search_path"),
)

CHECKS: tuple[Check, ...] = tuple(
    Check(str(row[0]), str(row[1]), str(row[2]), _late(str(row[3]), str(row[4])), float(row[5]) if row[5:] else 1.0)
    for row in _ROWS
)
