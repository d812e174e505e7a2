# SPDX-License-Identifier: BSD-3-Clause
"""The part of a batch script below the directives: modules, environment, staging, and the command itself.

It is plain bash that its user can read, keep, change and submit by hand. Everything a user wrote stands in it quoted.
"""

from __future__ import annotations

from collections.abc import Sequence

from kedge.base.frozen import replace
from kedge.base.release import VERSION
from kedge.cluster.job import LAUNCHERS, DependencyKind, Job, JobArray, Parallel
from kedge.cluster.schedulers.backend import Dialect, ScriptContext
from kedge.cluster.schedulers.container_words import (
    container_words,
    escape_value,
    has_run_record,
    request_names,
    runtime_of,
    uses_pyxis,
)
from kedge.cluster.schedulers.shell_words import quote
from kedge.cluster.site import Site
from kedge.errors import RequestRefused

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from kedge.cluster.launchers.program import StartRequest

_FIND_MODULES = (
    "if ! type module >/dev/null 2>&1; then",
    "    for file in /etc/profile.d/lmod.sh /etc/profile.d/modules.sh /usr/share/modules/init/bash; do",
    "        # shellcheck disable=SC1090",
    '        [ -r "$file" ] && . "$file" && break',
    "    done",
    "fi",
)
# bash would end at once, and the scheduler then kills the command that has just begun to save its work
_KEEP_ON = (
    "# signals are for the command: this script waits for its end",
    "trap 'asked=143' TERM",
    "trap : USR1 USR2",
)
# the scheduler's own shell around this script dies of signals, and so does what brings output from other nodes
_LISTEN = (
    "# 'kedge cancel --signal' wakes this shell, which sends the command the signal that is named there",
    "(",
    "    # shellcheck disable=SC2154 # of the trap",
    """    trap 'read -r name <"$record/signal{suffix}"; for child in $(<"/proc/$$/task/$$/children"); do""",
    """        [ "$child" = "$BASHPID" ] || kill -s "$name" "$child"; done' {carrier}""",
    "    trap 'kill $!; exit' TERM",
    '    : >"$record/signal{suffix}"',
    "    while :; do",
    "        sleep 1000000 &",
    "        wait $!",
    "        [ $? -gt 128 ] || break  # it was no signal",
    "        kill $!",
    "    done",
    ") </dev/null >/dev/null 2>&1 &",
    "listener=$!",
    "disown  # whoever waits for all processes does not wait for this one",
)
_LINE = 100  # a command that is longer goes over several lines


