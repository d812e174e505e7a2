# SPDX-License-Identifier: BSD-3-Clause
"""This host, as what an image is judged against: from /proc, /sys and /dev; no card is opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from kedge.base.frozen import replace
from kedge.cluster.host_mpi import find_mpi
from kedge.cluster.this_host import read_glibc
from kedge.compat.tables.gpu_names import make_gpu
from kedge.compat.tables.load import Tables
from kedge.compat.target import Gpu, Target
from kedge.container.devices.nvidia.driver import Card, Driver
from kedge.container.devices.nvidia.libraries import find_libraries
from kedge.container.facts import HostFacts
from kedge.system.host.cpu import read_processor
from kedge.system.host.gpu_probe import GpuProbe, ProbedGpu, probe_gpus


def describe_host(host: HostFacts, tables: Tables, probe: Callable[..., GpuProbe] = probe_gpus) -> Target:
    """Describe this host, from /proc, /sys and /dev; the driver is asked only where these do not name the GPUs."""
    driver = Driver(host.view)
    cards = driver.usable or driver.cards
    notes = _note_absence(driver)
    probed = _ask_driver(host, driver, probe) if cards and not all(card.model for card in cards) else GpuProbe()
    version, source = _find_version(host, driver, probed)
    if cards and not version:
        notes.append("the driver version is unknown: neither the kernel nor the driver's libraries report it")
    if probed.gpus:
        gpus = _count_same(_describe_probed(gpu, tables) for gpu in probed.gpus if not gpu.problem)
    else:
        gpus = _count_same(_describe_card(card, tables) for card in cards)
    notes += [f"the compute capability of '{gpu.name}' is unknown" for gpu in gpus if not gpu.capability]
    processor, mpi = read_processor(machine=host.machine), find_mpi(host.environ)
    name = (host.view.read("/proc/sys/kernel/hostname", 256) or b"").decode(errors="replace").strip()
    return Target(
        title=f"this machine ({name})" if name else "this machine",
        gpus=gpus,
        has_gpus=bool(cards),
        driver=version,
        driver_source=source,
        cuda=probed.cuda,
        architecture=processor.architecture,
        cpu_features=processor.features,
        cpu=processor.model,
        glibc=read_glibc(),
        mpi=mpi.title if mpi else "",
        notes=tuple(notes),
    )


def _note_absence(driver: Driver) -> list[str]:
    if driver.cards and not driver.usable:
        return ["this process cannot use the GPUs of this host: it may not open their devices"]
    return []


def _ask_driver(host: HostFacts, driver: Driver, probe: Callable[..., GpuProbe]) -> GpuProbe:
    """A sandbox may hide /proc/driver; then the driver itself is asked, for a second at most."""
    return probe(library=find_libraries(host, driver.version).find("libnvidia-ml"))


def _find_version(host: HostFacts, driver: Driver, probed: GpuProbe) -> tuple[str, str]:
    if driver.version:
        return driver.version, "the kernel's module"
    if probed.driver:
        return probed.driver, "the driver itself (NVML)"
    version = find_libraries(host, "").version if driver.cards else ""
    return version, "the driver's libraries" if version else ""


def _describe_card(card: Card, tables: Tables) -> Gpu:
    return make_gpu(card.model, tables) if card.model else Gpu(name="NVIDIA GPU")


def _describe_probed(gpu: ProbedGpu, tables: Tables) -> Gpu:
    made = make_gpu(gpu.name or "NVIDIA GPU", tables)
    return replace(made, capability=gpu.capability or made.capability, brand=gpu.brand or made.brand)


def _count_same(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Each kind once, with how many there are."""
    return tuple(replace(gpu, count=count) for gpu, count in Counter(gpus).items())
