# SPDX-License-Identifier: BSD-3-Clause
"""From what the user wants to the plan of a launch: nodes, ranks, launcher, words, variables, and the reasons."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping

from kedge.base.frozen import frozen, replace
from kedge.base.image_argument import find_path
from kedge.base.rank_variables import OWN_TOKEN
from kedge.cluster.allocation import Allocation
from kedge.cluster.interfaces import InterfaceChoice, read_interfaces
from kedge.cluster.launchers.known import find_launch_program
from kedge.cluster.launchers.open_mpi import list_settings
from kedge.cluster.launchers.program import StartRequest
from kedge.cluster.mpi import BIND, OPEN_MPI, MpiHost, MpiImage
from kedge.cluster.ranks import find_launcher
from kedge.cluster.schedulers.choose import find_facts
from kedge.cluster.site import Site
from kedge.cluster.this_host import read_this_host
from kedge.errors import LaunchRefused
from kedge.launch.choose_launcher import LauncherChoice, LauncherFacts, choose_launcher
from kedge.launch.contracts import Contract, Rendezvous, choose_omp_threads, choose_rendezvous, starts_one_per_node
from kedge.launch.node_network import NO_INTERFACE, describe_first_node
from kedge.launch.order import RankOrder
from kedge.launch.plan import CONTAINED, LaunchPlan, LaunchShape, choose_shape
from kedge.launch.request import LaunchRequest
from kedge.launch.surroundings import (
    list_busy_ports,
    read_allocation_here,
    take_number,
)
from kedge.launch.variables import MASKING, list_handed_on
from kedge.system.programs import find_program
from kedge.system.settings import Settings
from kedge.system.start_kedge import own_start_command

_PORTS = 50  # that are tried


def plan_launch(request: LaunchRequest, site: Site, environ: Mapping[str, str]) -> LaunchPlan:
    """The plan; raises LaunchRefused where the job, the host or the image does not allow it."""
    allocation = read_allocation_here(environ)
    _refuse_nested(allocation, environ)
    image = _read_image(request, environ)
    needs = _check_needs(request, environ)
    read_host = functools.cache(lambda: _read_host(environ))
    bound: tuple[str, ...] = ()
    if request.mpi_mode == BIND:
        from kedge.launch.use_host_mpi import use_host_mpi  # late: the rarest way

        request, image, bound = use_host_mpi(request, image, read_host(), environ)
    shape = _choose_shape(request, allocation)
    narrowed = replace(allocation, nodes=shape.nodes)
    facts = LauncherFacts(
        request=replace(request, tasks=shape.size),
        allocation=narrowed,
        site=site,
        image=image,
        read_host=read_host,
        has_program=lambda name: find_program(name, environ.get("PATH")) is not None,
    )
    choice = choose_launcher(facts)
    request = replace(request, options=(*request.options, *choice.options))
    is_part = shape.node_count < allocation.node_count
    setting = _Setting(request, site, narrowed, shape, choice, environ=environ, is_part=is_part, starter=needs.starter)
    order, reasons = _make_order(setting, facts.mpi.title if facts.mpi else "")
    reasons += (*needs.reasons, *bound)
    program = find_launch_program(choice.launcher, choice.family)
    masking = tuple((name, None) for name in MASKING if name in environ)
    changes = (*masking, *_list_settings(setting))
    if masking:
        reasons.append("all GPUs of a node are visible to all its ranks: LOCAL_RANK counts them")
    return LaunchPlan(
        launcher=choice.launcher,
        program=program,
        shape=shape,
        contract=request.contract,
        order=order,
        request=_make_request(setting),
        command=request.command,
        container=("exec" if request.command and not request.is_runscript else "run", *request.options, request.image),
        kedge=tuple(own_start_command()),
        token=f"kedge-{os.urandom(16).hex()}",
        changes=changes,
        node_shell=_find_node_shell(setting),
        reasons=tuple(dict.fromkeys(reasons)),
        mpi_type=choice.mpi_type,
        mode=choice.mode,
        has_mpi=image.mpi is not None,
        library=image.mpi.library if image.mpi else "",
        warning=needs.warning or (_find_doubt(request, image) if facts.mpi and shape.size > 1 else ""),
    )


def _find_doubt(request: LaunchRequest, image: MpiImage) -> str:
    if len(image.mpis) < 2:
        return ""
    from kedge.compat.mpi.wording import explain_doubt  # late: few images have two

    return explain_doubt(image, "".join(request.command[:1]))


def _read_image(request: LaunchRequest, environ: Mapping[str, str]) -> MpiImage:
    if not request.is_about_mpi:
        return MpiImage(request.image)
    from kedge.compat.mpi_for_launch import read_launched_mpi  # late: not every launch is about MPI

    return read_launched_mpi(request.image, environ, program="".join(request.command[:1]))


@frozen
class _Needs:
    """What the contract needs of the image, as it was found there."""

    starter: tuple[str, ...] = ("torchrun",)
    reasons: tuple[str, ...] = ()
    warning: str = ""


def _check_needs(request: LaunchRequest, environ: Mapping[str, str]) -> _Needs:
    if request.contract in (Contract.NONE, Contract.RANKS, Contract.MULTIPROC):
        return _Needs()
    from kedge.compat.mpi_for_launch import find_launched_path
    from kedge.launch.learning_needs import check_needs, read_surroundings  # late: most launches are others

    found = check_needs(
        request.image,
        None if request.image.startswith("instance:") else find_launched_path(request.image, environ),
        str(request.contract),
        request.command,
        read_surroundings(request.options, environ, os.getcwd()),  # noqa: PTH109 - text
        force="--force" in request.options,
    )
    if found.launcher is None:
        return _Needs(warning=found.warning)
    unknown = "" if found.launcher.is_known else "; torchrun is started"
    return _Needs(found.launcher.words, (found.launcher.reason + unknown,), found.warning)


def _read_host(environ: Mapping[str, str]) -> MpiHost:
    from kedge.compat.mpi_of_host import read_host_mpi  # late: likewise

    return read_host_mpi(environ)


@frozen
class _Setting:
    """What a plan is put together from."""

    request: LaunchRequest
    site: Site
    allocation: Allocation  # of the nodes that take part
    shape: LaunchShape
    choice: LauncherChoice
    environ: Mapping[str, str]
    is_part: bool  # whether the job has more nodes
    starter: tuple[str, ...]  # of the processes of a node


def _make_order(setting: _Setting, mpi: str) -> tuple[RankOrder, list[str]]:
    request, shape, allocation = setting.request, setting.shape, setting.allocation
    meeting, reasons = _choose_meeting(allocation, setting.site)
    processes, more = _count_processes(request, allocation, setting.environ)
    cpus = [_cpus_of_rank(allocation, node.cpus, count) for node, count in zip(shape.nodes, shape.tasks, strict=True)]
    interface, fallback = _describe_network(allocation, request.contract)
    order = RankOrder(
        str(request.contract),
        shape.tasks,
        meeting.address,
        meeting.port,
        meeting.id,
        hosts=allocation.names,
        processes=processes,
        starter=setting.starter,
        cpus=tuple(cpus),
        pmi=setting.choice.pmi,
        is_checked=request.has_check,
        mpi=mpi,
        mpi_type=setting.choice.mpi_type,
        least_nodes=request.least_nodes,
        restarts=request.restarts,
        interface=interface.name,
        fallback=fallback,
        command_at=len(request.options) + 2,
    )
    more += [f"NCCL and Gloo: {interface.reason}"] if interface.reason else []
    threads = choose_omp_threads(cpus[0], processes[0] if processes else 1, setting.environ.get("OMP_NUM_THREADS", ""))
    more += [threads.reason] if threads.reason else []
    return order, [*setting.choice.reasons, *reasons, *more, *allocation.notes]


def _make_request(setting: _Setting) -> StartRequest:
    site, allocation, shape, choice = setting.site, setting.allocation, setting.shape, setting.choice
    is_local = allocation.scheduler == "local"
    is_contained = choice.mode == CONTAINED
    usual = site.launcher or find_facts(site.scheduler).launcher_of_tasks or "mpirun"
    own = site.launcher_options if choice.launcher == usual else ()
    cpus = allocation.cpus_per_task if shape.tasks == _expected(allocation) else 0
    return StartRequest(
        shape.size,
        shape.node_count,
        shape.per_node,
        # the others ask the scheduler, and would fill nodes in their own way where these differ
        hosts=_pair(shape) if choice.launcher == "qrsh" or not (shape.per_node or is_local) else (),
        program=choice.path,
        version=choice.version,
        mpi_type=choice.mpi_type,
        cpus_per_task=str(cpus or ""),
        host_file=_find_node_file(setting) if choice.launcher in ("mpirun", "mpiexec") else "",
        # on one host ranks have them anyway
        variables=() if is_contained or shape.node_count == 1 else (*list_handed_on(setting.environ), OWN_TOKEN),
        options=(*own, *_list_step_options(setting), *setting.request.launcher_options),
        ends_together=True,
        is_labelled=True,
        is_oversubscribed=is_contained or (is_local and max(shape.tasks) > max(shape.nodes[0].cpus, 1)),
    )


def _list_settings(setting: _Setting) -> tuple[tuple[str, str], ...]:
    if setting.choice.launcher != "mpirun" or setting.choice.family not in ("", OPEN_MPI):
        return ()
    is_alone = setting.shape.node_count == 1
    path = setting.environ.get("PATH")
    has_ssh = any(find_program(name, path) is not None for name in ("ssh", "rsh"))
    return list_settings(setting.environ, is_alone=is_alone, has_ssh=has_ssh, is_root=os.geteuid() == 0)


def _find_node_shell(setting: _Setting) -> tuple[str, ...]:
    """The scheduler's program that mpirun and mpiexec are to call instead of ssh, for other nodes."""
    facts = find_facts(setting.allocation.scheduler)
    is_needed = setting.shape.node_count > 1 and setting.choice.launcher in ("mpirun", "mpiexec")
    if not is_needed or not facts.node_shell:
        return ()
    usual = os.path.dirname(facts.submit_path)  # noqa: PTH120 - beside the program that submits
    program = find_program(facts.node_shell, f"{setting.environ.get('PATH', '')}:{usual}")
    return (program, facts.node_file) if program else ()


