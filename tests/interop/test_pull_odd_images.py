# SPDX-License-Identifier: BSD-3-Clause
"""Images that are legal but odd, in their files or in their config: pulled by kedge and run by the real Apptainer.

Needs root and the Apptainer tree.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import layers as build
from tests.builders.apptainer import Apptainer
from tests.builders.busybox import read_busybox
from tests.builders.images import kedge_here, make_config, rich_layers
from tests.fakes.registry import FakeRegistry

pytestmark = [pytest.mark.peer, pytest.mark.root]

SECTION = {"Entrypoint": ["/bin/printf", "[%s]"], "Env": ["PATH=/bin"]}


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as running:
        yield running


@functools.cache
def make_base() -> bytes:
    """The layer that all begin with; an odd one is above it."""
    return rich_layers()[0]


compress = functools.cache(build.compress)


def many_layers() -> list[bytes]:
    """Each takes away what the one below brought."""
    return [build.layer(build.file(f"n{n}"), *([build.whiteout(f"n{n - 1}")] if n else [])) for n in range(130)]


def merged_usr() -> bytes:
    """A base whose bin is a link, through which the next layer writes."""
    program = build.file("usr/bin/busybox", read_busybox(), mode=0o755)
    return build.layer(build.folder("usr"), build.folder("usr/bin"), build.symlink("bin", "usr/bin"), program)


def odd_images() -> dict[str, list[bytes]]:
    """The layers of each; those that stand alone are above the base."""
    base, empty, layer = make_base(), build.layer(), build.layer
    folder, file, link, whiteout = build.folder, build.file, build.symlink, build.whiteout
    above = {
        "empty and equal layers": [empty, empty, layer(file("x", b"1")), empty],
        "very many layers": many_layers(),
        "etc is a link": [layer(whiteout("etc"), folder("usr"), folder("usr/etc"), link("etc", "usr/etc"))],
        "etc is a link to nowhere": [layer(whiteout("etc"), link("etc", "/nowhere/else"))],
        "etc is closed": [layer(folder("etc", mode=0))],
        "singularity.d is a link": [layer(link(".singularity.d", "/etc"))],
        "singularity.d is a file": [layer(file(".singularity.d", b"x"))],
        "links are directories": [layer(folder(".exec"), folder("environment"), folder("singularity"))],
        "tmp is a file": [layer(whiteout("tmp"), file("tmp", b"x"))],
        "dev and proc are files": [layer(file("dev", b"x"), file("proc", b"y"))],
        "resolv.conf is a link": [layer(link("etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf"))],
        "home and root are links": [layer(link("home", "/var/home"), link("root", "var/roothome"))],
        "the root has an entry": [layer(folder("./", mode=0o711, mtime=5))],
        "names with dots": [layer(folder("./opt"), file("./opt/a", b"a"), file("opt//b", b"b"), file("opt/./c", b"c"))],
        # as nixpkgs' dockerTools and ko write them
        "names are absolute": [
            layer(folder("/nix"), folder("/nix/store"), file("/nix/store/x", b"x"), link("/y", "/nix"))
        ],
    }
    links = layer(*(link(f"bin/{name}", "busybox") for name in ("sh", "printf", "cat", "env")))
    return {**{kind: [base, *layers] for kind, layers in above.items()}, "bin is a link": [merged_usr(), links]}


def pull(registry: FakeRegistry, peer: Apptainer, name: str, tars: list[bytes], config: bytes) -> Path:
    registry.add_image(f"odd/{name}", "1", [compress(tar) for tar in tars], config)
    sif = peer.folder / f"{name}.sif"
    kedge_here("pull", "-q", sif, f"docker://{registry.host}/odd/{name}:1", cache=peer.folder / "cache")
    return sif


def test_apptainer_runs_images_whose_files_are_odd(registry: FakeRegistry, peer: Apptainer) -> None:
    """All of them are pulled, then its tree is entered once for all."""
    kinds = odd_images()
    images = [
        pull(registry, peer, f"files-{number}", tars, make_config(tars, SECTION))
        for number, tars in enumerate(kinds.values())
    ]
    answers = peer.answer(*(("run", sif, "a", "b c") for sif in images))
    wrong = [f"{kind}: {answer}" for kind, answer in zip(kinds, answers, strict=True) if answer != (0, "[a][b c]")]
    assert not wrong, "\n".join(wrong)


PRINT = ["/bin/printf", "hi"]
CONFIGS: dict[str, tuple[dict[str, object], str]] = {  # what is changed in the config, and what running it prints
    "no section": ({"config": None}, ""),
    "nulls": ({"config": {"Env": None, "Entrypoint": None, "Labels": None, "Cmd": PRINT}}, "hi"),
    "empty entrypoint": ({"config": {"Entrypoint": [], "Cmd": PRINT}}, "hi"),
    "missing directory, unknown user": ({"config": {"WorkingDir": "/no/such", "User": "a:b", "Cmd": PRINT}}, "hi"),
    "time in words": ({"created": "yesterday"}, "hi"),
    "time before all": ({"created": "0001-01-01T00:00:00Z"}, "hi"),
    "time after all": ({"created": "9999-01-01T00:00:00Z"}, "hi"),
    "no time": ({"created": None}, "hi"),
    "odd labels": ({"config": {"Labels": {"a": "x\0y", "b\n": '"q', "": "e"}, "Cmd": PRINT}}, "hi"),
    "no architecture": ({"architecture": None, "os": None}, "hi"),
    "no diff_ids": ({"rootfs": None}, "hi"),
    "long history": ({"history": [{"empty_layer": True}] * 200}, "hi"),
    "variables twice and nameless": ({"config": {"Env": ["A=1", "A=2", "=x", "B"], "Cmd": PRINT}}, "hi"),
    "a long variable": ({"config": {"Env": ["BIG=" + "x" * 100_000, "PATH=/bin"], "Cmd": PRINT}}, "hi"),
}


def test_apptainer_runs_images_whose_config_is_odd(registry: FakeRegistry, peer: Apptainer) -> None:
    base = make_base()
    plain = json.loads(make_config([base], {"Cmd": PRINT, "Env": ["PATH=/bin"]}))
    images = [
        pull(registry, peer, f"config-{number}", [base], json.dumps({**plain, **changes}).encode())
        for number, (changes, _) in enumerate(CONFIGS.values())
    ]
    runs = peer.answer(*(("run", sif) for sif in images))
    shown = peer.answer(*(("inspect", "--all", sif) for sif in images))
    wrong = [
        f"{kind}: {run}, inspect {status} {text}"
        for (kind, (_, printed)), run, (status, text) in zip(CONFIGS.items(), runs, shown, strict=True)
        if run != (0, printed) or status or not text
    ]
    assert not wrong, "\n".join(wrong)
