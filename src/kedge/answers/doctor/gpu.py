# SPDX-License-Identifier: BSD-3-Clause
"""The GPU drivers of this host, vendor by vendor: loaded, and with device nodes that this user may open."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, WARNING, Finding, Surroundings
from kedge.base.counting import count_things
from kedge.base.frozen import frozen
from kedge.base.versions import is_at_least, is_driver_version, order, split_library_name
from kedge.cluster.schedulers.choose import list_facts
from kedge.compat.contents.toolkit_version import read_toolkit
from kedge.compat.rules.driver_lookup import find_offered_cuda
from kedge.compat.tables.load import load_tables
from kedge.container.devices import load_vendor
from kedge.container.devices.cdi import FOLDERS, Specification, read_specifications
from kedge.container.devices.cdi_hooks import as_mappings
from kedge.container.devices.driver_report import DriverReport, Lack
from kedge.container.devices.fabric import list_fabric
from kedge.container.devices.gpu_advice import find_job, has_grant
from kedge.container.devices.nvidia.card_selection import VARIABLE, select_cards
from kedge.container.devices.nvidia.driver import Driver, find_layout
from kedge.container.devices.nvidia.libraries import Libraries, find_libraries, follow_links
from kedge.container.devices.nvidia.missing_parts import find_missing
from kedge.container.facts import HostFacts
from kedge.container.options import VENDORS, RunOptions
from kedge.system.host.gpu_probe import MISMATCH, GpuProbe, ProbedGpu, probe_gpus
from kedge.system.spawn import ELFMAG
from kedge.system.views import DirectoryView

if TYPE_CHECKING:
    from kedge.system.views import View

# A CUDA toolkit of this machine, which people compare with images: the driver decides, and the toolkit does not.

_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
_MOST = 50  # toolkits below /usr/local, directories of PATH


def judge_toolkit(surroundings: Surroundings) -> list[Finding]:
    """A note where the host's toolkit is newer than what the driver runs: it says nothing about containers."""
    gpus = look_at_gpus(surroundings)
    driver = gpus.driver.version
    if not driver or not gpus.can_be_examined:
        return []
    folder, version = _find_toolkit(gpus)
    offered = find_offered_cuda(driver, load_tables()) if version else ""
    if not offered or is_at_least(offered, ".".join(version.split(".")[:2])):
        return []
    return [
        Finding(
            "gpu-driver",
            NOTE,
            f"CUDA toolkit {version} is installed ({folder}), but driver {driver} runs CUDA up to {offered}",
            why="images bring their own toolkit: only the driver decides what runs in them, not the host's "
            "toolkit or nvcc",
            fix=f"choose images by the driver: 'kedge recommend IMAGE'; CUDA {version} needs a newer driver",
            docs="kedge help doctor gpu-driver",
        )
    ]


def _find_toolkit(gpus: GpuHost) -> tuple[str, str]:
    """Where the toolkit is that this shell would use, and its version; empty where there is none."""
    environ, view = gpus.host.environ, gpus.host.view
    places = [environ.get(name, "") for name in _VARIABLES]
    searched = environ.get("PATH", "").split(":")[:_MOST]
    places += [folder.removesuffix("/bin") for folder in searched if view.kind(f"{folder}/nvcc") == "f"]
    numbered = [name for name in view.names("/usr/local") if name.startswith("cuda-")][:_MOST]
    places += ["/usr/local/cuda", *(f"/usr/local/{name}" for name in sorted(numbered, reverse=True))]
    for folder in dict.fromkeys(place.rstrip("/") for place in places if place.startswith("/")):
        toolkit = read_toolkit(folder, view.read)
        if toolkit:
            return folder, ".".join(str(field) for field in order(toolkit.value)[:3])
    return "", ""


_PAGE = "kedge help doctor"
_FURTHER: dict[str, Callable[[Surroundings], list[Finding]]] = {"NVIDIA": judge_toolkit}


