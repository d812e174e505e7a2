# SPDX-License-Identifier: BSD-3-Clause
"""Packages in steps of builds, for real: an ordinary user without subordinate ids installs what needs root."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.builders.build_steps import Steps, give
from tests.builders.containers import each_role
from tests.builders.debian_bases import make_debian, unpack_as

QUIET = {"DEBIAN_FRONTEND": "noninteractive"}
INSTALL = "apt-get update -qq && apt-get install -qq -y --no-install-recommends"
# what gives files to users, sets attributes, makes users, generates keys, and starts as a user of its own
PACKAGES = "openssh-server man-db adduser iputils-ping libcap2-bin"
# their databases and units take a minute; tests/interop/test_build_identities.py asks both of other packages
LARGE = " systemd postgresql"

USERS = """
set -e
adduser --quiet --disabled-password --gecos '' walker
addgroup --quiet hikers && adduser --quiet walker hikers
useradd --system --create-home --groups hikers runner
groupadd --gid 4321 climbers && usermod -aG climbers walker
echo walker:secret | chpasswd
id walker; su walker -c 'echo su $HOME'; su - walker -s /bin/sh -c 'echo login $HOME'
runuser -u walker -- sh -c 'echo runuser'
install -o walker -g hikers -m 2750 -d /srv/shared
chown -R walker:hikers /srv; dpkg-statoverride --update --add root hikers 4750 /bin/su
tar -cf /tmp/a.tar --owner=walker --group=hikers /etc/passwd 2>&1 && mkdir /tmp/x && tar -xpf /tmp/a.tar -C /tmp/x
mknod /tmp/null c 1 3; mkfifo /tmp/pipe && test -p /tmp/pipe
setcap cap_net_raw+ep /usr/bin/stat
userdel runner; deluser --quiet walker hikers
"""


@pytest.fixture
def steps(suite: str) -> Iterator[Steps]:
    archive = make_debian(suite)
    for runner in each_role("user"):
        os.chown(runner.folder, runner.uid, runner.uid)
        base = unpack_as(runner, archive, runner.folder / "base")
        yield Steps(runner, base, give(runner, runner.folder / "changes"))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("suite", "packages"),
    [("bookworm", PACKAGES)]
    + [pytest.param(suite, PACKAGES + LARGE, marks=pytest.mark.long) for suite in ("bookworm", "trixie")],
)
def test_packages_that_need_root_are_installed(steps: Steps, packages: str) -> None:
    done = steps.run("sh", "-c", f"{INSTALL} {packages}", environment=QUIET)
    assert done.status == 0, done.output[-3000:]
    steps.stack()
    states = steps.read("dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package}\n").splitlines()
    assert [line for line in states if not line.startswith("ii ")] == []
    assert {line.split()[1] for line in states} >= set(packages.split())
    assert not [path for path in steps.layers[0].rglob("*") if "kedge" in path.name]
    done = steps.run("sh", "-c", USERS)
    assert done.status == 0, done.output
    assert "su /home/walker\nlogin /home/walker\nrunuser\n" in done.output
    assert steps.read("sh", "-c", "apt-get remove -qq -y man-db && apt-get clean", environment=QUIET)
