# SPDX-License-Identifier: BSD-3-Clause
"""The table of verbs: what `kedge --help` lists, and which module to import when a verb is used, not before.

A verb's module has `configure(parser)`, which adds its options, and `run(arguments, console) -> int`.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

from kedge.base.frozen import frozen
from kedge.errors import UsageError

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import Any, Protocol

    from kedge.cli.console import Console
else:
    Protocol = object


@frozen
class Verb:
    """One line of the table."""

    module: str
    summary: str
    group: str
    guarded: bool = False  # runs in a child, so that a kill for memory can be explained
    reads_words: bool = False  # its module has `run_words`, which reads the words behind the verb itself


class VerbModule(Protocol):
    """What the module of a verb offers."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's own options; the global ones are added afterwards where they are still free."""
        ...

    def run(self, arguments: argparse.Namespace, console: Console) -> int:
        """Do it, and return the exit status; domain errors propagate."""
        ...


class WordsModule(Protocol):
    """What the module of a verb that reads its words itself offers besides."""

    def run_words(self, verb: str, words: Sequence[str], *, leading: Sequence[str]) -> int:
        """Do what the words say, with the options before the verb; returns the exit status, and raises nothing."""
        ...


GROUPS = ("Containers", "Jobs", "Explain", "Images", "Trust", "Cache and access", "Setup")