def check_driver(surroundings: Surroundings) -> list[Finding]:
    """The kernel's modules and their versions; a host without any GPU is told so once."""
    reports = _examine_drivers(surroundings)
    present = {name: report for name, report in reports.items() if not report.list_lacks("absent")}
    if not present:
        lack = next(lack for report in reports.values() for lack in report.list_lacks("absent"))
        why = "GPU programs do not run on this host; normal for a login node"
        return [_make_finding("gpu-driver", NOTE, lack, why)]
    findings = []
    for name, report in present.items():
        findings += _judge_driver(name, report)
        if report.has_gpu and name in _FURTHER:
            findings += _FURTHER[name](surroundings)
    return findings


def _judge_driver(vendor: str, report: DriverReport) -> list[Finding]:
    for lack in report.list_lacks("module"):
        return [_make_finding("gpu-driver", FAIL, lack, "no program can use the GPU without it")]
    if report.summary:
        return [Finding("gpu-driver", OK, report.summary)]
    return [
        Finding(
            "gpu-driver",
            WARNING,
            f"{vendor} driver version unknown: neither the kernel nor the driver libraries name it",
            why="'kedge explain' needs the driver version to judge images",
            fix="read the version with 'nvidia-smi' and pass it: 'kedge explain IMAGE --driver VERSION'",
            docs=f"{_PAGE} gpu-driver",
        )
    ]


def check_devices(surroundings: Surroundings) -> list[Finding]:
    """The nodes in /dev: there, and for this user."""
    reports = [report for report in _examine_drivers(surroundings).values() if report.has_gpu]
    level = NOTE if any(report.usable for report in reports) else FAIL
    why = "programs in containers find no GPU: containers get the host's device nodes"
    findings = []
    for report in reports:
        lacks = report.list_lacks("devices")
        findings += [_make_finding("gpu-devices", FAIL if report.usable else level, lack, why) for lack in lacks]
        if report.usable and not lacks:
            findings.append(Finding("gpu-devices", OK, _describe_nodes(report)))
    return findings


def _describe_nodes(report: DriverReport) -> str:
    refused = len(report.refused)
    more = f" ({refused} more {'is' if refused == 1 else 'are'} not allowed for this process)" if refused else ""
    return f"{count_things(len(report.usable), 'GPU')}: {', '.join(report.usable)}{more}"


def _examine_drivers(surroundings: Surroundings) -> dict[str, DriverReport]:
    """The report on each vendor's driver, below the root of the surroundings."""
    view = DirectoryView(surroundings.root, is_still=True)
    host = HostFacts(view=view, environ=surroundings.environ, machine=os.uname().machine)
    return {vendor.name: load_vendor(vendor).examine_driver(host) for vendor in VENDORS}


def _make_finding(name: str, level: str, lack: Lack, why: str) -> Finding:
    return Finding(name, level, lack.what.rstrip("."), why=why, fix=lack.fix, docs=f"{_PAGE} {name}")


# Specifications of the Container Device Interface, which --device reads: usable, and not older than the driver.

_CDI = "cdi"
_CDI_DOCS = f"kedge help doctor {_CDI}"
_VERSION = re.compile(r"\.so\.(\d{3}\.\d+(?:\.\d+)?)$")
_MAKE = "administrators renew it with 'nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml'; --nv does not need it"


def check_cdi(surroundings: Surroundings) -> list[Finding]:
    """Every specification in the two usual directories."""
    gpus = look_at_gpus(surroundings)
    view = gpus.host.view
    specifications, problems = read_specifications(view, list(FOLDERS))
    findings = [
        Finding(_CDI, WARNING, problem, why="--device cannot use its devices", fix=_MAKE, docs=_CDI_DOCS)
        for problem in problems
    ]
    findings += [_judge(specification, gpus) for specification in specifications]
    if not findings and gpus.has_gpu:
        return [Finding(_CDI, OK, "no CDI files: --device finds no GPU; --nv does not need them")]
    return findings