def _find_node_file(setting: _Setting) -> str:
    """The list of nodes for mpirun, where it does not ask the scheduler itself."""
    name = find_facts(setting.allocation.scheduler).node_file
    return setting.environ.get(name, "") if name and setting.choice.mode != CONTAINED else ""


def _pair(shape: LaunchShape) -> tuple[tuple[str, int], ...]:
    return tuple((node.name, count) for node, count in zip(shape.nodes, shape.tasks, strict=True))


def _expected(allocation: Allocation) -> tuple[int, ...]:
    return tuple(node.tasks for node in allocation.nodes)


def _list_step_options(setting: _Setting) -> list[str]:
    """What srun is told of the job around the step."""
    if setting.choice.launcher != "srun":
        return []
    # a step that holds the job's CPUs, such as an interactive shell, shares them with the launch
    options = ["--overlap"] if setting.allocation.step_id else []
    # of the job's nodes a later Slurm than 22.05 takes any, and ranks are to meet on the first
    return [*options, f"--nodelist={','.join(setting.allocation.names)}"] if setting.is_part else options


def _refuse_nested(allocation: Allocation, environ: Mapping[str, str]) -> None:
    launcher = find_launcher(environ)
    if not launcher or (allocation.step_id and allocation.step_tasks <= 1):
        return
    raise LaunchRefused(
        f"kedge launch was itself started as a rank by {launcher}: every rank would launch all ranks again",
        hint="start kedge launch once, in the job's script or shell, without srun or mpirun before it",
    )


