# SPDX-License-Identifier: BSD-3-Clause
"""Scripts of a recipe that run with the programs of this host: %pre and %setup of definition files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kedge.base.frozen import NOTHING, frozen
from kedge.container.facts import Bind
from kedge.container.mount_operations import IMAGE_ROOT
from kedge.container.start.build_step import StepContext, StepProgram, StepRoot, run_build_step

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@frozen
class HostScript:
    """What runs, and what it may see."""

    argv: Sequence[str]
    context: StepContext = StepContext()  # directories that it reads, and the one that it starts in
    environment: Mapping[str, str] = NOTHING


def run_host_script(
    root: StepRoot,
    script: HostScript,
    output: Callable[[bytes], None],
    *,
    binds: Sequence[Bind | str] = (),
    timeout: float | None = None,
    is_cancelled: Callable[[], bool] | None = None,
) -> int:
    """Run it with this host's /usr and /etc, read-only, and the image's root file system at $APPTAINER_ROOTFS.

    All that it can change is the image: what it writes is in the upper directory of `root`, as that of any step. It has
    a private /tmp and no home. Returns its status; failures of kedge itself are raised.
    """
    variables = {"PATH": _PATH, "HOME": "/root", "APPTAINER_ROOTFS": IMAGE_ROOT, "SINGULARITY_ROOTFS": IMAGE_ROOT}
    program = StepProgram(script.argv, {**variables, **script.environment}, script.context.folder)
    return run_build_step(
        root, program, output, binds=binds, timeout=timeout, is_cancelled=is_cancelled, context=script.context
    )
