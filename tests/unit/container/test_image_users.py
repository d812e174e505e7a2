# SPDX-License-Identifier: BSD-3-Clause
"""Who USER[:GROUP] of a recipe is, by the image's own files."""

from __future__ import annotations

import pytest

from kedge.container.image_users import find_image_user
from kedge.errors import CannotStart
from kedge.system.views import TableView
from tests.builders.rows import each_row, with_rows

PASSWD = (
    b"root:x:0:0:root:/root:/bin/sh\napp:x:1000:50:App:/srv/app:/bin/sh\nodd:x:one:two:::\nshort:x:5\n100:x:7:8::/n:\n"
)
GROUP = b"root:x:0:\nstaff:x:50:\naudio:x:29:other,app\nvideo:x:44:app\n"
IMAGE = TableView({"/etc/passwd": PASSWD, "/etc/group": GROUP})


@with_rows(
    *(("", 0, 0, "/root", ()), ("root", 0, 0, "/root", ()), ("app", 1000, 50, "/srv/app", (29, 44))),
    *(("1000", 1000, 50, "/srv/app", (29, 44)), ("01000", 1000, 50, "/srv/app", (29, 44))),
    *(("app:audio", 1000, 29, "/srv/app", ()), ("app:7", 1000, 7, "/srv/app", ()), ("4321", 4321, 0, "/", ())),
    *(("4321:staff", 4321, 50, "/", ()), ("100", 7, 8, "/n", ()), (":staff", 0, 50, "/root", ())),
)
def test_users_are_found_as_docker_finds_them(text, uid, gid, home, groups) -> None:
    found = find_image_user(text, IMAGE)
    assert (found.uid, found.gid, found.home, found.groups) == (uid, gid, home, groups)


@each_row(("text", "named"), [("nobody", "user 'nobody'"), ("odd", "user 'odd'"), ("0:x", "group 'x'")])
def test_names_that_the_image_lacks_are_refused(text: str, named: str) -> None:
    with pytest.raises(CannotStart, match=f"the image has no {named}"):
        find_image_user(text, IMAGE)


def test_an_image_without_files_has_root_and_numbers() -> None:
    empty = TableView({})
    assert find_image_user("root:root", empty).uid == 0
    assert find_image_user("12:34", empty).gid == 34
