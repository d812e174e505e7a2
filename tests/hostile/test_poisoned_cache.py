# SPDX-License-Identifier: BSD-3-Clause
"""A program wants its bytes in the images that are pulled after it ran.

It is contained and may write one file, a SIF that kedge delivered: it changes bytes in place and sets the times back.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.digest import Digest
from kedge.base.platform import Platform
from tests.builders import layers as build
from tests.builders.busybox import read_busybox
from tests.builders.containers import Runner, each_role, give_to, make_sandbox
from tests.fakes.registry import FakeRegistry

HONEST, POISON = b"these are the honest bytes", b"these are the poison bytes"


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    yield from each_role(getattr(request, "param", "user"), is_warm=True)


@pytest.fixture
def hostile(runner: Runner) -> str:
    """The image that the program comes from."""
    return str(give_to(runner, make_sandbox(runner.folder / "hostile")))


@pytest.fixture
def reference() -> Iterator[str]:
    """An image that has nothing to do with it."""
    tar = build.layer(
        build.folder("bin"),
        build.file("bin/busybox", read_busybox(), mode=0o755),
        build.symlink("bin/cat", "busybox"),
        build.symlink("bin/sh", "busybox"),
        build.file("motd", HONEST),
    )
    config = {
        "architecture": Platform.host().architecture,
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [str(Digest.of(tar))]},
    }
    with FakeRegistry() as registry:
        registry.add_image("team/app", "1", [build.compress(tar)], json.dumps(config).encode())
        yield f"docker://{registry.host}/team/app:1"


def pull(runner: Runner, name: str, reference: str, *words: str) -> tuple[Path, str]:
    """Pull as the user, from the home; what was said on the way."""
    done = runner.run("pull", "--compress", "none", *words, name, reference)
    assert done.returncode == 0, done.stderr
    return runner.home / name, done.stderr


def poison(runner: Runner, hostile: str, victim: Path, old: bytes = HONEST, new: bytes = POISON) -> None:
    """Run the hostile program."""
    before, place = victim.stat(), victim.read_bytes().index(old)
    script = (
        f"touch -r /victim /tmp/times && printf '{new.decode()}' | "
        f"dd of=/victim bs=1 seek={place} conv=notrunc 2>/dev/null && touch -r /tmp/times /victim"
    )
    runner.read("exec", "--contain", "-B", f"{victim}:/victim", hostile, "sh", "-c", script)
    after = victim.stat()
    assert new in victim.read_bytes(), "the attack itself works"
    with contextlib.suppress(OSError):  # where the program's clock is coarse, it is helped
        os.utime(victim, ns=(after.st_atime_ns, before.st_mtime_ns))
    assert (victim.stat().st_mtime_ns, after.st_size, after.st_ino) == (
        before.st_mtime_ns,
        before.st_size,
        before.st_ino,
    )


MODES = ((), ("--link-mode", "hardlink"), ("--link-mode", "copy"))


# Root, whom no mode of a file stops, has its turn where the file is the cache's own
@pytest.mark.parametrize(
    ("runner", "words"), [*(("user", words) for words in MODES), ("root", MODES[1])], indirect=["runner"]
)
def test_a_poisoned_delivery_is_never_delivered_again(
    runner: Runner, hostile: str, reference: str, words: tuple[str, ...]
) -> None:
    first, _ = pull(runner, "first.sif", reference, *words)
    assert runner.read("exec", str(first), "cat", "/motd") == HONEST.decode()
    poison(runner, hostile, first)
    for name in ("second.sif", "third.sif"):
        again, _ = pull(runner, name, reference, *words)
        assert POISON not in again.read_bytes()
        assert runner.read("exec", str(again), "cat", "/motd") == HONEST.decode()
    pull(runner, "first.sif", reference, "--force", *words)
    assert runner.read("exec", str(first), "cat", "/motd") == HONEST.decode()
    assert runner.read("exec", reference, "cat", "/motd") == HONEST.decode()


def test_what_was_poisoned_is_said_once_and_the_registry_is_not_needed(
    runner: Runner, hostile: str, reference: str
) -> None:
    first, _ = pull(runner, "first.sif", reference)
    if (runner.folder / "cache/images").exists():
        pytest.skip("this file system shares blocks: the cache has bytes of its own")
    poison(runner, hostile, first)
    again, said = pull(runner, "second.sif", reference, "--offline")
    assert said.count(f"{first} has been changed since kedge delivered it") == 1
    assert HONEST in again.read_bytes()
    _, said = pull(runner, "third.sif", reference, "--offline")
    assert "changed" not in said


@pytest.mark.parametrize("words", [(), ("--link-mode", "hardlink")], ids=" ".join)
def test_verify_finds_the_poison(runner: Runner, hostile: str, reference: str, words: tuple[str, ...]) -> None:
    first, _ = pull(runner, "first.sif", reference, *words)
    clean = {"removed": [], "dry_run": False, "changed": [], "faulty": []}
    assert json.loads(runner.read("cache", "verify", "--json")) == clean
    poison(runner, hostile, first)
    found = json.loads(runner.read("cache", "verify", "--json"))
    if words:  # the file is the cache's too
        assert [entry["kind"] for entry in found["removed"]] == ["image"]
        assert not list((runner.folder / "cache/images").iterdir())
    elif not (runner.folder / "cache/images").exists():
        assert (found["removed"], found["changed"]) == ([], [str(first)])
    assert POISON in first.read_bytes(), "what is the user's is left to him"


def test_hard_links_of_older_versions_are_not_trusted(runner: Runner, hostile: str, reference: str) -> None:
    """They were made without a digest, and may have been changed at any time."""
    first, _ = pull(runner, "first.sif", reference, "--link-mode", "hardlink")
    stored = next((runner.folder / "cache/images").glob("*.sif"))
    assert stored.samefile(first)
    poison(runner, hostile, first)
    record = json.loads(stored.with_suffix(".json").read_text())
    old = {"key": record["key"], "size": record["size"], "inode": record["inode"]}
    stored.with_suffix(".json").write_text(json.dumps({**old, "mtime_ns": stored.stat().st_mtime_ns}))
    again, said = pull(runner, "second.sif", reference)
    assert HONEST in again.read_bytes()
    assert "has no checksum" in said


def test_an_image_unpacked_on_the_node_is_the_file_as_it_is(runner: Runner, hostile: str, reference: str) -> None:
    """Bytes that were there for a while do not stay in what was unpacked, whatever the times say."""
    first, _ = pull(runner, "first.sif", reference)
    poison(runner, hostile, first)
    runner.run("exec", "--root-from", "unpack", str(first), "cat", "/motd")
    poison(runner, hostile, first, POISON, HONEST)
    assert runner.read("exec", "--root-from", "unpack", str(first), "cat", "/motd") == HONEST.decode()
