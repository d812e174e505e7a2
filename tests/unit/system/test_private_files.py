# SPDX-License-Identifier: BSD-3-Clause
"""What counts as the user's own. The tests of other users' directories are in tests/hostile/test_foreign_records.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kedge.errors import FileProblem
from kedge.system.private_files import (
    ANY_MODE,
    OTHERS_ENTER,
    find_foreign_hand,
    find_intruder,
    find_risk_above,
    is_out_of_reach,
    read_own_file,
    refuse_changed,
    refuse_intruders,
)
from tests.requirements import require_root
from tests.wording import assert_reads


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        (0o700, ""),
        (0o755, ""),
        (0o2750, ""),
        (0o770, "others may write to it (mode 0770)"),
        (0o2770, "others may write to it (mode 2770)"),
        (0o702, "others may write to it (mode 0702)"),
        (0o1777, "others may write to it (mode 1777)"),
    ],
)
def test_directory_that_others_may_write_is_not_ours_alone(tmp_path: Path, mode: int, reason: str) -> None:
    place = tmp_path / "jobs"
    place.mkdir()
    place.chmod(mode)
    assert find_intruder(place.lstat()) == reason
    assert find_intruder(place.lstat(), ANY_MODE) == ""
    if reason:
        with pytest.raises(FileProblem, match="others may write to it") as caught:
            refuse_intruders(place, "KEDGE_JOBDIR")
        assert_reads(caught.value.hint, "base/chmod-go-w-choose-directory-your", place, "KEDGE_JOBDIR")


def test_directory_that_others_may_enter_is_not_as_kedge_made_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert_reads(find_intruder(tmp_path.lstat(), OTHERS_ENTER), "base/others-enter-mode", "0755")
    with pytest.raises(FileProblem, match="others may enter it"):
        refuse_changed(tmp_path)
    refuse_changed(tmp_path / "not there")


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(".")
    assert_reads(find_intruder((tmp_path / "file").lstat()), "base/not-directory")
    assert find_intruder((tmp_path / "link").lstat()) == "it is a symlink"


def test_symlink_of_our_own_leads_to_what_is_checked(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    refuse_intruders(tmp_path / "link", "KEDGE_JOBDIR")
    (tmp_path / "real").chmod(0o777)
    with pytest.raises(FileProblem, match="others may write to it"):
        refuse_intruders(tmp_path / "link", "KEDGE_JOBDIR")


def test_directory_below_one_that_everybody_may_write(tmp_path: Path) -> None:
    place = tmp_path / "shared" / "mine"
    place.mkdir(parents=True, mode=0o700)
    for mode, is_risky in ((0o777, True), (0o1777, False), (0o2770, False), (0o755, False)):
        place.parent.chmod(mode)
        assert bool(find_risk_above(str(place))) is is_risky, oct(mode)
        assert bool(find_risk_above(str(place / "not/there/yet"))) is is_risky, oct(mode)


def test_file_is_read_when_it_is_a_file_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"text")
    assert read_own_file(path, 4) == b"text"
    with pytest.raises(OSError, match="at most 3 are read"):
        read_own_file(path, 3)
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic links"):
        read_own_file(tmp_path / "link", 4)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PermissionError, match="not a regular file"):
        read_own_file(tmp_path / "pipe", 4)


def test_file_written_by_hand_may_be_the_groups_but_not_everybodys(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("")
    path.chmod(0o664)
    assert find_foreign_hand(path.stat()) == ""
    path.chmod(0o666)
    assert_reads(find_foreign_hand(path.stat()), "base/everybody-write")


@pytest.mark.parametrize(("mode", "is_safe"), [(0o755, True), (0o1777, True), (0o777, False), (0o775, True)])
def test_path_that_others_can_exchange_is_within_their_reach(tmp_path: Path, mode: int, is_safe: bool) -> None:
    place = tmp_path.resolve() / "a/b/c"
    place.mkdir(parents=True)
    os.chown(place.parent.parent, -1, os.geteuid())  # the group of that number is the user's own
    place.parent.parent.chmod(mode)
    assert is_out_of_reach(str(place)) == is_safe
    assert not is_out_of_reach(str(place / "missing"))


@pytest.mark.root
def test_path_below_a_directory_of_others_is_within_their_reach(tmp_path: Path) -> None:
    require_root()
    place = tmp_path.resolve() / "a/b"
    place.mkdir(parents=True)
    for path, mode in ((place.parent, 0o755), (place, 0o700)):
        os.chown(path, 65533, -1)
        path.chmod(mode)
        assert not is_out_of_reach(str(place))
        os.chown(path, 0, -1)
    assert is_out_of_reach(str(place))
    os.chown(place.parent, 0, 65533)
    place.parent.chmod(0o775)
    assert not is_out_of_reach(str(place))
