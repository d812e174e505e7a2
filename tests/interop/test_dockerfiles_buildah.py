# SPDX-License-Identifier: BSD-3-Clause
"""The same Dockerfiles through buildah and through kedge: equal trees, equal configs.

Buildah runs as root, kedge as an ordinary user. What differs is in `_settle` and in the cases, with the reason. What
buildah makes of each is recorded (`recorded.py`); `test_build_copies.py` runs it beside kedge in `make test`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.buildah import run_buildah
from tests.builders.builds import Workshop
from tests.builders.containers import each_role
from tests.builders.dockerfile_cases import BASE, CASES, CONTEXT, DockerfileCase
from tests.interop.recorded import find_changes, recall
from tests.requirements import require_program, require_root

pytestmark = [pytest.mark.slow, pytest.mark.root]

Seen = dict[str, list[object]]
QUESTIONS = {name: (BASE, CONTEXT, case.text, case.arguments, case.target) for name, case in CASES.items()}
PROGRAM = re.compile(r"/bin/[^/]+")

# Where buildah mounts things into its containers; in an image from nothing it leaves them behind.
MOUNT_POINTS = (
    *("/dev", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/proc", "/run", "/run/.containerenv", "/sys"),
)


@pytest.fixture(scope="module")
def shop() -> Iterator[Workshop]:
    with open_shop() as shop:
        yield shop


@contextlib.contextmanager
def open_shop() -> Iterator[Workshop]:
    """An ordinary user with the context of all cases."""
    require_root()
    for runner in each_role("user"):
        shop = Workshop.open(runner)
        for name, text in CONTEXT.items():
            shop.write(name, text)
        yield shop


def ask_buildah(names: list[str]) -> dict[str, Any]:
    """The config and the files of the images that buildah makes of some cases."""
    require_program("buildah")
    answers = {}
    with open_shop() as shop, tempfile.TemporaryDirectory(prefix="kedge-buildah-") as place:
        for name in names:  # in one storage, so that the base is built once
            shop.write("Dockerfile", _join(CASES[name].text))
            config, tree = read_archive(build_with_buildah(shop, CASES[name], Path(place)))
            answers[name] = [_settle(config, CASES[name]), tree]
    return answers


def ask_version() -> str:
    """As it says it itself."""
    done = subprocess.run([require_program("buildah"), "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def theirs(shop: Workshop) -> dict[str, tuple[dict[str, Any], Seen]]:
    """What buildah made of each case."""
    return {name: (config, tree) for name, (config, tree) in recall(*RECORD).items()}


RECORD = ("dockerfiles", QUESTIONS, ask_buildah, ask_version)


def build_with_buildah(shop: Workshop, case: DockerfileCase, place: Path) -> Path:
    """A docker archive."""
    words = ["bud", "--isolation", "chroot", "--format", "docker", "--layers", "-q", "-t", "case"]
    words += [f"--build-arg={name}={value}" for name, value in case.arguments.items()]
    words += [f"--target={case.target}"] if case.target else []
    archive = place / "buildah.tar"
    archive.unlink(missing_ok=True)
    for argv in ([*words, str(shop.context)], ["push", "-q", "case", f"docker-archive:{archive}:case"]):
        run_buildah(place, *argv)
    return archive


def build_with_kedge(shop: Workshop, case: DockerfileCase) -> Path:
    words = [f"--build-arg={name}={value}" for name, value in case.arguments.items()]
    words += [f"--target={case.target}"] if case.target else []
    shop.build(*words, "--force", "docker-archive:kedge.tar:case", ".")
    return shop.context / "kedge.tar"


def read_archive(path: Path) -> tuple[dict[str, Any], Seen]:
    """The config of an archive's image, and its files with all layers applied."""
    seen: Seen = {}
    with tarfile.open(path) as outer:
        manifest = json.load(outer.extractfile("manifest.json"))[0]  # type: ignore[arg-type]
        config = json.load(outer.extractfile(manifest["Config"]))  # type: ignore[arg-type]
        for name in manifest["Layers"]:
            member = outer.getmember(name)
            if member.issym():  # buildah writes a layer once
                member = outer.getmember(str(Path(name).parent / member.linkname).replace("../", ""))
            with tarfile.open(fileobj=outer.extractfile(member)) as layer:
                _apply(layer, seen)
    return config, {path: seen[path] for path in sorted(seen) if not _is_of_busybox(path, seen[path])}


