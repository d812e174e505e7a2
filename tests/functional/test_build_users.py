# SPDX-License-Identifier: BSD-3-Clause
"""Steps of builds where the host gives the user subordinate ids: all users of the image, and the same image as without.

What a step has written is the caller's when it has ended, however it ended.
"""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders.build_steps import Steps, give
from tests.builders.builds import SHELL, Workshop
from tests.builders.containers import Runner, give_to, make_sandbox
from tests.builders.old_kernels import play_refusals
from tests.builders.small_disks import small_disk
from tests.builders.subordinate_ids import FIRST, each_with_ids, give_ids, list_foreign
from tests.builders.waiting import wait_until
from tests.functional.test_build_owners import read_owners
from tests.functional.test_build_trouble import read_until
from tests.interop.test_build_identities import list_members
from tests.wording import assert_says

pytestmark = pytest.mark.root

USERS = (
    f"{SHELL}RUN mkdir -p -m 755 /etc /srv /home /root && mkdir -m 1777 /tmp /out && echo root:x:0:0::/root:/bin/sh "
    "> /etc/passwd && echo app:x:1000:50:App:/home/app:/bin/sh >> /etc/passwd && echo staff:x:50: > /etc/group\n"
)
# Nothing in it asks who it is, or what the users of the image may do.
SAME = f"""{USERS}COPY --chown=app:staff given /srv/given
RUN mkdir -p /home/app/deep /srv/own && echo x > /srv/own/file && chown -R app:staff /home/app /srv/own
RUN ln /srv/own/file /srv/own/same && chmod 0 /srv/own
RUN echo y > /srv/tool && chown app /srv/tool && chmod 4755 /srv/tool
USER app
WORKDIR /home/app
RUN echo made > mine && mkdir -m 700 dir && echo more > dir/file && rm -r deep && echo more >> /srv/given
USER root
RUN echo root > /home/app/roots && chown 7:8 /home/app/mine && rm /srv/own/same
RUN chmod 700 /home/app && mkdir /srv/shut && echo z > /srv/shut/x && chown -R 65534:65534 /srv/shut
RUN chmod 0 /srv/shut/x && chown 0:0 /home/app/dir/file && ln -s x /srv/link && chown -h app /srv/link
RUN mknod /srv/null c 1 3 && chown app /srv/null && mkfifo /srv/pipe && chown app:staff /srv/pipe && rm /srv/link
"""
EPOCH = {"SOURCE_DATE_EPOCH": "1700000000"}
NO_OVERLAYS = ("overlay", "fuse.fuse-overlayfs")


@pytest.fixture
def own() -> Iterator[Workshop]:
    for runner in each_with_ids():
        shop = Workshop.open(runner, knows=USERS)
        shop.write("given", "given\n")
        yield shop


def with_runner(shop: Workshop, runner: Runner) -> Workshop:
    """The same context, with other ids and nothing in the caches but the beginning."""
    for name in ("node", "cache"):
        subprocess.run(["rm", "-rf", runner.folder / name], check=True)
        (runner.folder / name).mkdir(mode=0o700)
        os.chown(runner.folder / name, runner.uid, runner.uid)
    changed = replace(shop, runner=runner)
    changed.learn(USERS)
    return changed


