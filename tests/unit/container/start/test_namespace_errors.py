# SPDX-License-Identifier: BSD-3-Clause
"""Why a machine refuses namespaces: the very setting is named, and the way out."""

from __future__ import annotations

import errno
import os

import pytest

from kedge.container.start.start_errors import explain_refusal

APPARMOR = "proc/sys/kernel/apparmor_restrict_unprivileged_userns"


def make_problem(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("setting", "value", "number", "said"),
    [
        ("user/max_user_namespaces", "0", errno.ENOSPC, "sysctl user.max_user_namespaces=15000"),
        ("user/max_mnt_namespaces", "0", errno.ENOSPC, "sysctl user.max_mnt_namespaces=15000"),
        ("kernel/unprivileged_userns_clone", "0", errno.EPERM, "sysctl kernel.unprivileged_userns_clone=1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", errno.EACCES, "AppArmor profile"),
    ],
)
def test_refusal_names_the_setting(tmp_path, setting: str, value: str, number: int, said: str) -> None:
    path = tmp_path / "proc/sys" / setting
    path.parent.mkdir(parents=True)
    path.write_text(value + "\n")
    problem = explain_refusal(make_problem(number), "a namespace", tmp_path)
    assert setting.replace("/", ".") in problem.message
    assert problem.hint is not None
    assert said in problem.hint
    assert "--runtime apptainer" in problem.hint


def test_refusal_is_explained_by_what_is_seen(tmp_path) -> None:
    error = explain_refusal(make_problem(errno.ENOENT), "a user namespace", tmp_path)
    assert "/proc is not mounted" in error.message
    assert "mount -t proc" in (error.hint or "")
    problem = explain_refusal(make_problem(errno.EINVAL), "a namespace", tmp_path)
    assert "in a chroot" in problem.message
    problem = explain_refusal(make_problem(errno.ENOSPC), "a namespace", tmp_path)
    assert "in use" in problem.message
    problem = explain_refusal(make_problem(errno.EPERM), "a namespace", tmp_path)
    assert "no known setting" in problem.message
    assert problem.context["kernel says"] == os.strerror(errno.EPERM)
    (tmp_path / ".dockerenv").touch()
    problem = explain_refusal(make_problem(errno.EPERM), "a namespace", tmp_path)
    assert "inside another container" in problem.message
    assert "seccomp=unconfined" in str(problem.hint)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL])
@pytest.mark.parametrize(("place", "is_chroot"), [("/", False), ("/dev/shm", True)])
def test_refusal_in_a_chroot(tmp_path, number: int, place: str, is_chroot: bool) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(f"29 1 254:1 / {place} rw,relatime shared:1 - ext4 /dev/vda1 rw\n")
    problem = explain_refusal(make_problem(number), "a namespace", tmp_path)
    assert ("in a chroot" in problem.message) == is_chroot


def test_refusal_in_a_chroot_comes_before_settings(tmp_path) -> None:
    """They are about users, and root is refused here as well."""
    for name, text in (("proc/self/mountinfo", "29 1 254:1 / /proc rw - proc proc rw\n"), (APPARMOR, "1\n")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert "in a chroot" in explain_refusal(make_problem(errno.EINVAL), "a namespace", tmp_path).message
