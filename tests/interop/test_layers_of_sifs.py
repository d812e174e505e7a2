# SPDX-License-Identifier: BSD-3-Clause
"""Layers that bring `.singularity.d` and apps of their own, as pushed SIF files do: Apptainer and kedge inspect both.

Needs root and the Apptainer tree.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import layers as build
from tests.builders.apptainer import apptainer_folder
from tests.builders.images import rich_layers
from tests.builders.warm_kedge import kedge
from tests.interop.test_layers_tools import make_layout

pytestmark = [pytest.mark.peer, pytest.mark.root]

PARTS = ("apps", "helpfile", "test")
OWN = {
    ".singularity.d/runscript.help": "How to use it:\n  just run\n",
    ".singularity.d/test": "#!/bin/sh\ntrue\n",
    ".singularity.d/runscript": "#!/bin/sh\necho replaced by the config\n",
    "scif/apps/foo/scif/runscript": "#!/bin/sh\nexec foo\n",
    "scif/apps/foo/scif/runscript.help": "help of foo\n",
    "scif/apps/foo/scif/labels.json": '{"version": "1"}',
    "scif/apps/foo/scif/env/90-environment.sh": "export FOO=1\n",
    "scif/apps/bar/scif/test": "#!/bin/sh\nfalse\n",
}


def own_layer() -> bytes:
    names = {"/".join(name.split("/")[:count]) for name in OWN for count in range(1, name.count("/") + 1)}
    folders = [build.folder(name) for name in sorted(names)]
    return build.layer(*folders, *(build.file(name, text.encode(), mode=0o755) for name, text in OWN.items()))


def read_parts(text: str) -> dict[str, Any]:
    attributes = json.loads(text)["data"]["attributes"]
    return {name: attributes[name] for name in PARTS if name in attributes}


def test_inspect_shows_what_layers_bring(tmp_path: Path) -> None:
    with apptainer_folder() as peer:
        make_layout(peer.folder / "layout", [rich_layers()[0], own_layer()])
        peer.own(peer.folder)
        peer.run("build", "theirs.sif", f"oci:{peer.folder}/layout")
        kedge("pull", peer.folder / "ours.sif", f"oci:{peer.folder}/layout", cache=tmp_path / "c")
        expected = read_parts(peer.run("inspect", "--all", "theirs.sif").stdout)
        assert sorted(expected) == list(PARTS)
        assert sorted(expected["apps"]) == ["bar", "foo"]
        assert read_parts(peer.run("inspect", "--all", "ours.sif").stdout) == expected
        ours = kedge("inspect", "--all", peer.folder / "ours.sif", cache=tmp_path / "c").stdout
        assert read_parts(ours) == expected
        assert peer.run("run-help", "ours.sif").stdout == peer.run("run-help", "theirs.sif").stdout
        assert peer.run("test", "ours.sif").returncode == 0
