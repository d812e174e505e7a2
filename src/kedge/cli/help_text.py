# SPDX-License-Identifier: BSD-3-Clause
"""What `--help` says around the options: a sentence, examples, and the guide; one screen of it for containers."""

from __future__ import annotations

import argparse
import textwrap

from kedge.cli.options import find_subcommands
from kedge.cli.topics import find_guide
from kedge.container.flags import USAGES
from kedge.container.options import FLAGS, Flag

_COLUMNS, _INDENT = 80, 26
_COMMON = ("nv", "rocm", "bind", "env", "pwd", "writable-tmpfs", "overlay", "fakeroot", "containall", "dry-run")


def describe_parser(parser: argparse.ArgumentParser, command: str, summary: str) -> None:
    """Let the help of a verb and of its subcommands open with a sentence and examples, and end with the guide."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "\n".join([f"{summary}.", *_show_examples(command)])
    guide = find_guide(command.split(maxsplit=1)[0])
    if guide:
        parser.epilog = f"{parser.epilog or ''}guide: kedge help {guide}"
    summaries = {
        choice.dest: str(choice.help)
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for choice in action._choices_actions
    }
    for name, child in find_subcommands(parser).items():
        if name in summaries:  # the others are aliases
            describe_parser(child, f"{command} {name}", f"{summaries[name][:1].upper()}{summaries[name][1:]}")


def _show_examples(command: str) -> list[str]:
    """The examples of a command below their title, or nothing."""
    lines = list_examples(command)
    return ["", "examples:", *(f"  {line}" for line in lines)] if lines else []


def format_short_help(verb: str, command: str, summary: str) -> str:
    """The help of a verb of the flag table; `command` is what the user types, such as `instance start`."""
    flags = {flag.names[0]: flag for flag in FLAGS if verb in flag.verbs}
    lines = [f"usage: {USAGES[verb].replace('instance start', command)}", "", f"{summary}.", "", "examples:"]
    lines += [f"  {line}" for line in list_examples(command.split(maxsplit=1)[0])]
    lines += ["", "most used options, before the image:"]
    for name in _COMMON:
        if name in flags:
            lines += _show_flag(flags[name])
    lines += ["", f"All options: kedge {command} --help-all. Guide: kedge help run"]
    return "\n".join(lines) + "\n"


def _show_flag(flag: Flag) -> list[str]:
    """A flag and the first clause of its text."""
    names = f"{'-' + flag.short + ',' if flag.short else '':<3} --{flag.names[0]} {flag.metavar}".rstrip()
    begin = f"  {names}".ljust(_INDENT)
    text = flag.help.partition(";")[0]
    return textwrap.wrap(text, _COLUMNS, initial_indent=begin, subsequent_indent=" " * _INDENT) or [begin]


# The examples that `--help`, the reference and the man pages show: three to five for each verb.
#
# Every line is run by `tests/functional/test_examples.py`. A subcommand's help shows those that use it.

_NGC = "docker://nvcr.io/nvidia/pytorch:24.03-py3"

EXAMPLES = {
    "run": f"""
kedge run docker://ubuntu:24.04                        # its default command
kedge run --nv pytorch.sif python train.py             # with NVIDIA GPUs
kedge run --bind data:/data {_NGC}
""",
    "exec": """
kedge exec docker://ubuntu:24.04 cat /etc/os-release
kedge exec --nv pytorch.sif python train.py            # with NVIDIA GPUs
kedge exec --bind data:/data:ro pytorch.sif ls /data   # a host directory
kedge exec --nv --dry-run pytorch.sif nvidia-smi       # show, start nothing
""",
    "shell": """
kedge shell pytorch.sif
kedge shell --nv --bind data:/data pytorch.sif
kedge shell --writable-tmpfs docker://ubuntu:24.04     # changes go to memory
""",
    "test": """
kedge test pytorch.sif
kedge test --nv pytorch.sif
kedge test --dry-run pytorch.sif
""",
    "run-help": """
kedge run-help pytorch.sif
kedge run-help docker://ubuntu:24.04
kedge run-help --json pytorch.sif
""",
    "instance": """
kedge instance start pytorch.sif worker
kedge exec instance://worker python train.py
kedge instance list
kedge instance logs worker
kedge instance stop worker
""",
    "submit": """
kedge submit --gpus 1 --time 2h pytorch.sif python train.py
kedge submit --torchrun --nodes 2 --gpus 4 --time 8h pytorch.sif train.py
kedge submit --array 0-9 --time 1h pytorch.sif python train.py
kedge submit --dry-run --time 2h pytorch.sif python train.py   # print the script
kedge submit --site local --time 5m pytorch.sif python train.py
""",
    "alloc": """
kedge alloc --gpus 1 --time 1h pytorch.sif
kedge alloc --partition alpha --gpus 1 --time 1h pytorch.sif python train.py
kedge alloc --site local --time 10m pytorch.sif python train.py
""",
    "launch": """
