# SPDX-License-Identifier: BSD-3-Clause
"""What a trial of namespaces, overlays and FUSE means, in the sentences that users read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kedge.answers.doctor.containers import (
    PLACE,
    USER_NAMESPACE,
    WORK,
    KernelRefusal,
    check_new_privileges,
    check_outer_container,
    check_seccomp,
    check_user_namespaces,
    cover_place,
    judge_fuse,
    judge_kernel,
    judge_namespaces,
    judge_overlay,
    judge_overlay_files,
    judge_subordinate_ids,
    try_namespaces,
)
from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, SKIPPED, WARNING, Surroundings
from kedge.container.facts import HostFacts
from kedge.container.mounting import OTHER_NAMESPACES
from kedge.errors import LimitReached, ProgramFailed
from kedge.system.settings import Settings
from kedge.system.views import TableView
from tests.builders.findings import require_whole
from tests.builders.rows import each_row
from tests.requirements import require_user_namespaces
from tests.wording import assert_reads, assert_says

EPERM = KernelRefusal(USER_NAMESPACE, errno.EPERM, "Operation not permitted")


def make_surroundings(root: Path, environ: dict[str, str] | None = None) -> Surroundings:
    return Surroundings(environ or {}, Settings.load({}, {"HOME": "/nowhere"}), root=str(root))


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


SETTINGS = {
    "user/max_user_namespaces": ("0", "user.max_user_namespaces is 0", "sysctl user.max_user_namespaces=15000"),
    "kernel/unprivileged_userns_clone": ("0", "kernel.unprivileged_userns_clone is 0",
         "sysctl kernel.unprivileged_userns_clone=1"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "AppArmor forbids it", "profile with 'userns,'"),
}  # fmt: skip


@each_row("name", SETTINGS)
def test_namespaces_refused_names_the_setting_and_its_remedy(tmp_path: Path, name: str) -> None:
    value, cause, remedy = SETTINGS[name]
    root = tmp_path / name
    write(root, "proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n")
    write(root, f"proc/sys/{name}", value)
    finding = require_whole(judge_namespaces(EPERM, 1000, root))
    assert finding.level == FAIL
    assert cause in finding.what
    assert remedy in finding.fix
    assert "--runtime apptainer" in finding.fix


def test_namespaces_refused_by_a_container_or_used_up(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/mountinfo", "1 0 8:1 / / rw - overlay overlay rw\n")
    write(tmp_path, "proc/self/status", "Seccomp:\t2\n")
    finding = judge_namespaces(EPERM, 1000, tmp_path)
    assert "kedge runs inside another container, whose rules forbid it" in finding.what
    assert "seccomp=unconfined" in finding.fix
    finding = judge_namespaces(KernelRefusal(OTHER_NAMESPACES, errno.ENOSPC, "No space left on device"), 1000, tmp_path)
    assert "user.max_mnt_namespaces" in finding.what


def test_namespaces_are_tried_and_this_process_stays_outside() -> None:
    require_user_namespaces()
    before = {name: Path(f"/proc/self/ns/{name}").readlink() for name in ("user", "mnt")}
    (finding,) = check_user_namespaces(make_surroundings(Path("/")))
    assert finding.level == OK
    assert {name: Path(f"/proc/self/ns/{name}").readlink() for name in ("user", "mnt")} == before


def test_trial_tells_refusals_and_leaves_nothing() -> None:
    require_user_namespaces()

    def refuse() -> None:
        raise OSError(errno.ENODEV, "No such\tdevice")

    assert try_namespaces({}, refuse) == KernelRefusal(WORK, errno.ENODEV, "No such device")
    require_user_namespaces()

    def work() -> None:
        cover_place()
        if any(Path(PLACE).iterdir()):
            raise OSError(errno.ENOTEMPTY, "not covered")

    assert try_namespaces({}, work) is None
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    assert [line for line in mounts if line.split()[4] == PLACE] == []
    require_user_namespaces()
    with pytest.raises(ProgramFailed):
        try_namespaces({}, lambda: os.kill(os.getpid(), 9))


def test_trial_that_cannot_be_started_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(LimitReached):
        check_user_namespaces(make_surroundings(Path("/")))


def test_outer_container_is_seen_by_its_marks(tmp_path: Path) -> None:
    assert check_outer_container(make_surroundings(tmp_path))[0].level == OK
    (finding,) = check_outer_container(make_surroundings(tmp_path, {"APPTAINER_CONTAINER": "/x.sif"}))
    assert_reads(require_whole(finding).what, "doctor/shell-inside-container-apptainer-container")
    write(tmp_path, ".dockerenv", "")
    assert "/.dockerenv exists" in check_outer_container(make_surroundings(tmp_path))[0].what


def test_overlay_levels_follow_what_is_left() -> None:
    refused = KernelRefusal(WORK, errno.EPERM, "Operation not permitted")
    missing = KernelRefusal(WORK, errno.EIO, "it is not installed")
    assert judge_overlay(None, None).level == OK
    assert require_whole(judge_overlay(refused, None)).level == NOTE
    both = require_whole(judge_overlay(refused, missing))
    assert both.level == WARNING
    assert "(it is not installed)" in both.what
    assert "--overlay, --writable-tmpfs and installing packages" in both.why
    assert judge_overlay(EPERM, EPERM).level == SKIPPED


def test_fuse_and_overlay_files_levels() -> None:
    for refusal in ("/dev/fuse does not exist", "squashfuse is not installed"):
        finding = require_whole(judge_fuse(refusal, None, ""))
        assert finding.level == NOTE
        assert refusal in finding.what
        assert "kedge unpacks an image file on the node" in finding.why
    assert "conda-forge squashfuse" in judge_fuse("squashfuse is not installed", None, "").fix
    assert judge_fuse("", EPERM, "/usr/bin/squashfuse_ll").level == OK
    refused = KernelRefusal(WORK, errno.EPERM, "Operation not permitted")
    assert_says(judge_fuse("", refused, "/usr/bin/squashfuse_ll").what, "doctor/kernel-refuses-mount-operation-not")
    assert judge_overlay_files("/usr/bin/fuse2fs", has_device=True).level == OK
    assert "fuse2fs is not installed" in require_whole(judge_overlay_files("", has_device=True)).what
    assert "no /dev/fuse" in require_whole(judge_overlay_files("/usr/bin/fuse2fs", has_device=False)).what


def test_seccomp_and_new_privileges(tmp_path: Path) -> None:
    surroundings = make_surroundings(tmp_path)
    assert require_whole(check_seccomp(surroundings)[0]).level == NOTE  # a kernel without the line
    write(tmp_path, "proc/self/status", "NoNewPrivs:\t0\nSeccomp:\t0\n")
    assert check_seccomp(surroundings)[0].level == OK
    write(tmp_path, "proc/sys/kernel/seccomp/actions_avail", "kill_thread trap trace log allow\n")
    assert "no seccomp filters" in check_seccomp(surroundings)[0].what
    write(tmp_path, "proc/sys/kernel/seccomp/actions_avail", "kill_thread trap errno trace log allow\n")
    write(tmp_path, "proc/self/status", "Seccomp:\t2\n")
    assert "outer container or service" in check_seccomp(surroundings)[0].what
    write(tmp_path, "proc/self/status", "NoNewPrivs:\t1\n")
    finding = require_whole(check_new_privileges(make_surroundings(tmp_path))[0])
    assert finding.level == NOTE
    assert "newuidmap" in finding.why


def make_host(entries: dict[str, bytes | str | None], uid: int = 1000) -> HostFacts:
    return HostFacts(view=TableView(entries), environ={}, uid=uid, gid=uid, user="ada")


PROGRAMS: dict[str, bytes | str | None] = {"/usr/bin/newuidmap": b"#!", "/usr/bin/newgidmap": b"#!"}
RANGES: dict[str, bytes | str | None] = {"/etc/subuid": b"ada:100000:65536\n", "/etc/subgid": b"ada:100000:65536\n"}


def test_subordinate_ids() -> None:
    finding = judge_subordinate_ids(make_host({**PROGRAMS, **RANGES}))
    assert finding.level == OK
    assert_reads(finding.what, "doctor/ids-ada-fakeroot-builds-all")
    few = dict.fromkeys(("/etc/subuid", "/etc/subgid"), b"ada:100000:5000\n")
    finding = judge_subordinate_ids(make_host({**PROGRAMS, **few}))
    assert finding.level == OK
    assert finding.what.startswith("5000 ids for ada: ")
    assert "builds need 65535 ids" in finding.what
    no_programs = require_whole(judge_subordinate_ids(make_host(RANGES)))
    assert_says(no_programs.what, "doctor/newuidmap-newgidmap-not-installed")
    no_ranges = require_whole(judge_subordinate_ids(make_host({**PROGRAMS, "/etc/subuid": b"bob:1:65536\n"})))
    assert_says(no_ranges.what, "doctor/no-range-more-ada")
    assert "usermod --add-subuids" in no_ranges.fix
    assert {no_programs.level, no_ranges.level} == {NOTE}


@each_row(
    ("release", "level"),
    [("2.6.32-754.el6.x86_64", WARNING), ("3.10.0-1160.el7.x86_64", OK), ("6.8.0-45-generic", OK), ("odd", NOTE)],
)
def test_kernel_release_is_judged(release: str, level: str) -> None:
    finding = judge_kernel(release)
    assert finding.level == level
    assert release in finding.what


def test_kernel_before_5_11_says_what_overlays_need() -> None:
    assert "fuse-overlayfs" in judge_kernel("4.18.0-553.el8_10.x86_64").what
    assert "fuse-overlayfs" not in judge_kernel("5.14.0-427.el9.x86_64").what
