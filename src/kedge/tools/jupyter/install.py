# SPDX-License-Identifier: BSD-3-Clause
"""`kedge jupyter install`: a kernel whose process runs in a container."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kedge.base.frozen import frozen, replace
from kedge.base.image_argument import is_reference
from kedge.errors import NotebookProblem, OutputExists
from kedge.system.files import explained, temporary_beside
from kedge.system.host.space import require_space
from kedge.system.private_files import make_private
from kedge.system.start_kedge import own_command
from kedge.tools.jupyter.bring_ipykernel import bring_ipykernel
from kedge.tools.jupyter.image_python import ImagePython, ask_python
from kedge.tools.jupyter.kernel_command import KernelCommand
from kedge.tools.jupyter.kernel_specs import FILE, PACKAGES, Kernel, describe_kernel, find_kernel_folder, name_kernel

_ROOM = 150 << 20  # bytes that ipykernel and what it needs take at most


@frozen
class InstallRequest:
    """What a user wants of a kernel."""

    image: str  # as typed
    options: tuple[str, ...] = ()  # of `kedge exec`
    display_name: str = ""
    prefix: str = ""
    python: str = ""
    packages: str = ""  # directory for an ipykernel; empty: beside the kernel
    wheels: str = ""
    job_words: tuple[str, ...] = ()  # options of a job, as typed; empty: the kernel runs where Jupyter does
    replaces: bool = False  # a kernel of the same name


@frozen
class InstallPlan:
    """What installing does: a kernel, its file, and whether packages are brought."""

    kernel: Kernel
    argv: tuple[str, ...]
    python: ImagePython
    needs_packages: bool
    request: InstallRequest


def locate_image(image: str) -> str:
    """A file by its full path, because Jupyter starts kernels in the notebook's directory; a reference as it is."""
    return image if is_reference(image) else str(Path(image).absolute())


def plan_install(request: InstallRequest, environ: Mapping[str, str]) -> InstallPlan:
    """Ask the image, and describe the kernel; nothing is written."""
    image = locate_image(request.image)
    folder = find_kernel_folder(environ, request.prefix)
    display_name = request.display_name or _name_after(image)
    path = folder / name_kernel(display_name)
    if os.path.lexists(path) and not request.replaces:
        raise OutputExists(
            f"there is a kernel '{path.name}' already: {path}",
            context={"path": str(path)},
            hint="give another name with --name, or replace it with --replace",
        )
    python = ask_python(image, program=request.python, options=request.options)
    packages = "" if python.ipykernel else _choose_packages(request, path)
    shared = _ask_shared(image, python, packages, request)
    command = KernelCommand(image, request.options, python.program, packages)
    argv = own_command("jupyter", "start", *request.job_words, *command.start_words("{connection_file}"))
    is_job = bool(request.job_words)
    kernel = Kernel(
        name=path.name,
        display_name=display_name,
        path=str(path),
        image=image,
        python=python.version,
        ipykernel=python.ipykernel or shared,
        packages=packages,
        job=is_job,
    )
    return InstallPlan(kernel, tuple(argv), python, not kernel.ipykernel, request)


def _choose_packages(request: InstallRequest, path: Path) -> str:
    return str(Path(request.packages).absolute()) if request.packages else str(path / PACKAGES)


def _ask_shared(image: str, python: ImagePython, packages: str, request: InstallRequest) -> str:
    """The version of the ipykernel that another kernel has there already; empty: there is none."""
    if not request.packages or not packages or not Path(packages, "ipykernel").is_dir():
        return ""
    tried = _try_packages(image, python, packages, request)
    if not tried.ipykernel:
        raise NotebookProblem(
            f"the ipykernel in {packages} does not work with Python {python.version} of {image}: {tried.problem}",
            context={"path": packages},
            hint="give another directory with --packages: this one may be another kernel's",
        )
    return tried.ipykernel


def _try_packages(image: str, python: ImagePython, packages: str, request: InstallRequest) -> ImagePython:
    binds = [f"{packages}:{packages}:ro"]
    return ask_python(image, program=python.program, packages=packages, options=request.options, binds=binds)


def install_kernel(plan: InstallPlan, environ: Mapping[str, str], note: Callable[[str], None]) -> Kernel:
    """Bring packages if need be, and put the kernel's directory in place as the last step."""
    path = Path(plan.kernel.path)
    with explained(path.parent):
        make_private(path.parent, 0o755)
    kernel = plan.kernel
    with _staged(path) as staged:
        if plan.needs_packages:
            target = Path(plan.request.packages).absolute() if plan.request.packages else staged / PACKAGES
            version = _bring(plan, target, environ, note)
            kernel = replace(kernel, ipykernel=version)
        document = describe_kernel(kernel, plan.argv, environ)
        with explained(staged):
            (staged / FILE).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return kernel


def _bring(plan: InstallPlan, target: Path, environ: Mapping[str, str], note: Callable[[str], None]) -> str:
    """Install ipykernel into `target` and try it; returns its version."""
    image, python = plan.kernel.image, plan.python
    place = Path(plan.kernel.packages).parent  # not the temporary directory in it, which nobody knows
    require_space(place, _ROOM, "ipykernel", environ, choice="--packages DIR")
    with explained(target):
        make_private(target, 0o755)
    note(f"The image has no ipykernel: installing one for Python {python.version} beside it")
    wheels = str(Path(plan.request.wheels).absolute()) if plan.request.wheels else ""
    bring_ipykernel(image, python, target, wheels=wheels)
    tried = _try_packages(image, python, str(target), plan.request)
    if not tried.ipykernel:
        raise NotebookProblem(
            f"the installed ipykernel does not work with the packages of {image}: {tried.problem or 'not found'}",
            hint="install ipykernel in the image itself: see kedge help build",
        )
    return tried.ipykernel


@contextlib.contextmanager
def _staged(path: Path) -> Iterator[Path]:
    """A directory that takes the place of `path` when the block ends without an error."""
    staged = temporary_beside(path)
    with explained(staged):
        staged.mkdir(mode=0o755)
    try:
        yield staged
        with explained(path):
            if os.path.lexists(path):
                old = temporary_beside(path)
                path.rename(old)
                shutil.rmtree(old, ignore_errors=True)
            staged.rename(path)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _name_after(image: str) -> str:
    """`pytorch (kedge)` for pytorch.sif and docker://…/pytorch:24.03."""
    name = Path(image).name
    return f"{name.removesuffix('.sif').removesuffix('.sqsh').replace(':', ' ')} (kedge)"