kedge launch --nv --torchrun pytorch.sif train.py      # one process per GPU, all nodes
kedge launch --tasks 2 --ranks pytorch.sif python train.py       # RANK, WORLD_SIZE …
kedge launch --dry-run --tasks 4 --each-task pytorch.sif python train.py
""",
    "bench": """
kedge bench matmul --output a.json --plot a.svg pytorch.sif
kedge bench nbody --gpus 1,2,4 --bodies 2000128 pytorch.sif  # speed-up and efficiency
kedge bench pi --ranks 1,2,4,8 --plot pi.svg mpi.sif   # the same on any number of ranks
kedge bench allreduce --nv pytorch.sif                 # in a job: against the links
kedge bench compare a.json b.json c.json               # faster, slower, or noise
""",
    "jupyter": """
kedge jupyter install --nv pytorch.sif                 # a kernel for your own Jupyter
kedge jupyter install --name Train --gpus 1 --time 2h pytorch.sif   # runs in a job
kedge jupyter list
kedge jupyter lab --gpus 1 --time 2h pytorch.sif       # the image's JupyterLab
kedge jupyter remove Train
""",
    "jobs": """
kedge jobs
kedge jobs --site local --all
kedge jobs --site local --state failed --json
kedge jobs --site local --efficiency                   # used of requested
""",
    "rerun": """
kedge exec --record-to run.json pytorch.sif python train.py
kedge rerun --dry-run run.json                         # what differs now
kedge rerun run.json
""",
    "status": """
kedge status                                           # the last job
kedge status --site local 1
kedge status --site local --json train
""",
    "logs": """
kedge logs                                             # of the last job
kedge logs --site local --follow 1
kedge logs --site local -n 20 train
""",
    "wait": """
kedge wait                                             # for the last job
kedge wait --site local 1
kedge wait --site local --timeout 10m train
""",
    "cancel": """
kedge cancel --site local 1
kedge cancel --site local train
kedge cancel --site local --all
""",
    "diagnose": """
kedge diagnose train.out
kedge diagnose last                                    # the newest job
kedge diagnose --all train.out train.err               # every message, of several files
kedge diagnose - <train.out
""",
    "script": """
kedge script check job.sh
kedge script check --site zih-alpha job.sh
kedge script convert job.sh -o kedge.toml
kedge script convert --to pbs job.sh
""",
    "site": """
kedge site detect
kedge site list
kedge site show zih-alpha
kedge site check zih-alpha --gpus 4 --time 8h
kedge site init --dry-run mycluster
""",
    "explain": f"""
kedge explain {_NGC}
kedge explain --gpu V100 --driver 535.104.05 nvcr.io/nvidia/pytorch:25.04-py3
kedge explain --on zih-alpha:alpha {_NGC}
kedge explain pytorch.sif
""",
    "search": """
kedge search pytorch
kedge search --ngc tensorflow
kedge search --offline --json pytorch
""",
    "tags": """
kedge tags pytorch --offline
kedge tags pytorch --offline --gpu V100 --driver 535.104.05
kedge tags pytorch --offline --on zih-alpha:alpha --limit 5
""",
    "recommend": """
kedge recommend pytorch --offline --gpu V100 --driver 535.104.05
kedge recommend pytorch --offline --on zih-alpha:alpha
kedge recommend tensorflow --offline --gpu A100 --driver 550.54.15
""",
    "mpi": """
kedge mpi show                                         # of this host
kedge mpi show pytorch.sif
kedge mpi check pytorch.sif
kedge mpi check --mode contained pytorch.sif
""",
    "data": """
kedge data list
kedge data show pytorch:22.03-py3
kedge data show H100
kedge data update --dry-run pytorch
""",
    "doctor": """
kedge doctor
kedge doctor --offline --only kernel,clock
kedge doctor --offline --report help.txt               # for the help desk
kedge doctor --offline pytorch.sif
""",
    "build": """
kedge build tools.sif tools.def
kedge build other.sif .                                # the Dockerfile here
kedge build -t registry.example.org/team/tools:1 --push .
kedge build --build-arg VERSION=1.2 --target build -t tools .
kedge build --dry-run next.sif tools.def               # steps, and which are cached
""",
    "recipe": """
kedge recipe show Dockerfile
kedge recipe convert tools.def -o Dockerfile.tools
kedge recipe convert --to definition Dockerfile
kedge recipe lint Dockerfile
""",
    "pull": f"""
kedge pull docker://ubuntu:24.04                       # ubuntu_24.04.sif
kedge pull torch.sif {_NGC}
kedge pull ubuntu.sqsh docker://ubuntu:24.04           # SquashFS, for Enroot
kedge pull --sandbox ubuntu docker://ubuntu:24.04      # a directory
kedge pull tools.sif host:sh,ls,cat                    # this host's programs
""",
    "push": """