def _choose_shape(request: LaunchRequest, allocation: Allocation) -> LaunchShape:
    if starts_one_per_node(request.contract):
        if request.tasks or request.tasks_per_node > 1:
            raise LaunchRefused(
                f"{request.contract} starts the processes of a node itself: one task per node",
                hint="leave out --tasks and --tasks-per-node; --processes sets how many it starts per node",
            )
        return choose_shape(allocation, nodes=request.nodes, tasks_per_node=1)
    return choose_shape(allocation, nodes=request.nodes, tasks=request.tasks, tasks_per_node=request.tasks_per_node)


def _choose_meeting(allocation: Allocation, site: Site) -> tuple[Rendezvous, list[str]]:
    """Where ranks meet; the port is looked at where this is the first node."""
    number = take_number(f"{allocation.scheduler}-{allocation.job_id}-{allocation.array_index}")
    is_here = allocation.here in ("", allocation.nodes[0].name)
    busy = list_busy_ports() if is_here else frozenset()
    for attempt in range(_PORTS):
        meeting = choose_rendezvous(allocation, number, suffix=site.address_suffix, attempt=attempt)
        if meeting.port not in busy:
            break
    where = f"{meeting.endpoint}: ranks meet on {'this host' if allocation.node_count == 1 else 'the first node'}"
    return meeting, [where]