def _is_of_busybox(path: str, found: list[object]) -> bool:
    """Whether it is one of the links that busybox installs, another number of them in each release."""
    return bool(PROGRAM.fullmatch(path)) and found[-1] == "/bin/busybox"


def _apply(layer: tarfile.TarFile, seen: Seen) -> None:
    for member in layer:
        path = "/" + member.name.strip("./") if member.name not in (".", "./") else "/"
        folder, _, name = path.rpartition("/")
        if name == ".wh..wh..opq":
            _remove(folder, seen)
        elif name.startswith(".wh."):
            _remove(f"{folder}/{name.removeprefix('.wh.')}", seen)
            seen.pop(f"{folder}/{name.removeprefix('.wh.')}", None)
        elif member.islnk():
            seen[path] = seen["/" + member.linkname.strip("./")]
        else:
            if not member.isdir():
                _remove(path, seen)
            seen[path] = _describe(layer, member)


def _remove(folder: str, seen: Seen) -> None:
    for path in [path for path in seen if path.startswith(f"{folder}/")]:
        del seen[path]


def _describe(layer: tarfile.TarFile, member: tarfile.TarInfo) -> list[object]:
    file = layer.extractfile(member) if member.isreg() else None
    content = hashlib.sha256(file.read()).hexdigest()[:16] if file else member.linkname
    if member.size > 100_000:
        content = "busybox"  # this machine's
    mode = 0o777 if member.issym() else member.mode & 0o7777
    return [member.type.decode(), oct(mode), member.uid, member.gid, content]


def _settle(config: dict[str, Any], case: DockerfileCase) -> dict[str, Any]:
    """The config object, without what says nothing about the Dockerfile."""
    section = {key: value for key, value in config["config"].items() if value and key not in case.differs}
    labels = {key: value for key, value in section.pop("Labels", {}).items() if not key.startswith("io.buildah.")}
    for key in ("Hostname", "Image", "ArgsEscaped"):  # of the container that was committed
        section.pop(key, None)
    if section.get("WorkingDir") == "/":  # docker build writes it for an empty base, buildah does not
        del section["WorkingDir"]
    section["Env"] = sorted(section["Env"])  # buildah moves a variable that is set again to the end
    return section | ({"Labels": labels} if labels else {}) | {"author": config.get("author", "")}


@pytest.mark.parametrize("name", CASES)
def test_dockerfiles_give_what_buildah_gives(
    shop: Workshop, theirs: dict[str, tuple[dict[str, Any], Seen]], name: str
) -> None:
    case, (their_config, their_tree) = CASES[name], theirs[name]
    shop.write("Dockerfile", _join(case.text))
    config, our_tree = read_archive(build_with_kedge(shop, case))
    assert _settle(config, case) == their_config
    left = {path for path in MOUNT_POINTS if path in their_tree and path not in our_tree} | set(case.differs)
    ours, expected = ({path: tree[path] for path in tree if path not in left} for tree in (our_tree, their_tree))
    assert ours == expected


@pytest.mark.long
def test_dockerfiles_are_recorded_as_buildah_builds_them() -> None:
    assert find_changes(*RECORD[:3]) == []


def _join(text: str) -> str:
    """The case behind the base; directives and the ARGs of FROM stay at the top."""
    lines = text.split("\n")
    top = [line for line in lines if line.startswith(("# escape", "ARG TOP", "ARG STAGE="))]
    return "\n".join([*top, BASE.replace("\\\n", "") if top[:1] == ["# escape=`"] else BASE, *lines[:]])
