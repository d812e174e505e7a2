# SPDX-License-Identifier: BSD-3-Clause
"""The examples that train are built by both recipes and run at small size, by the commands of their README.

As an ordinary user, over a stand-in for NVIDIA's PyTorch image (tests/builders/pytorch_standin.py), on this host's
queue. Each prints what its expected.txt says. On a GPU: tests/gpu/training.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.architecture.test_documents import judge_command
from tests.builders.documents import list_commands, read_steps
from tests.builders.pytorch_standin import ExampleUser, open_user
from tests.functional.test_docs import is_shown
from tests.requirements import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
NAMES = ("ddp", "lightning", "bert", "resnet50", "mnist-horovod", "devices")
FILES = {"README.md", "Dockerfile", "kedge.toml", "expected.txt"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def user() -> Iterator[ExampleUser]:
    yield from open_user("training")


@pytest.mark.parametrize("name", NAMES)
def test_example_has_all_its_files_and_short_lines(name: str) -> None:
    folder = EXAMPLES / name
    assert {path.name for path in folder.iterdir()} >= FILES | {f"{name}.def"}
    commands = [step.command for step in read_steps(folder / "README.md")]
    assert commands
    assert max(len(line) for command in commands for line in command.splitlines()) <= 88
    wrong = [judge_command(words) for words in list_commands(folder / "README.md")]
    assert not [reason for reason in wrong if reason]


@pytest.mark.parametrize("name", NAMES)
def test_example_does_what_its_readme_says(user: ExampleUser, name: str) -> None:
    folder = user.copy_example(name)
    output = ""
    for step in read_steps(folder / "README.md"):
        printed = user.read(step.command, folder)
        missing = [line for line in step.shown if not is_shown(line, printed)]
        assert not missing, f"{step.command}\ndoes not show {missing}\nbut:\n{printed}"
        output += printed
    expected = (folder / "expected.txt").read_text().splitlines()
    missing = [line for line in expected if line.strip() and not is_shown(line, output)]
    assert not missing, f"{missing}\nare not in\n{output[-4000:]}"


@pytest.mark.parametrize("name", NAMES)
def test_example_recipes_give_the_same_program_and_jobs_are_scripts(user: ExampleUser, name: str) -> None:
    folder = user.copy_example(name)
    user.read(f"[ -e {name}.sif ] || kedge build {name}.sif {name}.def", folder)
    assert user.compare_recipes(name) == []
    job = "gpu" if name == "devices" else "train"
    said = user.read(f"kedge submit --site generic-slurm -j {job} --dry-run", folder)
    assert "#SBATCH --gpus-per-node" in said


def test_example_ddp_one_process_takes_twice_the_steps_of_two(user: ExampleUser) -> None:
    folder = user.copy_example("ddp")
    assert "[CPU1] Epoch 1 | Batchsize: 32 | Steps: 8\n" in (folder / "expected.txt").read_text()  # of 512 items
    user.read("[ -e ddp.sif ] || kedge build ddp.sif ddp.def", folder)
    words = "--epochs 1 --batch_size 32 --data_size 512 --width 32 --report report.json"
    said = user.read(f"kedge exec ddp.sif python /opt/ddp/train.py {words}", folder)
    assert "[CPU0] Epoch 0 | Batchsize: 32 | Steps: 16" in said
    report = json.loads((folder / "report.json").read_text())
    assert (report["processes"], report["steps"]) == (1, 16)
