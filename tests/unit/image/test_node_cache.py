# SPDX-License-Identifier: BSD-3-Clause
"""The place of unpacked images on a node: where it is, who may have made it, and what counts as whole."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kedge.errors import FileProblem, InvalidSetting
from kedge.image import node_cache
from kedge.image.image_file import ImageFile
from tests.builders.rows import each_row


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "node"


@pytest.fixture
def environ(place: Path, tmp_path: Path) -> dict[str, str]:
    return {"KEDGE_NODEDIR": str(place), "HOME": str(tmp_path), "KEDGE_SITE_CONFIG": str(tmp_path / "site.toml")}


def put_image(place: Path, identity: str = "abc") -> Path:
    folder = place / "images" / identity
    (folder / "root").mkdir(parents=True)
    (folder / "info").write_text("{}")
    (folder / "lock").touch()
    place.chmod(0o700)
    return folder


def make_image(state: str = "state") -> ImageFile:
    image = ImageFile("/x.sif", "sif")
    image.state = state
    return image


def put_content(place: Path, *paths: str, state: str = "state", identity: str = "abc") -> None:
    (place / "files").mkdir(exist_ok=True)
    (place / "files" / state).write_text("".join(f"{line}\n" for line in (identity, *paths)))


def put_name(place: Path, reference: str, machine: str = "", identity: str = "abc") -> None:
    path = Path(node_cache.reference_path(str(place), reference, machine))
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{identity}\n{node_cache.reference_record(reference, machine)}")


@each_row("name", ["", "user/kedge", "user/kedge"])
def test_node_directory_is_made_private_with_the_folders_above(environ: dict[str, str], place: Path, name: str) -> None:
    environ["KEDGE_NODEDIR"] = str(place / name)
    assert node_cache.node_directory(environ) == str(place / name)
    assert (place / name).stat().st_mode & 0o777 == 0o700


def test_node_directory_refuses_links_and_what_others_may_write(environ: dict[str, str], place: Path) -> None:
    place.mkdir(mode=0o700)
    place.chmod(0o777)
    with pytest.raises(FileProblem, match="others may write") as caught:
        node_cache.node_directory(environ)
    assert f"chmod go-w {place}" in str(caught.value.hint)
    place.rmdir()
    place.symlink_to("/tmp")
    with pytest.raises(FileProblem, match="it is a symlink"):
        node_cache.node_directory(environ)
    place.unlink()
    place.write_text("")
    with pytest.raises(FileProblem, match="Not a directory"):
        node_cache.node_directory(environ)


def test_node_directory_of_somebody_else_is_refused(
    environ: dict[str, str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_image(place)
    put_content(place, "/x.sif")
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    with pytest.raises(FileProblem, match=f"belongs to user {own}") as caught:
        node_cache.node_directory(environ)
    assert "KEDGE_NODEDIR" in str(caught.value.hint)
    with pytest.raises(FileProblem, match="belongs to user"):
        node_cache.find_unpacked(make_image(), environ)


def test_node_directory_must_be_absolute(environ: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting, match="KEDGE_NODEDIR"):
        node_cache.node_directory({**environ, "KEDGE_NODEDIR": "here"})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('node_directory = "/local/plain"', "/local/plain"),
        ("node_directory='/local/$USER'", "/local/me"),
        ('node_directory = "/local/${USER}/x/"  ', "/local/me/x"),
        ('node_directory = "/local/$GROUP" # by group', "/local/physics"),
        ('# node_directory = "/local/old"\nthreads = 4', ""),
    ],
)
def test_node_directory_setting_of_a_site_counts(tmp_path: Path, line: str, expected: str) -> None:
    site = tmp_path / "site.toml"
    site.write_text(line + "\n")
    environ = {"HOME": str(tmp_path), "USER": "me", "GROUP": "physics", "KEDGE_SITE_CONFIG": str(site)}
    chosen = node_cache.choose_node_directory(environ)
    assert chosen == expected if expected else chosen.endswith(f"/kedge-{os.getuid()}")
    (tmp_path / ".config/kedge").mkdir(parents=True)
    (tmp_path / ".config/kedge/config.toml").write_text('node_directory = "/users/own"')
    assert node_cache.choose_node_directory(environ) == "/users/own"


def test_default_place_is_where_images_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(node_cache, "_PLACES", (str(tmp_path / "first"), str(tmp_path / "second")))
    del environ["KEDGE_NODEDIR"]
    own = f"kedge-{os.getuid()}"
    kinds = {str(tmp_path / "first"): "memory", str(tmp_path / "second"): "disk"}
    monkeypatch.setattr(node_cache, "describe_storage", lambda path: kinds[path])
    monkeypatch.setattr(node_cache, "_LEAST_ROOM", 0)
    assert node_cache.choose_node_directory(environ) == f"{tmp_path}/second/{own}"
    put_image(tmp_path / "first" / own)
    assert node_cache.choose_node_directory(environ) == f"{tmp_path}/first/{own}"
    # in a container of ours it is there, but read-only: images go elsewhere
    kinds[str(tmp_path / "first")] = "disk"
    monkeypatch.setattr(node_cache, "_is_readonly", lambda place: place == f"{tmp_path}/first/{own}")
    assert node_cache.choose_node_directory(environ) == f"{tmp_path}/second/{own}"


def test_default_place_of_fake_root_is_not_that_of_the_machines_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    monkeypatch.setattr(node_cache, "_PLACES", (str(tmp_path),))
    monkeypatch.setattr(os, "getuid", lambda: 0)
    del environ["KEDGE_NODEDIR"]
    foreign: set[str] = set()
    monkeypatch.setattr(node_cache, "_is_foreign", lambda path: path in foreign)
    assert node_cache.choose_node_directory(environ) == f"{tmp_path}/kedge-0"
    foreign.update((f"{tmp_path}/kedge-0", f"{tmp_path}/kedge-0-1"))
    assert node_cache.choose_node_directory(environ) == f"{tmp_path}/kedge-0-2"


def test_describe_place_tells_memory_from_disk() -> None:
    assert node_cache.describe_storage("/no/such/place") == ""
    assert node_cache.describe_storage("/dev/shm") in ("memory", "disk")
    assert node_cache.describe_storage("/proc") == "disk"


def test_find_unpacked_takes_only_what_is_whole(environ: dict[str, str], place: Path) -> None:
    image = make_image()
    assert node_cache.find_unpacked(image, environ) == ""
    folder = put_image(place)
    put_content(place, "/x.sif")
    assert node_cache.find_unpacked(image, environ) == str(folder / "root")
    assert node_cache.find_unpacked(make_image(""), environ) == ""
    assert node_cache.find_unpacked(make_image("other"), environ) == ""
    (folder / "boot").write_text(node_cache.read_boot())
    assert node_cache.find_unpacked(image, environ) == str(folder / "root")
    os.utime(folder / "boot", (1, 1))
    assert node_cache.find_unpacked(image, environ) == str(folder / "root")
    assert not (folder / "boot").exists(), "it is on the disk by now"
    (folder / "boot").write_text("another boot")
    assert node_cache.find_unpacked(image, environ) == "", "the node went down before its files were written"
    (folder / "boot").unlink()
    (folder / "info").unlink()
    assert node_cache.find_unpacked(image, environ) == "", "a cleaner of /tmp has been here"


def test_find_unpacked_needs_a_path_that_was_hashed(environ: dict[str, str], place: Path) -> None:
    """A file system that others serve can give a file any inode and any time, but not another's path."""
    folder = put_image(place)
    put_content(place, "/a/x.sif", "/b%0a/x.sif")
    image = make_image()
    for path, expected in (
        *(("/x.sif", ""), ("/a/x.sif", str(folder / "root")), ("/b\n/x.sif", str(folder / "root"))),
        *(("/b%0a/x.sif", ""), ("abc", "")),
    ):
        image.path = path
        assert node_cache.find_unpacked(image, environ) == expected
    put_content(place, "/x.sif", identity="../images/abc")
    assert node_cache.find_unpacked(make_image(), environ) == ""


