# SPDX-License-Identifier: BSD-3-Clause
"""The plan of a container, and that of %setup, from facts that are written down: no namespaces, no mounts, no host."""

from __future__ import annotations

import pytest

from kedge.container.facts import Additions, Bind, HostFacts, ImageFacts, Payload
from kedge.container.mount_operations import (
    NEW,
    OLD,
    SESSION,
    BindMount,
    ChangeDirectory,
    MakeDirectory,
    MakeFile,
    MakeReadonly,
    Tmpfs,
    WriteFile,
    describe,
)
from kedge.container.mounting import MountPlan, PlanRequest, plan_container
from kedge.container.mounts.host_script_plan import HostScriptRequest, plan_host_script
from kedge.container.options import RunOptions
from kedge.container.step_options import StepOptions
from kedge.errors import FileProblem, UsageError
from kedge.system.libc import MS_NODEV, MS_RDONLY
from kedge.system.views import TableView
from tests.builders.rows import each_row, with_rows
from tests.wording import assert_begins

IMAGE = {"/bin/sh": b"", "/etc/passwd": b"root:x:0:0::/root:/bin/sh\n", "/proc": None, "/sys": None, "/dev": None}
HOST = {
    **{"/home/user/work": None, "/scratch/job": None, "/tmp": None, "/var/tmp": None, "/etc/hosts": b""},
    "/etc/localtime": "-> /usr/share/zoneinfo/UTC",
    **{"/usr/share/zoneinfo/UTC": b"", "/dev/null": b"", "/dev/infiniband": None, "/data/file": b""},
}


def make_request(**options: object) -> PlanRequest:
    host = HostFacts(view=TableView(HOST), environ={}, cwd=str(options.pop("cwd", "/home/user/work")))
    image = ImageFacts(view=TableView(IMAGE), path="/images/a.sif", kind="sif")
    return PlanRequest(RunOptions(**options), host, image, Additions(), Payload(["/bin/sh"], {}))


def destinations(plan: MountPlan, kind: type[BindMount | Tmpfs] = BindMount) -> list[str]:
    return [each.target[len(NEW) :] for each in plan.rest if isinstance(each, kind)]


def find_bind(plan: MountPlan, destination: str) -> BindMount:
    return next(each for each in plan.rest if isinstance(each, BindMount) and each.target == NEW + destination)


def test_plan_default_binds() -> None:
    plan = plan_container(make_request())
    wanted = ["/proc", "/sys", "/dev", "/etc/localtime", "/etc/hosts", "/tmp", "/var/tmp", "/home/user"]
    assert destinations(plan) == wanted
    assert find_bind(plan, "/etc/localtime").source == OLD + "/usr/share/zoneinfo/UTC"
    assert plan.rest[-1] == ChangeDirectory(("/home/user/work", "/home/user", "/"), is_strict=False)
    assert MakeReadonly(NEW) in plan.rest
    plan = plan_container(make_request())
    assert MakeDirectory(NEW + "/home/user", policy="later") in plan.making
    assert MakeFile(NEW + "/etc/hosts", "later") in plan.making
    assert MakeDirectory(NEW + "/proc", policy="later") not in plan.making
    assert plan_container(make_request()).rest == plan_container(make_request()).rest
    plan = plan_container(make_request(no_mount=["home,tmp", "proc"]))
    left = set(destinations(plan))
    assert not left & {"/proc", "/tmp", "/var/tmp", "/home/user"}
    assert "/sys" in left


@each_row("options", [{}, {"contain": True}])
def test_plan_home_that_an_image_to_be_changed_lacks_lies_in_memory(options: dict[str, object]) -> None:
    request = make_request(**options)
    request.is_direct = request.is_writable = True
    plan = plan_container(request)
    places = [each.target[len(NEW) :] for each in plan.rest if isinstance(each, Tmpfs | BindMount)]
    assert places.index("/home") < places.index("/home/user")


def test_plan_current_folder_is_bound_above_what_covers_it() -> None:
    assert destinations(plan_container(make_request(cwd="/scratch/job")))[-1] == "/scratch/job"
    request = make_request(cwd="/home/user", home="/scratch/job:/home/user")
    assert [each.source for each in plan_container(request).rest if isinstance(each, BindMount)][
        -1
    ] == OLD + "/scratch/job"
    request = make_request(cwd="/home/user/work")
    request.binds = [Bind("/scratch", "/home/user")]
    assert "/home/user/work" not in destinations(plan_container(request))  # nothing is made in /scratch
    request.host.view = TableView({**HOST, "/scratch/work": None})
    assert destinations(plan_container(request))[-1] == "/home/user/work"


