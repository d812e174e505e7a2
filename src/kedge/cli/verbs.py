# SPDX-License-Identifier: BSD-3-Clause
"""The table of verbs: what `kedge --help` lists, and which module to import when a verb is used, not before.

A verb's module has `configure(parser)`, which adds its options, and `run(arguments, console) -> int`.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from kedge.errors import UsageError
from kedge.frozen import frozen
from kedge.model.nearest import propose

if TYPE_CHECKING:
    from kedge.cli.console import Console


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


GROUPS = ("Containers", "Jobs", "Explain", "Images", "Trust", "Store and access", "Setup")

VERBS = {
    "run": Verb("kedge.cli.container", "run what an image is made for, in a container", "Containers", reads_words=True),
    "exec": Verb("kedge.cli.container", "run a command in a container", "Containers", reads_words=True),
    "shell": Verb("kedge.cli.container", "start a shell in a container", "Containers", reads_words=True),
    "test": Verb("kedge.cli.container", "run the tests that an image carries", "Containers", reads_words=True),
    "run-help": Verb("kedge.cli.run_help", "show the help text that an image carries", "Containers"),
    "instance": Verb("kedge.cli.instance", "containers with a name that run in the background", "Containers"),
    "submit": Verb("kedge.cli.submit", "put a job into the queue of this cluster", "Jobs"),
    "alloc": Verb("kedge.cli.alloc", "an interactive job: a shell in a container on a node", "Jobs"),
    "jobs": Verb("kedge.cli.jobs", "list jobs, and how they are", "Jobs"),
    "status": Verb("kedge.cli.status", "say how a job is, and why it waits or failed", "Jobs"),
    "logs": Verb("kedge.cli.logs", "show what a job wrote, and follow it", "Jobs"),
    "wait": Verb("kedge.cli.wait", "wait until jobs are over", "Jobs"),
    "cancel": Verb("kedge.cli.cancel", "end jobs, or send them a signal", "Jobs"),
    "script": Verb("kedge.cli.script", "check a batch script you have, or turn it into another one", "Jobs"),
    "site": Verb("kedge.cli.site", "which cluster this is, what it has, and whether a job fits", "Jobs"),
    "explain": Verb("kedge.cli.explain", "what is in an image, and whether it runs, before it is pulled", "Explain"),
    "search": Verb("kedge.cli.search", "find images by words, on NGC and Docker Hub", "Explain"),
    "tags": Verb("kedge.cli.tags", "the tags of an image, newest first, and which of them run here", "Explain"),
    "recommend": Verb("kedge.cli.recommend", "the newest tag of an image that runs on a machine or queue", "Explain"),
    "data": Verb("kedge.cli.data", "the tables behind verdicts, where figures are from, and what is new", "Explain"),
    "doctor": Verb("kedge.cli.doctor", "what keeps containers and jobs from working here, and the remedy", "Explain"),
    "pull": Verb(
        "kedge.cli.pull", "get an image from anywhere: SIF, sandbox directory, SquashFS or OCI layout", "Images", True
    ),
    "push": Verb("kedge.cli.push", "put an image into a registry", "Images", True),
    "convert": Verb("kedge.cli.convert", "turn an image file or directory into another format", "Images", True),
    "unpack": Verb(
        "kedge.cli.unpack", "make images ready on this node, so that containers start at once", "Images", True
    ),
    "inspect": Verb(
        "kedge.cli.inspect", "show labels, environment, scripts and layers, also of remote images", "Images"
    ),
    "delete": Verb("kedge.cli.delete", "delete an image from a library server", "Images"),
    "sif": Verb("kedge.cli.sif", "list, read, add and delete the objects of a SIF file", "Images"),
    "overlay": Verb("kedge.cli.overlay", "make a writable layer in a file, for --overlay", "Images"),
    "sign": Verb("kedge.cli.sign", "sign a SIF file", "Trust"),
    "verify": Verb("kedge.cli.verify", "check the signatures of a SIF file", "Trust"),
    "key": Verb("kedge.cli.key", "manage the keys that sign and verify", "Trust"),
    "keyserver": Verb("kedge.cli.keyserver", "add, list and remove key servers", "Trust"),
    "cache": Verb("kedge.cli.cache", "show, list, limit and clean what is stored", "Store and access"),
    "registry": Verb("kedge.cli.registry", "log in to registries, and out", "Store and access"),
    "remote": Verb("kedge.cli.remote", "add, choose and check the servers behind library://", "Store and access"),
    "local-queue": Verb("kedge.cli.local_queue", "the queue of this machine, where there is no scheduler", "Setup"),
    "pyxis": Verb("kedge.cli.pyxis", "be the importer of Pyxis: images for srun --container-image", "Setup", True),
    "shim": Verb("kedge.cli.shim", "give kedge the names apptainer and singularity", "Setup"),
    "config": Verb("kedge.cli.config", "show and change settings, and where each comes from", "Setup"),
    "help": Verb("kedge.cli.help", "show a guide in the terminal, or list the guides", "Setup"),
    "completion": Verb("kedge.cli.completion", "print the completion script of a shell", "Setup"),
    "version": Verb("kedge.cli.version", "show the version, and what it runs with", "Setup"),
}


def find_verb(name: str) -> Verb:
    """The verb called `name`, or an error that says what kedge calls it."""
    verb = VERBS.get(name)
    if verb is None:
        from kedge.model.habits import VERB_HABITS  # late: only for a mistake

        hint = VERB_HABITS.get(name) or propose(name, VERBS) or "to list the verbs: kedge --help"
        raise UsageError(f"kedge has no verb '{name}'", hint=hint)
    return verb


def load_verb(verb: Verb) -> VerbModule:
    """Import the verb's module."""
    return cast(VerbModule, importlib.import_module(verb.module))
