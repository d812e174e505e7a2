# SPDX-License-Identifier: BSD-3-Clause
"""`kedge jupyter install`: a kernel whose process runs in a container."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from kedge.base.frozen import frozen, replace
from kedge.base.image_argument import is_reference
from kedge.container.start.step import run_step
from kedge.errors import KedgeError, NotebookProblem, OutputExists
from kedge.system.files import explained, temporary_beside
from kedge.system.host.space import require_space
from kedge.system.lean_programs import Finished
from kedge.system.private_files import make_private
from kedge.system.process import run_program
from kedge.system.programs import find_program
from kedge.system.start_kedge import own_command, own_interpreter
from kedge.tools.jupyter.image_python import ImagePython, ask_python
from kedge.tools.jupyter.kernel_specs import (
    FILE,
    PACKAGES,
    Kernel,
    KernelCommand,
    describe_kernel,
    find_kernel_folder,
    name_kernel,
)

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


# Brings an ipykernel that fits an image's Python into a directory, with what it needs.
#
# Tried in turn: uv of the host, which resolves for another Python and C library; pip of the image; pip of the host, run
# by the image's Python. Versions that the image has are kept to where that is possible, because they come first in the
# kernel's path.

_PATIENCE = 600.0
_PLAIN_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc|\.post)\d+)?")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_REQUIREMENT = "ipykernel"


@frozen
class Installer:
    """A program that installs packages into a directory."""

    title: str
    run: Callable[[Sequence[str]], Finished]


def bring_ipykernel(image: str, python: ImagePython, target: Path, *, wheels: str = "") -> None:
    """Install into `target`, an empty directory; raises NotebookProblem with the last words of each that failed."""
    failures = []
    with tempfile.TemporaryDirectory(prefix="kedge-") as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in list_constraints(python)))
        for installer in _list_installers(image, python, target, Path(folder), wheels):
            # without the constraints where no such set exists; whether it works is asked afterwards
            for words in (["--constraint", str(constraints)], []):
                try:
                    done = installer.run([*words, *_choose_source(wheels), _REQUIREMENT])
                except KedgeError as problem:
                    failures.append(f"{installer.title}: {problem.message}")
                    break
                if not done.status:
                    _compile(image, python, target)
                    return
            else:
                failures.append(f"{installer.title}: {_last_words(done)}")
    raise explain_failure(image, python, failures, wheels)


def explain_failure(image: str, python: ImagePython, failures: Sequence[str], wheels: str) -> NotebookProblem:
    """Return an error with what was tried, and how to get the packages elsewhere."""
    what = "; ".join(failures) or "neither uv nor pip was found"
    download = f"pip download -d DIR --python-version {python.version} --only-binary :all: ipykernel"
    return NotebookProblem(
        f"cannot install ipykernel for Python {python.version} of {image}: {what}",
        hint=f"put wheels for Python {python.version} and {python.machine} into {wheels}: {download}"
        if wheels
        else f"without internet access, run '{download}' on another host, and give --wheels DIR here",
    )


def list_constraints(python: ImagePython) -> list[tuple[str, str]]:
    """The versions that the image has; odd ones are left out, which installers refuse to read."""
    return [
        (name, version)
        for name, version in python.installed
        if _PLAIN_NAME.fullmatch(name) and _PLAIN_VERSION.fullmatch(version) and name.lower() != _REQUIREMENT
    ]


def choose_platform(python: ImagePython) -> str:
    """The image's platform in uv's words."""
    name, _, version = python.libc.partition(" ")
    if name != "glibc":
        return f"{python.machine}-unknown-linux-musl"
    numbers = [int(each) for each in version.split(".") if each.isdigit()]
    return f"{python.machine}-manylinux_{'2_28' if numbers >= [2, 28] else '2_17'}"


def _list_installers(image: str, python: ImagePython, target: Path, folder: Path, wheels: str) -> Iterator[Installer]:
    uv = find_program("uv") or find_program(str(Path(own_interpreter()).with_name("uv")))
    if uv:
        # uv reads uv.toml and pyproject.toml of the current directory and of those above: in /tmp they are anybody's
        words = ["env", "-C", "/", uv, "pip", "install", "--target", str(target), "--python-version", python.version]
        words += ["--python-platform", choose_platform(python), "--only-binary", ":all:", "--no-cache"]
        yield Installer("uv", lambda more: run_program([*words, *more], check=False, timeout=_PATIENCE, name="uv"))
    binds = [str(target), str(folder), *([f"{wheels}:{wheels}:ro"] if wheels else [])]
    install = ["install", "--target", str(target), "--only-binary", ":all:", "--no-cache-dir"]
    install.append("--disable-pip-version-check")
    if python.has_pip:
        own = [python.program, "-m", "pip", *install]
        yield Installer("the image's pip", lambda more: run_step(image, [*own, *more], binds=binds, timeout=_PATIENCE))
    pip = _find_host_pip()
    if pip:
        host = [python.program, pip, *install]
        bound = [*binds, f"{pip}:{pip}:ro"]
        yield Installer("the host's pip", lambda more: run_step(image, [*host, *more], binds=bound, timeout=_PATIENCE))


def _find_host_pip() -> str:
    """The directory of the host's pip, which any Python can run; empty where there is none."""
    for name in ("pip3", "pip"):
        if find_program(name):
            done = run_program([name, "--version"], check=False, timeout=60)
            found = re.search(r" from (/.*/pip) \(", done.text)
            if found:
                return found[1]
    return ""


def _choose_source(wheels: str) -> list[str]:
    return ["--no-index", "--find-links", wheels] if wheels else []


def _compile(image: str, python: ImagePython, target: Path) -> None:
    """Write bytecode now: kernels see the directory read-only, and would compile at each start."""
    words = [python.program, "-m", "compileall", "-q", str(target)]
    run_step(image, words, binds=[str(target)], timeout=_PATIENCE)


def _last_words(done: Finished) -> str:
    lines = (done.errors or done.output).decode(errors="replace").strip().splitlines()
    return " ".join(line.strip() for line in lines[-3:]) or f"exit code {done.status}"
