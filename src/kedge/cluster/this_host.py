# SPDX-License-Identifier: BSD-3-Clause
"""This machine as a node of a job: its name, and the CPUs and GPUs that this process may use."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kedge.cluster.allocation import ThisHost
from kedge.system.host.gpu_devices import count_visible
from kedge.system.host.limits import read_limits


def read_this_host(environ: Mapping[str, str]) -> ThisHost:
    """Name, CPUs, GPUs."""
    return ThisHost(os.uname().nodename, read_limits().cpus, count_visible(environ))


def read_glibc() -> str:
    """`2.36`; empty where the C library is another one, such as musl."""
    try:
        library = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""
    name, _, version = library.partition(" ")
    return version if name == "glibc" else ""
