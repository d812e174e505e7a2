# SPDX-License-Identifier: BSD-3-Clause
"""Files that several processes change: who changes one reads it after the others are done. Needs nothing."""

from __future__ import annotations

import errno
import fcntl
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from kedge.errors import FileProblem, StoreBusy
from kedge.image.registry.docker_config import read_auth_file, remove_login, store_login
from kedge.image.registry.remote_yaml import Remote
from kedge.image.registry.secret import Secret
from kedge.image.remotes import RemoteConfig
from kedge.system import exclusive_change
from kedge.system.config import set_setting, unset_setting
from kedge.system.exclusive_change import lock_beside, sole_change

PATIENCE = 60  # seconds, for machines under load
REMOTES = "Active: one\nRemotes:\n  one:\n    URI: one.example\n    System: false\n"


def change_meanwhile(monkeypatch: pytest.MonkeyPatch, target: Path, change: Callable[[], object], text: str) -> None:
    """Let `change` wait for a lock that is held here, and write `text` into the file before letting go of it."""
    waits = threading.Event()
    go_on = threading.Event()

    class Clock:
        monotonic = staticmethod(lambda: 0.0)

        @staticmethod
        def sleep(_: float) -> None:
            waits.set()
            go_on.wait(PATIENCE)

    monkeypatch.setattr(exclusive_change, "time", Clock)
    thread = threading.Thread(target=change)
    with sole_change(target):
        thread.start()
        assert waits.wait(PATIENCE), "it did not wait"
        target.write_text(text)
    go_on.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.parametrize("command", ["add", "use", "login"])
def test_changed_remotes_keep_what_others_wrote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    path = tmp_path / "remote.yaml"
    path.write_text(REMOTES)
    file = RemoteConfig(path, ())
    calls: dict[str, Callable[[], object]] = {
        "add": lambda: file.add(Remote("two", "two.example"), use=True),
        "use": lambda: file.use("one"),
        "login": lambda: file.set_token(Remote("one", "one.example"), Secret("t")),
    }
    change_meanwhile(monkeypatch, path, calls[command], REMOTES + "  other:\n    URI: other.example\n")
    assert {"one", "other"} <= set(file.read().known)
    assert ("two" in file.read().known) == (command == "add")
    assert (file.find("one").token is not None) == (command == "login")


@pytest.mark.parametrize("command", ["set", "unset"])
def test_changed_settings_keep_what_others_wrote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    environ = {"HOME": str(tmp_path)}
    path = set_setting("threads", "2", environ)
    calls: dict[str, Callable[[], object]] = {
        "set": lambda: set_setting("retries", "7", environ),
        "unset": lambda: unset_setting("threads", environ),
    }
    change_meanwhile(monkeypatch, path, calls[command], "threads = 2\nno_https = true\n")
    assert (
        path.read_text()
        == {"set": "threads = 2\nno_https = true\nretries = 7\n", "unset": "no_https = true\n"}[command]
    )


@pytest.mark.parametrize("command", ["login", "logout"])
def test_changed_logins_keep_what_others_wrote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    path = tmp_path / "auth.json"
    store_login(path, "one.example", "me", Secret("pw"))
    calls: dict[str, Callable[[], object]] = {
        "login": lambda: store_login(path, "two.example", "me", Secret("pw")),
        "logout": lambda: remove_login(path, "one.example"),
    }
    auths = {**json.loads(path.read_text())["auths"], "other.example": {"auth": "bWU6cHc="}}
    change_meanwhile(monkeypatch, path, calls[command], json.dumps({"auths": auths}))
    found = read_auth_file(path)
    expected = {"login": {"one.example", "two.example", "other.example"}, "logout": {"other.example"}}
    assert set(found.logins) == expected[command]


def test_changes_follow_no_link_in_place_of_the_lock(tmp_path: Path) -> None:
    target = tmp_path / "file"
    lock_beside(target).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileProblem, match="kedge-lock-file"), sole_change(target):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_changes_wait_no_longer_than_patience(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(exclusive_change, "LOCK_PATIENCE", 0.05)
    target = tmp_path / "file"
    with sole_change(target), pytest.raises(StoreBusy, match="another process is changing"), sole_change(target):
        pass


def test_changes_go_on_where_a_file_system_has_no_locks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    path = set_setting("threads", "2", {"HOME": str(tmp_path)})
    assert path.read_text() == "threads = 2\n"


def test_changes_that_do_nothing_make_nothing(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    unset_setting("threads", environ)
    set_setting("threads", "2", environ, dry_run=True)
    remove_login(tmp_path / "new" / "auth.json", "one.example")
    assert list(tmp_path.iterdir()) == []
