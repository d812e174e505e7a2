# SPDX-License-Identifier: BSD-3-Clause
"""AMD GPUs (--rocm). ROCm itself is the image's; the host adds its devices, and libraries that talk to its driver."""

from __future__ import annotations

from kedge.container.facts import Additions, Bind
from kedge.system.ld_cache import MAXIMUM_SIZE, read_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.devices.driver_report import DriverReport, Lack
    from kedge.container.facts import HostFacts, ImageFacts
    from kedge.container.options import RunOptions

_STEMS = (
    *("libhsa-runtime64", "libamdhip64", "librocm_smi64", "libamd_smi", "librocprofiler-register", "libhsakmt"),
    *("libdrm_amdgpu", "libamd_comgr", "libamdcomgr64", "libamdocl64", "libcltrace", "librocr_debug_agent64"),
    *("libhc_am", "libmcwamp", "libmcwamp_cpu", "libmcwamp_hsa", "libCXLActivityLogger"),
)
_PROGRAMS = ("rocm-smi", "rocminfo", "amd-smi")
_PROGRAM_DIRECTORIES = ("/opt/rocm/bin", "/usr/bin", "/usr/local/bin")
_PASSED = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
_VERSION = "/sys/module/amdgpu/version"


def plan_gpus(options: RunOptions, host: HostFacts, image: ImageFacts) -> Additions:  # noqa: ARG001 - as of all vendors
    """Everything that --rocm adds; where a part is missing it says which."""
    additions = Additions()
    view = host.view
    additions.devices = [path for path in ("/dev/kfd", "/dev/dri") if view.kind(path)]
    cached = read_cache(view.read("/etc/ld.so.cache", MAXIMUM_SIZE) or b"", host.machine, (b"lib",))
    for name, path in cached:
        # only names with a number: a plain X.so is for linking, and the image brings its own
        if name.partition(".so.")[0] in _STEMS and view.kind(path) == "f":
            additions.libraries.append((view.resolve(path), name))
    searched = [path for path in host.environ.get("PATH", "").split(":") if path.startswith("/")]
    for name in _PROGRAMS:
        paths = (f"{directory}/{name}" for directory in (*_PROGRAM_DIRECTORIES, *searched))
        program = next((path for path in paths if view.is_executable(path)), "")
        if program:
            source = view.resolve(program)
            additions.binds.append(Bind(source, f"/usr/bin/{name}", readonly=True, is_optional=True, origin="--rocm"))
    for name in _PASSED:
        if name in host.environ:
            additions.variables[name] = host.environ[name]
    if not _is_complete(host):
        from kedge.container.devices.driver_report import add_lacks  # late: only where something is missing

        add_lacks(additions, "--rocm", _find_missing(host), is_shim=options.shim)
    return additions


def examine_driver(host: HostFacts) -> DriverReport:
    """The driver and its device nodes; libraries are the image's."""
    from kedge.container.devices.driver_report import DriverReport  # late: doctor only

    version = (host.view.read(_VERSION, 256) or b"").decode(errors="replace").strip()
    nodes = [f"/dev/dri/{name}" for name in _list_render_nodes(host)]
    return DriverReport(
        _find_missing(host),
        summary=f"AMD driver amdgpu {version} is loaded" if version else "AMD driver amdgpu is loaded",
        usable=[node for node in nodes if host.view.can_use(node)],
        refused=[node for node in nodes if not host.view.can_use(node)],
    )


def _is_complete(host: HostFacts) -> bool:
    return bool(host.view.kind("/dev/kfd") and host.view.can_use("/dev/kfd") and _list_render_nodes(host))


def _list_render_nodes(host: HostFacts) -> list[str]:
    return [name for name in host.view.names("/dev/dri") if name.startswith("renderD")]


def _find_missing(host: HostFacts) -> list[Lack]:
    from kedge.container.devices.driver_report import Lack  # late: only where something is missing
    from kedge.container.devices.gpu_advice import describe_absence

    view = host.view
    if _is_complete(host):
        return []
    if not view.kind("/dev/kfd"):
        is_loaded = view.kind("/sys/module/amdgpu")
        module = "kernel module 'amdgpu' is loaded without compute" if is_loaded else "no kernel module 'amdgpu'"
        return [describe_absence(host, "AMD", f"no /dev/kfd; {module}")]
    if not view.can_use("/dev/kfd"):
        return [
            Lack(
                "devices",
                "you may not use /dev/kfd.",
                "It is for the groups 'render' or 'video' (administrators add you), or for jobs that request GPUs.",
            )
        ]
    return [Lack("devices", "/dev/dri has no GPU (no renderD node).", "This job was not given one: request GPUs.")]
