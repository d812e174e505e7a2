# SPDX-License-Identifier: BSD-3-Clause
"""What `kedge submit` refuses before anything is queued, as `kedge exec` does, and the line it says to type instead."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.builders.images import kedge

BATCH = "#!/bin/bash\n#SBATCH --nodes=1\nsrun hostname\n"
FILES = {
    "job.sh": BATCH.encode(),
    "sge.sh": b"#!/bin/bash\n#$ -l rt_F=1\nhostname\n",
    "train.py": b"print('hello')\n",
    "tool": b"\x7fELF" + bytes(2000),
    "empty.sif": b"",
    "text.sif": b"<html>login</html>",
}


class Place:
    """A directory with files that are no images, and one that is; a queue of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, content in FILES.items():
            (folder / name).write_bytes(content)
        self.run("pull", "good.sif", "host:true", check=True)
        (folder / "half.sif").write_bytes((folder / "good.sif").read_bytes()[:60000])

    def run(self, *words: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(self.folder), "KEDGE_LOCAL_QUEUE": str(self.folder / "queue"), "KEDGE_SITE": "local"}
        return kedge(*words, cache=self.folder / "cache", check=check, environment=environment, cwd=self.folder)

    def refuse(self, *words: str) -> str:
        done = self.run("submit", *words)
        assert done.returncode not in (0, 1)
        assert "Traceback" not in done.stderr
        assert json.loads(self.run("jobs", "--json", check=True).stdout) == []
        assert not list(self.folder.glob("*.out"))
        return done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("refusals"))


@pytest.mark.parametrize(
    ("words", "what", "instead"),
    [
        (["job.sh"], "job.sh is a batch script, not an image", "'sbatch job.sh'"),
        (["./job.sh", "5"], "is a batch script", "'kedge script convert ./job.sh'"),
        (["sge.sh"], "is a batch script", "'qsub sge.sh'"),
        (["train.py", "5"], "train.py is a text file, not an image", "'kedge submit IMAGE python ./train.py 5'"),
        (["tool", "a b"], "tool is an ELF program, not an image", "'kedge submit - ./tool 'a b''"),
        (["empty.sif", "ls"], "empty.sif is not a SIF image: it is an empty file", "fetch the file again"),
        (["text.sif", "ls"], "it is a web page", "fetch the file again"),
        (["half.sif", "ls"], "half.sif is truncated or damaged", "fetch the file again"),
        (["file:half.sif", "ls"], "half.sif is truncated or damaged", "fetch the file again"),
        (["python", "train.py"], "there is no image file 'python'", "'kedge submit - python train.py'"),
        (["python", "train.py"], "there is no image file 'python'", "docker://python"),
        (["--site", "local", "python", "train.py"], "there is no image file", "'kedge submit --site local - python"),
        (["--site", "local", "train.py"], "not an image", "'kedge submit --site local IMAGE python ./train.py'"),
        (["scripts/train.py"], "there is no image file 'scripts/train.py'", "docker://scripts/train.py"),
        (["-v", "/data:/data", "good.sif", "ls"], "-v is short for --verbose", "to bind a directory: -B /data:/data"),
        (["--env", "A=1", "B=2", "good.sif", "ls"], "'B=2' stands where the image", "--env A=1 --env B=2"),
        (["good.sif", "--time", "1h", "ls"], "'--time' stands where the command", "submit --time 1h good.sif ls"),
        (["good.sif", "--", "ls", "-l"], "'--' stands where the command", "write: kedge submit good.sif ls -l"),
        (["--mem", "1G", "good.sif", "--gpus=1", "-J", "x", "ls"], "--gpus", "--mem 1G --gpus=1 -J x good.sif ls"),
        (["good.sif", "--tme", "1h", "ls"], "'--tme' stands where the command", "did you mean '--time'?"),
        (["-", "--time", "1h", "ls"], "'--time' stands where the command", "kedge submit --time 1h - ls"),
    ],
)
def test_what_is_no_image_or_no_command_is_not_queued(place: Place, words: list[str], what: str, instead: str) -> None:
    said = place.refuse(*words)
    assert what in said
    assert instead in said.partition("hint: ")[2]


def test_a_dry_run_refuses_them_too(place: Place) -> None:
    assert "empty file" in place.refuse("--dry-run", "empty.sif", "ls")


def test_a_description_is_held_to_the_same(place: Place) -> None:
    (place.folder / "kedge.toml").write_text('[job]\nimage = "good.sif"\ncommand = ["--time", "1h"]\n')
    assert "begins with '--time', which is no program" in place.refuse()
    (place.folder / "kedge.toml").write_text('[job]\nimage = "job.sh"\n')
    assert "is a batch script" in place.refuse()


def test_arguments_with_dashes_go_where_they_are_meant(place: Place) -> None:
    shown = place.run("submit", "--dry-run", "--runscript", "good.sif", "--help", check=True).stdout
    assert '"$kedge" run "$image" --help' in shown
    shown = place.run("submit", "--dry-run", "--torchrun", "good.sif", "-m", "package", check=True).stdout
    assert "torchrun --standalone --nproc_per_node=1 -m package" in shown