def build_same(shop: Workshop, *words: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    shop.write("Dockerfile", SAME)
    return shop.build(
        *words, "--force", "--format", "docker-archive", "out.tar", "Dockerfile", env={**EPOCH, **(env or {})}
    )


def test_a_step_has_the_users_of_the_image(own: Workshop) -> None:
    asks = "id -u; cat /srv/own/file; cat /root/secret 2>&1; echo x >> /etc/passwd; stat -c '%u:%g %n' /srv/own/file"
    own.write(
        "Dockerfile",
        f"{USERS}RUN mkdir /srv/own && echo own > /srv/own/file && chown -R app:staff /srv/own && chmod 700 /srv/own\n"
        "RUN umask 077 && echo secret > /root/secret\n"
        f"USER app\nRUN ({asks}) > /out/said 2>&1\nRUN echo shown > /dev/stdout\n"
        "USER root\nRUN su app -c id >> /out/said; find / -xdev -user app | sort >> /out/said\n",
    )
    own.build("out.sif", "Dockerfile")
    assert own.read("out.sif", "/out/said").splitlines() == [
        "1000",
        "own",
        "cat: can't open '/root/secret': Permission denied",
        "/bin/sh: can't create /etc/passwd: Permission denied",
        "1000:50 /srv/own/file",
        "uid=1000(app) gid=50(staff) groups=50(staff)",
        "/out/said",
        "/srv/own",
        "/srv/own/file",
    ]
    assert list_foreign(own.runner) == []


def test_owners_and_modes_of_the_base_are_seen_and_can_be_changed(own: Workshop) -> None:
    """On the node its files are the caller's, and no file is set-user-ID."""
    own.write(
        "Dockerfile",
        f"{USERS}RUN rm /bin/su && cp /bin/busybox /bin/su && chmod 4755 /bin/su; sed -i s/root:x/root:/ /etc/passwd\n"
        "RUN cp /bin/busybox /bin/tool && chmod 6755 /bin/tool && echo shut > /etc/shut && chmod 0 /etc/shut\n"
        "RUN mkdir -m 750 /srv/own && cd /srv/own && echo own > file && ln file same && ln -s file link && "
        "chown -hR app:staff /srv/own\n",
    )
    own.build("--format", "docker-archive", "base.tar", "Dockerfile")
    own.write(
        "Dockerfile",
        "FROM docker-archive:base.tar\nUSER app\n"
        "RUN /bin/su root -c 'id -u' > /out/said; cat /srv/own/link /etc/shut >> /out/said 2>&1; true\n"
        "RUN stat -c '%u:%g %a %h' /srv/own /srv/own/same /bin/su /etc/shut >> /out/said\n"
        "RUN echo more >> /srv/own/same; cp /srv/own/same /out/both\n"
        "USER root\nRUN find / -xdev -perm -4000 | sort >> /out/said; chmod a-s /bin/tool; touch /bin/su /etc/shut\n",
    )
    own.build("out.sif", "Dockerfile")
    assert own.read("out.sif", "/out/said").splitlines() == [
        *("0", "own", "cat: can't open '/etc/shut': Permission denied"),
        *("1000:50 750 1", "1000:50 644 2", "0:0 4755 1", "0:0 0 1", "/bin/su", "/bin/tool"),
    ]
    nodes, both = own.look("out.sif", "/out/both")
    assert both.splitlines() == ["own", "more"]
    assert [nodes[path].mode for path in ("/bin/tool", "/bin/su", "/etc/shut")] == [0o755, 0o4755, 0]


def test_a_device_is_made_by_root_alone_and_is_in_the_image(own: Workshop) -> None:
    own.write(
        "Dockerfile",
        f"{USERS}RUN mknod /srv/null c 1 3 && chmod 666 /srv/null && chown app:staff /srv/null && mkfifo /srv/pipe && "
        "su app -c 'mknod /out/theirs c 1 3' 2> /out/said; test ! -e /out/theirs\nRUN mv /srv/null /srv/moved\n",
    )
    own.build("--format", "docker-archive", "out.tar", "Dockerfile")
    found = {member.name.strip("./"): member for _, member in list_members(own.context / "out.tar")}
    assert "srv/.wh.null" in found
    device = found["srv/moved"]
    assert (device.type, device.devmajor, device.devminor) == (tarfile.CHRTYPE, 1, 3)
    assert (device.mode, device.uid, device.gid) == (0o666, 1000, 50)
    assert found["srv/pipe"].isfifo()


@pytest.mark.parametrize(
    "refused",  # tests/functional/test_build_owners.py has all of them, too
    [(), NO_OVERLAYS, *(pytest.param((each,), marks=pytest.mark.long) for each in ("overlay", "openat2"))],
)
def test_images_are_the_same_with_any_ids_and_without(own: Workshop, refused: tuple[str, ...]) -> None:
    env = play_refusals(own.runner.folder, *refused, "in children") if refused else {}
    with_ids = build_same(own, env=env)
    assert list_foreign(own.runner) == []
    runner = own.runner
    owners = read_owners(own.context / "out.tar")
    assert owners["home/app/mine"] == (7, 8)
    assert owners["srv/tool"] == owners["srv/link"] == owners["srv/null"] == (1000, 0)
    assert owners["home/app/dir/file"] == (0, 0)
    assert owners["srv/own/file"] == owners["srv/given"] == (1000, 50)
    if not refused:  # test_build_owners.py has the ways without ids
        for first, count in ((1_000_000, 200_000), (FIRST, 0)):
            assert build_same(with_runner(own, give_ids(runner, first, count)))["digest"] == with_ids["digest"]


def test_a_build_does_without_ids_where_they_are_too_few(own: Workshop) -> None:
    check_alone(with_runner(own, give_ids(own.runner, count=5000)))


@pytest.mark.parametrize(("program", "mode"), [("newuidmap", 0o644), ("newgidmap", 0o755)])
def test_a_build_does_without_ids_where_it_cannot_have_them(own: Workshop, program: str, mode: int) -> None:
    """A program that is none, or not set-user-ID: the second is noticed when the first has given its ids."""
    plain = own.runner.folder / program
    shutil.copyfile(f"/usr/bin/{program}", plain)
    plain.chmod(mode)
    check_alone(with_runner(own, give_ids(own.runner, setup=f"mount --bind {plain} /usr/bin/{program}")))


def test_build_without_the_ids_on_demand(own: Workshop) -> None:
    check_alone(own, "--ignore-subuid")


def check_alone(shop: Workshop, *words: str) -> None:
    """A build by which root is the only user."""
    shop.write("Dockerfile", f"{USERS}RUN cat /proc/self/uid_map > /map && touch /x && chown app /x\n")
    shop.build(*words, "out.sif", "Dockerfile")
    assert shop.read("out.sif", "/map").split() == ["0", "0", "1"]


def test_directories_of_the_host_are_for_one_user(own: Workshop) -> None:
    """What another user of the image made there the caller could not remove."""
    (own.context / "data").mkdir(mode=0o777)
    os.chown(own.context / "data", own.runner.uid, own.runner.uid)
    own.write("Dockerfile", f"{USERS}RUN touch /mnt/x && chown app /mnt/x\nUSER app\nRUN touch /mnt/y\n")
    own.build("--bind", f"{own.context}/data:/mnt", "out.sif", "Dockerfile")
    assert sorted(path.name for path in (own.context / "data").iterdir()) == ["x", "y"]
    assert list_foreign(own.runner) == []


def test_a_user_whose_number_is_not_among_the_ids(own: Workshop) -> None:
    own.write("Dockerfile", f"{USERS}USER 1204500\nRUN id -u > /out/said && touch /tmp/x\n")
    own.build("--format", "docker-archive", "out.tar", "Dockerfile")
    assert read_owners(own.context / "out.tar")["tmp/x"] == (1204500, 0)


def test_many_files_of_others_are_left_to_the_other_way(own: Workshop) -> None:
    """They would have to be copied for each step."""
    many = "i=0; while [ $i -lt 4100 ]; do echo > /srv/$i; i=$((i+1)); done; chown -R app /srv"
    own.write("Dockerfile", f"{USERS}RUN {many}\nRUN cat /proc/self/uid_map > /map; echo more >> /srv/7\n")
    own.build("out.sif", "Dockerfile")
    nodes, text = own.look("out.sif", "/map")
    assert [(nodes[path].uid, nodes[path].gid) for path in ("/srv/7", "/srv/4099")] == [(1000, 0)] * 2
    assert text.split() == ["0", "0", "1"]


def test_caches_are_the_callers_after_a_step_and_the_users_in_it(own: Workshop) -> None:
    mount = "--mount=type=cache,target=/var/kept"
    first = "cd /var/kept; touch mine && mkdir -m 700 shut && echo x > shut/file && chmod 4755 mine"
    last = "cd /var/kept; stat -c '%u:%g %a' . mine shut roots > /out/said; cat shut/file"
    own.write(
        "Dockerfile",
        f"{USERS}RUN mkdir -p /var\nUSER app\nRUN {mount} {first}\nUSER root\nRUN {mount} touch /var/kept/roots\n"
        f"USER app\nRUN {mount} {last} >> /out/said\n",
    )
    own.build("out.sif", "Dockerfile")
    said = own.read("out.sif", "/out/said").splitlines()
    assert said == ["1000:50 755", "1000:50 4755", "1000:50 700", "0:0 644", "x"]
    assert list_foreign(own.runner) == []
    assert not list(own.runner.home.rglob("shut"))


def test_secrets_are_the_steps_users(own: Workshop) -> None:
    own.write("key", "hidden\n")
    own.write(
        "Dockerfile",
        f"{USERS}USER app\nRUN --mount=type=secret,id=key,target=/tmp/key cat /tmp/key > /out/said; "
        "stat -c %u:%a /tmp/key >> /out/said\n",
    )
    own.build("--secret", "id=key,src=key", "out.sif", "Dockerfile")
    assert own.read("out.sif", "/out/said").split() == ["hidden", "1000:400"]


CACHE = "--mount=type=cache,target=/srv "


# signals that kedge sees are handled alike; after the other one the next build has to clean both places
@pytest.mark.parametrize(("number", "mount"), [(signal.SIGTERM, CACHE), (signal.SIGKILL, ""), (signal.SIGKILL, CACHE)])
def test_what_an_interrupted_step_wrote_can_be_removed(own: Workshop, number: int, mount: str) -> None:
    fill = (
        "umask 077; mkdir -p /srv/deep/er; echo x > /srv/deep/er/file; chown -R app /srv/deep; touch /ready; sleep 300"
    )
    own.write("Dockerfile", f"{USERS}RUN {mount}{fill}\n")
    child = own.begin("out.sif", "Dockerfile")
    node = own.runner.folder / "node/builds"
    # whatever is there: directories come and go while the step begins
    wait_until("the step has begun", lambda: any("ready" in names for _, _, names in os.walk(node)))
    assert list_foreign(own.runner) != []
    child.send_signal(number)
    child.communicate(timeout=60)
    if number is not signal.SIGKILL:
        assert list_foreign(own.runner) == []
        return
    own.write("Dockerfile", f"{USERS}RUN true\n")
    own.build("out.sif", "Dockerfile")
    assert own.list_builds() == []
    own.runner.read("cache", "clean", "--all", "--force")
    assert list_foreign(own.runner) == []


def test_a_second_program_in_a_step_finds_the_owners_of_the_first() -> None:
    """The shell of --shell-on-error."""
    for runner in each_with_ids():
        base = give_to(runner, make_sandbox(runner.folder / "base"))
        os.chown(base, runner.uid, runner.uid)
        setup = f"mount --bind {runner.etc} /etc"
        steps = Steps(runner, base, give(runner, runner.folder / "changes"), setup=setup)
        make = "mkdir -p /srv/own && cd /srv/own && echo x > file && echo y > tool && ln file same && ln -s file link"
        named = {"maps_users": True}
        steps.read("sh", "-c", f"{make} && busybox chown -hR 5:6 /srv/own && chmod 4711 tool", named=named)
        assert steps.upper.joinpath("srv/own/tool").stat().st_uid == runner.uid
        assert steps.upper.joinpath("srv/own/tool").stat().st_mode & 0o7777 == 0o4711
        assert list_foreign(runner) == []
        ask = "cd /srv/own; stat -c '%u:%g %a %n' . file tool same; busybox ls -lnd link | grep -c ' 5 *6 '"
        assert steps.read("sh", "-c", ask, named=named).splitlines() == [
            *("5:6 755 .", "5:6 644 file", "5:6 4711 tool", "5:6 644 same", "1")
        ]
        assert list_foreign(runner) == []


def test_the_shell_in_a_failed_step_is_on_the_terminal(own: Workshop) -> None:
    own.write("Dockerfile", f"{USERS}RUN echo made > /srv/left; chown app /srv/left; chmod 600 /srv/left; false\n")
    argv = own.runner.argv("build", "--shell-on-error", "out.sif", ".")
    ours, theirs = pty.openpty()
    environ = own.runner.variables({"TERM": "xterm"})
    with subprocess.Popen(argv, env=environ, cwd=own.context, stdin=theirs, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        shown = read_until(ours, "'exit' ends it") + read_until(ours, "[#$] ")
        os.write(ours, b"cat /srv/left; stat -c 'of %u' /srv/left; tty; exit 7\n")
        shown += read_until(ours, "hint: ")
        assert child.wait(timeout=60) == 91, shown
    os.close(ours)
    assert "/dev/" in shown
    assert "of 1000" in shown
    assert list_foreign(own.runner) == []
    assert own.list_builds() == []


def test_a_full_disk_at_the_end_of_a_step_is_one_error(own: Workshop) -> None:
    fill = "i=0; while [ $i -lt 300 ]; do echo > /srv/$i; i=$((i+1)); done; chown -R app /tmp /srv; "
    own.write("Dockerfile", f"{USERS}RUN {fill}dd if=/dev/zero of=/x bs=1k 2>/dev/null; true\n")
    with small_disk(own.runner.folder / "disk", 88 << 20, own.runner.uid) as disk:
        done = own.start("out.sif", "Dockerfile", env={"KEDGE_NODEDIR": str(disk / "node")})
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        assert_says(done.stderr, "base/file-system-full")
        assert not list((disk / "node/builds").glob("*"))


def test_ids_without_fuse(own: Workshop) -> None:
    runner = own.runner
    if not Path("/dev/fuse").exists():
        pytest.skip("there is no /dev/fuse")
    bare = with_runner(own, give_ids(runner, FIRST, setup="mount --bind /dev/null /dev/fuse"))
    own.write("Dockerfile", f"{USERS}RUN touch /srv/x && chown app /srv/x && su app -c 'id -u' > /said\n")
    bare.build("--format", "docker-archive", "out.tar", "Dockerfile")
    assert read_owners(own.context / "out.tar")["srv/x"] == (1000, 0)