def _judge(specification: Specification, gpus: GpuHost) -> Finding:
    paths = _list_paths(specification)
    missing = [path for path in paths if not gpus.host.view.kind(path)]
    versions = {match[1] for path in paths if (match := _VERSION.search(path))}
    running = gpus.driver.version
    if missing or (running and versions and running not in versions and specification.kind.startswith("nvidia.com/")):
        said = f"it is for driver {', '.join(sorted(versions))}, but the kernel runs {running or 'another one'}"
        reason = said if versions and running and running not in versions else f"{missing[0]} does not exist"
        return Finding(
            _CDI,
            WARNING,
            f"{specification.path} is older than the driver: {reason}",
            why="containers with --device miss files or get the wrong version",
            fix=_MAKE,
            docs=_CDI_DOCS,
        )
    names = ", ".join(list(specification.devices)[:8]) or "none"
    return Finding(_CDI, OK, f"{specification.path}: {specification.kind} has the devices {names}")


def _list_paths(specification: Specification) -> list[str]:
    """The files and nodes of the host that it names."""
    paths = []
    for edits in (specification.edits, *specification.devices.values()):
        paths += [str(mount.get("hostPath") or "") for mount in as_mappings(edits.get("mounts"))]
        paths += [str(node.get("hostPath") or node.get("path") or "") for node in as_mappings(edits.get("deviceNodes"))]
    return [path for path in paths if path.startswith("/")]


# The NVIDIA driver as the checks see it, by the functions that --nv uses.


@frozen
class GpuHost:
    """The NVIDIA driver of this host and what of it is missing."""

    host: HostFacts
    driver: Driver
    libraries: Libraries
    report: DriverReport

    @property
    def has_gpu(self) -> bool:
        """Whether there is a driver to examine; where there is none, one check says so for all."""
        return self.report.has_gpu

    @property
    def can_be_examined(self) -> bool:
        """Whether the driver lies where Linux servers have it; on WSL and Jetson boards it does not."""
        return self.has_gpu and not find_layout(self.host)

    def locate(self, path: str) -> str:
        """Where a file of that host is on this one."""
        return self.host.view.locate(path) if isinstance(self.host.view, DirectoryView) else path


def look_at_gpus(surroundings: Surroundings) -> GpuHost:
    """The driver, its devices and libraries, below the root of the surroundings."""
    view = DirectoryView(surroundings.root, is_still=True)
    host = HostFacts(view=view, environ=surroundings.environ, machine=os.uname().machine)
    driver = Driver(view)
    libraries = find_libraries(host, driver.version)
    return GpuHost(host, driver, libraries, DriverReport(find_missing(host, driver, libraries)))


# Fast networks between GPUs and between nodes: NVSwitch and its manager, InfiniBand.

_FABRIC = "fabric"
_FABRIC_DOCS = f"kedge help doctor {_FABRIC}"
_ADAPTERS = "/sys/class/infiniband"
_NODES = "/dev/infiniband"
_MANAGER = "nv-fabricmanage"  # as the kernel cuts the name of nv-fabricmanager
_MANAGER_SOCKET = "/var/run/nvidia-fabricmanager/socket"
_MOST_PROCESSES = 20000


def check_fabric(surroundings: Surroundings) -> list[Finding]:
    """Examine the host's fabrics, and what keeps MPI and NCCL from using them."""
    gpus = look_at_gpus(surroundings)
    view = gpus.host.view
    findings = _judge_switches(gpus)
    adapters = view.names(_ADAPTERS)
    if adapters:
        findings += _judge_adapters(view, adapters)
        if gpus.has_gpu and gpus.driver.usable and not view.kind("/dev/gdrdrv"):
            why = "small messages between GPUs of different nodes are copied through host memory, a little slower"
            fix = "administrators can load the module 'gdrdrv' (GDRCopy)"
            findings.append(Finding(_FABRIC, NOTE, "/dev/gdrdrv does not exist", why=why, fix=fix, docs=_FABRIC_DOCS))
    others = [node for node in list_fabric(view) if node != _NODES]
    if others:
        findings.append(Finding(_FABRIC, OK, f"also found: {', '.join(others)}"))
    return findings


