# SPDX-License-Identifier: BSD-3-Clause
"""Bases that are made on this host, as an ordinary user: busybox and debootstrap."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.builders.builds import Workshop
from tests.builders.busybox import read_busybox
from tests.builders.containers import each_role, run_after
from tests.builders.debian_bases import find_mirror
from tests.requirements import require_program

DEBOOTSTRAP = ("/usr/sbin/debootstrap", "/sbin/debootstrap", "/usr/bin/debootstrap")


@pytest.fixture
def own() -> Iterator[Workshop]:
    for runner in each_role("user"):
        yield Workshop.open(runner)


def test_busybox_of_this_host(own: Workshop) -> None:
    read_busybox()
    require_program("busybox")
    own.write("x.def", "Bootstrap: busybox\n%post\necho hi > /made\n%runscript\ncat /made\n")
    (stage,) = json.loads(own.start("--dry-run", "--json", "out.sif", "x.def").stdout)["stages"]
    assert {step["state"] for step in stage["steps"]} == {"run"}  # a dry run makes no base
    assert not list((own.runner.folder / "cache").glob("blobs/*/*"))
    own.build("out.sif", "x.def")
    (stage,) = json.loads(own.start("--dry-run", "--json", "out.sif", "x.def").stdout)["stages"]
    assert {step["state"] for step in stage["steps"]} == {"cached"}
    assert own.runner.read("run", str(own.context / "out.sif")) == "hi\n"
    assert "done" not in own.states("--force", "out.sif", "x.def")


def test_unknown_programs_are_named_with_an_image_instead(own: Workshop) -> None:
    own.write("x.def", "Bootstrap: arch\n%post\necho\n")
    done = own.start("out.sif", "x.def", env={"PATH": "/nonexistent"})
    assert done.returncode != 0
    assert "From: archlinux:latest" in done.stderr
    assert "Traceback" not in done.stderr


def test_debian_by_packages(own: Workshop) -> None:
    mirror = find_mirror()
    require_program("debootstrap")
    own.write(
        "x.def",
        f"Bootstrap: debootstrap\nOSVersion: bookworm\nMirrorURL: {mirror}\n"
        "%post\napt-get --version\nstat -c %U /var/cache/apt/archives/partial\n",
    )
    done = own.start("out.sif", "x.def")
    if "Failed getting release file" in done.stderr or "Couldn't download" in done.stderr:  # no fault of ours
        pytest.skip(f"the mirror of this host did not deliver: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    assert "bookworm" in own.exec("out.sif", "cat", "/etc/os-release")


@pytest.mark.slow
@pytest.mark.root
def test_debian_by_mmdebstrap(own: Workshop) -> None:
    """Where the host has no debootstrap."""
    mirror = find_mirror()
    require_program("mmdebstrap")
    hidden = "".join(f"[ ! -e {path} ] || mount --bind /dev/null {path}; " for path in DEBOOTSTRAP)
    recipe = own.write(
        "x.def", f"Bootstrap: debootstrap\nOSVersion: bookworm\nMirrorURL: {mirror}\n%post\napt-get --version\n"
    )
    done = run_after(f"{hidden}true", own.runner, "build", str(own.context / "out.sif"), str(recipe), timeout=600)
    if "download of package lists" in done.stderr or "Could not connect" in done.stderr:  # no fault of ours
        pytest.skip(f"the mirror of this host did not deliver: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    assert "mmdebstrap" in done.stderr
    assert "bookworm" in own.exec("out.sif", "cat", "/etc/os-release")
    assert own.list_builds() == []


def test_fingerprints_of_a_base_are_verified(own: Workshop) -> None:
    run = own.runner
    own.write("base.def", f"Bootstrap: localimage\nFrom: {own.make_base()}\n")
    own.build("base.sif", "base.def")
    own.write("x.def", "Bootstrap: localimage\nFrom: base.sif\nFingerprints: 0000000000000000\n%post\ntrue\n")
    done = own.start("out.sif", "x.def")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    run.read("key", "newpair", "--name", "Me", "--email", "me@example.org", "--password", "")
    run.read("sign", str(own.context / "base.sif"))
    done = own.start("out.sif", "x.def")
    assert done.returncode != 0
    assert "is not signed by 0000000000000000" in done.stderr
    fingerprint = json.loads(run.read("key", "list", "--secret", "--json"))[0]["fingerprint"]
    own.write("x.def", f"Bootstrap: localimage\nFrom: base.sif\nFingerprints: {fingerprint}\n%post\ntrue\n")
    own.build("out.sif", "x.def")
