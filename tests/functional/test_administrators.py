# SPDX-License-Identifier: BSD-3-Clause
"""What docs/administrators.md tells administrators to type: bundle, defaults, shared images and a shared cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.system.settings import Settings
from tests.builders.documents import read_tool_files, read_tool_steps
from tests.builders.images import add_rich_image, kedge
from tests.builders.pypi_tools import UNREACHABLE
from tests.fakes.registry import FakeRegistry
from tests.requirements import REPOSITORY, open_way, require_program

PAGE = REPOSITORY / "docs/administrators.md"
STEPS = read_tool_steps(PAGE)


def run_steps(name: str, place: Path, *before: str, replaced: dict[str, str]) -> str:
    """Type the lines below `<!-- tool: NAME -->` in a directory, with places and groups of the test."""
    script = "set -e\n" + "\n".join(step.command for step in STEPS[name])
    for old, new in replaced.items():
        script = script.replace(old, new)
    done = subprocess.run(
        [*before, "bash", "-c", script], cwd=place, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_bundle_installs_kedge_without_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [make, pack] = STEPS["bundle"]
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PIP_NO_COMPILE", "1")  # half of the time
    command = make.command.replace("kedge-bundle", str(tmp_path / "kedge-bundle"))
    made = subprocess.run(command.split(), cwd=REPOSITORY, capture_output=True, text=True, timeout=280, check=False)
    if made.returncode:
        pytest.skip(f"{UNREACHABLE}: {made.stderr.strip()[-300:]}")
    subprocess.run(pack.command.split(), cwd=tmp_path, check=True)
    offline = [require_program("unshare"), "--map-root-user", "--net"]
    said = run_steps("cluster", tmp_path, *offline, replaced={"/opt/kedge": str(tmp_path / "opt")})
    assert said.startswith("kedge ")


def test_defaults_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [(path, text)] = read_tool_files(PAGE, "defaults").items()
    assert path == "/etc/kedge/config.toml"
    (tmp_path / "config.toml").write_text(text)
    environ = {"HOME": str(tmp_path), "USER": "me", "KEDGE_SITE_CONFIG": str(tmp_path / "config.toml")}
    settings = Settings.load({}, environ)
    assert str(settings.scratch_directory) == "/scratch/me"
    assert (settings.download_connections, settings.site) == (2, "generic-slurm")


def test_images_in_a_directory_are_for_all(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        add_rich_image(registry)
        for step in STEPS["directory"]:
            words = (
                step.command.replace("/apps/images", str(tmp_path))
                .replace("registry.example.org", registry.host)
                .split()
            )
            if words[0] == "kedge":
                kedge(*words[1:], cache=tmp_path / "cache")
            else:
                subprocess.run(words, check=True)
    assert (tmp_path / "tools.sif").stat().st_mode & 0o777 == 0o644


@pytest.mark.root
def test_shared_cache_serves_the_whole_group(tmp_path: Path) -> None:
    """Two users of one group: what the first has pulled, the second does not download again."""
    group = 20000 + os.getpid() % 1000
    open_way(tmp_path)
    run_steps("shared", tmp_path, replaced={"/scratch": str(tmp_path), "chgrp team": f"chgrp {group}"})
    with FakeRegistry() as registry:
        add_rich_image(registry)
        asked = [pull_as(user, group, tmp_path, registry) for user in (group + 1, group + 2)]
    assert asked[0] > 0
    assert asked[1] == 0


def pull_as(user: int, group: int, place: Path, registry: FakeRegistry) -> int:
    """Pull as a member of the group; how many blobs were downloaded."""
    home = place / str(user)
    home.mkdir()
    os.chown(home, user, group)
    command = f"umask 007; exec {sys.executable} -m kedge pull {home}/x.sif docker://{registry.host}/team/rich:1"
    member = [require_program("setpriv"), f"--reuid={user}", f"--regid={group}", "--clear-groups"]
    own = {"HOME": str(home), "KEDGE_CACHEDIR": str(place / "team-cache"), "KEDGE_SHARED_CACHE": "yes"}
    own["KEDGE_SITE_CONFIG"] = str(home / "none.toml")
    before = count_blobs(registry)
    done = subprocess.run(
        [*member, "sh", "-c", command],
        env={**os.environ, **own},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return count_blobs(registry) - before


def count_blobs(registry: FakeRegistry) -> int:
    return len([each for each in registry.server.log if "/blobs/" in each.path])
