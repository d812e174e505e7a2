# SPDX-License-Identifier: BSD-3-Clause
"""Another user wants to plant settings, keys, profiles and programs in a home that they may look into.

Clusters have groups that hold everybody, and umasks of 002 and 000: what kedge makes and believes later is its owner's.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kedge.image.registry.mirrors import load_registries, user_configuration
from kedge.image.store.layout import Layout
from kedge.system.private_files import make_private
from tests.builders.containers import Runner
from tests.builders.rows import each_row

VERBS = (
    ("config", "set", "threads", "2"),
    ("key", "newpair", "--name", "Ada", "--email", "ada@example.org", "--password", "long enough"),
    ("shim", "install"),
    ("doctor", "--offline", "--report", "report.txt"),
)


def run_open(runner: Runner, *words: str) -> subprocess.CompletedProcess[str]:
    """Run kedge with a umask that takes nothing away."""
    environ = {name: value for name, value in runner.variables().items() if name != "KEDGE_CACHEDIR"}
    return subprocess.run(
        runner.argv(*words), env=environ, cwd=runner.home, capture_output=True, text=True, umask=0, check=False
    )


def test_nothing_that_is_believed_later_can_be_written_by_others(runner: Runner) -> None:
    runner.home.chmod(0o755)
    for words in VERBS:
        done = run_open(runner, *words)
        assert done.returncode == 0, done.stderr
    made = [path for path in runner.home.rglob("*") if not path.is_symlink()]
    assert {".config", ".apptainer", ".local"} <= {path.name for path in made}
    assert [path for path in made if path.is_dir() and path.stat().st_mode & 0o022] == []
    assert runner.home / ".local/bin/apptainer" in made


def test_folders_above_get_the_same_mode_and_old_ones_keep_theirs(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir(mode=0o755)
    make_private(old / "a/b/c")
    make_private(old / "a/b/c")
    assert [path.stat().st_mode & 0o777 for path in (old, old / "a", old / "a/b", old / "a/b/c")] == [
        *(0o755, 0o700, 0o700, 0o700)
    ]
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        make_private(tmp_path / "file/below")


@each_row("home", [".", "", "sub/.."])
def test_settings_of_the_current_directory_are_not_read(runner: Runner, home: str) -> None:
    folder = runner.folder / "cloned"
    (folder / ".config/kedge").mkdir(parents=True, exist_ok=True)
    (folder / "sub").mkdir(exist_ok=True)
    (folder / ".config/kedge/config.toml").write_text('runtime = "enroot"\nnode_directory = "/planted"\n')
    for environ in ({"HOME": home}, {"HOME": home, "XDG_CONFIG_HOME": ".config"}):
        done = runner.run("exec", "--dry-run", "/", "true", env=environ, cwd=folder)
        assert "enroot" not in done.stdout + done.stderr
        assert "planted" not in runner.run("config", "list", env=environ, cwd=folder).stdout


def test_mirrors_and_authorities_of_the_current_directory_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "containers").mkdir()
    (tmp_path / "containers/registries.conf").write_text(
        '[[registry]]\nlocation = "docker.io"\n[[registry.mirror]]\nlocation = "planted:1"\ninsecure = true\n'
    )
    monkeypatch.chdir(tmp_path)
    home, nothing = tmp_path / "home", tmp_path / "nothing"
    assert load_registries({"XDG_CONFIG_HOME": "."}, home, nothing).rules == ()
    assert user_configuration({"XDG_CONFIG_HOME": "."}, home) == home / ".config/containers"
    assert len(load_registries({"XDG_CONFIG_HOME": str(tmp_path)}, home, nothing).rules) == 1


def test_nobody_can_swap_the_cache_by_the_folders_above_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Layout(tmp_path / "a/b/kedge").folder("blobs")
        Layout(tmp_path / "shared/b/kedge", shared=True).folder("blobs")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "a", tmp_path / "a/b")] == [0o700, 0o700]
    assert (tmp_path / "shared/b").stat().st_mode & 0o777 == 0o777  # there the umask decides
