# SPDX-License-Identifier: BSD-3-Clause
"""--nv with a driver that has no GPU behind it: its libraries get inside, and a program computes with them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.image.host_programs.packer import pack_host
from tests.builders.folder_sink import MemorySink, write_tree
from tests.requirements import REPOSITORY, open_way, require_program, require_user_namespaces
from tests.wording import assert_says

SOURCES = REPOSITORY / "tests" / "gpu"
LIBRARIES = "/.singularity.d/libs"
VERSION = "580.95.05"


class Place:
    """A directory with an image and a driver, and how to run kedge there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.image, self.driver = folder, folder / "image", folder / "driver"

    def execute(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environ = {
            "PATH": f"{self.driver}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "LD_LIBRARY_PATH": str(self.driver),
            "KEDGE_CACHEDIR": str(self.folder / "cache"),
            **variables,
        }
        options = list(words[: words.index("--")])
        command = [sys.executable, "-m", "kedge", "exec", *options, str(self.image), *words[words.index("--") + 1 :]]
        return subprocess.run(command, cwd=self.folder, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """An image of a few programs without any driver, and a driver directory with libcuda and libnvidia-ml."""
    if any(Path("/dev").glob("nvidia*")):
        pytest.skip("there is a real driver here: tests/gpu/run tries it")
    require_user_namespaces()
    compiler = require_program("gcc")
    place = Place(tmp_path_factory.mktemp("devices"))
    write_tree(pack_host(["sh", "cat", "ls", "env"], MemorySink()).root, place.image)
    for name in ("tmp", "proc", "sys", "dev", "opt"):
        (place.image / name).mkdir(exist_ok=True)
    program = place.image / "opt" / "vector_add"
    subprocess.run([compiler, "-std=gnu11", "-o", program, SOURCES / "vector_add.c", "-ldl"], check=True)
    place.driver.mkdir()
    for stem in ("libcuda", "libnvidia-ml"):
        library = place.driver / f"{stem}.so.{VERSION}"
        flags = ["-std=gnu11", "-shared", "-fPIC", f"-Wl,-soname,{stem}.so.1"]
        subprocess.run([compiler, *flags, "-o", library, SOURCES / "fake_libcuda.c"], check=True)
        (place.driver / f"{stem}.so.1").symlink_to(library.name)
    (place.driver / "libnvidia-ml.so.470.1.1").write_bytes(b"of another driver")
    script = place.driver / "nvidia-smi"
    script.write_text("#!/bin/sh\necho 'GPU 0: Fake'\n")
    script.chmod(0o755)
    open_way(place.folder)
    return place


@pytest.mark.parametrize("options", [("--nv",), ("--nv", "--containall"), ("--nv", "--cleanenv")])
def test_devices_program_computes_with_the_hosts_libcuda(place: Place, options: tuple[str, ...]) -> None:
    done = place.execute(*options, "--", "/opt/vector_add", CUDA_VISIBLE_DEVICES="0")
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["libcuda"].startswith(LIBRARIES)
    assert answer["wrong"] == 0


def test_devices_names_and_programs_are_there(place: Place) -> None:
    names = place.execute("--nv", "--", "ls", LIBRARIES).stdout.split()
    expected = [f"{stem}{end}" for stem in ("libcuda", "libnvidia-ml") for end in (".so", ".so.1", f".so.{VERSION}")]
    assert sorted(names) == sorted(expected)
    assert place.execute("--nv", "--", "nvidia-smi").stdout == "GPU 0: Fake\n"


def test_devices_without_the_flag_nothing_is_there(place: Place) -> None:
    done = place.execute("--", "/opt/vector_add")
    assert done.returncode == 2
    assert "no libcuda" in done.stdout


def test_devices_missing_gpu_is_said_and_the_program_runs(place: Place) -> None:
    done = place.execute("--nv", "--", "/opt/vector_add")
    assert done.returncode == 0
    assert "no NVIDIA GPU" in done.stderr


def test_devices_hidden_gpu_is_said(place: Place) -> None:
    done = place.execute("--nv", "--", "/opt/vector_add", CUDA_VISIBLE_DEVICES="-1")
    assert done.returncode == 3
    assert "CUDA_ERROR_NO_DEVICE" in done.stdout
    assert "will see no GPU" in done.stderr


@pytest.mark.parametrize("options", [("--nv",), ("--nv", "--containall")])
def test_devices_choice_of_the_scheduler_stays(place: Place, options: tuple[str, ...]) -> None:
    done = place.execute(*options, "--", "env", CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert {"CUDA_VISIBLE_DEVICES=0", "CUDA_DEVICE_ORDER=PCI_BUS_ID"} <= set(done.stdout.splitlines())


def test_devices_older_libcuda_of_the_image_is_not_taken(place: Place) -> None:
    folder = place.image / "usr/local/cuda/compat"
    scripts = place.image / ".singularity.d/env"
    folder.mkdir(parents=True)
    scripts.mkdir(parents=True, exist_ok=True)
    (folder / "libcuda.so.470.57.02").write_text("not a library")
    (folder / "libcuda.so.1").symlink_to("libcuda.so.470.57.02")
    script = scripts / "10-docker2singularity.sh"
    script.write_text("export LD_LIBRARY_PATH=/usr/local/cuda/compat\n")
    try:
        done = place.execute("--nv", "--verbose", "--", "/opt/vector_add")
    finally:
        shutil.rmtree(folder)
        script.unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["libcuda"].startswith(LIBRARIES)
    assert_says(done.stderr, "run/host-libcuda-used-newer-images", VERSION)


def test_devices_by_name_need_a_specification(place: Place) -> None:
    done = place.execute("--device", "vendor.com/thing=0", "--cdi-dirs", "/nowhere", "--", "ls")
    assert done.returncode == 255
    assert "no CDI files in" in done.stderr
    assert "Traceback" not in done.stderr


def test_devices_by_name_are_given(place: Place) -> None:
    folder = place.folder / "cdi"
    folder.mkdir()
    (place.folder / "message").write_text("from the host\n")
    edits = (
        f"mounts:\n      - hostPath: {place.folder}/message\n        containerPath: /opt/message\n        options: [ro]"
    )
    (folder / "thing.yaml").write_text(
        f"cdiVersion: 0.5.0\nkind: vendor.com/thing\ndevices:\n  - name: x\n    containerEdits:\n      {edits}\n"
        "      env:\n      - THING=1\n"
    )
    options = ("--device", "vendor.com/thing=x", "--cdi-dirs", str(folder))
    done = place.execute(*options, "--", "cat", "/opt/message")
    assert done.stdout == "from the host\n", done.stderr
    assert "THING=1" in place.execute(*options, "--", "env").stdout.splitlines()
