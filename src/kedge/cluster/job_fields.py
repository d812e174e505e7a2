# SPDX-License-Identifier: BSD-3-Clause
"""The table of all fields of a job: key in kedge.toml, flags, kind of value, help.

kedge.toml, the command line, the checks and the reference are made from it.
"""

from __future__ import annotations

from kedge.base.frozen import frozen
from kedge.cluster.job import CONTRACTS, LAUNCHERS, RUNTIMES, Parallel

GROUPS = {
    "runs": "command and container",
    "size": "resources",
    "queue": "account, queue and schedule",
    "files": "output and image",
    "script": "script",
}
_ADDING_KINDS = ("list", "lines", "pairs", "dependencies")  # a job's own values are appended to inherited ones


@frozen
class JobField:
    """One field of model.job.Job."""

    name: str  # in Job
    group: str
    kind: str  # of KINDS in model.job_values
    help: str
    flags: tuple[str, ...] = ()  # errors name the first long one
    metavar: str = ""
    choices: tuple[str, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()  # flags without a value, and the value they set
    toml_key: str = ""  # if it differs from the name
    takes_dashes: bool = False  # a value may begin with a dash

    @property
    def key(self) -> str:
        """The key in kedge.toml."""
        return self.toml_key or self.name

    @property
    def flag(self) -> str:
        """The flag that messages name; empty if it has none."""
        return next((flag for flag in self.flags if flag.startswith("--")), "")

    @property
    def adds(self) -> bool:
        """Whether values are appended to existing ones instead of replacing them."""
        return self.kind in _ADDING_KINDS


FIELDS = (
    JobField("name", "runs", "text", "job name", flags=("-J", "--name", "--job-name"), metavar="NAME"),
    JobField(
        "image",
        "runs",
        "line",
        "image: a file, or a reference as for 'kedge pull'",
        flags=("--image",),
        metavar="IMAGE",
    ),
    JobField(
        "command",
        "runs",
        "words",
        "command: a list of words, or one text, which is split into words but not run by a shell",
    ),
    JobField(
        "runscript",
        "runs",
        "yes or no",
        "pass the command to the image's runscript or entry point, as 'kedge run' does",
        ("--runscript",),
    ),
    JobField(
        "parallel",
        "runs",
        "choice",
        "how to start the command: single (once), tasks (once per task), mpi (as ranks), ranks (RANK … set),"
        " torchrun (per GPU)",
        flags=("--parallel",),
        metavar="HOW",
        choices=tuple(Parallel),
        constants=(("--mpi", "mpi"), ("--torchrun", "torchrun"), ("--each-task", "tasks"), ("--ranks", "ranks")),
    ),
    JobField(
        "contract",
        "runs",
        "choice",
        f"variables that the program expects: {', '.join(CONTRACTS)}",
        flags=("--contract",),
        metavar="NAME",
        choices=CONTRACTS,
    ),
    JobField(
        "launcher",
        "runs",
        "choice",
        "program that starts tasks (default: the site's)",
        flags=("--launcher",),
        metavar="PROGRAM",
        choices=LAUNCHERS,
    ),
    JobField(
        "runtime",
        "runs",
        "choice",
        "program that starts the container (default: the site's)",
        flags=("--runtime",),
        metavar="NAME",
        choices=RUNTIMES,
    ),
    JobField("nv", "runs", "yes or no", "NVIDIA GPUs in the container (default: if GPUs are requested)", ("--nv",)),
    JobField("force", "runs", "yes or no", "submit even if the image does not run on the queue's GPUs", ("--force",)),
    JobField(
        "binds",
        "runs",
        "list",
        "directory of the node to bind into the container: SOURCE[:DESTINATION[:OPTIONS]]; repeatable",
        flags=("-B", "--bind"),
        metavar="BIND",
    ),
    JobField(
        "environment",
        "runs",
        "pairs",
        "variable for the command; the value is passed unchanged; repeatable",
        flags=("--env",),
        metavar="NAME=VALUE",
    ),
    JobField(
        "container_options",
        "runs",
        "list",
        "option for the runtime's 'exec', such as --writable-tmpfs; repeatable",
        flags=("--option",),
        metavar="WORD",
        takes_dashes=True,
    ),
    JobField(
        "directory",
        "runs",
        "line",
        "working directory (default: current directory)",
        flags=("-D", "--directory", "--chdir"),
        metavar="DIR",
    ),
    JobField("nodes", "size", "count", "number of nodes", flags=("-N", "--nodes"), metavar="N"),
    JobField("tasks", "size", "count", "total number of tasks", flags=("-n", "--tasks", "--ntasks"), metavar="N"),
    JobField(
        "tasks_per_node",
        "size",
        "count",
        "number of tasks per node",
        flags=("--tasks-per-node", "--ntasks-per-node"),
        metavar="N",
    ),
    JobField(
        "processes",
        "size",
        "count",
        "processes of torchrun per node (default: its GPUs)",
        flags=("--processes",),
        metavar="N",
    ),
    JobField("cpus_per_task", "size", "count", "CPUs per task", flags=("-c", "--cpus-per-task"), metavar="N"),
    JobField(
        "gpus_per_node",
        "size",
        "gpus",
        "GPUs per node (not per job as with sbatch); a100:4 also sets the type",
        flags=("-G", "--gpus", "--gpus-per-node"),
        metavar="[TYPE:]N",
        toml_key="gpus",
    ),
    JobField("gpu_type", "size", "line", "GPU type, in the scheduler's words", flags=("--gpu-type",), metavar="TYPE"),
    JobField(
        "memory",
        "size",
        "memory",
        "memory per node: 512M, 64G, 1.5T (powers of 1024)",
        flags=("--mem", "--memory"),
        metavar="SIZE",
    ),
    JobField("memory_per_cpu", "size", "memory", "memory per CPU", flags=("--mem-per-cpu",), metavar="SIZE"),
    JobField("memory_per_gpu", "size", "memory", "memory per GPU", flags=("--mem-per-gpu",), metavar="SIZE"),
    JobField(
        "time",
        "size",
        "duration",
        "time limit: 90m, 2h, 1d12h, H:MM:SS, D-HH:MM:SS",
        flags=("-t", "--time"),
        metavar="TIME",
    ),
    JobField("exclusive", "size", "yes or no", "use whole nodes, not shared with other jobs", ("--exclusive",)),
    JobField("account", "queue", "line", "account or project to charge", flags=("-A", "--account"), metavar="NAME"),
    JobField(
        "queue",
        "queue",
        "line",
        "partition (Slurm) or queue (Grid Engine, PBS)",
        flags=("-p", "--queue", "--partition"),
        metavar="NAME",
    ),
    JobField("qos", "queue", "line", "quality of service", flags=("--qos",), metavar="NAME"),
    JobField("reservation", "queue", "line", "reservation to use", flags=("--reservation",), metavar="NAME"),
    JobField(
        "constraint", "queue", "line", "required features of the nodes", flags=("-C", "--constraint"), metavar="TEXT"
    ),
    JobField(
        "array",
        "queue",
        "array",
        "run once per index: 0-9, 1-100%10 (ten at once), 0-20:5, 1,3,7-9",
        flags=("-a", "--array"),
        metavar="INDICES",
    ),
    JobField(
        "dependencies",
        "queue",
        "dependencies",
        "start when JOB has completed; or KIND:JOB with afterok, afterany, afternotok, after; repeatable",
        flags=("--after", "--dependency"),
        metavar="JOB",
        toml_key="after",
    ),
    JobField(
        "begin", "queue", "moment", "earliest start, in the scheduler's format", flags=("--begin",), metavar="TIME"
    ),
    JobField("mail", "queue", "line", "address for mail", flags=("--mail", "--mail-user"), metavar="ADDRESS"),
    JobField(
        "mail_on",
        "queue",
        "choices",
        "when to send mail: begin, end, fail or all, separated by commas",
        flags=("--mail-on", "--mail-type"),
        metavar="WHEN",
        choices=("begin", "end", "fail"),
    ),
    JobField(
        "output",
        "files",
        "line",
        "output file, with {name}, {id} and {index} (default: {name}-{id}.out)",
        flags=("-o", "--output"),
        metavar="FILE",
    ),
    JobField("error", "files", "line", "separate file for standard error", flags=("-e", "--error"), metavar="FILE"),
    JobField(
        "pull",
        "files",
        "choice",
        "when to pull a missing image: now or in-job (default: the site's)",
        flags=("--pull",),
        metavar="WHEN",
        choices=("now", "in-job"),
    ),
    JobField(
        "build",
        "files",
        "line",
        "recipe to build IMAGE from, in the job, if that file is missing",
        flags=("--build",),
        metavar="RECIPE",
    ),
    JobField("broadcast", "files", "yes or no", "copy the image to a local disk of every node first", ("--broadcast",)),
    JobField(
        "stage",
        "files",
        "choice",
        "copy kedge (if it is a bundle) and the image to every node first: auto, always or never"
        " (default: auto, where that is faster)",
        flags=("--stage",),
        metavar="WHEN",
        choices=("auto", "always", "never"),
    ),
    JobField("modules", "script", "list", "module to load; repeatable", flags=("--module",), metavar="NAME"),
    JobField(
        "setup",
        "script",
        "lines",
        "shell line to run on the node before the command; repeatable",
        flags=("--setup",),
        metavar="LINE",
        takes_dashes=True,
    ),
    JobField(
        "directives",
        "script",
        "list",
        "option for the scheduler in its own words; replaces kedge's of the same name; repeatable",
        flags=("--directive",),
        metavar="TEXT",
        takes_dashes=True,
    ),
    JobField(
        "drop_directives",
        "script",
        "list",
        "directive of kedge's to leave out, such as --mem; repeatable",
        flags=("--drop-directive",),
        metavar="OPTION",
        takes_dashes=True,
    ),
)
BY_NAME = {field.name: field for field in FIELDS}
BY_KEY = {**{field.key: field for field in FIELDS}, "partition": BY_NAME["queue"]}  # users of Slurm say partition


def find_meaning(word: str) -> JobField | None:
    """The field that a user means who writes the name of a flag, or dashes for underscores, in kedge.toml."""
    plain = word.strip("-").replace("_", "-").lower()
    for field in FIELDS:
        spellings = {flag.lstrip("-") for flag in field.flags} | {field.name.replace("_", "-")}
        if plain in spellings:
            return field
    return None