VERBS = {
    "run": Verb(
        "kedge.cli.container", "Run the image's default command in a container", "Containers", reads_words=True
    ),
    "exec": Verb("kedge.cli.container", "Run a command in a container", "Containers", reads_words=True),
    "shell": Verb("kedge.cli.container", "Start a shell in a container", "Containers", reads_words=True),
    "test": Verb("kedge.cli.container", "Run the image's test script", "Containers", reads_words=True),
    "run-help": Verb("kedge.cli.run_help", "Show the image's help text", "Containers"),
    "instance": Verb("kedge.cli.instance", "Start, list and stop containers that run in the background", "Containers"),
    "submit": Verb("kedge.cli.submit", "Submit a job to the scheduler of this cluster", "Jobs"),
    "alloc": Verb("kedge.cli.alloc", "Start an interactive job: a shell in a container on a compute node", "Jobs"),
    "launch": Verb("kedge.cli.launch", "Run a program on all nodes of a job: MPI, torchrun, one task per GPU", "Jobs"),
    "bench": Verb("kedge.cli.bench", "Measure GPU, CPU, network, container start and pull; compare results", "Jobs"),
    "jupyter": Verb("kedge.cli.jupyter", "Install Jupyter kernels that run in containers, start JupyterLab", "Jobs"),
    "jobs": Verb("kedge.cli.jobs", "List jobs and their state", "Jobs"),
    "rerun": Verb("kedge.cli.rerun", "Repeat a recorded run, or show what differs now", "Containers"),
    "status": Verb("kedge.cli.status", "Show a job's state and why it is pending or failed", "Jobs"),
    "logs": Verb("kedge.cli.logs", "Show a job's output, or follow it", "Jobs"),
    "wait": Verb("kedge.cli.wait", "Wait until jobs have ended", "Jobs"),
    "cancel": Verb("kedge.cli.cancel", "Cancel jobs, or send them a signal", "Jobs"),
    "diagnose": Verb("kedge.cli.diagnose", "Explain why a job or program failed, from its log", "Jobs"),
    "script": Verb("kedge.cli.script", "Check a batch script, or convert it", "Jobs"),
    "site": Verb("kedge.cli.site", "Show this cluster's profile and check whether a job fits", "Jobs"),
    "explain": Verb(
        "kedge.cli.explain", "Show what an image contains and whether it runs, before pulling it", "Explain"
    ),
    "search": Verb("kedge.cli.search", "Search NGC and Docker Hub for images", "Explain"),
    "tags": Verb("kedge.cli.tags", "List an image's tags, newest first, and which of them run", "Explain"),
    "recommend": Verb(
        "kedge.cli.recommend", "Find the newest tag of an image that runs on a node or partition", "Explain"
    ),
    "mpi": Verb("kedge.cli.mpi", "Show the MPI of an image and of this host, and how ranks can be started", "Explain"),
    "data": Verb("kedge.cli.data", "Show and update the compatibility tables", "Explain"),
    "doctor": Verb("kedge.cli.doctor", "Check this host for problems with containers and jobs", "Explain"),
    "build": Verb("kedge.cli.build", "Build an image from a definition file or a Dockerfile", "Images", True),
    "recipe": Verb("kedge.cli.recipe", "Show, convert and check definition files and Dockerfiles", "Images"),
    "pull": Verb("kedge.cli.pull", "Pull an image into a SIF, SquashFS file, directory or OCI layout", "Images", True),
    "push": Verb("kedge.cli.push", "Push an image to a registry", "Images", True),
    "convert": Verb("kedge.cli.convert", "Convert an image to another format", "Images", True),
    "unpack": Verb("kedge.cli.unpack", "Unpack images on this node, so that containers start at once", "Images", True),
    "inspect": Verb("kedge.cli.inspect", "Show an image's labels, environment, scripts and layers", "Images"),
    "commit": Verb("kedge.cli.commit", "Make a new image from the changes in an overlay", "Images", True),
    "image": Verb("kedge.cli.image", "Measure and compare images; list and name those in the cache", "Images", True),
    "delete": Verb("kedge.cli.delete", "Delete an image from a library server", "Images"),
    "sif": Verb("kedge.cli.sif", "List, read, add and delete the objects of a SIF file", "Images"),
    "overlay": Verb("kedge.cli.overlay", "Create a writable overlay image for --overlay", "Images"),
    "sign": Verb("kedge.cli.sign", "Sign a SIF file", "Trust"),
    "verify": Verb("kedge.cli.verify", "Verify the signatures of a SIF file", "Trust"),
    "key": Verb("kedge.cli.key", "Manage the keys that sign and verify", "Trust"),
    "keyserver": Verb("kedge.cli.keyserver", "Manage key servers", "Trust"),
    "cache": Verb("kedge.cli.cache", "Show, limit and clean the cache", "Cache and access"),
    "registry": Verb("kedge.cli.registry", "Log in to registries, list tags, ask for digests", "Cache and access"),
    "remote": Verb("kedge.cli.remote", "Manage the servers behind library://", "Cache and access"),
    "local-queue": Verb(
        "kedge.cli.local_queue", "Manage the job queue of this host, for hosts without a scheduler", "Setup"
    ),
    "pyxis": Verb("kedge.cli.shims.pyxis", "Import images for srun --container-image (Pyxis)", "Setup", True),
    "shim": Verb(
        "kedge.cli.shims.shim", "Install kedge under the names apptainer, singularity, docker, enroot or srun", "Setup"
    ),
    "bundle": Verb("kedge.cli.bundle", "Write kedge as one executable file, for hosts without Python", "Setup"),
    "python": Verb("kedge.cli.python", "Run the Python that kedge runs with", "Setup", reads_words=True),
    "config": Verb("kedge.cli.config", "Show and change settings", "Setup"),
    "help": Verb("kedge.cli.help", "Show a guide, or list the guides", "Setup"),
    "completion": Verb("kedge.cli.completion", "Print the completion script of a shell", "Setup"),
    "upgrade": Verb("kedge.cli.upgrade", "Show how to upgrade kedge from where it was installed", "Setup"),
    "version": Verb("kedge.cli.version", "Show the versions of kedge, Python and libraries", "Setup"),
}


def find_verb(name: str) -> Verb:
    """The verb called `name`, or an error that says what kedge calls it."""
    verb = VERBS.get(name)
    if verb is None:
        from kedge.base.nearest import propose  # late: only for a mistake
        from kedge.base.words_of_other_tools import VERB_HABITS

        hint = VERB_HABITS.get(name) or propose(name, VERBS) or "to list the verbs: kedge --help"
        raise UsageError(f"kedge has no verb '{name}'", hint=hint)
    return verb


def load_verb(verb: Verb) -> VerbModule:
    """Import the verb's module."""
    module: Any = importlib.import_module(verb.module)
    loaded: VerbModule = module
    return loaded
