# SPDX-License-Identifier: BSD-3-Clause
"""Commands shown in README and docs/ are run, in a fresh home and folder per page, and show what the page says.

Blocks below `<!-- run -->` are. docker.io, nvcr.io and registry.example.org lead to a registry in this process, by
way of registries.conf. Needs openssl for the page about signatures.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.model.manifest import DOCKER_LIST, OCI_MANIFEST
from tests.builders import layers as build
from tests.builders.documents import list_running_pages, read_steps
from tests.builders.images import MACHINE, make_config
from tests.fakes.registry import FakeRegistry
from tests.requirements import REPOSITORY, require_program

SIZE = re.compile(r"\b\d+(?:\.\d+)? [kMGT]?B\b")
RUNNING = [str(page.relative_to(REPOSITORY)) for page in list_running_pages()]


IMAGES = (("library/ubuntu", "24.04"), ("nvidia/pytorch", "24.03-py3"), ("nvidia/cuda", "12.4.1-devel-ubuntu22.04"))
HOSTS = ("docker.io", "nvcr.io", "registry.example.org")


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    """The images that the pages pull, each for two architectures and very small."""
    tar = build.layer(build.folder("etc"), build.file("etc/hello", b"hello\n"))
    with FakeRegistry() as running:
        for repository, tag in IMAGES:
            entries = []
            for architecture in sorted({"amd64", "arm64", MACHINE}):
                config = make_config([tar], {"Cmd": ["/bin/sh"]}, architecture)
                digest = running.add_image(repository, architecture, [build.compress(tar)], config)
                size = len(running.manifests[repository, architecture][0])
                platform = {"architecture": architecture, "os": "linux"}
                entries.append({"mediaType": OCI_MANIFEST, "digest": str(digest), "size": size, "platform": platform})
            index = {"schemaVersion": 2, "mediaType": DOCKER_LIST, "manifests": entries}
            running.add_manifest(repository, tag, json.dumps(index).encode(), DOCKER_LIST)
        yield running


def make_environment(place: Path, registry: FakeRegistry) -> dict[str, str]:
    """A user who has kedge on PATH and nothing else."""
    mirrors = place / "registries.conf"
    rules = [f'[[registry]]\nprefix = "{host}"\nlocation = "{registry.host}"\ninsecure = true\n' for host in HOSTS]
    mirrors.write_text("".join(rules))
    programs = place / "bin"
    programs.mkdir()
    kedge = programs / "kedge"
    kedge.write_text(f'#!/bin/sh\nexec {sys.executable} -m kedge "$@"\n')
    kedge.chmod(0o755)
    home = place / "home"
    home.mkdir()
    return {
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(home),
        "PYTHONPATH": str(REPOSITORY / "src"),
        "CONTAINERS_REGISTRIES_CONF": str(mirrors),
        "KEDGE_SITE_CONFIG": str(place / "no-site-config.toml"),
        "LANG": "C.UTF-8",
        "USER": os.environ.get("USER", "user"),
    }


def is_shown(line: str, output: str) -> bool:
    """Whether a line of the page is in what was printed; `…` stands for anything, and sizes may differ."""
    words = SIZE.sub("SIZE", line).split()
    pattern = r"\s+".join(".*".join(map(re.escape, word.split("…"))) for word in words)
    return re.search(rf"^\s*{pattern}\s*$", SIZE.sub("SIZE", output), re.MULTILINE) is not None


def test_docs_there_are_pages_to_run() -> None:
    assert "README.md" in RUNNING
    assert len(RUNNING) >= 6


@pytest.mark.parametrize("name", RUNNING)
def test_docs_commands_do_what_the_page_shows(name: str, tmp_path: Path, registry: FakeRegistry) -> None:
    if name.endswith("signing.md"):
        require_program("openssl")
    environment = make_environment(tmp_path, registry)
    folder = tmp_path / "folder"
    folder.mkdir()
    for step in read_steps(REPOSITORY / name):
        done = subprocess.run(
            ["bash", "-c", step.command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
        )
        output = done.stdout.decode()
        should_fail = any(line.startswith("kedge: ") for line in step.shown)
        assert (done.returncode != 0) == should_fail, f"{name}: {step.command}\nstatus {done.returncode}\n{output}"
        missing = [line for line in step.shown if not is_shown(line, output)]
        assert not missing, f"{name}: {step.command}\ndoes not show {missing}\nbut:\n{output}"
