# SPDX-License-Identifier: BSD-3-Clause
"""--nv: the NVIDIA driver's libraries, programs, files and devices, and which libcuda runs in the container."""

from __future__ import annotations

from kedge.container.devices.image_variables import read_image_variable, read_user_variable
from kedge.container.devices.nvidia.card_selection import VARIABLE, CardSelection, select_cards
from kedge.container.devices.nvidia.driver import Driver, find_layout
from kedge.container.devices.nvidia.libraries import Libraries, find_libraries, follow_links
from kedge.container.facts import Additions, Bind
from kedge.system.spawn import ELFMAG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.facts import HostFacts, ImageFacts
    from kedge.container.options import RunOptions

_KNOWN = ("compute", "utility", "video", "graphics", "display", "ngx", "compat32")
_PROGRAMS = {
    "utility": ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nv-fabricmanager"),
    "compute": ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-imex", "nvidia-imex-ctl"),
}
_PROGRAM_FOLDERS = (
    *("/usr/bin", "/usr/sbin", "/usr/local/nvidia/bin", "/usr/local/bin", "/opt/bin"),
    *("/run/current-system/sw/bin", "/home/kubernetes/bin/nvidia/bin"),
)
_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-nvlink", "nvidia-nvswitchctl")
_FILES = {
    "compute": ("/etc/OpenCL/vendors/nvidia.icd",),
    "graphics": (
        *("glvnd/egl_vendor.d/10_nvidia.json", "vulkan/icd.d/nvidia_icd.json", "vulkan/icd.d/nvidia_layers.json"),
        *("vulkan/icd.d/nvidia_icd.x86_64.json", "vulkan/icd.d/nvidia_icd.aarch64.json"),
        *("vulkan/implicit_layer.d/nvidia_layers.json", "vulkansc/icd.d/nvidia_icd_vksc.json", "nvidia/nvoptix.bin"),
    ),
}
_PLATFORMS = "egl/egl_external_platform.d"
_SHARES = ("/usr/share", "/etc")
_SOCKETS = ("/var/run/nvidia-persistenced/socket", "/var/run/nvidia-fabricmanager/socket")
_KEPT = ("CUDA_DEVICE_ORDER", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
# Images that bring the vendor-neutral loaders can use the driver's graphics; Apptainer always gives those.
_LOADERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
_LOADER_NAMES = ("libGLdispatch.so.0", "libEGL.so.1", "libvulkan.so.1")


def plan_nvidia(options: RunOptions, host: HostFacts, image: ImageFacts) -> Additions:
    """Everything --nv adds; where something is missing it says what, and gives what there is."""
    other = _plan_other_layout(host)
    if other is not None:
        return other
    additions = Additions()
    driver = Driver(host.view)
    libraries = find_libraries(host, driver.version)
    capabilities = _read_capabilities(options, host, image, additions)
    selection = select_cards(options, host, driver)
    additions.libraries = libraries.list_for(capabilities)
    if libraries.version:
        count = len({path for path, _ in additions.libraries})
        where = ", ".join(libraries.folders)
        additions.notes.append(f"NVIDIA driver {libraries.version}: {count} libraries from {where or 'nowhere'}")
    additions.binds += list_programs(host, capabilities)
    additions.binds += list_files(host, capabilities, libraries.version)
    additions.binds += _list_sockets(options, host)
    additions.devices += _list_nodes(host, driver, selection, capabilities)
    _add_variables(additions, host, selection)
    _add_libcuda(additions, options, image, libraries, selection)
    _warn_of_missing_parts(additions, options, host, driver, libraries)
    _warn_of_musl(additions, host, image)
    return additions


def _plan_other_layout(host: HostFacts) -> Additions | None:
    """Hosts on which the driver is laid out in another way: Windows Subsystem for Linux, and Jetson boards."""
    layout = find_layout(host)
    if layout == "wsl":
        return plan_wsl(host)
    if layout == "jetson":
        from kedge.container.devices.nvidia.jetson import plan_jetson  # late: one kind of host

        return plan_jetson(host)
    return None


def _read_capabilities(options: RunOptions, host: HostFacts, image: ImageFacts, additions: Additions) -> set[str]:
    """The groups of driver files that are wanted: NVIDIA_DRIVER_CAPABILITIES of the user, or of the image."""
    name = "NVIDIA_DRIVER_CAPABILITIES"
    own = read_user_variable(options, host.environ, name) or host.environ.get(name) or ""
    groups = own or read_image_variable(image, name)
    words = {word.strip().lower() for word in groups.split(",") if word.strip()}
    if "all" in words:
        return set(_KNOWN)
    unknown = sorted(words - set(_KNOWN))
    if unknown and own:
        additions.warnings.append(f"{name} names '{unknown[0]}', which is unknown. Use {', '.join(_KNOWN)} or all.")
    wanted = words & set(_KNOWN)
    if own and wanted:
        return wanted
    wanted |= {"compute", "utility"}
    view = image.view
    if any(view.kind(f"{folder}/{loader}") for folder in _LOADERS for loader in _LOADER_NAMES):
        additions.notes.append("the image has graphics loaders: the driver's graphics libraries are added")
        wanted |= {"graphics", "video"}
    return wanted


def list_programs(host: HostFacts, capabilities: set[str]) -> list[Bind]:
    """The driver's programs, which go to /usr/bin wherever the host keeps them."""
    named = (folder for folder in host.environ.get("PATH", "").split(":") if folder.startswith("/"))
    folders = [folder for folder in dict.fromkeys([*_PROGRAM_FOLDERS, *named]) if host.view.kind(folder) == "d"]
    binds = []
    for group, names in _PROGRAMS.items():
        for name in names if group in capabilities else ():
            candidates = [path for path in (f"{folder}/{name}" for folder in folders) if host.view.is_executable(path)]
            # A script around the program names places of the host's, so a program is taken where there is one.
            programs = [path for path in candidates if host.view.read(path, 4) == ELFMAG]
            if candidates:
                binds.append(_bind(host.view.resolve((programs or candidates)[0]), f"/usr/bin/{name}"))
    return binds


def list_files(host: HostFacts, capabilities: set[str], version: str) -> list[Bind]:
    """Files that loaders of OpenCL, EGL and Vulkan look for, and the firmware of the cards."""
    view = host.view
    wanted = list(_FILES["compute"]) if "compute" in capabilities else []
    if capabilities & {"graphics", "display"}:
        wanted += [f"{share}/{name}" for share in _SHARES for name in _FILES["graphics"]]
        for folder in (f"{share}/{_PLATFORMS}" for share in _SHARES):
            wanted += [f"{folder}/{name}" for name in view.names(folder) if "nvidia" in name and name.endswith(".json")]
    binds = [_bind(view.resolve(path), path) for path in wanted if view.kind(path) == "f"]
    firmware = f"/lib/firmware/nvidia/{version}"
    if version and view.kind(firmware) == "d":
        binds.append(_bind(view.resolve(firmware), firmware))
    return binds


def _list_sockets(options: RunOptions, host: HostFacts) -> list[Bind]:
    """Ways to the driver's services: persistence, fabric manager, multi-process service."""
    view = host.view
    binds = [_bind(view.resolve(path), path) for path in _SOCKETS if view.kind(path) == "c"]
    pipes = host.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"
    is_there = pipes.startswith("/tmp/") and not options.contain  # with all of /tmp
    if pipes.startswith("/") and not is_there and view.kind(pipes) == "d":
        binds.append(Bind(pipes, pipes, is_optional=True, origin="--nv"))
    return binds


def _list_nodes(host: HostFacts, driver: Driver, selection: CardSelection, capabilities: set[str]) -> list[str]:
    """The device nodes a private /dev needs."""
    wanted = [name for name in _NODES if name in driver.nodes]
    wanted += [
        name for name in driver.nodes if name.startswith(("nvidia-nvswitch", "nvidia-fs")) and name not in wanted
    ]
    nodes = [f"/dev/{name}" for name in wanted]
    nodes += [card.node for card in selection.cards if host.view.kind(card.node)]
    nodes += selection.capabilities
    if capabilities & {"graphics", "display"} and host.view.kind("/dev/dri"):
        nodes.append("/dev/dri")
    return nodes


def _bind(source: str, destination: str) -> Bind:
    return Bind(source, destination, readonly=True, is_optional=True, origin="--nv")


def _add_variables(additions: Additions, host: HostFacts, selection: CardSelection) -> None:
    for name in _KEPT:
        if name in host.environ:
            additions.variables[name] = host.environ[name]
    if selection.variable is not None:
        additions.variables[VARIABLE] = selection.variable
    additions.notes += selection.notes
    additions.warnings += selection.warnings


def _add_libcuda(
    additions: Additions, options: RunOptions, image: ImageFacts, libraries: Libraries, selection: CardSelection
) -> None:
    from kedge.container.devices.nvidia.libcuda import (
        decide_libcuda,  # late: --device decides with it too, --rocm does not
    )

    if not libraries.has("libcuda"):
        return
    path = read_image_variable(image, "LD_LIBRARY_PATH")
    decision = decide_libcuda(image.view, libraries.version, selection.cards, path)
    additions.prepend_library_path += decision.prepend
    if decision.note:
        additions.notes.append(decision.note)
    from kedge.container.devices.nvidia.start_check import check_start  # late: only where there is a libcuda

    check_start(options, image, additions, decision, (libraries.version, selection.cards))


def _warn_of_missing_parts(
    additions: Additions, options: RunOptions, host: HostFacts, driver: Driver, libraries: Libraries
) -> None:
    is_complete = driver.version and libraries.has("libcuda") and libraries.has("libnvidia-ml") and driver.usable
    if is_complete and "nvidia-uvm" in driver.nodes and "nvidiactl" in driver.nodes:
        return
    from kedge.container.devices.driver_report import add_lacks  # late: only where something is missing
    from kedge.container.devices.nvidia.missing_parts import find_missing

    add_lacks(additions, "--nv", find_missing(host, driver, libraries), is_shim=options.shim)


def _warn_of_musl(additions: Additions, host: HostFacts, image: ImageFacts) -> None:
    machine = host.machine
    if image.view.kind(f"/lib/ld-musl-{machine}.so.1") and additions.libraries:
        loaders = (f"/lib64/ld-linux-{machine.replace('_', '-')}.so.2", f"/lib/ld-linux-{machine}.so.1")
        if not any(image.view.kind(loader) for loader in loaders):
            additions.warnings.append(
                "NVIDIA's driver libraries need glibc, and this image uses musl (Alpine): "
                "GPU programs will not run. Use an image based on Debian, Ubuntu, Rocky or another glibc system."
            )


# --nv on Windows' subsystem for Linux: the driver is Windows', reached through /dev/dxg and /usr/lib/wsl.

_LIBRARIES, _DRIVERS = "/usr/lib/wsl/lib", "/usr/lib/wsl/drivers"


def plan_wsl(host: HostFacts) -> Additions:
    """The libraries that Windows lends, and the directory they load the driver's parts from."""
    additions = Additions()
    view = host.view
    additions.devices = ["/dev/dxg"]
    for name in view.names(_LIBRARIES):
        if ".so" in name:
            additions.libraries.append((follow_links(view, f"{_LIBRARIES}/{name}"), name))
    if view.kind(_DRIVERS) == "d":
        additions.binds.append(Bind(_DRIVERS, _DRIVERS, readonly=True, is_optional=True, origin="--nv"))
    if view.is_executable(f"{_LIBRARIES}/nvidia-smi"):
        source = f"{_LIBRARIES}/nvidia-smi"
        additions.binds.append(Bind(source, "/usr/bin/nvidia-smi", readonly=True, is_optional=True, origin="--nv"))
    if "CUDA_VISIBLE_DEVICES" in host.environ:
        additions.variables["CUDA_VISIBLE_DEVICES"] = host.environ["CUDA_VISIBLE_DEVICES"]
    additions.notes.append(f"NVIDIA driver of Windows: {len(additions.libraries)} libraries from {_LIBRARIES}")
    if not any(name.startswith("libcuda.so") for _, name in additions.libraries):
        additions.warnings.append(f"--nv: {_LIBRARIES} has no libcuda: install NVIDIA's driver in Windows.")
    return additions
