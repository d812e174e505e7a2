# SPDX-License-Identifier: BSD-3-Clause
"""The real Apptainer runs images of `host:` programs, names outputs as we do, and converts archives that we wrote."""

from __future__ import annotations

import shlex

import pytest

from kedge.base.platform import Platform
from kedge.base.reference import Reference
from kedge.image.formats.oci.writer import write_docker_archive, write_layout, write_oci_archive
from tests.builders.apptainer import Apptainer
from tests.builders.oci_images import make_image
from tests.builders.warm_kedge import kedge

pytestmark = [pytest.mark.peer, pytest.mark.root]


def test_apptainer_runs_programs_of_this_machine(peer: Apptainer) -> None:
    for name, programs in {"tools.sif": "host:bash,cat", "bash.sif": "host:bash"}.items():
        kedge("pull", "--quiet", peer.folder / name, programs, cache=peer.folder / "cache")
    script = "cat /etc/nsswitch.conf; echo $BASH_VERSION >&2"
    packed, run = peer.answer(
        ("exec", "tools.sif", "bash", "-c", script), ("run", "bash.sif", "-c", "echo entry point")
    )
    assert (packed[0], packed[1].startswith("passwd: files\n")) == (0, True)
    assert run == (0, "entry point\n")


def test_apptainer_converts_what_we_write(peer: Apptainer) -> None:
    image = make_image([{"etc/a": b"1"}, {"b": b"2"}], architecture=Platform.host().architecture)
    write_layout(peer.folder / "made-oci", [image])
    for kind, write in {"oci-archive": write_oci_archive, "docker-archive": write_docker_archive}.items():
        with (peer.folder / f"made-{kind}").open("w+b") as file:
            write(file, [image])
    kinds = ("oci", "oci-archive", "docker-archive")
    answers = peer.answer(*(("pull", f"{kind}.sif", f"{kind}:{peer.folder}/made-{kind}") for kind in kinds))
    assert [status for status, _ in answers] == [0] * len(kinds), answers
    assert all((peer.folder / f"{kind}.sif").stat().st_size > 4096 for kind in kinds)


NAMED = (
    *("docker://localhost:1/a/name:tag", "docker://localhost:1/name"),
    *("docker://localhost:1/name@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",),
    *("oras://localhost:1/name:tag", "oci:layout", "oci:layout:tag", "oci-archive:image.tar"),
    *("oci-archive:image.tar:tag", "docker-archive:image.tar", "docker-daemon:name:tag"),
    *("https://localhost:1/folder/image.sif", "library://localhost:1/entity/collection/name:tag"),
)


def test_apptainer_chooses_the_same_output_names(peer: Apptainer) -> None:
    """A pull stops at an output that exists before it asks any registry, and says its name."""
    for text in NAMED:
        (peer.folder / Reference.parse(text).default_name()).touch()
    each = "apptainer pull {} 2>&1 | grep 'already exists' || echo none"
    script = "\n".join(each.format(shlex.quote(text)) for text in NAMED)
    said = peer.run("sh", "-c", script, shell=True).stdout.splitlines()
    for text, line in zip(NAMED, said, strict=True):
        assert f'Image file already exists: "{Reference.parse(text).default_name()}"' in line, text
