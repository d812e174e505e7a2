# SPDX-License-Identifier: BSD-3-Clause
"""Owners in what was built by an ordinary user who has no other: as Docker would have recorded them."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.builders.builds import SHELL, Workshop, warm_shop
from tests.builders.old_kernels import play_refusals

shop = warm_shop

RECIPE = f"""{SHELL}RUN echo app:x:1000:50:App:/home/app:/bin/sh >> /etc/passwd && echo staff:x:50: >> /etc/group
RUN chmod 666 /etc/group
RUN mkdir -p /home/app/deep /srv/own && echo x > /srv/own/file && busybox chown -R app:staff /home/app /srv/own
USER app
WORKDIR /home/app
RUN echo made > mine && mkdir dir && echo more >> /srv/own/file && echo note >> /etc/group
USER root
RUN echo root > /home/app/roots && busybox chown 7:8 /home/app/mine
"""


@pytest.mark.parametrize("refused", [(), ("overlay", "fuse.fuse-overlayfs"), ("openat2",)])
def test_layers_have_the_owners_that_steps_gave(shop: Workshop, refused: tuple[str, ...]) -> None:
    shop.write("Dockerfile", RECIPE)
    env = play_refusals(shop.runner.folder, *refused, "in children") if refused else {}
    shop.build("--format", "docker-archive", "out.tar", "Dockerfile", env=env)
    owners = read_owners(shop.context / "out.tar")
    assert {name: owners.get(name) for name in sorted(owners) if name.startswith(("home/app", "srv", "etc/group"))} == {
        "etc/group": (0, 0),
        "home/app": (1000, 50),
        "home/app/deep": (1000, 50),
        "home/app/dir": (1000, 50),
        "home/app/mine": (7, 8),
        "home/app/roots": (0, 0),
        "srv": (0, 0),
        "srv/own": (1000, 50),
        "srv/own/file": (1000, 50),
    }


def test_owners_are_roots_where_the_kernel_cannot_leave_calls_to_others(shop: Workshop) -> None:
    shop.write("Dockerfile", RECIPE)
    env = play_refusals(shop.runner.folder, "call notices", "in children")
    shop.build("--format", "docker-archive", "out.tar", "Dockerfile", env=env)
    owners = read_owners(shop.context / "out.tar")
    assert owners["srv/own/file"] == (0, 0)
    assert owners["home/app/dir"] == (1000, 50)  # USER is known


def read_owners(path: Path) -> dict[str, tuple[int, int]]:
    """User and group of all files of an archive, as its layers have them; no attribute of kedge's is among them."""
    owners: dict[str, tuple[int, int]] = {}
    with tarfile.open(path) as archive:
        manifest = json.loads(_read(archive, "manifest.json"))
        for layer in manifest[0]["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(_read(archive, layer))) as members:
                for member in members:
                    assert not [key for key in member.pax_headers if "kedge" in key]
                    owners[member.name.strip("./")] = (member.uid, member.gid)
    return owners


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()