@with_rows(
    *("/", "/etc", "/bin", "/mnt", "/usr", "/var", "/opt", "/sbin", "/lib", "/lib64"),
    *("/proc", "/proc/self", "/sys/class", "/dev/shm", "/tmp/x", "/home/user"),
)
def test_plan_current_folder_of_the_system_is_not_bound(cwd: str) -> None:
    assert destinations(plan_container(make_request(cwd=cwd)))[-1] == "/home/user"


@each_row("name", ["sys", "proc", "dev"])
def test_plan_current_folder_of_the_system_is_not_bound_in_place_of_what_was_left_out(name: str) -> None:
    plan = plan_container(make_request(cwd=f"/{name}/x", no_mount=[name]))
    assert not [each for each in destinations(plan) if each.startswith(f"/{name}")]


@each_row("links", [{"/var/tmp": "-> /tmp", "/tmp": None}, {"/tmp": "-> var/tmp", "/var/tmp": None}])
def test_plan_tmp_that_is_a_link_to_the_other_is_mounted_once(links: dict[str, str | None]) -> None:
    request = make_request()
    request.image.view = TableView({**IMAGE, **links})
    shown = destinations(plan_container(request))
    assert ("/tmp" in shown, "/var/tmp" in shown) == (True, False)


def test_plan_contain_is_private_but_what_is_unpacked_may_be_written() -> None:
    request = make_request(contain=True)
    request.private_size = 1 << 26
    request.additions.devices = ["/dev/infiniband", "/dev/absent"]
    plan = plan_container(request)
    assert set(destinations(plan, Tmpfs)) == {"/dev", "/dev/shm", "/tmp", "/var/tmp", "/home/user"}
    assert "/home/user/work" not in destinations(plan)
    assert {"/dev/null", "/dev/infiniband"} <= set(destinations(plan))
    assert "/dev/absent" not in destinations(plan)
    assert plan.rest[-1] == ChangeDirectory(("/home/user", "/"), is_strict=False)
    request = make_request(contain=True)
    request.host.view = TableView({**HOST, "/var/tmp/kedge-1000/session/1/root": None})
    request.store = "/var/tmp/kedge-1000"
    request.binds = [Bind("/var/tmp/kedge-1000/session/1/root", "/mnt")]
    assert not find_bind(plan_container(request), "/mnt").flags & MS_RDONLY


def test_plan_binds_come_after_what_they_lie_in() -> None:
    request = make_request(contain=True)
    request.binds = [Bind("/data", "/tmp/data", readonly=True)]
    plan = plan_container(request)
    assert MakeDirectory(NEW + "/tmp/data") in plan.rest
    assert find_bind(plan, "/tmp/data").flags & MS_RDONLY
    request = make_request()
    request.binds = [Bind("/data", "/home/user/data")]
    plan = plan_container(request)
    assert not [each for each in plan.making if "/data" in describe(each)]
    made = plan.rest.index(MakeDirectory(NEW + "/home/user/data", policy="may"))
    assert made == plan.rest.index(find_bind(plan, "/home/user/data")) - 1
    request = make_request()
    request.binds = [Bind("/data/file", "/x/y/file"), Bind("/scratch", "/x"), Bind("/data", "/x/y")]
    assert [each for each in destinations(plan_container(request)) if each.startswith("/x")] == [
        *("/x", "/x/y", "/x/y/file"),
    ]
    request = make_request()
    request.passwd = b"generated\n"
    request.binds = [Bind("/data/file", "/etc/passwd")]
    binds = [each for each in plan_container(request).rest if isinstance(each, BindMount)]
    assert [each.source for each in binds if each.target == NEW + "/etc/passwd"][-1] == OLD + "/data/file"


@each_row("text", ["host.example", "1.2.3", "1.2.3.400", "", "1.1.1.1,x"])
def test_plan_name_servers_are_addresses(text: str) -> None:
    with pytest.raises(UsageError, match="is not an IP address"):
        plan_container(make_request(dns=text or ","))


