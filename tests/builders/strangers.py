# SPDX-License-Identifier: BSD-3-Clause
"""What strangers bring to a build: base images with ONBUILD, and a home with keys in it that they want."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.base.platform import Platform
from tests.builders.builds import Workshop
from tests.builders.busybox import read_busybox
from tests.builders.containers import give_to
from tests.builders.oci_archive import Entry, OciArchive

KEY = "-----the key that nobody else may see-----"
KEY_FILE = ".ssh/id_ed25519"


def plant_key(shop: Workshop) -> Path:
    """A key in the home of who builds."""
    path = shop.runner.home / KEY_FILE
    path.parent.mkdir(mode=0o700)
    path.write_text(KEY)
    path.chmod(0o600)
    give_to(shop.runner, path.parent)
    return path


def make_base(shop: Workshop, *triggers: str, name: str = "base.tar") -> str:
    """An image of somebody else, with a shell and these instructions for whoever builds on it; the words of FROM."""
    entries = [Entry("bin"), Entry("bin/busybox", read_busybox()), Entry("bin/sh", target="busybox")]
    config = {"OnBuild": list(triggers), "Env": ["PATH=/bin"]}
    path = shop.context / name
    OciArchive(entries, config, Platform.host().architecture).write(path)
    os.chown(path, shop.runner.uid, shop.runner.uid)
    return f"oci-archive:{name}"


def find_key(folder: Path) -> list[str]:
    """The files below a directory that hold the key."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [str(path) for path in files if KEY.encode() in path.read_bytes()]
