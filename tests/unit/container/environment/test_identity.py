# SPDX-License-Identifier: BSD-3-Clause
"""passwd and group of a container, and who the caller is."""

from __future__ import annotations

import pwd

import pytest

from kedge.container import facts as identity
from tests.builders.payloads import make_host

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
