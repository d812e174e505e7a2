# SPDX-License-Identifier: BSD-3-Clause
"""Every example of `--help` is run, in a fresh home per verb, against a registry in this process and the local queue.

Verbs whose examples need the same prepared job share the home. What needs a cluster is run with --dry-run for a known
site; what needs a server of others is parsed. Needs openssl for signatures, user namespaces for containers.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest

from kedge.cli.help_text import EXAMPLES, list_examples
from kedge.cli.main import make_parser
from kedge.cli.options import find_subcommands
from kedge.cli.verbs import VERBS
from kedge.container.flags import parse_words
from tests.fakes.registry import FakeRegistry
from tests.functional.test_docs import make_environment, registry, run_command
from tests.requirements import require_program, require_user_namespaces

__all__ = ["registry"]  # the fixture

NGC = "docker://nvcr.io/nvidia/pytorch:24.03-py3"
MAKE_KEY = "openssl genpkey -algorithm ed25519 -out private.pem"
MAKE_PAIR = "kedge key newpair --name A --email a@b.c --no-password"
# what needs a scheduler: the script is made, for a cluster that has what is asked for
DRY = {
    # the registry's image has no PyTorch
    "submit": "kedge submit --force --dry-run --site zih-alpha --account x",
    "alloc": "kedge alloc --dry-run --site zih-alpha --account x",
}
RECIPES = (
    "printf 'Bootstrap: docker\\nFrom: ubuntu:24.04\\n%%post\\n    ls /\\n' >tools.def"
    " && printf 'ARG VERSION=1\\nFROM ubuntu:24.04 AS build\\nARG VERSION\\nRUN echo $VERSION >/version\\n"
    "FROM ubuntu:24.04\\nCOPY --from=build /version /\\n' >Dockerfile"
)
PREPARE = {
    "": f"kedge pull -q pytorch.sif {NGC} && mkdir data && echo 'print(1)' >train.py && printf '#!/bin/bash\\n"
    "#SBATCH --time=01:00:00\\n#SBATCH --nodes=1\\nsrun python train.py\\n' >job.sh && chmod +x job.sh",
    "sign": f"{MAKE_KEY} && {MAKE_PAIR}",
    "verify": f"{MAKE_KEY} && {MAKE_PAIR} && openssl pkey -in private.pem -pubout -out public.pem"
    " && kedge sign pytorch.sif && kedge sign --key private.pem pytorch.sif",
    **dict.fromkeys(DRY, f"kedge pull -q --arch amd64 amd64.sif {NGC}"),
    **dict.fromkeys(("build", "recipe"), RECIPES),
    "commit": "mkdir changes && kedge exec --fakeroot --overlay changes pytorch.sif sh -c 'echo 1 >/new'",
    "remote": "kedge remote add --no-login ours https://library.example.org && kedge remote remove ours",
    **dict.fromkeys(
        ("jobs", "status", "logs", "wait"),
        "kedge submit --site local --name train --time 5m --wait pytorch.sif python train.py; export KEDGE_SITE=local",
    ),
    "diagnose": "kedge submit --site local --name train --time 5m --wait pytorch.sif python train.py; "
    "export KEDGE_SITE=local; echo 'epoch 1' | tee train.err >train.out",
    "cancel": "for n in 1 2 3; do kedge submit --site local --name train --time 5m pytorch.sif sh -c 'sleep 60'; done",
}
# of which the others need what the first one needs, and change none of it
TOGETHER = (("status", "jobs", "logs", "wait"), ("submit", "alloc"))
GROUPS = (*TOGETHER, *((verb,) for verb in sorted(VERBS) if not any(verb in group for group in TOGETHER)))
# what would ask servers of others, change this host or begin a dialogue: its words are read and no more
PARSED = {
    "kedge search": "asks NGC and Docker Hub",
    "kedge delete library": "asks a library",
    "kedge delete --": "asks a library",
    "kedge registry login": "sends a password",
    "kedge remote use": "needs a remote",
    "kedge remote add": "asks the remote",
    "kedge remote remove": "needs a remote",
    "kedge launch --nv": "needs torch",
    "kedge bench": "needs an image with MPI or torch",
    "kedge mpi check": "needs an image with MPI",
    "kedge jupyter install": "needs an image with Python",
    "kedge jupyter lab": "needs an image with JupyterLab",
    "kedge jupyter remove": "needs a kernel",
    "kedge image tag": "needs an image that was built",
    "kedge site init": "asks a scheduler",
    "kedge bundle": "takes half a minute, which test_bundle.py spends once",
    "scp ": "needs a cluster",
    "ssh ": "needs a cluster",
    "srun ": "needs Slurm",
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, registry: FakeRegistry) -> Path:
    """The files that examples name, made once."""
    place = tmp_path_factory.mktemp("prepared")
    files = place / "files"
    files.mkdir()
    status, output = run_command(PREPARE[""], files, make_environment(place, registry))
    assert status == 0, output
    return files


@pytest.fixture
def place(tmp_path: Path, prepared: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "files"))


def strip_comment(line: str) -> str:
    return line.partition("  #")[0].strip()


def test_examples_every_verb_has_three_to_five() -> None:
    assert list(EXAMPLES) == list(VERBS)
    wrong = {verb for verb in VERBS if not 3 <= len(list_examples(verb)) <= 5}
    assert not wrong
    assert max(len(line) for verb in VERBS for line in list_examples(verb)) <= 88


def test_examples_of_a_group_are_those_of_its_subcommands() -> None:
    assert list_examples("cache clean") == ["kedge cache clean --days 30 --dry-run"]
    assert list_examples("no-such-verb") == []


@pytest.mark.parametrize("verbs", GROUPS, ids=" ".join)
def test_examples_do_what_they_say(verbs: tuple[str, ...], tmp_path: Path, place: Path, registry: FakeRegistry) -> None:
    if verbs[0] in ("sign", "verify"):
        require_program("openssl")
    if os.geteuid() != 0:
        require_user_namespaces()
    environment = make_environment(tmp_path, registry)
    prepare = PREPARE.get(verbs[0], "true")
    status, output = run_command(prepare, place, environment)
    assert status == 0, output
    if "KEDGE_SITE=local" in prepare:
        environment["KEDGE_SITE"] = "local"
    try:
        for verb, line in ((each, line) for each in verbs for line in list_examples(each)):
            command = strip_comment(line)
            if any(command.startswith(begin) for begin in PARSED):
                parse(command)
                continue
            if verb in DRY and "--site local" not in command:
                command = command.replace(f"kedge {verb} --dry-run", f"kedge {verb}")
                command = command.replace(f"kedge {verb}", DRY[verb]).replace("pytorch.sif", "amd64.sif")
            status, output = run_command(command, place, environment)
            assert status == 0, f"{line}\n{command}\nstatus {status}\n{output}"
    finally:
        state = tmp_path / "home/.local/state/kedge"
        if (state / "instances").exists():
            run_command("kedge instance stop --all", place, environment)
        if (state / "local-queue").exists():
            run_command("kedge cancel --site local --all", place, environment)


def parse(command: str) -> None:
    """Read the words of a command with the parser that would act on them."""
    words = shlex.split(command)
    if "kedge" not in words:
        return  # another program's
    verb, *rest = words[words.index("kedge") + 1 :]
    if VERBS[verb].reads_words:
        parse_words(verb, rest, {})
    else:
        make_parser(verb).parse_args(rest)


def test_examples_of_a_group_show_most_of_its_subcommands() -> None:
    for verb in VERBS:
        commands = find_subcommands(make_parser(verb))
        shown = [name for name in commands if list_examples(f"{verb} {name}")]
        assert len(shown) >= min(2, len(commands)), verb