def _judge_switches(gpus: GpuHost) -> list[Finding]:
    """Machines with NVSwitch need a service that joins the GPUs; before that CUDA does not start."""
    switches = [name for name in gpus.driver.nodes if name.startswith("nvidia-nvswitch")]
    if not switches:
        return []
    if gpus.host.view.kind(_MANAGER_SOCKET) or _is_running(gpus.host.view, _MANAGER):
        return [Finding(_FABRIC, OK, "NVSwitch with a running fabric manager")]
    return [
        Finding(
            _FABRIC,
            WARNING,
            "this node has NVSwitch, but kedge sees no running fabric manager",
            why="CUDA does not start without it (error 802, system not yet initialized)",
            fix="check 'systemctl status nvidia-fabricmanager'. If it is down, use another node and tell the "
            "administrators. Inside a container kedge cannot see the service, although it may run",
            docs=_FABRIC_DOCS,
        )
    ]


def _is_running(view: View, name: str) -> bool:
    numbers = [number for number in view.names("/proc") if number.isdigit()][:_MOST_PROCESSES]
    return any((view.read(f"/proc/{number}/comm", 64) or b"").strip() == name.encode() for number in numbers)


def _judge_adapters(view: View, adapters: list[str]) -> list[Finding]:
    nodes = [f"{_NODES}/{name}" for name in view.names(_NODES) if name.startswith("uverbs")]
    if not nodes:
        what = f"this node has adapters ({', '.join(adapters)}), but no {_NODES}/uverbs*"
        why = "MPI and NCCL silently fall back to TCP, which is many times slower"
        fix = "administrators must load the module 'ib_uverbs'; a container must be started with these devices"
        return [Finding(_FABRIC, WARNING, what, why=why, fix=fix, docs=_FABRIC_DOCS)]
    refused = [node for node in nodes if not view.can_use(node)]
    if len(refused) == len(nodes):
        what, why = f"you may not open {refused[0]}", "MPI and NCCL fall back to TCP, which is much slower"
        return [
            Finding(
                _FABRIC,
                WARNING,
                what,
                why=why,
                fix="try it in a job; if that fails too, tell the administrators",
                docs=_FABRIC_DOCS,
            )
        ]
    shown = [f"{adapter} {_read_port(view, adapter)}".rstrip() for adapter in adapters]
    if not any("ACTIVE" in port for port in shown):
        what = f"no port is up: {', '.join(shown)}"
        why = "MPI and NCCL cannot use these adapters"
        return [
            Finding(
                _FABRIC, WARNING, what, why=why, fix="use another node and tell the administrators", docs=_FABRIC_DOCS
            )
        ]
    return [Finding(_FABRIC, OK, ", ".join(shown))]


def _read_port(view: View, adapter: str) -> str:
    """`ACTIVE, 200 Gb/sec (4X HDR)` of an adapter's first port."""
    folder = f"{_ADAPTERS}/{adapter}/ports/1"
    state = (view.read(f"{folder}/state", 64) or b"").decode(errors="replace").rpartition(":")[2].strip()
    rate = (view.read(f"{folder}/rate", 64) or b"").decode(errors="replace").strip()
    return ", ".join(part for part in (state, rate if state == "ACTIVE" else "") if part)


# Whether the NVIDIA driver answers, and what it says of its GPUs.

_ANSWER = "gpu-answer"
_ANSWER_DOCS = f"kedge help doctor {_ANSWER}"
_SECONDS = 1.5  # a driver that must first wake its GPUs may take longer; the finding says so
_TELL = "use another node and tell the administrators"


def check_nvml(surroundings: Surroundings) -> list[Finding]:
    """Whether the driver answers, and what it says: in a child, because a broken one never does."""
    gpus = look_at_gpus(surroundings)
    if not gpus.can_be_examined:
        return []
    path = gpus.libraries.find("libnvidia-ml")
    probe = probe_gpus(_SECONDS * surroundings.patience, gpus.locate(path) if path else "")
    findings = judge_probe(probe, gpus.driver.version or gpus.libraries.version)
    return findings + _judge_parts(surroundings.environ.get(VARIABLE, ""), probe)


