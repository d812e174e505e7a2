# SPDX-License-Identifier: BSD-3-Clause
"""What `kedge submit` refuses before anything is queued, as `kedge exec` does, and the line it says to type instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders.queue_user import QueueUser
from tests.builders.rows import each_row
from tests.wording import assert_says

BATCH = "#!/bin/bash\n#SBATCH --nodes=1\nsrun hostname\n"
FILES = {
    "job.sh": BATCH.encode(),
    "sge.sh": b"#!/bin/bash\n#$ -l rt_F=1\nhostname\n",
    "train.py": b"print('hello')\n",
    "tool": b"\x7fELF" + bytes(2000),
    "empty.sif": b"",
    "text.sif": b"<html>login</html>",
}


class User(QueueUser):
    """Somebody whose home has files that are no images, and one that is."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, KEDGE_SITE="local")
        for name, content in FILES.items():
            (folder / name).write_bytes(content)
        self.run("pull", "good.sif", "host:true")
        (folder / "half.sif").write_bytes((folder / "good.sif").read_bytes()[:60000])

    def refused(self, *words: str) -> str:
        """What `kedge submit` says that refuses this and queues nothing."""
        done = self.run("submit", *words, check=False)
        assert done.returncode not in (0, 1)
        assert "Traceback" not in done.stderr
        assert json.loads(self.read("jobs", "--json")) == []
        assert not list(self.folder.glob("*.out"))
        return done.stderr


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    return User(tmp_path_factory.mktemp("refusals"))


@each_row(
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
        (["python", "train.py"], "image file 'python' not found", "kedge submit - python train.py"),
        (["python", "train.py"], "image file 'python' not found", "docker://python"),
        (
            ["--site", "local", "python", "train.py"],
            "image file 'python' not found",
            "kedge submit --site local - python",
        ),
        (["--site", "local", "train.py"], "not an image", "'kedge submit --site local IMAGE python ./train.py'"),
        (["scripts/train.py"], "image file 'scripts/train.py' not found", "docker://scripts/train.py"),
        (["-v", "/data:/data", "good.sif", "ls"], "-v is short for --verbose", "to bind a directory: -B /data:/data"),
        (["--env", "A=1", "B=2", "good.sif", "ls"], "'B=2' is in the place of the image", "--env A=1 --env B=2"),
        (["good.sif", "--time", "1h", "ls"], "'--time' is in the place of the command", "submit --time 1h good.sif ls"),
        (["good.sif", "--", "ls", "-l"], "'--' is in the place of the command", "type: kedge submit good.sif ls -l"),
        (["--mem", "1G", "good.sif", "--gpus=1", "-J", "x", "ls"], "--gpus", "--mem 1G --gpus=1 -J x good.sif ls"),
        (["good.sif", "--tme", "1h", "ls"], "'--tme' is in the place of the command", "did you mean '--time'?"),
        (["-", "--time", "1h", "ls"], "'--time' is in the place of the command", "kedge submit --time 1h - ls"),
    ],
)
def test_what_is_no_image_or_no_command_is_not_queued(user: User, words: list[str], what: str, instead: str) -> None:
    said = user.refused(*words)
    assert what in said
    assert instead in said.partition("hint: ")[2]


def test_a_dry_run_refuses_them_too(user: User) -> None:
    assert "empty file" in user.refused("--dry-run", "empty.sif", "ls")


def test_a_description_is_held_to_the_same(user: User) -> None:
    (user.folder / "kedge.toml").write_text('[job]\nimage = "good.sif"\ncommand = ["--time", "1h"]\n')
    assert_says(user.refused(), "submit/begins-not-program", "--time")
    (user.folder / "kedge.toml").write_text('[job]\nimage = "job.sh"\n')
    assert "is a batch script" in user.refused()


def test_arguments_with_dashes_go_where_they_are_meant(user: User) -> None:
    shown = user.read("submit", "--dry-run", "--runscript", "good.sif", "--help")
    assert '"$kedge" run --record-to "$run_record" "$image" --help' in shown
    shown = user.read("submit", "--dry-run", "--force", "--torchrun", "good.sif", "-m", "package")
    assert '"$kedge" launch' in shown
    assert "--torchrun" in shown
    assert '"$image" -m package' in shown
