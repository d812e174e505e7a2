# SPDX-License-Identifier: BSD-3-Clause
"""The one table of what can be said about a job: its key in kedge.toml, its flags, what it takes, and what it means.

The file, the command line, the checks and the documentation are all made from it.
"""

from __future__ import annotations

from kedge.frozen import frozen
from kedge.model.job import LAUNCHERS, RUNTIMES, Parallel

GROUPS = {
    "runs": "what runs",
    "size": "on how much",
    "queue": "whose, where and when",
    "files": "files and the image",
    "script": "what the script says besides",
}
_ADDING_KINDS = ("list", "lines", "pairs", "dependencies")  # a job's own values go behind those it inherits


@frozen
class JobField:
    """One field of model.job.Job."""

    name: str  # in Job
    group: str
    kind: str  # of KINDS in model.job_values
    help: str
    flags: tuple[str, ...] = ()  # the first long one is what errors name
    metavar: str = ""
    choices: tuple[str, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()  # flags without a value, and the value they stand for
    toml_key: str = ""  # where it is not the name
    takes_dashes: bool = False  # a value may begin with a dash

    @property
    def key(self) -> str:
        """What kedge.toml calls it."""
        return self.toml_key or self.name

    @property
    def flag(self) -> str:
        """The flag that stands for it in sentences; empty where it has none."""
        return next((flag for flag in self.flags if flag.startswith("--")), "")

    @property
    def adds(self) -> bool:
        """Whether values add to those that are there, instead of replacing them."""
        return self.kind in _ADDING_KINDS


FIELDS = (
    JobField("name", "runs", "text", "the job's name, as queues show it", ("-J", "--name", "--job-name"), "NAME"),
    JobField("image", "runs", "line", "the image: a file, or a reference as for 'kedge pull'", ("--image",), "IMAGE"),
    JobField(
        "command",
        "runs",
        "words",
        "what to run: a list of words, or one text that is split as a shell would, without running one",
    ),
    JobField(
        "runscript",
        "runs",
        "yes or no",
        "hand the command to the image's own script or entry point, as 'kedge run' does",
        ("--runscript",),
    ),
    JobField(
        "parallel",
        "runs",
        "choice",
        "how the command is started: single (once), tasks (once per task), mpi (as ranks), torchrun (per GPU)",
        ("--parallel",),
        "HOW",
        tuple(Parallel),
        (("--mpi", "mpi"), ("--torchrun", "torchrun"), ("--each-task", "tasks")),
    ),
    JobField(
        "launcher",
        "runs",
        "choice",
        "what starts tasks, if not what the site uses",
        ("--launcher",),
        "PROGRAM",
        LAUNCHERS,
    ),
    JobField(
        "runtime",
        "runs",
        "choice",
        "what starts the container, if not what the site uses",
        ("--runtime",),
        "NAME",
        RUNTIMES,
    ),
    JobField("nv", "runs", "yes or no", "NVIDIA GPUs in the container (yes, when GPUs are asked for)", ("--nv",)),
    JobField("force", "runs", "yes or no", "also where the image does not run on the queue's GPUs", ("--force",)),
    JobField(
        "binds",
        "runs",
        "list",
        "folders of the node to have in the container: SOURCE[:DESTINATION[:OPTIONS]]; may be repeated",
        ("-B", "--bind"),
        "BIND",
    ),
    JobField(
        "environment",
        "runs",
        "pairs",
        "variables for the command, taken exactly as they are; may be repeated",
        ("--env",),
        "NAME=VALUE",
    ),
    JobField(
        "container_options",
        "runs",
        "list",
        "one more word for the runtime's 'exec', such as --writable-tmpfs; may be repeated",
        ("--option",),
        "WORD",
        takes_dashes=True,
    ),
    JobField("directory", "runs", "line", "where it runs (here)", ("-D", "--directory", "--chdir"), "DIR"),
    JobField("nodes", "size", "count", "how many nodes", ("-N", "--nodes"), "N"),
    JobField("tasks", "size", "count", "how many tasks in all", ("-n", "--tasks", "--ntasks"), "N"),
    JobField(
        "tasks_per_node", "size", "count", "how many tasks on each node", ("--tasks-per-node", "--ntasks-per-node"), "N"
    ),
    JobField("cpus_per_task", "size", "count", "CPUs for each task", ("-c", "--cpus-per-task"), "N"),
    JobField(
        "gpus_per_node",
        "size",
        "gpus",
        "GPUs on each node, not of the whole job as with sbatch; a100:4 names the type too",
        ("-G", "--gpus", "--gpus-per-node"),
        "[TYPE:]N",
        toml_key="gpus",
    ),
    JobField("gpu_type", "size", "line", "the scheduler's word for the kind of GPU", ("--gpu-type",), "TYPE"),
    JobField(
        "memory",
        "size",
        "memory",
        "memory on each node: 512M, 64G, 1.5T (powers of 1024)",
        ("--mem", "--memory"),
        "SIZE",
    ),
    JobField("memory_per_cpu", "size", "memory", "memory for each CPU instead", ("--mem-per-cpu",), "SIZE"),
    JobField("memory_per_gpu", "size", "memory", "memory for each GPU instead", ("--mem-per-gpu",), "SIZE"),
    JobField(
        "time", "size", "duration", "how long it may run: 90m, 2h, 1d12h, H:MM:SS, D-HH:MM:SS", ("-t", "--time"), "TIME"
    ),
    JobField("exclusive", "size", "yes or no", "whole nodes, shared with nobody", ("--exclusive",)),
    JobField("account", "queue", "line", "the account or project that pays", ("-A", "--account"), "NAME"),
    JobField("queue", "queue", "line", "the queue or partition", ("-p", "--queue", "--partition"), "NAME"),
    JobField("qos", "queue", "line", "the quality of service", ("--qos",), "NAME"),
    JobField("reservation", "queue", "line", "the reservation to run in", ("--reservation",), "NAME"),
    JobField("constraint", "queue", "line", "features that nodes must have", ("-C", "--constraint"), "TEXT"),
    JobField(
        "array",
        "queue",
        "array",
        "run it once for each index: 0-9, 1-100%10 (ten at once), 0-20:5, 1,3,7-9",
        ("-a", "--array"),
        "INDICES",
    ),
    JobField(
        "dependencies",
        "queue",
        "dependencies",
        "begin when that job has ended well; also KIND:JOB with afterok, afterany, afternotok, after; may be repeated",
        ("--after", "--dependency"),
        "JOB",
        toml_key="after",
    ),
    JobField("begin", "queue", "moment", "not before this time, as the scheduler writes it", ("--begin",), "TIME"),
    JobField("mail", "queue", "line", "the address that gets mail", ("--mail", "--mail-user"), "ADDRESS"),
    JobField(
        "mail_on",
        "queue",
        "choices",
        "when there is mail: begin, end, fail or all, with commas between",
        ("--mail-on", "--mail-type"),
        "WHEN",
        ("begin", "end", "fail"),
    ),
    JobField(
        "output",
        "files",
        "line",
        "the file that takes what it prints; {name}, {id} and {index} are put in ({name}-{id}.out)",
        ("-o", "--output"),
        "FILE",
    ),
    JobField("error", "files", "line", "another file for its error messages", ("-e", "--error"), "FILE"),
    JobField(
        "pull",
        "files",
        "choice",
        "when a missing image is pulled: now, or in-job (as the site says)",
        ("--pull",),
        "WHEN",
        ("now", "in-job"),
    ),
    JobField("broadcast", "files", "yes or no", "copy the image to a disk of every node first", ("--broadcast",)),
    JobField("modules", "script", "list", "a module to load; may be repeated", ("--module",), "NAME"),
    JobField(
        "setup",
        "script",
        "lines",
        "a line of shell that runs on the node before the command; may be repeated",
        ("--setup",),
        "LINE",
        takes_dashes=True,
    ),
    JobField(
        "directives",
        "script",
        "list",
        "an option for the scheduler in its own words, in place of the same one of kedge's; may be repeated",
        ("--directive",),
        "TEXT",
        takes_dashes=True,
    ),
    JobField(
        "drop_directives",
        "script",
        "list",
        "an option of kedge's to leave out, such as --mem; may be repeated",
        ("--drop-directive",),
        "OPTION",
        takes_dashes=True,
    ),
)
BY_NAME = {field.name: field for field in FIELDS}
BY_KEY = {field.key: field for field in FIELDS}


def find_meaning(word: str) -> JobField | None:
    """The field that somebody means who writes a flag's word, or a key with dashes, where kedge.toml has another."""
    plain = word.strip("-").replace("_", "-").lower()
    for field in FIELDS:
        spellings = {flag.lstrip("-") for flag in field.flags} | {field.name.replace("_", "-")}
        if plain in spellings:
            return field
    return None