def judge_probe(probe: GpuProbe, version: str) -> list[Finding]:
    """What the driver's answer means; `version` is what the kernel runs."""
    if not probe.has_answered:
        return [_explain_silence(probe)]
    findings = [Finding(_ANSWER, OK, _describe(probe))] if any(not gpu.problem for gpu in probe.gpus) else []
    if version and probe.driver and probe.driver != version:
        findings.append(_explain_mismatch(f"the driver library is version {probe.driver}, the kernel runs {version}"))
    if not probe.gpus:
        what = f"driver {probe.driver} gives this process no GPU"
        fix = "request GPUs from the scheduler; in a job that did: " + _TELL
        findings.append(Finding(_ANSWER, WARNING, what, why="programs find no GPU", fix=fix, docs=_ANSWER_DOCS))
    for number, gpu in enumerate(probe.gpus):
        findings += _judge_gpu(number, gpu)
    if any(gpu.is_persistent is False for gpu in probe.gpus):
        why = "the first GPU program waits, often for seconds, until the driver has initialised the GPUs"
        fix = "administrators can start 'nvidia-persistenced' or run 'nvidia-smi -pm 1'"
        findings.append(Finding(_ANSWER, NOTE, "persistence mode is off", why=why, fix=fix, docs=_ANSWER_DOCS))
    return findings


def _explain_silence(probe: GpuProbe) -> Finding:
    if probe.code == MISMATCH:
        return _explain_mismatch(probe.problem)
    if probe.has_hung:
        why = "nvidia-smi, NCCL and CUDA use the same calls and may hang too"
        fix = "run 'timeout 60 nvidia-smi': if it is only slow, persistence mode is off; if it hangs, " + _TELL
        return Finding(_ANSWER, WARNING, probe.problem, why=why, fix=fix, docs=_ANSWER_DOCS)
    why = "nvidia-smi and NCCL use the same calls and will fail"
    return Finding(_ANSWER, FAIL, probe.problem, why=why, fix=_TELL, docs=_ANSWER_DOCS)


def _explain_mismatch(what: str) -> Finding:
    return Finding(
        _ANSWER,
        FAIL,
        what,
        why="the driver was updated, but the old module still runs: CUDA and nvidia-smi fail with "
        "'Driver/library version "
        "mismatch' (NVML 18, CUDA 803)",
        fix="the node must be rebooted, or its module reloaded: " + _TELL,
        docs=_ANSWER_DOCS,
    )


def _judge_gpu(number: int, gpu: ProbedGpu) -> list[Finding]:
    """Return what is wrong with a GPU, or must be known of it."""
    if gpu.problem:
        why = "programs on this GPU fail; other GPUs may work"
        return [Finding(_ANSWER, FAIL, f"GPU {number}: {gpu.problem}", why=why, fix=_TELL, docs=_ANSWER_DOCS)]
    findings = []
    if gpu.fabric in ("not started", "in progress"):
        what = f"GPU {number}: NVLink fabric {gpu.fabric}"
        why = "CUDA does not start until the fabric manager has set up the GPUs (error 802, system not yet initialized)"
        fix = "wait a minute; if it does not change, the service nvidia-fabricmanager is not running: " + _TELL
        findings.append(Finding(_ANSWER, FAIL, what, why=why, fix=fix, docs=_ANSWER_DOCS))
    if gpu.is_partitioned and gpu.parts:
        what = f"GPU {number} uses MIG: {count_things(len(gpu.parts), 'instance')} for this process"
        why = "a CUDA program can use one MIG instance only"
        fix = f"set CUDA_VISIBLE_DEVICES={gpu.parts[0]}; in a job the scheduler sets it"
        findings.append(Finding(_ANSWER, NOTE, what, why=why, fix=fix, docs=_ANSWER_DOCS))
    elif gpu.is_partitioned:
        what = f"GPU {number}: MIG is on, but this process has no MIG instance"
        why = "CUDA programs find no device"
        fix = "request a MIG instance from the scheduler; administrators create them with 'nvidia-smi mig -cgi'"
        findings.append(Finding(_ANSWER, WARNING, what, why=why, fix=fix, docs=_ANSWER_DOCS))
    return findings


