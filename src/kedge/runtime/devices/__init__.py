# SPDX-License-Identifier: BSD-3-Clause
"""Devices of the host in a container: NVIDIA and AMD GPUs, devices by CDI names, and the fabrics of clusters."""

from __future__ import annotations

from kedge.runtime.facts import Additions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.runtime.facts import HostFacts, ImageFacts
    from kedge.runtime.options import RunOptions


def plan_devices(options: RunOptions, host: HostFacts, image: ImageFacts) -> Additions:
    """What the devices that were asked for add to a container. A function of its arguments alone."""
    additions = Additions()
    # late imports: a start pays only for what it asked for
    if (options.nv or options.nvccli) and not options.no_nv:
        from kedge.runtime.devices.nvidia.plan import plan_nvidia

        additions.add(plan_nvidia(options, host, image))
    elif not options.no_nv and "CUDA_VISIBLE_DEVICES" in host.environ and host.view.kind("/dev/nvidiactl"):
        from kedge.runtime.devices.nvidia.forgotten_flag import explain_unasked

        additions.warnings += explain_unasked(options, host, image)
    if options.rocm and not options.no_rocm:
        from kedge.runtime.devices.amd import plan_rocm

        additions.add(plan_rocm(host, is_shim=options.shim))
    if options.device:
        from kedge.runtime.devices.cdi import plan_cdi

        additions.add(plan_cdi(options, host, image))
    if options.contain:
        from kedge.runtime.devices.fabric import list_fabric

        additions.devices += list_fabric(host.view)
    additions.devices = list(dict.fromkeys(additions.devices))
    additions.libraries = list(dict.fromkeys(additions.libraries))
    return additions
