# SPDX-License-Identifier: BSD-3-Clause
"""`kedge cache`: what it shows, lists, cleans, limits and verifies. Needs nothing."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from kedge.base.platform import Platform
from kedge.image.store.build_steps import StepRecord
from kedge.image.store.store import Store
from tests.builders.blobs import make_content
from tests.builders.rows import each_row
from tests.builders.warm_kedge import run_kedge


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Store:
    """A blob of 1 MB that is old, one that is new, an image and a name."""
    store = Store(root)
    old = store.add_blob(make_content(1_000_000, "old"))
    when = time.time() - 40 * 86400
    os.utime(store.blob_path(old), (when, when))
    new = store.add_blob(make_content(2_000_000, "new"))
    store.build_image("sha256:1234 linux/arm64 zstd", lambda file: file.write(make_content(3_000_000)) and None)
    store.remember("docker.io/library/debian:12", Platform("arm64"), new)
    return store


def run_cache(root: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "KEDGE_CACHEDIR": str(root), "KEDGE_NODEDIR": f"{root}-node", **variables}
    return run_kedge(["cache", *words], environment=environ, folder=Path.cwd())


def test_cache_show_says_place_source_size_and_room(store: Store, root: Path) -> None:
    done = run_cache(root, "show")
    assert done.returncode == 0
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    assert rows["place"].split() == ["place", str(root), "environment:", "KEDGE_CACHEDIR"]
    assert rows["limit"].split() == ["limit", "20G", "default"]
    assert rows["size"].split()[:3] == ["size", "6", "MB"]
    assert rows["blobs"].split() == ["blobs", "3", "MB", "2", "items"]
    assert rows["images"].split() == ["images", "3", "MB", "1", "item"]
    assert "free" in rows


def test_cache_list_is_short_and_v_is_long(store: Store, root: Path) -> None:
    short = run_cache(root, "list").stdout
    assert "docker.io/library/debian:12 linux/arm64" in short
    assert "sha256:1234 linux/arm64 zstd" in short
    assert short.splitlines()[-1].endswith("; -v shows 2 more")
    assert run_cache(root, "list", "-v").stdout.count("blob ") == 2
    assert run_cache(root, "list", "--type", "blob").stdout.count("blob ") == 2


def test_cache_list_json_has_everything(store: Store, root: Path) -> None:
    entries = json.loads(run_cache(root, "list", "--json").stdout)
    assert sorted(entry["kind"] for entry in entries) == ["blob", "blob", "image", "name"]
    assert {entry["size"] for entry in entries if entry["kind"] == "blob"} == {1_000_000, 2_000_000}
    assert all(Path(entry["path"]).exists() and entry["in_use"] is False for entry in entries)


def test_cache_clean_rehearses_then_removes_by_age(store: Store, root: Path) -> None:
    rehearsal = run_cache(root, "clean", "--days", "30", "--dry-run").stdout
    assert rehearsal.splitlines()[-1] == "Would remove 1 item (1 MB)"
    assert len(store.entries()) == 4
    assert run_cache(root, "clean", "--days", "30", "-f").stdout == "Removed 1 item (1 MB)\n"
    assert len(store.entries()) == 3


def test_cache_clean_by_type_and_all(store: Store, root: Path) -> None:
    removed = json.loads(run_cache(root, "clean", "--type", "image", "--force", "--json").stdout)["removed"]
    assert [entry["kind"] for entry in removed] == ["image"]
    assert run_cache(root, "clean", "--force").returncode == 0
    assert store.entries() == []


@each_row("words", [("--days", "soon"), ("--days", "-1"), ("--days", "nan"), ("--type", "blobs")])
def test_cache_clean_refuses_nonsense(root: Path, words: tuple[str, str]) -> None:
    done = run_cache(root, "clean", "--force", *words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_cache_limit_is_kept_applied_and_taken_away(store: Store, root: Path) -> None:
    done = run_cache(root, "limit", "5.5MB")
    assert done.stdout == "Removed 1 item (1 MB)\n"
    assert run_cache(root, "limit").stdout == f"5500000 (the cache: {root / 'limit'})\n"
    assert run_cache(root, "limit", "2G").returncode == 0
    assert run_cache(root, "limit").stdout.startswith("2G (the cache")
    assert run_cache(root, "limit", "none").returncode == 0
    assert run_cache(root, "limit").stdout.startswith("none (the cache")


def test_cache_limit_of_the_environment_wins_and_is_said(store: Store, root: Path) -> None:
    done = run_cache(root, "limit", "2G", KEDGE_CACHE_LIMIT="3G")
    assert "KEDGE_CACHE_LIMIT sets another limit" in done.stderr
    assert run_cache(root, "limit", KEDGE_CACHE_LIMIT="3G").stdout == "3G (environment: KEDGE_CACHE_LIMIT)\n"


@each_row("size", ["many", "-1", "20X"])
def test_cache_limit_refuses_nonsense(root: Path, size: str) -> None:
    done = run_cache(root, "limit", "--", size)
    assert done.returncode == 50
    assert "such as 500M" in done.stderr


def test_cache_limit_file_that_is_damaged_is_named(store: Store, root: Path) -> None:
    (root / "limit").write_text("lots\n")
    done = run_cache(root, "show")
    assert done.returncode == 50
    assert str(root / "limit") in done.stderr
    assert run_cache(root, "limit", "1G").returncode == 0


def test_cache_verify_drops_the_damaged(store: Store, root: Path) -> None:
    assert run_cache(root, "verify", "-q").stdout == "Removed 0 damaged items (0 B)\n"
    broken = next(entry for entry in store.entries() if entry.size == 1_000_000)
    broken.path.write_bytes(b"\0" * 1_000_000)
    assert run_cache(root, "verify", "-q").stdout == "Removed 1 damaged item (1 MB)\n"
    assert not broken.path.exists()


def test_cache_directory_option_beats_the_environment(store: Store, root: Path, tmp_path: Path) -> None:
    report = json.loads(run_cache(tmp_path / "other", "show", "--json", "--cache-dir", str(root)).stdout)
    assert (report["place"], report["place_from"]) == (str(root), "flag: --cache-dir")


def test_cache_has_the_steps_and_mounts_of_builds(root: Path) -> None:
    store = Store(root)
    store.steps.write(StepRecord("a" * 64, None, None, "RUN " + "make \\\n " * 40))
    with store.mounts.open("/root/.cache/pip") as mount:
        (mount.path / "wheel").write_bytes(bytes(5000))
    assert "mount" in run_cache(root, "list").stdout
    assert "RUN" not in run_cache(root, "list").stdout
    listed = run_cache(root, "list", "--type", "step").stdout
    assert "RUN make \\ make" in listed
    assert max(map(len, listed.splitlines())) < 120
    rows = {line.split()[0]: line.split()[1:] for line in run_cache(root, "show").stdout.splitlines()[1:]}
    assert rows["mounts"] == ["5", "kB", "1", "item"]
    assert rows["steps"][2:] == ["1", "item"]
    assert run_cache(root, "clean", "--force", "--type", "step").stdout.startswith("Removed 1 item")
    assert run_cache(root, "clean", "--force", "--type", "mount").stdout == "Removed 1 item (5 kB)\n"
    assert not mount.path.exists()
