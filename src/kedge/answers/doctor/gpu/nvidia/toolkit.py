# SPDX-License-Identifier: BSD-3-Clause
"""A CUDA toolkit of this machine, which people compare with images: the driver decides, and the toolkit does not."""

from __future__ import annotations

from kedge.answers.doctor.finding import NOTE, Finding
from kedge.answers.doctor.gpu.nvidia.host import GpuHost, look_at_gpus
from kedge.answers.doctor.surroundings import Surroundings
from kedge.base.versions import is_at_least, order
from kedge.compat.contents.toolkit_version import read_toolkit
from kedge.compat.rules.driver_lookup import find_offered_cuda
from kedge.compat.tables.load import load_tables

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
