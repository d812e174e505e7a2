# SPDX-License-Identifier: BSD-3-Clause
"""`--torchrun` and contracts on images of all ages: what is started, what is refused before the queue, what is unknown.

The images have the files by which releases of PyTorch differ, and a `python` that says how it was called.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping

import pytest

from tests.builders.containers import Runner, each_role, give_to, make_sandbox
from tests.wording import assert_says

CONDA = "opt/conda/lib/python3.8/site-packages"
PYTHON = '#!/bin/sh\necho "python $*; $MASTER_ADDR:$MASTER_PORT"\n'
RELEASES = {"1.8": {"launch.py": '"--use_env"'}, "1.9": {"launch.py": '"--use_env"', "run.py": "main()"}}
RUN, LAUNCH = "python -m torch.distributed.run", "python -m torch.distributed.launch --use_env"
IN_SQUASHFS = ("torch-1.8", "bare")
SLURM = ("submit", "--dry-run", "--site", "generic-slurm", "--gpus", "4", "--time", "1h")


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    for runner in each_role("user", is_warm=True):
        os.chown(runner.folder, runner.uid, runner.uid)
        for version, files in RELEASES.items():
            torch = {f"{CONDA}/torch/distributed/{name}": text for name, text in files.items()}
            torch |= {f"{CONDA}/torch/__init__.py": "", f"{CONDA}/torch/version.py": f"__version__ = '{version}.0'\n"}
            add_image(runner, f"torch-{version}", torch)
        add_image(runner, "bare", {f"{CONDA}/numpy/__init__.py": ""})
        add_image(runner, "hidden", {"srv/x/build/torch/__init__.py": "", "srv/x/build/torch/distributed/run.py": ""})
        add_image(runner, "jax", {f"{CONDA}/jax/__init__.py": ""})
        yield runner


def add_image(runner: Runner, name: str, files: Mapping[str, str]) -> None:
    """A sandbox, a SIF and, of some, a SquashFS file with a Python of conda in PATH, and these files."""
    folder = make_sandbox(runner.folder / name, environment="export PATH=/opt/conda/bin:/usr/bin:/bin")
    for path, text in {"opt/conda/bin/python": PYTHON, **files}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (folder / "opt/conda/bin/python").chmod(0o755)
    give_to(runner, folder)
    runner.read("build", str(folder) + ".sif", str(folder))
    if name in IN_SQUASHFS:
        runner.read("pull", "--format", "squashfs", str(folder) + ".sqsh", str(folder) + ".sif")


def show(runner: Runner, name: str, *words: str, command: tuple[str, ...] = ("train.py",)) -> tuple[str, str]:
    """The script of a submission, and what is said beside it."""
    done = runner.run(*SLURM, *words, str(runner.folder / name), *command)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_submit_says_what_starts_the_processes(runner: Runner) -> None:
    """An old release in each form of an image; the newer one in one form: what is said hangs on the release alone."""
    old = (LAUNCH, "PyTorch 1.8.0 of the image has neither torchrun nor torch.distributed.run")
    new = (RUN, "PyTorch 1.9.0 of the image has no program torchrun")
    for name, (words, lacks) in {**dict.fromkeys(("1.8", "1.8.sif", "1.8.sqsh"), old), "1.9.sif": new}.items():
        script, said = show(runner, f"torch-{name}", "--torchrun")
        assert [line for line in said.splitlines() if "torch.distributed" in line] == [
            f"{words} starts the processes of each node: {lacks}"
        ], name
        assert "launch --site generic-slurm --torchrun --nv" in script, "the node looks again"


def test_scripts_for_other_runtimes_have_the_words_of_the_image(runner: Runner) -> None:
    script, _ = show(runner, "torch-1.9.sif", "--torchrun", "--runtime", "apptainer")
    assert f'"$image" {RUN} --standalone' in " ".join(script.replace("\\\n", "").split())
    script, _ = show(runner, "torch-1.8.sif", "--torchrun", "--runtime", "apptainer")
    assert "export MASTER_PORT=$((" in script
    assert f'{LAUNCH} --nnodes=1 --node_rank=0 --master_addr=127.0.0.1 --master_port="$MASTER_PORT"' in " ".join(
        script.replace("\\\n", "").split()
    )
    script, _ = show(runner, "torch-1.8.sif", "--torchrun", "--nodes", "2", "--runtime", "apptainer")
    assert f"exec {LAUNCH} --nnodes=2 --nproc_per_node=4" in script


@pytest.mark.parametrize(("version", "words"), [("1.8", LAUNCH), ("1.9", RUN)])
def test_launch_starts_what_the_image_has(runner: Runner, version: str, words: str) -> None:
    image = str(runner.folder / f"torch-{version}.sif")
    done = runner.run("launch", "--torchrun", "--processes", "3", image, "train.py", "--epochs", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{words} --nnodes=1 --nproc_per_node=3 --node_rank=0 --master_addr=127.0.0.1 ")
    assert " train.py --epochs 2; 127.0.0.1:" in done.stdout
    shown = runner.read("launch", "--dry-run", "--torchrun", image, "train.py")
    assert f"# {words} starts the processes of each node: PyTorch {version}.0 of the image has " in shown


def test_an_image_without_pytorch_is_refused_before_the_queue(runner: Runner) -> None:
    """By every verb, and in each form of an image."""
    local = ("submit", "--site", "local")
    for words, form in ((SLURM, ""), (local, ""), (local, ".sif"), (local, ".sqsh"), (("launch",), ".sif"),
                        (("launch", "--dry-run"), ".sqsh")):  # fmt: skip
        name = str(runner.folder / f"bare{form}")
        done = runner.run(*words, "--torchrun", name, "train.py")
        assert done.returncode == 93, done.stderr
        assert f"{name} has no PyTorch, which --torchrun needs" in done.stderr
    assert runner.read("jobs", "--site", "local", "--json").strip() == "[]"
    _, said = show(runner, "bare", "--torchrun", "--force")
    assert "has no PyTorch" in said, "a warning"


def test_an_old_pytorch_is_not_elastic(runner: Runner) -> None:
    done = runner.run(*SLURM, "--contract", "elastic", str(runner.folder / "torch-1.8.sif"), "train.py")
    assert done.returncode == 93
    assert "--contract elastic needs torch.distributed.run of PyTorch 1.9 or newer" in done.stderr
    assert "has PyTorch 1.8.0" in done.stderr
    show(runner, "torch-1.9.sif", "--contract", "elastic")


def test_pytorch_at_an_odd_place_is_not_missing(runner: Runner) -> None:
    for suffix in ("", ".sif"):
        _, said = show(runner, f"hidden{suffix}", "--torchrun")
        assert_says(said, "compat/starts-processes-each-node-image", RUN, "PyTorch")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-B", "/tmp:/opt/conda"), "the bind to /opt/conda may bring it"),
        (("-B", "/bin/true:/usr/bin/torchrun"), "the bind to /usr/bin/torchrun may bring it"),
        (("--env", "PYTHONPATH=/sw"), "variables or overlays of the container may bring it"),
    ],
)
def test_what_the_container_gets_from_outside_is_unknown(runner: Runner, words: tuple[str, ...], why: str) -> None:
    _, said = show(runner, "bare.sif", "--torchrun", *words)
    assert_says(said, "launch/unknown-launcher-pytorch-here-job", why)
    done = runner.run(*SLURM, "--torchrun", "-B", "/tmp:/data", str(runner.folder / "bare.sif"), "train.py")
    assert done.returncode == 93, "data is no package"


def test_packages_of_the_home_count_where_the_container_sees_them(runner: Runner) -> None:
    place = runner.home / ".local/lib/python3.8/site-packages/torch"
    place.mkdir(parents=True)
    try:
        why = f"it is in {place.parent} of this host"
        for words in (("--option=--keep", "--option=user-site"), ("--runtime", "apptainer")):
            _, said = show(runner, "bare.sif", "--torchrun", *words)
            assert why in said
        done = runner.run(*SLURM, "--torchrun", str(runner.folder / "bare.sif"), "train.py")
        assert done.returncode == 93, "kedge hides them"
    finally:
        shutil.rmtree(runner.home / ".local/lib/python3.8")


def test_an_image_that_is_not_here_is_unknown(runner: Runner) -> None:
    done = runner.run(*SLURM, "--torchrun", "--pull", "in-job", "docker://127.0.0.1:9/a/b:1", "train.py")
    assert done.returncode == 0, done.stderr
    assert_says(done.stderr, "build/docker-b-not-host-yet")


@pytest.mark.parametrize("role", ["user", "root"])
def test_a_directory_that_cannot_be_read_is_unknown(role: str) -> None:
    for runner in each_role(role, is_warm=True):
        folder = give_to(runner, make_sandbox(runner.folder / "closed"))
        (folder / "srv/inner").mkdir(parents=True)
        (folder / "srv/inner").chmod(0o700)
        done = runner.run(*SLURM, "--torchrun", str(folder), "train.py")
        if runner.uid == 0:
            assert done.returncode == 93, "root reads every directory"
        else:
            assert_says(done.stderr, "launch/unknown-launcher-pytorch-here")


@pytest.mark.parametrize(
    ("contract", "title"), [("lightning", "PyTorch Lightning"), ("horovod", "Horovod"), ("jax", "JAX")]
)
def test_contracts_need_their_packages(runner: Runner, contract: str, title: str) -> None:
    name = str(runner.folder / "bare.sif")
    for words in (SLURM, ("launch", "--dry-run")):
        done = runner.run(*words, "--contract", contract, name, "python", "train.py")
        assert done.returncode == 93, done.stderr
        assert f"{name} has no {title}, which --contract {contract} needs" in done.stderr
    # a program of the user's own may bring it along
    _, said = show(runner, "bare.sif", "--contract", contract, command=("sh", "train.sh"))
    assert_says(said, "launch/unknown-whether-program-finds-no", title, "sh")
    _, said = show(runner, "bare.sif", "--contract", contract, command=("env/bin/python", "train.py"))
    assert_says(said, "compat/env-bin-python-no-python")


def test_contracts_with_their_packages(runner: Runner) -> None:
    _, said = show(runner, "jax.sif", "--contract", "jax", command=("python", "train.py"))
    assert "JAX" not in said