def _judge_parts(value: str, probe: GpuProbe) -> list[Finding]:
    """Parts of MIG that CUDA_VISIBLE_DEVICES names: only the driver knows which there are."""
    known = [part for gpu in probe.gpus for part in gpu.parts]
    named = [word.strip() for word in value.split(",") if word.strip().startswith("MIG-") and "/" not in word]
    lost = [word for word in named if not any(part.startswith(word) for part in known)]
    if not lost or not probe.has_answered:
        return []
    what = f"{VARIABLE} names {lost[0]}, which is not a MIG instance of this process"
    fix = f"use {', '.join(known)}" if known else f"request a MIG instance from the scheduler, or 'unset {VARIABLE}'"
    return [Finding(_ANSWER, WARNING, what, why="CUDA programs find no device", fix=fix, docs=_ANSWER_DOCS)]


def _describe(probe: GpuProbe) -> str:
    """`driver 580.95.05, CUDA 13.0; 4 × NVIDIA A100-SXM4-40GB (8.0)`."""
    kinds = Counter((gpu.name, gpu.capability) for gpu in probe.gpus if not gpu.problem)
    shown = [
        f"{count} × {name or 'a GPU'}" + (f" (compute capability {capability})" if capability else "")
        for (name, capability), count in kinds.items()
    ]
    cuda = f", CUDA up to {probe.cuda}" if probe.cuda else ""
    return f"driver {probe.driver or 'of unknown version'}{cuda}; {', '.join(shown)}"


# The driver's libraries: all there, whole, and of the version that the kernel runs.

_LIBRARIES = "gpu-libraries"
_LIBRARY_DOCS = f"kedge help doctor {_LIBRARIES}"
_NEEDED = ("libcuda", "libnvidia-ml")
_SHOWN = 4


def check_libraries(surroundings: Surroundings) -> list[Finding]:
    """What --nv would take, looked at file by file."""
    gpus = look_at_gpus(surroundings)
    if not gpus.can_be_examined:
        return []
    why = "CUDA programs in containers need these libraries of the host"
    findings = [
        Finding(
            _LIBRARIES,
            FAIL,
            lack.what.rstrip("."),
            why=why,
            fix=lack.fix or "tell the administrators",
            docs=_LIBRARY_DOCS,
        )
        for lack in gpus.report.list_lacks("libraries")
    ]
    findings += [*_judge_files(gpus), *_judge_compiler(gpus)]
    if not findings:
        count, where = len(gpus.libraries.names), ", ".join(gpus.libraries.folders)
        things = "library" if count == 1 else "libraries"
        findings.append(Finding(_LIBRARIES, OK, f"{count} {things} of driver {gpus.libraries.version} in {where}"))
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
            _LIBRARIES,
            FAIL if needed else WARNING,
            f"{first} {state}{more}",
            why="programs that load it end with 'file too short' or 'invalid ELF header'",
            fix="use another node and tell the administrators: the driver must be reinstalled",
            docs=_LIBRARY_DOCS,
        )
    ]


def _judge_compiler(gpus: GpuHost) -> list[Finding]:
    """PTX is compiled by a library of its own, which minimal installations leave out."""
    if not gpus.libraries.has("libcuda") or gpus.libraries.has("libnvidia-ptxjitcompiler"):
        return []
    return [
        Finding(
            _LIBRARIES,
            WARNING,
            f"libnvidia-ptxjitcompiler.so.{gpus.libraries.version} is missing",
            why="programs fail if the image has their kernels as PTX only: the driver cannot compile them",
            fix="tell the administrators: the compute part of the driver is incomplete",
            docs=_LIBRARY_DOCS,
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
            _LIBRARIES,
            NOTE,
            f"this node also has libraries of other driver versions: {shown}",
            why=f"kedge uses those of {gpus.libraries.version} only; other tools may use the wrong ones",
            fix="administrators should remove the old driver's files",
            docs=_LIBRARY_DOCS,
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
                _LIBRARIES,
                WARNING,
                f"LD_LIBRARY_PATH of this shell has another libcuda than the driver's {version}: {folder}, {suffix}",
                why="programs outside of containers load it and fail with error 803 or 804 if it does not fit "
                "the driver "
                "or the GPU, although nvidia-smi works; in containers kedge uses the right one",
                fix=f"remove {folder} from LD_LIBRARY_PATH, or unload the module that adds it",
                docs=_LIBRARY_DOCS,
            )
        ]
    return []


