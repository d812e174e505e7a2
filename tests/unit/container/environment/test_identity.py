# SPDX-License-Identifier: BSD-3-Clause
"""passwd and group of a container, who the caller is, and who USER[:GROUP] of a recipe is by the image's files."""

from __future__ import annotations

import pwd

import pytest

from kedge.container import facts as identity
from kedge.container.image_users import find_image_user
from kedge.errors import CannotStart
from kedge.system.views import TableView
from tests.builders.payloads import make_host
from tests.builders.rows import each_row, with_rows

HOST = make_host(uid=1500, gid=1501, user="peer", gecos="P. Eer", home="/home/peer", login_shell="/bin/zsh")
ROOT = b"root:x:0:0:root:/root:/bin/sh\n"


def test_passwd_gets_a_line_for_the_caller() -> None:
    expected = ROOT + b"peer:x:1500:1501:P. Eer:/home/peer:/bin/zsh\n"
    assert identity.make_passwd(ROOT, HOST, "/home/peer") == expected
    assert identity.make_passwd(ROOT.rstrip(b"\n"), HOST, "/home/peer") == expected
    assert identity.make_passwd(b"", HOST, "/mnt") == b"peer:x:1500:1501:P. Eer:/mnt:/bin/zsh\n"
    assert identity.make_passwd(None, HOST, "/home/peer") is None
    text = b"root:x:0:0::/root:/bin/sh\n\nimg:*:1500:77:Info, x:/h:/bin/zz\nlast:x:5:5::/:/bin/false"
    assert identity.make_passwd(text, HOST, "/home/peer") == (
        b"root:x:0:0::/root:/bin/sh\n\nimg:x:1500:77:Info, x:/home/peer:/bin/zz\nlast:x:5:5::/:/bin/false\n"
    )
    text = b"+::::::\r\nbroken\n\xff:x:y:0:::\n"
    assert (
        identity.make_passwd(text, HOST, "/h")
        == b"+::::::\nbroken\n\xff:x:y:0:::\npeer:x:1500:1501:P. Eer:/h:/bin/zsh\n"
    )
    assert identity.make_passwd(ROOT, HOST, "/root", fakeroot=True) == ROOT
    assert identity.make_passwd(ROOT, HOST, "/other", fakeroot=True) == b"root:x:0:0:root:/other:/bin/sh\n"
    assert identity.make_passwd(b"", HOST, "/root", fakeroot=True) == ROOT


def test_group_gets_the_callers_groups() -> None:
    host = make_host(user="peer", groups=((7, "lab"), (1501, "peer"), (7, "lab")))
    assert identity.make_group(b"a:x:1:\nb:x:1501:q", host) == b"a:x:1:\nb:x:1501:q\nlab:x:7:peer\npeer:x:1501:peer\n"
    assert (identity.make_group(b"", make_host()), identity.make_group(None, host)) == (b"", None)
    groups = identity.find_groups(3999999999)
    assert 3999999999 not in [number for number, _ in groups]
    assert all(name for _, name in groups)


def test_user_is_found_in_the_database() -> None:
    entry = pwd.getpwuid(1)  # every system has it; who runs the tests may not stand there
    assert identity.find_user(1) == (entry.pw_name, entry.pw_dir, entry.pw_shell)
    assert identity.find_gecos(1) == entry.pw_gecos


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"USER": "alice", "HOME": "/h", "SHELL": "/bin/fish"}, ("alice", "/h", "/bin/fish")),
        ({"LOGNAME": "bob"}, ("bob", "/", "/bin/sh")),
        ({"USER": "a:b", "HOME": "relative"}, ("user3999999999", "/", "/bin/sh")),
        ({"USER": "root"}, ("user3999999999", "/", "/bin/sh")),
        ({}, ("user3999999999", "/", "/bin/sh")),
    ],
)
def test_user_that_no_database_knows_still_has_a_name(monkeypatch, environ, expected) -> None:
    for name in ("USER", "LOGNAME", "HOME", "SHELL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert (identity.find_user(3999999999), identity.find_gecos(3999999999)) == (expected, "")


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
