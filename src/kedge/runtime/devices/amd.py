# SPDX-License-Identifier: BSD-3-Clause
"""--rocm: AMD GPUs. ROCm itself is the image's; the host gives its devices, and libraries that talk to its driver."""

from __future__ import annotations

from kedge.runtime.devices.ld_cache import MAXIMUM_SIZE, read_cache
from kedge.runtime.facts import Additions, Bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.runtime.facts import HostFacts

_STEMS = (
    *("libhsa-runtime64", "libamdhip64", "librocm_smi64", "libamd_smi", "librocprofiler-register", "libhsakmt"),
    *("libdrm_amdgpu", "libamd_comgr", "libamdcomgr64", "libamdocl64", "libcltrace", "librocr_debug_agent64"),
    *("libhc_am", "libmcwamp", "libmcwamp_cpu", "libmcwamp_hsa", "libCXLActivityLogger"),
)
_PROGRAMS = ("rocm-smi", "rocminfo", "amd-smi")
_KEPT = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
_FOLDERS = ("/opt/rocm/bin", "/usr/bin", "/usr/local/bin")


def plan_rocm(host: HostFacts, *, is_shim: bool = False) -> Additions:
    """Everything --rocm adds; where something is missing it says what."""
    additions = Additions()
    view = host.view
    additions.devices = [path for path in ("/dev/kfd", "/dev/dri") if view.kind(path)]
    cached = read_cache(view.read("/etc/ld.so.cache", MAXIMUM_SIZE) or b"", host.machine, (b"lib",))
    for name, path in cached:
        # only names with a number: a plain X.so is for linking, and the image brings its own
        if name.partition(".so.")[0] in _STEMS and view.kind(path) == "f":
            additions.libraries.append((view.resolve(path), name))
    folders = [*_FOLDERS, *(each for each in host.environ.get("PATH", "").split(":") if each.startswith("/"))]
    for name in _PROGRAMS:
        found = next((f"{each}/{name}" for each in folders if view.is_executable(f"{each}/{name}")), "")
        if found:
            source = view.resolve(found)
            additions.binds.append(Bind(source, f"/usr/bin/{name}", readonly=True, is_optional=True, origin="--rocm"))
    for name in _KEPT:
        if name in host.environ:
            additions.variables[name] = host.environ[name]
    lacks = _explain_missing(host)
    if is_shim:  # as with --nv
        additions.notes += lacks
    else:
        additions.warnings += lacks
    return additions


def _explain_missing(host: HostFacts) -> list[str]:
    view = host.view
    if not view.kind("/dev/kfd"):
        from kedge.schedulers.current_job import find_current_job  # late: only where there is no GPU

        loaded = view.kind("/sys/module/amdgpu")
        reason = "the kernel module 'amdgpu' is loaded, but without compute" if loaded else "no kernel module 'amdgpu'"
        job = " If a job is to have one, ask the scheduler for GPUs." if find_current_job(host.environ) else ""
        return [f"--rocm: there is no AMD GPU here (no /dev/kfd; {reason}).{job}"]
    if not view.can_use("/dev/kfd"):
        return [
            "--rocm: you may not use /dev/kfd. It is for the groups 'render' or 'video' (the administrators add you), "
            "or for jobs that ask for GPUs."
        ]
    if not any(name.startswith("renderD") for name in view.names("/dev/dri")):
        return ["--rocm: /dev/dri has no GPU (no renderD node): this job was not given one."]
    return []
