# SPDX-License-Identifier: BSD-3-Clause
"""What BuildKit added to Dockerfiles, built for real as an ordinary user: heredocs, mounts, contexts, flags of COPY."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.builds import SHELL, Workshop
from tests.builders.containers import each_role


@pytest.fixture(scope="module")
def shop() -> Iterator[Workshop]:
    for runner in each_role("user", is_warm=True):
        yield Workshop.open(runner)


def build(shop: Workshop, text: str, *words: str) -> None:
    """Build a Dockerfile behind the base with a shell."""
    shop.write("Dockerfile", f"{SHELL}FROM base\n{text}")
    shop.build("--force", *words, "out.sif", "Dockerfile")


def read_section(archive: Path) -> dict[str, Any]:
    """The config object of the image in a docker archive."""
    with tarfile.open(archive) as file:
        name = json.load(file.extractfile("manifest.json"))[0]["Config"]  # type: ignore[arg-type]
        section: dict[str, Any] = json.load(file.extractfile(name))["config"]  # type: ignore[arg-type]
    return section


def test_heredocs_run_as_docker_runs_them(shop: Workshop) -> None:
    build(
        shop,
        "ENV A=outer\nRUN <<EOF\nset -e\necho plain $A > /plain\nB=2\necho $B >> /plain\nEOF\n"
        "RUN <<'SCRIPT'\n#!/bin/sh -u\necho \"$0\" > /script\nSCRIPT\n"
        "RUN cat <<ONE > /one && cat <<-'TWO' > /two\n1 $A\nONE\n\t2 $A\n\tTWO\n"
        "COPY <<EOF <<'RAW' /files/\nA is $A\nEOF\n$A\nRAW\n"
        "COPY --chmod=750 <<-EOF /bin/mine\n\t#!/bin/sh\n\techo mine\nEOF\n",
    )
    names = ("/plain", "/script", "/one", "/two", "/files/EOF", "/files/RAW")
    shown = shop.read("out.sif", *names).splitlines()
    assert shown == ["plain outer", "2", "/dev/pipes/SCRIPT", "1 outer", "2 $A", "A is outer", "$A"]
    assert shop.exec("out.sif", "/bin/mine") == "mine\n"
    assert "/dev/pipes" not in shop.look("out.sif")[0]


def test_a_heredoc_with_a_failing_command_fails_like_a_script(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}FROM base\nRUN <<EOF\nset -e\nfalse\ntrue\nEOF\n")
    done = shop.start("--force", "out.sif", "Dockerfile")
    assert done.returncode == 91
    assert "Dockerfile:5:1" in done.stderr


def test_contexts_with_names_are_origins_and_bases(shop: Workshop) -> None:
    shop.write("other/a", "other\n")
    build(shop, "COPY --from=extra a /a\nRUN --mount=from=extra,target=/m cp /m/a /b\n", "--build-context=extra=other")
    assert shop.read("out.sif", "/a", "/b") == "other\nother\n"


def test_bytes_that_are_no_text_survive(shop: Workshop) -> None:
    path = shop.context / "Dockerfile"
    path.write_bytes(
        f"{SHELL}FROM base\n# caf".encode()
        + b"\xe9\nENV A=\xff\xfe\nLABEL who=Jos\xe9\nRUN echo \xe9 > /latin && echo $A > /a\n"
        + b"COPY <<EOF /doc\n\xff\nEOF\n"
        b'CMD echo "\xe9"\n'
    )
    os.chown(path, shop.runner.uid, shop.runner.uid)
    shop.build("--force", "out.sif", "Dockerfile")
    shop.build("--force", "oci-archive:out.tar:x", "Dockerfile")
    assert shop.exec("out.sif", "od", "-An", "-tx1", "/latin", "/doc").split() == ["e9", "0a", "ff", "0a"]
    assert shop.look("out.sif")[0]["/a"].size == 7  # as docker build, which puts U+FFFD into variables
    shop.runner.read("inspect", "--all", "--json", str(shop.context / "out.sif"))
