# SPDX-License-Identifier: BSD-3-Clause
"""Trees that look like /proc and /sys of other machines."""

from __future__ import annotations

from pathlib import Path

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max processes             {processes:<20} 96373                processes 
Max address space         {address_space:<20} unlimited            bytes     
"""  # noqa: W291 - the kernel pads its columns


def write_tree(root: Path, files: dict[str, str]) -> Path:
    """Write files by path below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def write_host(
    root: Path,
    *,
    cpus: str = "0-15",
    groups: str = "",
    mounts: str = "",
    processes: str = "unlimited",
    address_space: str = "unlimited",
    files: dict[str, str] | None = None,
) -> Path:
    """A machine with 64 GiB and the given limits."""
    plain = {
        "proc/self/status": f"Name:\tpython3\nThreads:\t1\nCpus_allowed:\tffff\nCpus_allowed_list:\t{cpus}\n",
        "proc/self/limits": LIMITS.format(processes=processes, address_space=address_space),
        "proc/self/cgroup": groups,
        "proc/self/mountinfo": mounts,
        "proc/meminfo": "MemTotal:       67108864 kB\nMemFree:        1 kB\n",
        "proc/loadavg": "0.00 0.00 0.00 1/40000 77\n",
    }
    return write_tree(root, {**plain, **(files or {})})