def _describe_network(allocation: Allocation, contract: Contract) -> tuple[InterfaceChoice, str]:
    """The first node's interface and address, where this is the first of several nodes."""
    is_first = allocation.node_count > 1 and allocation.here == allocation.nodes[0].name
    return describe_first_node(read_interfaces()) if is_first and contract is not Contract.NONE else NO_INTERFACE


def _count_processes(
    request: LaunchRequest, allocation: Allocation, environ: Mapping[str, str]
) -> tuple[tuple[int, ...], list[str]]:
    """How many processes a program like torchrun starts on each node: its GPUs."""
    if not starts_one_per_node(request.contract):
        return (), []
    if request.processes:
        return (request.processes,) * allocation.node_count, [f"{request.processes} processes per node: requested"]
    here = read_this_host(environ).gpus
    counts = tuple((here if node.gpus is None else node.gpus) or 1 for node in allocation.nodes)
    known = "GPUs of each node" if any(count > 1 for count in counts) or here else "no GPUs are known on the nodes"
    shown = f"{counts[0]} processes" if len(set(counts)) == 1 else ", ".join(map(str, counts))
    return counts, [f"{shown} per node: {known}"]


def _cpus_of_rank(allocation: Allocation, cpus: int, count: int) -> int:
    return max(cpus // count, 1) if cpus else allocation.cpus_per_task


# Before a launch: an image that is named by a reference is fetched once, here, and means the same on every node.
#
# Without this the first ranks of all nodes would ask the registry, which many compute nodes cannot reach, and a tag
# that moves meanwhile would give them different images. What is fetched here is in the cache that nodes share: another
# node only unpacks it, by one of its ranks.


def make_image_ready(
    request: LaunchRequest, settings: Settings, environ: Mapping[str, str], warn: Callable[[str], None]
) -> LaunchRequest:
    """The request for an image that is on this node; raises what the pull raises. Files are as they are."""
    if find_path(request.image) or request.image.startswith("instance:"):
        return request
    from kedge.container.flags import parse_words  # late, all of these: most images are files
    from kedge.container.start_container import unpack_in_child
    from kedge.image.node_cache import is_volatile

    options = parse_words("exec", [*request.options, request.image, "true"], environ)
    if is_volatile(request.image) or "--disable-cache" in options.pull_words:
        return request
    image = request.image
    if options.pull != "never" and read_allocation_here(environ).node_count > 1:
        image = _pin(image, settings, warn)
    if not _is_here(image, options.pull, options.pull_words, environ):
        unpack_in_child(options, image, may_mount=True)
    return replace(request, image=image, options=(*request.options, "--pull", "missing"))


def _pin(image: str, settings: Settings, warn: Callable[[str], None]) -> str:
    """The image by its digest of this moment; as it is where the registry does not answer."""
    from kedge.cluster.job import NOW, StagedImage
    from kedge.image.pin_digest import pin_image

    pin = pin_image(image, StagedImage(image, when=NOW), settings, "")
    for warning in pin.warnings:
        warn(warning)
    return pin.reference or image


def _is_here(image: str, pull: str, words: list[str], environ: Mapping[str, str]) -> bool:
    """Whether the start of a container would ask nobody."""
    from kedge.image.node.tag_lookups import find_current
    from kedge.image.node_cache import find_by_reference

    if pull in ("missing", "never"):
        return bool(find_by_reference(image, os.uname().machine, environ))
    return pull == "auto" and bool(find_current(image, os.uname().machine, environ, words))
