# SPDX-License-Identifier: BSD-3-Clause
"""The driver's libraries: all there, whole, and of the version that the kernel runs."""

from __future__ import annotations

from kedge.answers.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.answers.doctor.gpu.nvidia.host import GpuHost, look_at_gpus
from kedge.answers.doctor.surroundings import Surroundings
from kedge.base.versions import is_driver_version, split_library_name
from kedge.container.devices.nvidia.libraries import follow_links
from kedge.system.spawn import ELFMAG

NAME = "gpu-libraries"
_DOCS = f"kedge help doctor {NAME}"
_NEEDED = ("libcuda", "libnvidia-ml")
_SHOWN = 4


def check_libraries(surroundings: Surroundings) -> list[Finding]:
    """What --nv would take, looked at file by file."""
    gpus = look_at_gpus(surroundings)
    if not gpus.can_be_examined:
        return []
    why = "CUDA programs in containers need these libraries of the host"
    findings = [
        Finding(NAME, FAIL, lack.what.rstrip("."), why=why, fix=lack.fix or "tell the administrators", docs=_DOCS)
        for lack in gpus.report.list_lacks("libraries")
    ]
    findings += [*_judge_files(gpus), *_judge_compiler(gpus)]
    if not findings:
        count, where = len(gpus.libraries.names), ", ".join(gpus.libraries.folders)
        things = "library" if count == 1 else "libraries"
        findings.append(Finding(NAME, OK, f"{count} {things} of driver {gpus.libraries.version} in {where}"))
    return [*findings, *_judge_others(gpus), *_judge_shell(gpus)]


def _judge_files(gpus: GpuHost) -> list[Finding]:
    """Files that are empty or no libraries: what is left of an installation that broke off, or of a container."""
    broken = {path: head for path in gpus.libraries.names if (head := gpus.host.view.read(path, 4)) != ELFMAG}
    if not broken:
        return []
    needed = [path for path in broken if path in map(gpus.libraries.find, _NEEDED)]
    first = next(iter(needed or broken))
    state = {None: "cannot be read", b"": "is empty"}.get(broken[first], "is not a library")
    more = f", and so are {len(broken) - 1} more" if len(broken) > 1 else ""
    return [
        Finding(
            NAME,
            FAIL if needed else WARNING,
            f"{first} {state}{more}",
            why="programs that load it end with 'file too short' or 'invalid ELF header'",
            fix="use another node and tell the administrators: the driver must be reinstalled",
            docs=_DOCS,
        )
    ]


def _judge_compiler(gpus: GpuHost) -> list[Finding]:
    """PTX is compiled by a library of its own, which minimal installations leave out."""
    if not gpus.libraries.has("libcuda") or gpus.libraries.has("libnvidia-ptxjitcompiler"):
        return []
    return [
        Finding(
            NAME,
            WARNING,
            f"libnvidia-ptxjitcompiler.so.{gpus.libraries.version} is missing",
            why="programs fail if the image has their kernels as PTX only: the driver cannot compile them",
            fix="tell the administrators: the compute part of the driver is incomplete",
            docs=_DOCS,
        )
    ]


def _judge_others(gpus: GpuHost) -> list[Finding]:
    """Leftovers of other versions, which --nv passes over, but programs of the host may not."""
    others = gpus.libraries.others
    if not gpus.libraries.names or not others:
        return []
    shown = ", ".join(others[:_SHOWN])
    return [
        Finding(
            NAME,
            NOTE,
            f"this node also has libraries of other driver versions: {shown}",
            why=f"kedge uses those of {gpus.libraries.version} only; other tools may use the wrong ones",
            fix="administrators should remove the old driver's files",
            docs=_DOCS,
        )
    ]


def _judge_shell(gpus: GpuHost) -> list[Finding]:
    """A libcuda of another version on the path of this shell: a package or module of CUDA's compatibility libraries."""
    view, version = gpus.host.view, gpus.libraries.version
    for folder in gpus.host.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if not folder.startswith("/") or view.kind(f"{folder}/libcuda.so.1") != "f":
            continue
        suffix = split_library_name(follow_links(view, f"{folder}/libcuda.so.1").rpartition("/")[2])[1]
        if not version or not is_driver_version(suffix) or suffix == version:
            continue
        return [
            Finding(
                NAME,
                WARNING,
                f"LD_LIBRARY_PATH of this shell has another libcuda than the driver's {version}: {folder}, {suffix}",
                why="programs outside of containers load it and fail with error 803 or 804 if it does not fit "
                "the driver "
                "or the GPU, although nvidia-smi works; in containers kedge uses the right one",
                fix=f"remove {folder} from LD_LIBRARY_PATH, or unload the module that adds it",
                docs=_DOCS,
            )
        ]
    return []
