# SPDX-License-Identifier: BSD-3-Clause
"""Device nodes of fast networks and of memory shared between processes, which MPI and NCCL need.

Apptainer drops them with --contain, and MPI then falls back to TCP without a word; here they stay.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.system.views import View

_NAMES = (
    *(
        "infiniband",
        "nvidia-caps-imex-channels",
    ),  # directories: verbs of InfiniBand, RoCE and EFA; NVLink between nodes
    *("gdrdrv", "knem", "xpmem", "cma", "kdreg", "kdreg2", "kgni0"),
)
_PREFIXES = ("hfi1_", "cxi")  # Omni-Path, Slingshot


def list_fabric(view: View) -> list[str]:
    """The nodes and directories that this host has."""
    return [f"/dev/{name}" for name in view.names("/dev") if name in _NAMES or name.startswith(_PREFIXES)]