def render_body(job: Job, site: Site, place: ScriptContext, dialect: Dialect) -> str:
    """Everything below the directives."""
    title = " ".join(job.name.split())
    by_hand = [dialect.submit_word]
    if site.account_on_command_line and job.account:
        by_hand += [site.account_option, quote(job.account)]
    blocks = [
        [f"# {title}: by kedge {VERSION} for the site {site.name}. To submit it by hand: {' '.join(by_hand)} FILE"],
        _write_record(job, site, place, dialect),
        _load_modules(job, site),
        _set_environment(job, site, place),
        _guard_dependencies(job, dialect),
        [f"cd {quote(place.directory)}"],
        [*site.setup, *job.setup],
        _reach_nodes(job, site, place, dialect),
        _name_image(job, site, place),
        _stage_image(job, site, place, dialect),
        _find_master(job, site, place, dialect),
        _run_command(job, site, place, dialect),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def needs_lookup(job: Job, dialect: Dialect) -> bool:
    """Whether the scheduler counts an array's tasks 1..N, and the script looks the user's index up."""
    if job.array is None:
        return False
    return (len(job.array.ranges) > 1 and not dialect.has_array_lists) or min(job.array.indices) < dialect.first_index


def _fold_words(words: Sequence[str]) -> str:
    """Fragments of shell as one command, over several lines where it is long."""
    line = " ".join(words)
    if len(line) <= _LINE or len(words) < 3:
        return line
    lines, current = [], words[0]
    for word in words[1:]:
        if len(current) + len(word) + 3 > _LINE:
            lines.append(current)
            current = f"    {word}"
        else:
            current += f" {word}"
    return " \\\n".join([*lines, current])


def _find_index(array: JobArray, dialect: Dialect, *, is_looked_up: bool) -> list[str]:
    name = dialect.array_index
    if not is_looked_up:
        return [f'export KEDGE_ARRAY_INDEX="${name}"']
    if len(array.ranges) > 1:
        return [
            f"indices=({' '.join(map(str, array.indices))})",
            f'export KEDGE_ARRAY_INDEX="${{indices[{name} - 1]}}"',
        ]
    first, step = array.ranges[0].first, array.ranges[0].step
    return [f"export KEDGE_ARRAY_INDEX=$(({first} + ({name} - 1) * {step}))"]


def _write_record(job: Job, site: Site, place: ScriptContext, dialect: Dialect) -> list[str]:
    suffix = ".$KEDGE_ARRAY_INDEX" if job.array else ""
    lines = [f'export KEDGE_JOB_ID="{dialect.job_id}" KEDGE_JOB_NAME={quote(job.name)}']
    if job.array is not None:
        lines += _find_index(job.array, dialect, is_looked_up=needs_lookup(job, dialect))
    lines += dialect.opening
    if not place.record:
        return [*lines, *_KEEP_ON]
    listening = _LISTEN if dialect.signal_carrier else ()
    stop = 'kill "$listener"; ' if listening else ""
    return [
        *lines,
        "# where 'kedge status' finds how it went, if the scheduler keeps no accounts",
        f"record={quote(place.record)}",
        'streams=$(readlink "/proc/$$/fd/1"; readlink "/proc/$$/fd/2")',
        'began="$KEDGE_JOB_ID $(hostname) $(date +%s)"',
        # a run more for each time the scheduler puts it back into the queue; its end names the run that it ends
        f'{{ printf "%s\\n" "$began" "$streams" >>"$record/began{suffix}"; }} 2>/dev/null',
        f'finish() {{ {stop}echo "${{asked:-$1}} $(date +%s) $began" >"$record/ended{suffix}"; }}',
        # before the traps: a shell that is ended as soon as it was made still has those of this one
        *(line.format(suffix=suffix, carrier=dialect.signal_carrier) for line in listening),
        "trap 'finish \"$?\" 2>/dev/null || true' EXIT",
        *_KEEP_ON,
        *(_name_run_record(suffix) if has_run_record(job, site, place) else ()),
    ]


def _name_run_record(suffix: str) -> list[str]:
    return [
        "# what it uses is written beside its output, for 'kedge jobs --efficiency' and 'kedge rerun'",
        "log=${streams%%$'\\n'*}",
        f'run_record="$log{suffix}.record.json"',
        'if ! [ -f "$log" ] || ! [ -w "${log%/*}" ]; then',
        f'    run_record="$record/run{suffix}.record.json"',
        "fi",
    ]


def _load_modules(job: Job, site: Site) -> list[str]:
    modules = [*site.modules, *job.modules]
    if runtime_of(job, site) in ("apptainer", "singularity"):
        modules = [*site.modules, *site.runtime_modules, *job.modules]
    if not modules:
        return []
    setup = site.module_setup or _FIND_MODULES
    # a module that is missing is a reason to end: what follows would run with other programs than were meant
    return [*setup, f"module load {' '.join(quote(module) for module in modules)} || exit"]


def _set_environment(job: Job, site: Site, place: ScriptContext) -> list[str]:
    lines = [f"unset {name}" for name in site.unset]
    # a site's values may use the node's own variables; a user's are taken as they are
    lines += [f'export {name}="{value}"' for name, value in site.environment]
    if runtime_of(job, site) == "kedge" and site.node_directory:
        lines.append(f'export KEDGE_NODEDIR="{site.node_directory}/kedge-$UID"')
    lines += [f"export {name}={quote(value)}" for name, value in _list_variables(job, site, place)]
    return [*lines, "set -eo pipefail"]


def _list_variables(job: Job, site: Site, place: ScriptContext) -> tuple[tuple[str, str], ...]:
    """The job's variables for the node, and once more for the container: there they replace what the image sets."""
    found: list[tuple[str, str]] = []
    for name, value in job.environment:
        found += [] if name in place.inside_only else [(name, value)]
        found += [(each, escape_value(value)) for each in (request_names(name, job, site) if job.image else ())]
    return tuple(found)


def _guard_dependencies(job: Job, dialect: Dialect) -> list[str]:
    """Return lines for schedulers that begin a job after any end of another: look how it was."""
    if dialect.has_dependency_kinds:
        return []
    lines = []
    for dependency in job.dependencies:
        if dependency.kind not in (DependencyKind.AFTER_OK, DependencyKind.AFTER_NOT_OK) or not dependency.record:
            continue
        wanted = "=" if dependency.kind is DependencyKind.AFTER_OK else "!="
        lines += [
            f"for file in {quote(dependency.record)}/began*; do",
            '    ended=$(cut -d" " -f1 "${file/%began*/ended}${file##*/began}" 2>/dev/null || echo killed)',
            f'    if ! [ "$ended" {wanted} 0 ]; then',
            f"        echo kedge: job {quote(dependency.job)} ended with"
            f' "$ended, and this one wants it {dependency.kind.value}" >&2',
            "        exit 1",
            "    fi",
            "done",
        ]
    return lines


def _reach_nodes(job: Job, site: Site, place: ScriptContext, dialect: Dialect) -> list[str]:
    """Lets a launcher in the script reach the other nodes; `kedge launch` sees to that itself."""
    is_called = not uses_launch(job, runtime_of(job, site)) or job.broadcast or place.stages_image
    if not dialect.node_shell or job.node_count == 1 or not is_called:
        return []
    from kedge.cluster.launchers.node_shell import list_shell_settings, write_node_shell  # late: few scripts have it

    lines = " ".join(quote(line) for line in write_node_shell(*dialect.node_shell))
    return [
        f"# {dialect.launcher} starts processes on other nodes by {dialect.node_shell[0]}, not by ssh",
        'node_shell=$(mktemp) && chmod 700 "$node_shell"',
        "# shellcheck disable=SC2016 # dollar signs are that script's",
        f"printf '%s\\n' {lines} >\"$node_shell\"",
        *(f'export {name}="{value}"' for name, value in list_shell_settings("$node_shell")),
    ]


def _name_image(job: Job, site: Site, place: ScriptContext) -> list[str]:
    if not job.image or uses_pyxis(job, site):
        return []
    lines = [f"image={quote(place.image)}"]
    if place.source and not place.pull_from:
        lines.insert(0, f"# {place.source}")
    if runtime_of(job, site) == "kedge" or place.pull_from or place.build_from:
        lines.insert(0, f"kedge={quote(place.kedge)}")
    return lines


def _stage_image(job: Job, site: Site, place: ScriptContext, dialect: Dialect) -> list[str]:
    if not job.image or uses_pyxis(job, site):
        return []
    lines = []
    if place.pull_from:
        lines.append(f'"$kedge" pull --if-missing "$image" {quote(place.pull_from)}')
    if place.build_from:
        lines.append(f'"$kedge" build --if-missing --progress plain "$image" {quote(place.build_from)}')
    if job.broadcast or place.stages_kedge or place.stages_image:
        lines += stage_lines(job, site, place, dialect)
    return lines


def _find_master(job: Job, site: Site, place: ScriptContext, dialect: Dialect) -> list[str]:
    is_found = uses_launch(job, runtime_of(job, site))
    if job.parallel is not Parallel.TORCHRUN or is_found or not needs_master(job, place.torch_launcher):
        return []
    address = [*dialect.first_node, f'export MASTER_ADDR="$first_node{site.address_suffix}"']
    return [
        *(address if job.node_count > 1 else ()),
        "# a port that nobody can tell before, below those that the kernel gives away",
        "export MASTER_PORT=$((20000 + ${SRANDOM:-$RANDOM} % 12000))",
    ]


def _run_command(job: Job, site: Site, place: ScriptContext, dialect: Dialect) -> list[str]:
    is_pyxis = uses_pyxis(job, site)
    if uses_launch(job, runtime_of(job, site)):
        return _launch_command(job, site, place, dialect)
    _refuse_contracts(job)
    exported = replace(job, environment=_list_variables(job, site, place))  # what a launcher has to hand on
    words = launch_words(exported, site, dialect, force=is_pyxis)
    words += container_words(job, site, place) if job.image else []
    quoted, asides = _quote_command(job)
    if job.parallel is not Parallel.TORCHRUN:
        return [*asides, _fold_words([*words, *quoted])]
    command = _fold_words([*words, *torchrun_words(job, site, dialect, place.torch_launcher)])
    if job.node_count == 1:
        return [*asides, command]
    return ["# shellcheck disable=SC2016 # the rank of a node is known there only", command]


def _launch_command(job: Job, site: Site, place: ScriptContext, dialect: Dialect) -> list[str]:
    """kedge launch: it reads the allocation, chooses the launcher and checks the ranks."""
    quoted, asides = _quote_command(job)
    words = container_words(job, site, place, verb=kedge_launch_words(job, site, dialect))
    return [*asides, _fold_words([*words, *quoted])]


def _quote_command(job: Job) -> tuple[list[str], list[str]]:
    """The user's words, and the line that tells shellcheck about them, if it needs one."""
    quoted = [quote(word) for word in job.command]
    is_odd = any(word.startswith("'") and ("$" in word or "`" in word) for word in quoted)
    return quoted, ["# shellcheck disable=SC2016 # dollar signs are the program's, not this shell's"] if is_odd else []


def _refuse_contracts(job: Job) -> None:
    if job.contract or job.parallel is Parallel.RANKS:
        what = f"--contract {job.contract}" if job.contract else "--parallel ranks"
        raise RequestRefused(
            f"{what} needs an image, kedge's own runtime and a launcher",
            hint="give --runtime kedge and leave out --launcher none",
        )


# The lines of a batch script that copy the image, and kedge itself, to a disk of every node before the command.

_WHY = "# names that nobody guesses: whoever made a file first would own it"


def stage_lines(job: Job, site: Site, place: ScriptContext, dialect: Dialect) -> list[str]:
    """The copies that the job wants; the variables `kedge` and `image` name them afterwards."""
    stages_image = job.broadcast or place.stages_image
    stages_kedge = place.stages_kedge and bool(dialect.broadcast)
    on_nodes = " ".join(node_words(job, site, dialect)) if stages_image or stages_kedge else ""
    if stages_image and not dialect.broadcast:
        # every node unpacks it to its own disk, once, and keeps it as long as there is room
        return [f'{on_nodes} "$kedge" unpack "$image"'.lstrip()]
    task = "_$KEDGE_ARRAY_INDEX" if job.array else ""  # two tasks may share a node, and each removes its own copy
    prefix = f"{site.node_directory or '/tmp'}/kedge-$UID-$KEDGE_JOB_ID{task}-$RANDOM$RANDOM"
    lines = []
    if stages_kedge:
        lines += [*_copy_kedge(prefix, dialect), _remove_at_the_end(on_nodes, "$staged")]
    if stages_image:
        lines += [f'copy="{prefix}-${{image##*/}}"', f'{dialect.broadcast} "$image" "$copy"']
        lines += [_remove_at_the_end(on_nodes, *(["$staged"] if stages_kedge else ()), "$copy"), 'image="$copy"']
    return [_WHY, *lines] if lines else []


def _remove_at_the_end(on_nodes: str, *copies: str) -> str:
    quoted = " ".join(f'"{copy}"' for copy in copies)
    removal = f"{on_nodes} rm -f {quoted}".lstrip()
    return f"trap 'finish \"$?\" 2>/dev/null || true; {removal}' EXIT"


def _copy_kedge(prefix: str, dialect: Dialect) -> list[str]:
    """Without the copy the job still runs: nodes then read kedge where it is. A /tmp may refuse to run programs."""
    return [
        f'staged="{prefix}-kedge"',
        f'if {dialect.broadcast} --preserve "$kedge" "$staged" && "$staged" --version >/dev/null; then',
        '    kedge="$staged"',
        "else",
        '    echo "kedge: not copied to the nodes, which read $kedge instead" >&2',
        "fi",
    ]


# The words of a batch script that start a command on every task or node of a job.
#
# With kedge's own runtime that is one line, `kedge launch`: the numbers come from the allocation. Other runtimes stand
# behind the launcher's own words (`launch/programs`). Fragments are shell, already quoted.

# which node a process is on when there is one per node, by what started it
_NODE_RANK = {
    "srun": "$SLURM_NODEID",
    "ibrun": "${MV2_COMM_WORLD_RANK:-${OMPI_COMM_WORLD_RANK:-$PMI_RANK}}",
    "mpirun": "$OMPI_COMM_WORLD_RANK",
    "mpiexec": "$PMI_RANK",
}
_WAYS = {
    Parallel.MPI: "--mpi",
    Parallel.TASKS: "--each-task",
    Parallel.RANKS: "--ranks",
    Parallel.TORCHRUN: "--torchrun",
}
_STANDALONE = ("torchrun", "torch.distributed.run")  # they know --standalone
_OWN = ("qrsh", "local")  # kedge itself starts the tasks


def uses_launch(job: Job, runtime: str) -> bool:
    """Whether the script starts the command by `kedge launch`."""
    is_spread = job.parallel is not Parallel.SINGLE or bool(job.contract)
    return is_spread and bool(job.image) and runtime == "kedge" and job.launcher != "none"


def kedge_launch_words(job: Job, site: Site, dialect: Dialect) -> list[str]:
    """`launch` and its options, up to those of the container."""
    words = ["launch", f"--site {quote(site.name)}"]
    words += [f"--launcher {job.launcher}"] if job.launcher else []
    words += [f"--contract {job.contract}"] if job.contract else [_WAYS[job.parallel]]
    knows_tasks = dialect.launcher == "srun"
    if job.parallel is Parallel.TORCHRUN:
        is_told = knows_tasks and site.gpu_directive != ""
        processes = job.processes or (None if is_told else job.gpus_per_node)
        words += [f"--processes {processes}"] if processes else []
    elif not knows_tasks:  # slots are CPUs, too
        words += [f"--tasks {job.tasks}"] if job.tasks else [f"--tasks-per-node {job.tasks_on_node}"]
    return words


def launch_words(job: Job, site: Site, dialect: Dialect, *, force: bool = False) -> list[str]:
    """What stands before the command; nothing for a job that runs it once, unless `force`."""
    is_single = job.parallel is Parallel.SINGLE or (job.parallel is Parallel.TORCHRUN and job.node_count == 1)
    if is_single and not force:
        return []
    launcher = _find_launcher(job, site, dialect)
    if launcher == "none":
        return []
    from kedge.cluster.launchers.program import (  # late: most scripts have `kedge launch` instead
        ShellText,
        StartRequest,
    )

    request = StartRequest(
        1 if is_single else job.task_count,
        1 if is_single else job.node_count,
        1 if is_single else job.tasks_on_node,
        mpi_type=site.mpi_type if job.parallel is Parallel.MPI else "",
        cpus_per_task=ShellText('"$SLURM_CPUS_PER_TASK"') if job.cpus_per_task and launcher == "srun" else "",
        host_file=_host_file(job, dialect, launcher),
        variables=tuple(_exported(job, site)),
        options=tuple(ShellText(option) for option in site.launcher_options),
        is_counted=is_single,
    )
    return _quote_words(launcher, request)


def node_words(job: Job, site: Site, dialect: Dialect) -> list[str]:
    """What starts a command once on every node of the job."""
    if job.node_count == 1:
        return []
    launcher = _find_launcher(job, site, dialect)
    options = site.launcher_options if launcher == "mpirun" else ()
    from kedge.cluster.launchers.program import ShellText, StartRequest  # late: as above

    request = StartRequest(
        job.node_count,
        job.node_count,
        1,
        host_file=_host_file(job, dialect, launcher),
        options=tuple(ShellText(option) for option in options),
    )
    return _quote_words(launcher, request)


def _quote_words(launcher: str, request: StartRequest) -> list[str]:
    """Return the words of a launcher as fragments of shell: a line may be broken between two of them."""
    from kedge.cluster.launchers.known import PROGRAMS  # late: as above
    from kedge.cluster.launchers.program import ShellText

    groups = PROGRAMS[launcher].list_words(request)
    return [" ".join(word if isinstance(word, ShellText) else quote(word) for word in group) for group in groups]


def needs_master(job: Job, starter: Sequence[str]) -> bool:
    """Whether torchrun, or what an older PyTorch has instead, must be told where processes meet."""
    return job.node_count > 1 or not starter[-1].endswith(_STANDALONE)


def torchrun_words(job: Job, site: Site, dialect: Dialect, starter: Sequence[str]) -> list[str]:
    """torchrun and the user's program; its own options are read by a shell on the node, where the ranks are known."""
    processes = job.processes or job.gpus_per_node or 1
    program = [quote(word) for word in job.command]
    first = [quote(word) for word in starter]
    if not needs_master(job, starter):
        return [*first, "--standalone", f"--nproc_per_node={processes}", *program]
    if job.node_count == 1:
        where = ["--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1", '--master_port="$MASTER_PORT"']
        return [*first, *where, f"--nproc_per_node={processes}", *program]
    rank = _NODE_RANK[_find_launcher(job, site, dialect)]
    words = f'exec {" ".join(starter)} --nnodes={job.node_count} --nproc_per_node={processes} --node_rank="{rank}"'
    words += ' \\\n        --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "$@"'
    return ["sh", "-c", f"'{words}'", "torchrun", *program]


def _find_launcher(job: Job, site: Site, dialect: Dialect) -> str:
    launcher = job.launcher or site.launcher or dialect.launcher
    if launcher not in LAUNCHERS:
        raise RequestRefused(
            f"kedge does not know the launcher '{launcher}'", hint=f"it is one of: {', '.join(LAUNCHERS)}"
        )
    if launcher in _OWN:
        raise RequestRefused(
            f"the launcher '{launcher}' starts containers of kedge's own runtime only",
            hint=f"give --runtime kedge and an image, or --launcher {dialect.launcher}",
        )
    if launcher == "none" and job.node_count > 1:
        raise RequestRefused("without a launcher a command reaches the first node only", hint="give --nodes 1")
    return launcher


def _host_file(job: Job, dialect: Dialect, launcher: str) -> str:
    """What mpirun needs to find the nodes, where it does not ask the scheduler itself."""
    if launcher != "mpirun" or job.node_count == 1 or not dialect.host_file:
        return ""
    from kedge.cluster.launchers.program import ShellText  # late: as above

    return ShellText(dialect.host_file)


def _exported(job: Job, site: Site) -> list[str]:
    names = ["KEDGE_JOB_ID", "KEDGE_JOB_NAME", *(["KEDGE_ARRAY_INDEX"] if job.array else [])]
    names += [name for name, _ in (*site.environment, *job.environment)]
    if job.parallel is Parallel.TORCHRUN and job.node_count > 1:
        names += ["MASTER_ADDR", "MASTER_PORT"]
    return list(dict.fromkeys(names))
