# SPDX-License-Identifier: BSD-3-Clause
"""Who programs in a step are and whose files are, for an ordinary user without others: in layers and in one directory.

`tests/interop/test_build_identities.py` asks the same of a distribution's programs, beside buildah.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import pytest

from kedge.base.tree import Node, NodeKind, walk
from kedge.image.layers.owners import OwnerTable, RecordedOwner, note_owners
from kedge.image.layers.upper_directory import read_upper
from tests.builders.build_steps import StepResult, Steps, make_steps
from tests.builders.old_kernels import play_refusals
from tests.wording import assert_says

SCRIPT = """
exec 2>/dev/null
for name in su chown mknod mkfifo find; do ln -s busybox /bin/$name; done; mkdir -p /srv/app /home/app
chown app:staff /srv/app; stat -c %u:%g /srv/app; find / -xdev -user app
"""


@pytest.fixture(params=["layers", "directory"])
def steps(request: pytest.FixtureRequest) -> Iterator[Steps]:
    yield from make_steps(request.param)


@pytest.fixture
def layered() -> Iterator[Steps]:
    yield from make_steps("layers")


def list_nodes(steps: Steps) -> dict[str, Node]:
    tree, source = read_upper(steps.upper)
    source.close()
    return {os.fsdecode(path): node for path, node in walk(tree)}


def test_owners_are_seen_in_the_step_that_gives_them(steps: Steps) -> None:
    assert steps.read("sh", "-c", SCRIPT) == "1000:50\n/srv/app\n"
    again = "stat -c %u:%g /srv/app; cd /srv; stat -c %u:%g app; chown 0:0 app; stat -c %u:%g app"
    assert steps.read("sh", "-c", again) == "1000:50\n1000:50\n0:0\n"


def test_su_is_another_user(steps: Steps) -> None:
    steps.read("sh", "-c", SCRIPT)
    script = (
        "su app -c 'id -u; id -g; id -G; echo x > /srv/app/x; mkdir /srv/app/d; ln -s x /srv/app/l';"
        "stat -c %u:%g /srv/app/x /srv/app/d /srv/app/l; id -u;"
        "su app -c 'echo x > /etc/passwd; touch /etc/new; rm -f /etc/group; chmod 777 /etc; mkdir /usr' 2>&1 | wc -l;"
        "ls -d /etc/new /usr 2>/dev/null; cat /etc/group | wc -l; stat -c %a /etc; rm -f /bin/su"
    )
    seen = steps.read("sh", "-c", script).split()
    assert seen == ["1000", "50", "50", "29", "1000:50", "1000:50", "1000:50", "0", "5", "3", "755"]
    nodes = list_nodes(steps)
    assert {name: (node.uid, node.gid) for name, node in nodes.items() if name.startswith("srv/app/")} == {
        "srv/app/d": (1000, 50),
        "srv/app/l": (1000, 50),
        "srv/app/x": (1000, 50),
    }
    assert not [key for node in nodes.values() for key, _ in node.xattrs if b"kedge" in key]


def test_a_child_whose_parent_is_gone_is_who_it_was(layered: Steps) -> None:
    layered.read("sh", "-c", SCRIPT)
    script = "su app -c '(sleep 0.2; id -u > /srv/app/who) & true'; sleep 1; cat /srv/app/who"
    assert layered.read("sh", "-c", script) == "1000\n"


def test_devices_pipes_and_setuid_bits(layered: Steps) -> None:
    script = SCRIPT.replace("find / -xdev -user app", "") + (
        "mknod -m 640 /srv/null c 1 3 && mknod /srv/disk b 8 17; stat -c '%F %t,%T' /srv/null /srv/disk;"
        "mkfifo /srv/pipe; chown 7:8 /srv/pipe; stat -c %u:%g /srv/pipe;"
        "echo x > /srv/s; chmod 6755 /srv/s; chown 0:0 /srv/s; stat -c %a /srv/s; mknod /srv/no c 0 0 || echo refused"
    )
    said = layered.read("sh", "-c", script).splitlines()
    assert said[1:] == ["character special file 1,3", "block special file 8,11", "7:8", "755", "refused"]
    done = layered.run("sh", "-c", "mknod /dev/shm/null c 1 3")
    assert done.status == 1
    assert_says(done.output, "build/device-nodes-cannot-made-outside")
    assert "/etc/subuid" in done.output
    nodes = list_nodes(layered)
    null, disk, pipe = nodes["srv/null"], nodes["srv/disk"], nodes["srv/pipe"]
    assert (null.kind, null.rdev, null.mode, null.size) == (NodeKind.CHARACTER_DEVICE, os.makedev(1, 3), 0o640, 0)
    assert (disk.kind, disk.rdev) == (NodeKind.BLOCK_DEVICE, os.makedev(8, 17))
    assert (pipe.kind, pipe.uid, pipe.gid) == (NodeKind.FIFO, 7, 8)


def test_a_user_of_the_recipe_may_not_write_what_is_roots(steps: Steps) -> None:
    steps.read("sh", "-c", SCRIPT)
    script = (
        "id -u; stat -c %u /etc /srv/app; echo x > /srv/app/x; echo x > /etc/new || echo refused; rm -r /etc || echo no"
    )
    said = steps.read("sh", "-c", "exec 2>/dev/null; " + script, user="app").split()
    assert said[:3] == ["1000", "0", "1000"]
    assert said[-2:] == ["refused", "no"]
    assert not (steps.upper / "etc/new").exists()
    assert "can't create" in steps.run("sh", "-c", "echo x > /etc/passwd", user="app").output


def test_notes_of_an_unpacked_image_are_seen(layered: Steps) -> None:
    """Owners, and the setuid bits that files have in the image and not on a node; they go when the file is given."""
    (layered.base / "bin/busybox").chmod(0o555)
    table = OwnerTable(
        {
            b"etc/group": RecordedOwner(0, 29, None),
            b"bin/busybox": RecordedOwner(0, 0, 0o4555),
            b"bin/ls": RecordedOwner(3, 3, None),
        }
    )
    note_owners(layered.base, table)
    assert stat.S_IMODE((layered.base / "bin/busybox").stat().st_mode) == 0o555
    look = "stat -c '%u:%g %a' /etc/group /bin/busybox"
    assert layered.read("sh", "-c", look) == "0:29 644\n0:0 4555\n"
    assert layered.read("sh", "-c", f"busybox chown 5 /bin/busybox; {look}") == "0:29 644\n5:0 555\n"
    assert list_nodes(layered)["bin/busybox"].mode == 0o555
    assert layered.read("sh", "-c", f"busybox chmod 4755 /bin/busybox; {look}") == "0:29 644\n5:0 4755\n"
    assert list_nodes(layered)["bin/busybox"].mode == 0o4755


def test_children_that_end_make_no_call_fail(layered: Steps) -> None:
    """A signal ends a call that waits for the supervisor; BusyBox's shell would not let it begin again."""
    loop = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); (exit 0) & (exit 0) &"
    work = "[ -e /etc/passwd ] || echo test; : > /tmp/x || echo open; echo a | cat > /dev/null || echo fork; done; wait"
    assert layered.run("sh", "-c", f"{loop} {work}") == StepResult(0, "", "", 0)


def test_the_supervisor_is_no_way_to_the_host(layered: Steps) -> None:
    """It could see more than its step, through links of /proc, and makes files for its users."""
    layered.read("sh", "-c", SCRIPT)
    place = layered.runner.home
    script = f"""cd /; ln -s /proc/1/root /tmp/one
    for number in 1 2 3 4 5; do
        for way in /proc/$number/root proc/$number/root /tmp/../proc/$number/root /tmp/one /proc/$number/cwd; do
            echo x > $way{place}/made; mkdir $way{place}/folder; ln -s x $way{place}/link; chown 5:5 $way{place}/mine
        done
    done; true"""
    (place / "mine").write_text("x")
    os.chown(place / "mine", layered.runner.uid, layered.runner.uid)
    for user in ("app", ""):
        layered.read("sh", "-c", script, user=user)
    assert sorted(path.name for path in place.iterdir()) == ["mine"]
    assert os.listxattr(place / "mine") == []


def test_users_are_namespaces_where_calls_cannot_be_left_to_others(layered: Steps) -> None:
    layered.runner.environment.update(play_refusals(layered.runner.folder, "call notices", "in children"))
    assert layered.read("sh", "-c", "id -u; stat -c %u /etc", user="app") == "1000\n1000\n"