# Which NVIDIA GPUs programs are told to use, and whether those are the GPUs of the job.

_SELECTION = "gpu-selection"
_SELECTION_DOCS = f"kedge help doctor {_SELECTION}"


def check_selection(surroundings: Surroundings) -> list[Finding]:
    """Which GPUs programs are told to use: CUDA_VISIBLE_DEVICES."""
    gpus = look_at_gpus(surroundings)
    value = surroundings.environ.get(VARIABLE)
    if not gpus.has_gpu:
        return []
    warnings = select_cards(RunOptions(), gpus.host, gpus.driver).warnings
    if warnings:
        what, _, fix = warnings[0].partition(". ")
        why = "CUDA reads the variable and hides all other GPUs"
        fix = fix or f"correct it, or 'unset {VARIABLE}'; 'nvidia-smi -L' lists the GPUs"
        return [Finding(_SELECTION, WARNING, what.rstrip("."), why=why, fix=fix, docs=_SELECTION_DOCS)]
    job = find_job(surroundings.environ)
    if value is None and job is not None and gpus.driver.usable and not has_grant(surroundings.environ):
        usable = count_things(len(gpus.driver.usable), "GPU")
        what = f"this {job.title} job was given no GPU, but {usable} can be opened"
        why = "its programs can use GPUs of other jobs: both become slow or run out of memory"
        return [
            Finding(
                _SELECTION,
                WARNING,
                what,
                why=why,
                fix=f"request GPUs, or hide them: 'export {VARIABLE}='",
                docs=_SELECTION_DOCS,
            )
        ]
    granted = _list_granted(surroundings)
    if value is None and granted and len(granted) < len(gpus.driver.usable):
        given = f"{count_things(len(granted), 'GPU')} ({','.join(granted)})"
        title = f"{job.title} " if job else ""
        what = f"this {title}job was given {given}, but {VARIABLE} is not set"
        why = f"programs see all {len(gpus.driver.usable)} GPUs, those of other jobs too: sbatch --export=NIL, "
        why += "'env -i' and 'ssh' lose the variable"
        fix = "start programs with srun, which sets it for every task"
        return [Finding(_SELECTION, WARNING, what, why=why, fix=fix, docs=_SELECTION_DOCS)]
    if value is None:
        return [Finding(_SELECTION, OK, f"{VARIABLE} is not set: programs see all GPUs that this user may open")]
    words = [word.strip() for word in value.split(",")]
    twice = next((word for word, count in Counter(words).items() if count > 1), None)
    if twice is not None:
        what = f"{VARIABLE}={value} names '{twice}' twice"
        fix = "name every GPU once"
        return [
            Finding(
                _SELECTION,
                WARNING,
                what,
                why="CUDA treats this as an error: programs see no GPU",
                fix=fix,
                docs=_SELECTION_DOCS,
            )
        ]
    return [Finding(_SELECTION, OK, f"{VARIABLE}={value}" + ("" if job else ", not set by a job"))]


def _list_granted(surroundings: Surroundings) -> list[str]:
    """The numbers of the GPUs that the scheduler says it gave this step or job."""
    values = (surroundings.environ.get(name) for facts in list_facts() for name in facts.gpu_lists)
    granted = next(filter(None, values), "")
    return [word.strip() for word in granted.split(",") if word.strip().isdigit()]
