# SPDX-License-Identifier: BSD-3-Clause
"""Wants to be run in place of `docker://x`: a directory named `docker:` in the current directory, with an image in it.

To the kernel `docker://x` and `docker:/x` are one path. Trees of all schemes, known or not, hold an image that tells
when it is used; the registries that the references mean are not there, so every verb has to fail.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.builders.containers import Runner, give_to, make_sandbox, warm_runner
from tests.builders.images import add_rich_image
from tests.builders.rows import each_row
from tests.fakes.registry import FakeRegistry

TOLD = "SHADOWED"
runner = warm_runner
NOWHERE = "127.0.0.1:9"
PINNED = f"docker://{NOWHERE}/team/rich@sha256:{'0' * 64}"
REFERENCES = (
    *(f"docker://{NOWHERE}/team/rich:1", f"DOCKER://{NOWHERE}/team/rich:1", f" docker://{NOWHERE}/team/rich:1", PINNED),
    *(f"oras://{NOWHERE}/a/b:1", f"library://{NOWHERE}/a/b/c:1", f"http://{NOWHERE}/a.sif", f"https://{NOWHERE}/a.sif"),
    *("instance://nobody", "shub://a/b", "dockerd://a:1", "podman://a:1", "docker-daemon://a:1", "file://no/such"),
    *("foo://a/b", "my_scheme://a.sif", "sub/foo://a.sif", "docker:24.0", "instance:nobody", "oci:layout:1"),
    *("oci-archive:a.tar", "docker-archive:a.tar", "host:no-such-program", "library:a/b/c:1", "HOST:no-such-program"),
)
# IMAGE is the reference; each verb fails, because what it names is not there
VERBS = (
    ("run", "IMAGE"),
    ("shell", "IMAGE"),
    ("test", "IMAGE"),
    ("exec", "--runtime", "podman", "IMAGE", "probe"),
    ("exec", "--overlay", "IMAGE", "GOOD", "cat", "/bin/probe"),
    ("exec", "--overlay", "IMAGE:ro", "GOOD", "cat", "/bin/probe"),
    ("exec", "--mount", "type=bind,source=IMAGE,destination=/mnt", "GOOD", "cat", "/mnt/bin/probe"),
    ("instance", "start", "IMAGE", "shadow"),
    ("instance", "run", "IMAGE", "shadow"),
    ("pull", "--force", "out.sif", "IMAGE"),
    ("push", "IMAGE", f"docker://{NOWHERE}/to/there:1"),
    ("convert", "IMAGE", "out.sqsh"),
    ("convert", "GOOD", "IMAGE"),
    ("alloc", "--site", "local", "IMAGE", "probe"),
    ("pyxis", "get", "IMAGE"),
    ("unpack", "IMAGE"),
    ("sif", "list", "IMAGE"),
    ("sif", "header", "IMAGE"),
    ("sif", "dump", "1", "IMAGE"),
    ("sign", "IMAGE"),
    ("verify", "IMAGE"),
    ("overlay", "create", "--size", "64", "IMAGE"),
)


@pytest.fixture(scope="module")
def shadow(runner: Runner) -> Path:
    """A sandbox that tells that it is used, and a SIF of it."""
    folder = make_sandbox(runner.home / "shadow", runscript=f"echo {TOLD}", environment=f"echo {TOLD} >&2")
    for name in ("bin/probe", ".singularity.d/test", ".singularity.d/startscript"):
        (folder / name).write_text(f"#!/bin/sh\necho {TOLD}\n")
        (folder / name).chmod(0o755)
    (folder / ".singularity.d/labels.json").write_text(json.dumps({"told": TOLD}))
    give_to(runner, folder)
    runner.read("convert", str(folder), str(runner.home / "shadow.sif"))
    assert TOLD in runner.read("exec", str(folder), "probe")
    return folder


@pytest.fixture(scope="module")
def good(runner: Runner) -> str:
    """An image that does nothing wrong."""
    return str(give_to(runner, make_sandbox(runner.home / "good")))


def put_trees(folder: Path, image: Path) -> Path:
    """A directory in which each reference is a path to the image."""
    for text in (*REFERENCES, *(text + ".sif" for text in REFERENCES)):
        path = folder / text
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(path):
            path.symlink_to(image)
    return folder


@pytest.fixture(scope="module")
def project(runner: Runner, shadow: Path) -> Path:
    """The hostile directory, with the sandbox in it."""
    return give_to(runner, put_trees(runner.home / "project", shadow))


@pytest.fixture(scope="module")
def trees(runner: Runner, shadow: Path, project: Path) -> dict[str, Path]:
    """That one, and the same with the SIF."""
    files = put_trees(runner.home / "project-with-files", shadow.with_name("shadow.sif"))
    return {"project": project, "files": give_to(runner, files)}


def attack(runner: Runner, project: Path, *words: str) -> int:
    """Run a verb in the hostile directory; its status. Nothing of the image is seen."""
    done = runner.run(*words, cwd=project, env={"KEDGE_RETRIES": "0"})
    assert TOLD not in done.stdout + done.stderr, f"{words}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


@each_row("reference", REFERENCES)
def test_no_reference_is_a_file(runner: Runner, project: Path, reference: str) -> None:
    """Whether a text is a path is decided in one place for all verbs: exec is asked about every text.

    Others, which read it in ways of their own: about one of a registry, one of an unknown scheme, one without slashes.
    """
    assert attack(runner, project, "exec", reference, "probe") != 0
    if reference not in (PINNED, "foo://a/b", "oci:layout:1"):
        return
    assert attack(runner, project, "inspect", reference) != 0
    (project / "kedge.toml").write_text(f"[job]\nimage = {json.dumps(reference)}\ncommand = ['probe']\ntime = '1m'\n")
    assert attack(runner, project, "submit", "--site", "local") != 0


FILES = ("sif", "sign", "verify", "push", "convert", "overlay", "unpack")


def list_meetings(words: tuple[str, ...]) -> list[tuple[str, str]]:
    """Verbs of files meet a file, the others a directory; those that go on to a registry or a runtime both texts."""
    is_both = words[0] in ("convert", "push", "unpack")
    forms = ["project"] * (is_both or words[0] not in FILES) + ["files"] * (is_both or words[0] in FILES)
    others = [("project", "foo://a/b")] if words[0] in ("run", "convert", "push", "pull") else []
    return [*((form, PINNED) for form in forms), *others]


@each_row("words", VERBS)
def test_no_verb_takes_the_file(runner: Runner, trees: dict[str, Path], good: str, words: tuple[str, ...]) -> None:
    sif = runner.home / "shadow.sif"
    before = sif.read_bytes()
    for form, reference in list_meetings(words):
        named = [good if word == "GOOD" else word.replace("IMAGE", reference) for word in words]
        assert attack(runner, trees[form], *named) != 0, named
        assert sif.read_bytes() == before


def test_what_tells_of_an_image_tells_of_the_reference(runner: Runner, project: Path) -> None:
    for reference in (PINNED, "foo://a/b"):
        attack(runner, project, "explain", "--offline", reference)
        attack(runner, project, "doctor", reference)


def test_the_shim_does_not_take_the_file(runner: Runner, project: Path) -> None:
    from kedge.cli.shims.shim_words import translate

    for reference in (PINNED, "foo://a/b", "oci:layout:1"):
        for words in (("exec", reference, "probe"), ("build", "--force", "out.sif", reference), ("inspect", reference)):
            assert attack(runner, project, *translate("apptainer", list(words)).words) != 0


def test_a_reference_that_exists_is_the_registrys(runner: Runner, shadow: Path) -> None:
    with FakeRegistry() as registry:
        digest = add_rich_image(registry)
        for name in (f"{registry.host}/team/rich:1", f"{registry.host}/team/rich@{digest}"):
            path = runner.home / "docker:" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(shadow)
            assert attack(runner, runner.home, "exec", f"docker://{name}", "cat", "/data/replaced") == 0


def test_a_path_that_says_so_is_a_file(runner: Runner, project: Path) -> None:
    for text in (f"./{PINNED}", f"{project}/{PINNED}", "./foo://a/b", "./oci:layout:1", "file:oci:layout:1"):
        assert TOLD in runner.read("exec", text, "probe", cwd=project)
    (project / "pytorch:21.06-py3").symlink_to(project / "foo:/a/b")
    assert TOLD in runner.read("exec", "pytorch:21.06-py3", "probe", cwd=project)
    assert TOLD in runner.read("inspect", "pytorch:21.06-py3", cwd=project)
