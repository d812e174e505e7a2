# SPDX-License-Identifier: BSD-3-Clause
"""What users write reaches the program unchanged: by flags and kedge.toml, on nodes and in containers."""

from __future__ import annotations

import json

import pytest

from tests.cluster.job_user import HOSTILE, PYTHON, SHOW, JobUser, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster

NOTE = "\n".join(HOSTILE)
NAME = 'we/ird %x {id} "n" it\'s $(id) `x` \\ # é日本 | second'
EACH_TASK = ("-N", "2", "--tasks-per-node", "1", "--each-task")


@pytest.fixture(scope="module")
def me(slurm: SlurmCluster) -> JobUser:
    """Its directory has an image with Python."""
    user = make_job_user(slurm)
    user.take_tools("py.sif", PYTHON)
    return user


def read_shown(lines: str) -> list[object]:
    """What the programs printed; containers may say that they unpack."""
    return [json.loads(line) for line in lines.splitlines() if line.startswith("[")]


def write_toml(value: object) -> str:
    """JSON's texts and lists are TOML's, as long as characters stand for themselves."""
    return json.dumps(value, ensure_ascii=False)


# the script itself in a container, and tasks of srun without one; both together: the programs of a container's tasks
@pytest.mark.parametrize(
    ("image", "tasks"), [("py.sif", ()), ("-", EACH_TASK), ("py.sif", EACH_TASK)], ids=["image", "tasks", "both"]
)
def test_text_of_flags_arrives(me: JobUser, image: str, tasks: tuple[str, ...]) -> None:
    options = ("-J", NAME, "--env", f"NOTE={NOTE}", *tasks)
    shown = me.run_job(*options, image, "python3", "-c", SHOW, *HOSTILE)
    assert read_shown(shown) == [[list(HOSTILE), NOTE]] * (2 if tasks else 1)
    assert me.tell("status", "last")["name"] == NAME
    assert me.tell("status", NAME)["name"] == NAME


@pytest.mark.parametrize("image", ["", "py.sif"])
def test_text_of_a_description_arrives(me: JobUser, image: str) -> None:
    words = ["python3", "-c", SHOW, *HOSTILE]
    lines = ["[job]", f"name = {write_toml(NAME)}", f"command = {write_toml(words)}"]
    lines += [f"image = {write_toml(image)}"] if image else []
    me.write("text.toml", "\n".join([*lines, "[job.environment]", f"NOTE = {write_toml(NOTE)}", ""]))
    assert read_shown(me.run_job("-f", "text.toml")) == [[list(HOSTILE), NOTE]]


def test_text_of_names_and_folders_is_found_again(slurm: SlurmCluster) -> None:
    user = make_job_user(slurm)
    folder = user.folder / 'p%j %%é $(id) it\'s "q" #h'
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    words = ("-D", str(folder), "-", "sh", "-c", "pwd; echo to error >&2")
    names = ("-n", "..", "12", "last", "two\nlines", "x" * 300)
    ids = {name: user.submit(f"--name={name}", *words) for name in names}
    user.read("wait", *ids.values())
    for name, id in ids.items():
        assert user.read("logs", id) == f"{folder}\nto error\n", name
        assert user.tell("status", id)["name"] == name
    refused = user.run("submit", "-J", "", "-", "true")
    assert "Traceback" not in refused.stderr
