# SPDX-License-Identifier: BSD-3-Clause
"""`kedge jupyter`: Jupyter kernels that run in containers, here or in jobs, and JupyterLab from an image."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.job_options import add_job_options, list_given, read_job_options
from kedge.cli.options import add_dry_run, add_settings
from kedge.cluster.job import Job
from kedge.errors import NotebookProblem, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kedge.cli.console import Console
    from kedge.jobs.alloc import Allocation
    from kedge.jobs.cluster import Cluster
    from kedge.tools.jupyter.kernel_specs import KernelCommand

_IMAGE = "SIF file, directory or reference"
_CONTAINER_FIELDS = ("nv", "force", "binds", "container_options")
_JOB_FIELDS = (
    *("tasks", "nodes", "cpus_per_task", "gpus_per_node", "gpu_type", "memory", "memory_per_cpu", "memory_per_gpu"),
    *("time", "exclusive", "account", "queue", "qos", "reservation", "constraint", "directives", "drop_directives"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    install = commands.add_parser("install", help="Install a kernel that runs in a container, here or in a job")
    install.add_argument("image", metavar="IMAGE", help=_IMAGE)
    install.add_argument("--name", metavar="NAME", default="", help="name that Jupyter shows (default: the image's)")
    install.add_argument("--packages", metavar="DIR", default="", help="where to put an ipykernel that the image lacks")
    install.add_argument("--wheels", metavar="DIR", default="", help="install ipykernel from the wheels in DIR only")
    install.add_argument("--replace", action="store_true", help="replace a kernel of the same name")
    _add_options(install)
    add_dry_run(install)
    lister = commands.add_parser("list", help="List the kernels that kedge installed")
    remove = commands.add_parser("remove", help="Remove a kernel")
    remove.add_argument("name", metavar="NAME", help="its name, or the name that Jupyter shows")
    add_dry_run(remove)
    for command in (install, lister, remove):
        command.add_argument(
            "--prefix", metavar="DIR", default="", help="environment whose Jupyter is meant (default: the user's)"
        )
    _configure_lab(commands.add_parser("lab", help="Start JupyterLab of an image, here or in a job"))
    start = commands.add_parser("start", help="Run an installed kernel: Jupyter calls this")
    start.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="IMAGE [ARGUMENT ...]", help="image, and arguments of ipykernel"
    )
    start.add_argument("--connection-file", metavar="FILE", required=True, help="file that Jupyter wrote")
    start.add_argument("--packages", metavar="DIR", default="", help="directory with ipykernel")
    start.add_argument("--on-node", action="store_true", help=argparse.SUPPRESS)
    _add_options(start)


def _configure_lab(lab: argparse.ArgumentParser) -> None:
    lab.add_argument("image", metavar="IMAGE", help=_IMAGE)
    lab.add_argument("arguments", metavar="-- ARGUMENT ...", nargs="*", help="options for JupyterLab, after --")
    lab.add_argument("--port", metavar="N", type=int, help="port (default: the first free one from 8888)")
    lab.add_argument("--ip", metavar="ADDRESS", default="", help="address to listen on (default: in jobs the node's)")
    lab.add_argument("--login", metavar="HOST", default="", help="login node in the tunnel command (default: detected)")
    _add_options(lab)
    add_dry_run(lab)


def _add_options(parser: argparse.ArgumentParser) -> None:
    from kedge.cluster.job_fields import BY_NAME

    parser.add_argument("--python", metavar="PATH", default="", help="Python of the image (default: python3)")
    add_job_options(parser, without=[name for name in BY_NAME if name not in (*_CONTAINER_FIELDS, *_JOB_FIELDS)])
    add_settings(parser, "site")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    commands = {"install": _install, "list": _list, "remove": _remove, "lab": _lab, "start": _start}
    return commands[arguments.command](arguments, console)


def _install(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.tools.jupyter.install import InstallRequest, install_kernel, locate_image, plan_install

    job_words = _list_job_words(arguments, console)
    if job_words:
        _plan_job(arguments, console, image=locate_image(arguments.image), command=("true",))
    request = InstallRequest(
        image=arguments.image,
        options=_list_exec_options(arguments),
        display_name=arguments.name,
        prefix=arguments.prefix,
        python=arguments.python,
        packages=arguments.packages,
        wheels=arguments.wheels,
        job_words=tuple(job_words),
        replaces=arguments.replace,
    )
    plan = plan_install(request, console.environ)
    kernel = plan.kernel
    if not console.dry_run:
        kernel = install_kernel(plan, console.environ, console.progress.note)
    if console.json:
        console.print_json({**kernel.as_dict(), "argv": list(plan.argv), "installed": not console.dry_run})
    elif console.dry_run:
        console.print(f"{kernel.path}/kernel.json: {shlex.join(plan.argv)}")
        console.print("ipykernel: " + (kernel.ipykernel or f"would be installed in {kernel.packages}"))
    else:
        console.print(f"Installed kernel {kernel.name} ({kernel.display_name}) in {kernel.path}")
        console.progress.note(f"Python {kernel.python}, ipykernel {kernel.ipykernel}. Choose it in Jupyter's launcher")
    return 0


def _list(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.tools.jupyter.kernel_specs import find_kernel_folder, list_kernels

    kernels = list_kernels(find_kernel_folder(console.environ, arguments.prefix))
    if console.json:
        console.print_json({"kernels": [kernel.as_dict() for kernel in kernels]})
        return 0
    rows = [(each.name, each.display_name, each.python, "job" if each.job else "here", each.image) for each in kernels]
    console.print_table(("name", "shown as", "Python", "runs", "image"), rows)
    return 0


def _remove(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.tools.jupyter.kernel_specs import find_kernel, find_kernel_folder, remove_kernel

    kernel = find_kernel(find_kernel_folder(console.environ, arguments.prefix), arguments.name)
    if not console.dry_run:
        remove_kernel(kernel)
    if console.json:
        console.print_json({**kernel.as_dict(), "removed": not console.dry_run})
    else:
        console.print(f"{'Would remove' if console.dry_run else 'Removed'} {kernel.path}")
    return 0


def _lab(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.system.spawn import replace_process
    from kedge.system.start_kedge import own_command
    from kedge.tools.jupyter.image_python import ask_python
    from kedge.tools.jupyter.install import locate_image
    from kedge.tools.jupyter.lab import choose_port, close_log, hand_over_token, plan_lab, require_lab

    image = locate_image(arguments.image)
    if _list_job_words(arguments, console):
        return _lab_in_job(arguments, console, image)
    options = _list_exec_options(arguments)
    python = ask_python(image, program=arguments.python, options=options)
    require_lab(arguments.image, python)
    plan = plan_lab(
        image,
        python,
        options=options,
        arguments=arguments.arguments,
        port=choose_port(arguments.port),
        address=arguments.ip,
        login=arguments.login,
        environ=console.environ,
    )
    if not console.dry_run and close_log(1):
        console.progress.note("This output holds the server's token: its file is now readable by you only")
    if console.json:
        console.print_json(plan.as_dict())
    else:
        console.print(f"JupyterLab {python.jupyterlab} on {plan.host}, port {plan.port}")
        console.print(f"1. On your own computer: {plan.tunnel}")
        console.print(f"2. In its browser:       {plan.url}")
    if console.dry_run:
        return 0
    argv = own_command(*plan.argv)
    console.close()
    return replace_process(argv[0], argv, hand_over_token(plan, console.environ))


def _lab_in_job(arguments: argparse.Namespace, console: Console, image: str) -> int:
    """Request the job; the same verb runs on the node, without the options of a job."""
    from kedge.jobs.alloc import run_allocation
    from kedge.system.start_kedge import own_command

    words = ["--json"] if console.json else []
    words += ["jupyter", "lab", "--login", arguments.login or os.uname().nodename]
    for flag in ("port", "ip", "python"):
        value = getattr(arguments, flag)
        words += [f"--{flag}", str(value)] if value else []
    job = read_job_options(arguments, Job(), needs_command=False)
    words += ["--nv"] if job.uses_gpus else []
    words += list_given(arguments, ("force", "binds", "container_options"))
    words += [image, *(["--", *arguments.arguments] if arguments.arguments else [])]
    plan, cluster = _plan_job(arguments, console, command=tuple(own_command(*words)))
    if console.dry_run:
        if console.json:
            console.print_json({"argv": list(plan.argv)})
        else:
            console.print(shlex.join(plan.argv))
        return 0
    console.close()
    return run_allocation(plan, cluster)


def _start(arguments: argparse.Namespace, console: Console) -> int:
    """Become the kernel, or stand for the one in a job."""
    from kedge.system.spawn import replace_process
    from kedge.system.start_kedge import own_command
    from kedge.tools.jupyter.kernel_specs import require_packages

    command = _read_command(arguments)
    require_packages(command)
    if arguments.on_node:
        from kedge.tools.jupyter.kernel_on_node import serve_kernel

        return serve_kernel(command, console.environ)
    if _list_job_words(arguments, console):
        return _start_in_job(arguments, console, command)
    argv = own_command(*command.exec_words(str(Path(arguments.connection_file).absolute())))
    console.close()
    return replace_process(argv[0], argv, console.environ)


def _start_in_job(arguments: argparse.Namespace, console: Console, command: KernelCommand) -> int:
    from kedge.system.start_kedge import own_command
    from kedge.tools.jupyter.kernel_in_job import read_connection, run_in_job

    connection = read_connection(arguments.connection_file)
    on_node = own_command("jupyter", "start", "--on-node", *command.start_words("-"))
    plan, cluster = _plan_job(arguments, console, command=tuple(on_node))
    cluster.require_configuration(console.environ)
    return run_in_job(plan.argv, connection, console.environ, console.progress.note)


def _plan_job(
    arguments: argparse.Namespace, console: Console, *, command: Sequence[str], image: str = ""
) -> tuple[Allocation, Cluster]:
    """The allocation for a command on a node, checked against the site."""
    from kedge.jobs.alloc import plan_allocation
    from kedge.jobs.cluster import open_cluster

    job = read_job_options(arguments, Job(image=image, command=tuple(command), name="kedge-jupyter"))
    cluster = open_cluster(console.settings, console.environ)
    has_terminal = arguments.command == "lab" and os.isatty(0)
    folder = str(Path.cwd())
    plan = plan_allocation(job, cluster, console.settings, console.environ, folder, has_terminal=has_terminal)
    for warning in plan.warnings:
        console.progress.warn(warning)
    if plan.typed:
        raise NotebookProblem(
            f"site {cluster.site.name} starts no command in an interactive job ({plan.argv[0]} opens a shell)",
            hint="start JupyterLab in a batch job: kedge submit --time 2h - kedge jupyter lab IMAGE",
        )
    return plan, cluster


def _list_job_words(arguments: argparse.Namespace, console: Console) -> list[str]:
    """The options of a job as they were typed; empty: it runs on this host."""
    words = list_given(arguments, _JOB_FIELDS)
    if console.settings.sources["site"].kind == "flag":
        words += ["--site", console.settings.site or ""]
    return words


def _list_exec_options(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The options of `kedge exec` that the flags mean; relative binds begin here, not where the notebook is."""
    job = read_job_options(arguments, Job(), needs_command=False)
    words = ["--nv"] if job.uses_gpus else []
    words += ["--force"] if job.force else []
    words += [word for bind in job.binds for word in ("--bind", _make_absolute(bind))]
    return (*words, *job.container_options)


def _make_absolute(bind: str) -> str:
    source, colon, rest = bind.partition(":")
    path = str(Path(source).absolute())
    return f"{path}{colon}{rest}" if colon or source == path else f"{path}:{path}"


def _read_command(arguments: argparse.Namespace) -> KernelCommand:
    from kedge.tools.jupyter.kernel_specs import KernelCommand

    words = arguments.words[1:] if arguments.words[:1] == ["--"] else list(arguments.words)
    if not words:
        raise UsageError("the image of the kernel is missing", hint="install the kernel again: kedge jupyter install")
    job = read_job_options(arguments, Job(), needs_command=False)
    python = arguments.python or "python3"
    return KernelCommand(words[0], job.container_options, python, arguments.packages, tuple(words[1:]))