kedge push --dry-run pytorch.sif oras://registry.example.org/team/pytorch:1
kedge push pytorch.sif oras://registry.example.org/team/pytorch:1
kedge push pytorch.sif docker://registry.example.org/team/pytorch:2
""",
    "convert": """
kedge convert pytorch.sif pytorch.sqsh
kedge convert --format sandbox pytorch.sif pytorch
kedge convert --verify pytorch.sif checked.sqsh        # read it back, compare
kedge convert pytorch.sif pytorch.oci
kedge convert --data --compress none data data.sqsh     # data as one file
""",
    "unpack": """
kedge unpack pytorch.sif
kedge unpack docker://ubuntu:24.04
srun --ntasks-per-node=1 kedge unpack pytorch.sif      # on every node of a job
""",
    "inspect": """
kedge inspect pytorch.sif
kedge inspect --runscript pytorch.sif
kedge inspect --oci docker://ubuntu:24.04              # pulls nothing
kedge inspect --json pytorch.sif
""",
    "commit": """
kedge commit changes tools.sif                         # after shell --overlay changes
kedge commit --base pytorch.sif changes other.sif
kedge commit changes tools.oci.tar
""",
    "image": """
kedge image size pytorch.sif
kedge image diff docker://ubuntu:24.04 pytorch.sif
kedge image list
kedge image tag tools:1 team/tools:1
""",
    "delete": """
kedge delete --dry-run library://library.example.org/team/tools/pytorch:1
kedge delete library://library.example.org/team/tools/pytorch:1
kedge delete --force --arch arm64 library://library.example.org/team/tools/pytorch:1
""",
    "sif": """
kedge sif list pytorch.sif
kedge sif header pytorch.sif
kedge sif info 1 pytorch.sif
kedge sif dump 1 pytorch.sif
kedge sif verify pytorch.sif                           # can it be read whole?
""",
    "overlay": """
kedge overlay create --size 64 changes.img
kedge overlay create --sparse --size 1024 large.img
kedge exec --overlay changes.img pytorch.sif ls /
""",
    "sign": """
kedge sign --key private.pem pytorch.sif
kedge sign pytorch.sif                                 # with your OpenPGP key
kedge sign --keyidx 0 pytorch.sif
""",
    "verify": """
kedge verify --key public.pem pytorch.sif
kedge verify --local pytorch.sif                       # your own key ring only
kedge verify --json --key public.pem pytorch.sif
""",
    "key": """
kedge key newpair --name "Ada Lovelace" --email ada@example.org --no-password
kedge key list
kedge key export --armor ada.asc
kedge key import ada.asc
""",
    "keyserver": """
kedge keyserver list
kedge keyserver add https://keys.example.org
kedge keyserver remove https://keys.example.org
""",
    "cache": """
kedge cache show
kedge cache list
kedge cache clean --days 30 --dry-run
kedge cache limit 50G
kedge cache verify
""",
    "registry": """
kedge registry login nvcr.io --username '$oauthtoken' --password-stdin
kedge registry list
kedge registry tags nvcr.io/nvidia/pytorch
kedge registry digest nvcr.io/nvidia/pytorch:24.03-py3
kedge registry logout nvcr.io
""",
    "remote": """
kedge remote list
kedge remote add --no-login ours https://library.example.org
kedge remote use ours
kedge remote remove ours
""",
    "local-queue": """
kedge local-queue submit --time 5m job.sh
kedge local-queue list
kedge local-queue show 1
kedge local-queue cancel 1
""",
    "pyxis": """
kedge pyxis get docker://ubuntu:24.04
kedge pyxis release
srun --container-image=ubuntu:24.04 cat /etc/os-release
""",
    "shim": """
kedge shim install --dir bin
kedge shim install docker enroot --dir bin
kedge shim list --dir bin
kedge shim remove --dir bin
""",
    "bundle": """
kedge bundle
kedge bundle kedge-for-cluster --force
ssh CLUSTER mkdir -p bin && scp kedge-x86_64 CLUSTER:bin/kedge
""",
    "python": """
kedge python train.py
kedge python train.py 0.1 0.01
echo 'import kedge' | kedge python
""",
    "config": """
kedge config show
kedge config get threads
kedge config set threads 4
kedge config unset threads
""",
    "help": """
kedge help
kedge help run
kedge help doctor fuse
kedge help cache clean
""",
    "completion": """
eval "$(kedge completion bash)"                        # for this shell
kedge completion zsh > _kedge                          # put it on $fpath
kedge completion fish > kedge.fish
""",
    "upgrade": """
kedge upgrade                 # the lines to type; none is run
kedge upgrade --json
kedge help install            # other ways to install it
""",
    "version": """
kedge version
kedge version --json
kedge --version
""",
}


def list_examples(command: str) -> list[str]:
    """The examples of a verb, or those of its verb that use a subcommand."""
    lines = EXAMPLES.get(command.split(maxsplit=1)[0], "").strip("\n").splitlines()
    return lines if " " not in command else [line for line in lines if f"kedge {command}" in line]
