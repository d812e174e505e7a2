# SPDX-License-Identifier: BSD-3-Clause
"""A Python that was built with an old C library, as those of conda and uv often are, lacks calls of newer ones."""

from __future__ import annotations

import json
import site
import subprocess
import sys
import venv

import pytest

from tests.builders.containers import Runner, give_to, open_way
from tests.builders.images import hash_file, make_config, noise
from tests.builders.layers import compress, file, layer
from tests.fakes.registry import FakeRegistry
from tests.requirements import REPOSITORY

pytestmark = pytest.mark.timeout(180)

# glibc 2.17 and its kernel's headers have none of these
STRIPPED = """
import fcntl, os, signal
for module, names in (
    (os, ("memfd_create", "MFD_CLOEXEC", "MFD_ALLOW_SEALING", "copy_file_range", "pidfd_open", "O_TMPFILE", "splice",
          "eventfd")),
    (fcntl, ("F_ADD_SEALS", "F_GET_SEALS")),
    (signal, ("pidfd_send_signal",)),
):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
spawn = os.posix_spawn
def posix_spawn(*words, setsid=False, **named):
    if setsid:
        raise NotImplementedError("posix_spawn: setsid unavailable on this platform")
    return spawn(*words, **named)
os.posix_spawn = posix_spawn
"""


@pytest.fixture(scope="module")
def older(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    folder = tmp_path_factory.mktemp("older")
    venv.create(folder, symlinks=False)  # the user's own, which images must not be able to change
    packages = folder / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    (packages / "older_calls.py").write_text(STRIPPED)
    paths = [str(REPOSITORY / "src"), *site.getsitepackages(), "import older_calls"]
    (packages / "older.pth").write_text("\n".join(paths) + "\n")
    command = folder / "bin/kedge"  # jobs look for it
    command.write_text(f"#!{folder}/bin/python\nfrom kedge.cli.entry import main\nraise SystemExit(main())\n")
    command.chmod(0o755)
    give_to(runner, folder)
    open_way(folder)
    environment = {**runner.environment, "PATH": f"{folder}/bin:/usr/bin:/bin"}
    return Runner(runner.folder, runner.uid, environment, program=(f"{folder}/bin/python", "-m", "kedge"))


def test_calls_are_missing_there(older: Runner) -> None:
    asked = "import os, json; print(json.dumps([hasattr(os, x) for x in ('memfd_create', 'pidfd_open')]))"
    done = subprocess.run([older.program[0], "-c", asked], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == [False, False]


def test_images_are_packed_started_and_submitted(older: Runner) -> None:
    older.read("pull", "p.sif", "host:sh,ls,cat,true,sleep")
    assert "bin" in older.read("exec", "p.sif", "ls", "/").split()
    assert "bin" in older.read("exec", "--root-from", "unpack", "p.sif", "ls", "/").split()
    older.read("submit", "--site", "local", "--time", "1m", "p.sif", "true")
    older.read("wait")
    older.read("instance", "start", "p.sif", "older")
    older.read("instance", "stop", "older")
    assert older.read("launch", "--ranks", "--tasks", "2", "p.sif", "cat", "/proc/self/comm").count("cat") == 2


def test_layers_have_processes(older: Runner) -> None:
    with FakeRegistry() as registry:
        tars = [layer(file(f"{number}", noise(9_000_000, str(number)))) for number in range(2)]
        registry.add_image("team/large", "1", [compress(tar) for tar in tars], make_config(tars))
        for threads in ("1", "8"):
            own = {"KEDGE_CACHEDIR": f"{older.home}/cache-{threads}"}  # else the second would be a copy
            reference = f"docker://{registry.host}/team/large:1"
            older.read("pull", "--threads", threads, f"{threads}.sif", reference, env=own)
    assert hash_file(older.home / "1.sif") == hash_file(older.home / "8.sif")
