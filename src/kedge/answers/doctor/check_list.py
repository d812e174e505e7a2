# SPDX-License-Identifier: BSD-3-Clause
"""The table of checks in the order of the output. A check's module is imported only for checks that run.

Every check needs a heading of its name in docs/guides/doctor.md.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Collection
from typing import cast

from kedge.answers.doctor.finding import Finding
from kedge.answers.doctor.surroundings import Check, Surroundings


def _late(module: str, function: str) -> Callable[[Surroundings], list[Finding]]:
    """A check's function that imports its module when it is called: a broken or slow one costs only itself."""

    def run(surroundings: Surroundings) -> list[Finding]:
        loaded = getattr(importlib.import_module(f"kedge.answers.doctor.{module}"), function)
        return cast("Callable[[Surroundings], list[Finding]]", loaded)(surroundings)

    return run


# name, title, group, module, function; and how many seconds it may take, where that is not one
_ROWS: tuple[tuple[str | float, ...], ...] = (
    ("kernel", "kernel", "Containers", "containers.kernel", "check_kernel"),
    ("user-namespaces", "namespaces", "Containers", "containers.namespaces", "check_user_namespaces"),
    ("outer-container", "outer container", "Containers", "containers.namespaces", "check_outer_container"),
    ("overlay", "overlay", "Containers", "containers.overlay", "check_overlay"),
    ("fuse", "FUSE", "Containers", "containers.fuse", "check_fuse"),
    ("overlay-files", "overlays in files", "Containers", "containers.fuse", "check_overlay_files"),
    ("seccomp", "seccomp", "Containers", "containers.seccomp", "check_seccomp"),
    ("setuid-programs", "setuid programs", "Containers", "containers.seccomp", "check_new_privileges"),
    ("subordinate-ids", "subordinate ids", "Containers", "containers.subordinate", "check_subordinate_ids"),
    ("gpu-driver", "GPU driver", "GPU", "gpu.driver", "check_driver"),
    ("gpu-devices", "GPU devices", "GPU", "gpu.driver", "check_devices"),
    ("gpu-answer", "GPU answer", "GPU", "gpu.nvidia.answer", "check_nvml", 1.7),
    ("gpu-libraries", "driver libraries", "GPU", "gpu.nvidia.libraries", "check_libraries"),
    ("gpu-selection", "GPU selection", "GPU", "gpu.nvidia.selection", "check_selection"),
    ("cdi", "CDI", "GPU", "gpu.cdi", "check_cdi"),
    ("fabric", "fast network", "GPU", "gpu.fabric", "check_fabric"),
    ("mpi", "MPI", "Cluster", "cluster.mpi", "check_mpi"),
    ("site", "site", "Cluster", "cluster.site", "check_site"),
    ("scheduler", "scheduler", "Cluster", "cluster.scheduler", "check_scheduler", 1.5),
    ("mpi-plugins", "MPI under srun", "Cluster", "cluster.scheduler", "check_mpi_plugins", 1.5),
    ("accounts", "accounts", "Cluster", "cluster.scheduler", "check_accounts", 1.5),
    ("shared-folders", "shared directories", "Cluster", "cluster.site", "check_shared_folders"),
    ("job-records", "records of jobs", "Cluster", "cluster.site", "check_job_records"),
    ("proxies", "proxies", "Network", "network.registries", "check_proxies", 1.5),
    ("registries", "registries", "Network", "network.registries", "check_registries", 1.5),
    ("certificates", "certificates", "Network", "network.certificates", "check_certificates"),
    ("credentials", "credentials", "Network", "network.credentials", "check_credentials"),
    ("logins", "logins", "Network", "network.credentials", "check_logins", 1.5),
    ("store", "store", "Storage", "storage.cache_home", "check_store", 1.5),
    ("cached-images", "cached images", "Storage", "storage.cached_images", "check_cached_images", 1.5),
    ("home", "home", "Storage", "storage.cache_home", "check_home", 1.5),
    ("old-caches", "old caches", "Storage", "storage.cache_home", "check_old_caches"),
    ("temporary", "temporary files", "Storage", "storage.node_directories", "check_temporary"),
    ("node-place", "unpacked images", "Storage", "storage.node_directories", "check_node_place"),
    ("shared-memory", "shared memory", "Storage", "storage.node_directories", "check_shared_memory"),
    ("memory", "memory", "Environment", "environment.memory_limits", "check_memory"),
    ("processes", "processes", "Environment", "environment.process_limits", "check_processes"),
    ("open-files", "open files", "Environment", "environment.process_limits", "check_open_files"),
    ("locked-memory", "locked memory", "Environment", "environment.process_limits", "check_locked_memory"),
    ("core-files", "core files", "Environment", "environment.process_limits", "check_core_files"),
    ("clock", "clock", "Environment", "environment.clock", "check_clock"),
    (
        *("compiled-modules", "kedge's modules", "Environment"),
        *("environment.compiled_modules", "check_compiled_modules"),
    ),
    ("locale", "locale", "Environment", "environment.locales", "check_locale"),
    ("python-leaks", "Python of this shell", "Environment", "environment.leaking_variables", "check_python_leaks"),
    ("loader-leaks", "loader of this shell", "Environment", "environment.leaking_variables", "check_loader_leaks"),
    ("variables", "variables", "Environment", "environment.variables", "check_variables"),
    ("binds", "binds of variables", "Environment", "environment.variables", "check_binds"),
    ("search-path", "PATH", "Environment", "environment.variables", "check_search_path"),
)


def import_checks(names: Collection[str]) -> None:
    """Import the modules of checks once, before there are children: each of them would import what most of them need.

    One that cannot be imported is the finding of its own check.
    """
    modules = [f"kedge.answers.doctor.{row[3]}" for row in _ROWS if row[0] in names]
    for module in dict.fromkeys((*modules, "kedge.cluster.schedulers.recognised")):
        with contextlib.suppress(Exception):
            importlib.import_module(module)


CHECKS: tuple[Check, ...] = tuple(
    Check(str(row[0]), str(row[1]), str(row[2]), _late(str(row[3]), str(row[4])), float(row[5]) if row[5:] else 1.0)
    for row in _ROWS
)
