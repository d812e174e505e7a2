# SPDX-License-Identifier: BSD-3-Clause
"""The table of all fields of a job: key in kedge.toml, flags, kind of value, help.

kedge.toml, the command line, the checks and the reference are made from it.
"""

from __future__ import annotations

from kedge.frozen import frozen
from kedge.model.job import CONTRACTS, LAUNCHERS, RUNTIMES, Parallel

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
    JobField("name", "runs", "text", "job name", ("-J", "--name", "--job-name"), "NAME"),
    JobField("image", "runs", "line", "image: a file, or a reference as for 'kedge pull'", ("--image",), "IMAGE"),
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
        ("--parallel",),
        "HOW",
        tuple(Parallel),
        (("--mpi", "mpi"), ("--torchrun", "torchrun"), ("--each-task", "tasks"), ("--ranks", "ranks")),
    ),
    JobField(
        "contract",
        "runs",
        "choice",
        f"variables that the program expects: {', '.join(CONTRACTS)}",
        ("--contract",),
        "NAME",
        CONTRACTS,
    ),
    JobField(
        "launcher",
        "runs",
        "choice",
        "program that starts tasks (default: the site's)",
        ("--launcher",),
        "PROGRAM",
        LAUNCHERS,
    ),
    JobField(
        "runtime",
        "runs",
        "choice",
        "program that starts the container (default: the site's)",
        ("--runtime",),
        "NAME",
        RUNTIMES,
    ),
    JobField("nv", "runs", "yes or no", "NVIDIA GPUs in the container (default: if GPUs are requested)", ("--nv",)),
    JobField("force", "runs", "yes or no", "submit even if the image does not run on the queue's GPUs", ("--force",)),
    JobField(
        "binds",
        "runs",
        "list",
        "directory of the node to bind into the container: SOURCE[:DESTINATION[:OPTIONS]]; repeatable",
        ("-B", "--bind"),
        "BIND",
    ),
    JobField(
        "environment",
        "runs",
        "pairs",
        "variable for the command; the value is passed unchanged; repeatable",
        ("--env",),
        "NAME=VALUE",
    ),
    JobField(
        "container_options",
        "runs",
        "list",
        "option for the runtime's 'exec', such as --writable-tmpfs; repeatable",
        ("--option",),
        "WORD",
        takes_dashes=True,
    ),
    JobField(
        "directory",
        "runs",
        "line",
        "working directory (default: current directory)",
        ("-D", "--directory", "--chdir"),
        "DIR",
    ),
    JobField("nodes", "size", "count", "number of nodes", ("-N", "--nodes"), "N"),
    JobField("tasks", "size", "count", "total number of tasks", ("-n", "--tasks", "--ntasks"), "N"),
    JobField(
        "tasks_per_node", "size", "count", "number of tasks per node", ("--tasks-per-node", "--ntasks-per-node"), "N"
    ),
    JobField("processes", "size", "count", "processes of torchrun per node (default: its GPUs)", ("--processes",), "N"),
    JobField("cpus_per_task", "size", "count", "CPUs per task", ("-c", "--cpus-per-task"), "N"),
    JobField(
        "gpus_per_node",
        "size",
        "gpus",
        "GPUs per node (not per job as with sbatch); a100:4 also sets the type",
        ("-G", "--gpus", "--gpus-per-node"),
        "[TYPE:]N",
        toml_key="gpus",
    ),
    JobField("gpu_type", "size", "line", "GPU type, in the scheduler's words", ("--gpu-type",), "TYPE"),
    JobField(
        "memory",
        "size",
        "memory",
        "memory per node: 512M, 64G, 1.5T (powers of 1024)",
        ("--mem", "--memory"),
        "SIZE",
    ),
    JobField("memory_per_cpu", "size", "memory", "memory per CPU", ("--mem-per-cpu",), "SIZE"),
    JobField("memory_per_gpu", "size", "memory", "memory per GPU", ("--mem-per-gpu",), "SIZE"),
    JobField("time", "size", "duration", "time limit: 90m, 2h, 1d12h, H:MM:SS, D-HH:MM:SS", ("-t", "--time"), "TIME"),
    JobField("exclusive", "size", "yes or no", "use whole nodes, not shared with other jobs", ("--exclusive",)),
    JobField("account", "queue", "line", "account or project to charge", ("-A", "--account"), "NAME"),
    JobField(
        "queue",
        "queue",
        "line",
        "partition (Slurm) or queue (Grid Engine, PBS)",
        ("-p", "--queue", "--partition"),
        "NAME",
    ),
    JobField("qos", "queue", "line", "quality of service", ("--qos",), "NAME"),
    JobField("reservation", "queue", "line", "reservation to use", ("--reservation",), "NAME"),
    JobField("constraint", "queue", "line", "required features of the nodes", ("-C", "--constraint"), "TEXT"),
    JobField(
        "array",
        "queue",
        "array",
        "run once per index: 0-9, 1-100%10 (ten at once), 0-20:5, 1,3,7-9",
        ("-a", "--array"),
        "INDICES",
    ),
    JobField(
        "dependencies",
        "queue",
        "dependencies",
        "start when JOB has completed; or KIND:JOB with afterok, afterany, afternotok, after; repeatable",
        ("--after", "--dependency"),
        "JOB",
        toml_key="after",
    ),
    JobField("begin", "queue", "moment", "earliest start, in the scheduler's format", ("--begin",), "TIME"),
    JobField("mail", "queue", "line", "address for mail", ("--mail", "--mail-user"), "ADDRESS"),
    JobField(
        "mail_on",
        "queue",
        "choices",
        "when to send mail: begin, end, fail or all, separated by commas",
        ("--mail-on", "--mail-type"),
        "WHEN",
        ("begin", "end", "fail"),
    ),
    JobField(
        "output",
        "files",
        "line",
        "output file, with {name}, {id} and {index} (default: {name}-{id}.out)",
        ("-o", "--output"),
        "FILE",
    ),
    JobField("error", "files", "line", "separate file for standard error", ("-e", "--error"), "FILE"),
    JobField(
        "pull",
        "files",
        "choice",
        "when to pull a missing image: now or in-job (default: the site's)",
        ("--pull",),
        "WHEN",
        ("now", "in-job"),
    ),
    JobField(
        "build",
        "files",
        "line",
        "recipe to build IMAGE from, in the job, if that file is missing",
        ("--build",),
        "RECIPE",
    ),
    JobField("broadcast", "files", "yes or no", "copy the image to a local disk of every node first", ("--broadcast",)),
    JobField(
        "stage",
        "files",
        "choice",
        "copy kedge (if it is a bundle) and the image to every node first: auto, always or never"
        " (default: auto, where that is faster)",
        ("--stage",),
        "WHEN",
        ("auto", "always", "never"),
    ),
    JobField("modules", "script", "list", "module to load; repeatable", ("--module",), "NAME"),
    JobField(
        "setup",
        "script",
        "lines",
        "shell line to run on the node before the command; repeatable",
        ("--setup",),
        "LINE",
        takes_dashes=True,
    ),
    JobField(
        "directives",
        "script",
        "list",
        "option for the scheduler in its own words; replaces kedge's of the same name; repeatable",
        ("--directive",),
        "TEXT",
        takes_dashes=True,
    ),
    JobField(
        "drop_directives",
        "script",
        "list",
        "directive of kedge's to leave out, such as --mem; repeatable",
        ("--drop-directive",),
        "OPTION",
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