def test_find_named_needs_the_same_name_and_machine(environ: dict[str, str], place: Path) -> None:
    folder = put_image(place)
    reference = "docker://nvcr.io/nvidia/pytorch:24.03-py3"
    assert node_cache.find_by_reference(reference, "", environ) == ""
    put_name(place, reference)
    assert node_cache.find_by_reference(reference, "", environ) == str(folder / "root")
    assert node_cache.find_by_reference(reference, os.uname().machine, environ) == str(folder / "root")
    assert node_cache.find_by_reference(reference, "riscv64", environ) == ""
    assert node_cache.find_by_reference(reference + "x", "", environ) == ""


def test_names_that_are_long_or_strange_do_not_meet(environ: dict[str, str], place: Path) -> None:
    put_image(place)
    long = "docker://" + "a" * 300
    put_name(place, long + "1")
    assert node_cache.find_by_reference(long + "1", "", environ)
    assert node_cache.find_by_reference(long + "2", "", environ) == ""
    for reference in ("docker://../../etc", "library://ü/ö", "oci-archive:/a b\nc"):
        path = node_cache.reference_path(str(place), reference, "")
        assert Path(path).parent == place / "names"


def test_names_hold_no_secrets(place: Path) -> None:
    reference = "https://me:passw0rd@host/x.sif?token=abc"
    assert "passw0rd" not in node_cache.reference_path(str(place), reference, "") + node_cache.reference_record(
        reference, ""
    )


def test_name_of_an_archive_means_one_state_of_it(environ: dict[str, str], place: Path, tmp_path: Path) -> None:
    put_image(place)
    archive = tmp_path / "x.tar"
    archive.write_bytes(b"1")
    reference = f"docker-archive:{archive}:tag"
    put_name(place, reference)
    assert node_cache.find_by_reference(reference, "", environ)
    archive.write_bytes(b"22")
    assert node_cache.find_by_reference(reference, "", environ) == ""


def test_hold_lives_in_children_and_keeps_the_time(place: Path) -> None:
    folder = put_image(place)
    os.utime(folder / "lock", (1, 1))
    held = node_cache.hold_image(str(folder / "root"))
    assert held >= 200, "out of the way of scripts that number their files"
    assert (folder / "lock").stat().st_mtime > 1000
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(held,))
    assert os.get_inheritable(held)
    os.close(held)
    with (folder / "lock").open("rb") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        child.communicate(b"\n", timeout=20)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_hold_waits_for_who_only_looks_whether_it_is_used(place: Path) -> None:
    folder = put_image(place)
    with (folder / "lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        looking = threading.Timer(0.2, lambda: fcntl.flock(file, fcntl.LOCK_UN))
        looking.start()
        held = node_cache.hold_image(str(folder / "root"))
        looking.join()
    assert held >= 200
    os.close(held)


def test_hold_of_what_is_gone_or_going_fails(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = put_image(place)
    assert node_cache.hold_image(str(place / "images/other/root")) == -1
    with (folder / "lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        monkeypatch.setattr(node_cache, "_PATIENCE", 0.05)
        assert node_cache.hold_image(str(folder / "root")) == -1
    (folder / "info").unlink()
    assert node_cache.hold_image(str(folder / "root")) == -1


def test_volatile_references_are_asked_each_time() -> None:
    assert node_cache.is_volatile("docker-daemon:x")
    assert node_cache.is_volatile("host:python3")
    assert not node_cache.is_volatile("docker://x")