def test_plan_of_scripts_names_and_libraries() -> None:
    plan = plan_container(make_request(dns="255.0.0.1, 10.0.0.255,fd00::1"))
    [text] = [each.content for each in plan.rest if isinstance(each, WriteFile) and each.path.endswith("/resolv.conf")]
    assert text == "nameserver 255.0.0.1\nnameserver 10.0.0.255\nnameserver fd00::1\n"
    request = make_request()
    request.options.step = StepOptions({"context": "/home/user/work"})
    shown = [describe(each) for each in plan_container(request).rest]
    assert "bind container:/ to session:/script/rootfs" in shown
    assert shown[-1] == "change to /home/user/work"
    request = make_request()
    request.additions.libraries = [("/usr/lib/libcuda.so.580.1", "libcuda.so.1")]
    plan = plan_container(request)
    assert MakeFile(f"{SESSION}/libs/libcuda.so.1") in plan.rest
    assert "/.singularity.d/libs" in destinations(plan)


def test_plan_binds_keep_devices_and_need_a_source() -> None:
    request = make_request()
    request.binds = [Bind("/nowhere", "/data", origin="--bind")]
    with pytest.raises(FileProblem, match="cannot bind /nowhere"):
        plan_container(request)
    request.binds = [Bind("/nowhere", "/data", is_optional=True)]
    plan_container(request)
    request = make_request()
    request.binds = [Bind("/dev/infiniband", "/dev/infiniband"), Bind("/data", "/data")]
    plan = plan_container(request)
    assert not find_bind(plan, "/dev/infiniband").flags & MS_NODEV
    assert find_bind(plan, "/data").flags & MS_NODEV


def test_plan_home_and_working_folder_order() -> None:
    plan = plan_container(make_request(home="/scratch/job:/home/me"))
    assert find_bind(plan, "/home/me").source == OLD + "/scratch/job"
    assert find_bind(plan_container(make_request(fakeroot=True)), "/root").source == OLD + "/home/user"
    assert plan_container(make_request(pwd="/x")).rest[-1] == ChangeDirectory(("/x",), is_strict=True)
    request = make_request(verb="run")
    request.payload.workdir = "/workspace"
    here = request.host.cwd
    assert plan_container(request).rest[-1] == ChangeDirectory(("/workspace", here, "/home/user", "/"), is_strict=False)
    request = make_request(cwd="/")
    request.host.has_folder = False
    assert plan_container(request).rest[-1] == ChangeDirectory(("/home/user", "/"), is_strict=False)
    with pytest.raises(UsageError, match="must be absolute"):
        make_request(home="other")
    assert find_bind(plan_container(make_request(home="../:/home/me")), "/home/me").source == OLD + "/home/user"


@with_rows(
    *(("/var", "/mnt/tmp/kedge-1000"), ("/", "/mnt/var/tmp/kedge-1000"), ("/var/tmp/kedge-1000", "/mnt")),
    *(("/var/tmp/kedge-1000/images", "/mnt"), ("/way", "/mnt/kedge-1000")),
)
def test_plan_images_on_the_node_are_read_only_wherever_they_appear(source: str, guarded: str) -> None:
    request = make_request(contain=True)
    request.host.view = TableView({**HOST, "/var/tmp/kedge-1000/images": None, "/way": "-> /var/tmp"})
    request.store = "/var/tmp/kedge-1000"
    request.binds = [Bind(source, "/mnt")]
    binds = [each for each in plan_container(request).rest if isinstance(each, BindMount)]
    assert [each for each in binds if each.target == NEW + guarded][-1].flags & MS_RDONLY


def plan(**step: object) -> list[str]:
    host = TableView({"/usr/people/me/project": None, "/usr/people/me/project/.kube": b"key", "/etc": None})
    request = HostScriptRequest(StepOptions({"context": "/", **step}), host, TableView({}), [], 1 << 20)
    return [describe(operation) for operation in plan_host_script(request).rest]


def test_host_script_sees_programs_and_what_is_shown() -> None:
    bound = [line for line in plan() if line.startswith("bind host:") and "/dev/" not in line]
    assert [line.split()[1] for line in bound] == ["host:/usr", "host:/etc"]
    project = "/usr/people/me/project"
    lines = plan(shown=[[project, 1, 2]], hidden=[f"{project}/.kube", "/usr/people/me"])
    texts = (
        *("bind host:/usr to", "tmpfs on session:/script/usr/people/me ", f"bind host:{project} to"),
        f"{project}/.kube",
    )
    places = [next(index for index, line in enumerate(lines) if text in line) for text in texts]
    assert places == sorted(places), "\n".join(lines)
    assert_begins(lines[places[2] + 1], "run/show-session-script-not", project)
