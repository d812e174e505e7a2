# SPDX-License-Identifier: BSD-3-Clause
"""Commands shown in README and docs/ are run, in a fresh home and directory per page, and show what the page says.

Blocks below `<!-- run -->` are, beside the page's files (`<!-- file: run NAME -->`). docker.io, nvcr.io and
registry.example.org lead to a registry in this process, by way of registries.conf.
Needs openssl for the page about signatures, user namespaces for those that run containers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.manifest import DOCKER_LIST, OCI_MANIFEST
from tests.builders import layers as build
from tests.builders.busybox import read_busybox
from tests.builders.containers import as_user, is_start
from tests.builders.documents import Step, list_running_pages, read_steps, read_tool_files
from tests.builders.images import MACHINE, make_config
from tests.builders.rows import each_row
from tests.builders.warm_kedge import run_kedge
from tests.fakes.ngc import fill_registry
from tests.fakes.registry import FakeRegistry
from tests.requirements import REPOSITORY, require_program, require_user_namespaces

# one command, no word of which means anything to a shell but its quotes, and a comment
PLAIN = re.compile(r"""kedge(?: +(?:[\w./:=@,+%-]+|'[^'#]*'|"[^"#$`\\]*"))+(?: +#.*)?""")
SIZE = re.compile(r"\b\d+(?:\.\d+)? [kMGT]?B\b")
RUNNING = [str(page.relative_to(REPOSITORY)) for page in list_running_pages()]


IMAGES = (("library/ubuntu", "24.04"), ("nvidia/pytorch", "24.03-py3"), ("nvidia/cuda", "12.4.1-devel-ubuntu22.04"))
HOSTS = ("docker.io", "nvcr.io", "registry.example.org")


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    """The images that the pages pull, for two architectures and very small, among the real releases they explain."""
    programs = [build.symlink(f"bin/{name}", "busybox") for name in ("sh", "cat", "ls")]
    python = b"#!/bin/sh\necho Python 3.10.12\n"  # of the PyTorch image, as far as the pages need it
    tar = build.layer(
        *(build.folder(name) for name in ("bin", "etc", "usr", "usr/bin")),
        *(build.file("bin/busybox", read_busybox(), mode=0o755), *programs),
        build.file("etc/os-release", b'PRETTY_NAME="Ubuntu 24.04 LTS"\n'),
        build.file("usr/bin/python", python, mode=0o755),
    )
    with FakeRegistry() as running:
        fill_registry(running)
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
        "KEDGE_NODEDIR": str(place / "node"),
        "KEDGE_SITE_CONFIG": str(place / "no-site-config.toml"),
        "LANG": "C.UTF-8",
        "USER": os.environ.get("USER", "user"),
    }


def is_shown(line: str, output: str) -> bool:
    """Whether a line of the page is in what was printed; `…` stands for anything, and sizes may differ."""
    words = SIZE.sub("SIZE", line).split()
    pattern = r"\s+".join(".*".join(map(re.escape, word.split("…"))) for word in words)
    return re.search(rf"^\s*{pattern}\s*$", SIZE.sub("SIZE", output), re.MULTILINE) is not None


def is_failure(line: str) -> bool:
    """Whether a line of the page is an error of kedge's, not a warning or a note."""
    return line.startswith("kedge: ") and not line.startswith(("kedge: warning: ", "kedge: instance "))


def test_docs_there_are_pages_to_run() -> None:
    assert "README.md" in RUNNING
    assert len(RUNNING) >= 6


@pytest.mark.parametrize("name", RUNNING)
def test_docs_commands_do_what_the_page_shows(name: str, tmp_path: Path, registry: FakeRegistry) -> None:
    if name.endswith("signing.md"):
        require_program("openssl")
    steps = read_steps(REPOSITORY / name)
    if os.geteuid() != 0 and any("kedge exec" in step.command for step in steps):
        require_user_namespaces()
    environment = make_environment(tmp_path, registry)
    folder = tmp_path / "folder"
    folder.mkdir()
    for path, text in read_tool_files(REPOSITORY / name, "run").items():
        (folder / path).write_text(text)
    try:
        for step in steps:
            judge_step(name, step, folder, environment)
    finally:
        if any("kedge instance start" in step.command for step in steps):
            run_command("kedge instance stop --all", folder, environment)


def judge_step(name: str, step: Step, folder: Path, environment: dict[str, str], uid: int | None = None) -> None:
    status, output = run_command(step.command, folder, environment, uid)
    should_fail = any(is_failure(line) for line in step.shown) and "||" not in step.command
    assert (status != 0) == should_fail, f"{name}: {step.command}\nstatus {status}\n{output}"
    missing = [line for line in step.shown if not is_shown(line, output)]
    assert not missing, f"{name}: {step.command}\ndoes not show {missing}\nbut:\n{output}"


def run_command(command: str, folder: Path, environment: dict[str, str], uid: int | None = None) -> tuple[int, str]:
    """Type it in bash; a plain command of kedge that starts no container is run by a kedge that is loaded already."""
    line = command.replace("\\\n", " ")
    if PLAIN.fullmatch(line) and not is_start(words := shlex.split(line, comments=True)[1:]):
        typed = run_kedge(words, environment=environment, folder=folder, user=uid, timeout=120)
        return typed.returncode, typed.stderr + typed.stdout
    done = subprocess.run(
        as_user(os.getuid() if uid is None else uid, ["bash", "-c", command]),
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def test_docs_tasks_say_which_commands_no_test_runs() -> None:
    fence = re.compile(r"^(?P<before>[^\n]*)\n(?P<between>\n?)```console\n", re.MULTILINE)
    unsaid = [
        f"{page.name}: {block['before']}"
        for page in sorted((REPOSITORY / "docs/tasks").glob("*.md"))
        for block in fence.finditer(page.read_text())
        if not block["before"].startswith(("<!-- run -->", "<!-- tool: ", "_Not run by a test: "))
    ]
    assert unsaid == []


@each_row("page", sorted((REPOSITORY / "docs/sites").glob("*.md")), ids=lambda page: page.stem)
def test_docs_sites_say_that_no_test_runs_them_there(page: Path) -> None:
    assert page.read_text().split("\n\n")[1].startswith("_No test runs this page at the site: ")
