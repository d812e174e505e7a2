# SPDX-License-Identifier: BSD-3-Clause
"""The plan of a container, from facts that are written down: no namespaces, no mounts, no host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kedge.errors import FileProblem, UsageError
from kedge.posix.libc import MS_NODEV, MS_RDONLY
from kedge.posix.views import TableView
from kedge.runtime.facts import Additions, Bind, HostFacts, ImageFacts, Payload
from kedge.runtime.mount_operations import NEW, OLD, SESSION, describe, kinds
from kedge.runtime.mounting import Builder, MountPlan, PlanRequest, plan_container
from kedge.runtime.options import RunOptions
from kedge.runtime.step_options import StepOptions

if TYPE_CHECKING:
    from kedge.runtime.mount_operations import Operation

IMAGE = {"/bin/sh": b"", "/etc/passwd": b"root:x:0:0::/root:/bin/sh\n", "/proc": None, "/sys": None, "/dev": None}
HOST = {
    "/home/user/work": None,
    "/scratch/job": None,
    "/tmp": None,
    "/var/tmp": None,
    "/etc/hosts": b"",
    "/etc/localtime": "-> /usr/share/zoneinfo/UTC",
    "/usr/share/zoneinfo/UTC": b"",
    "/dev/null": b"",
    "/dev/infiniband": None,
    "/data/file": b"",
}


def make_request(**options: object) -> PlanRequest:
    host = HostFacts(view=TableView(HOST), environ={}, cwd=str(options.pop("cwd", "/home/user/work")))
    image = ImageFacts(view=TableView(IMAGE), path="/images/a.sif", kind="sif")
    return PlanRequest(RunOptions(**options), host, image, Additions(), Payload(["/bin/sh"], {}))


def destinations(plan: MountPlan, kind: str = "bind") -> list[str]:
    return [str(each[2 if kind == "bind" else 1])[len(NEW) :] for each in plan.rest if each[0] == kind]


def find_bind(plan: MountPlan, destination: str) -> Operation:
    return next(each for each in plan.rest if each[0] == "bind" and each[2] == NEW + destination)


def test_plan_default_binds() -> None:
    plan = plan_container(make_request())
    wanted = ["/proc", "/sys", "/dev", "/etc/localtime", "/etc/hosts", "/tmp", "/var/tmp", "/home/user"]
    assert destinations(plan) == wanted
    assert find_bind(plan, "/etc/localtime")[1] == OLD + "/usr/share/zoneinfo/UTC"
    assert plan.rest[-1] == ("chdir", "/home/user/work\n/home/user\n/", 0)
    assert ("readonly", NEW) in plan.rest


@pytest.mark.parametrize("options", [{}, {"contain": True}])
def test_plan_home_that_an_image_to_be_changed_lacks_lies_in_memory(options: dict[str, object]) -> None:
    request = make_request(**options)
    request.is_direct = request.is_writable = True
    plan = plan_container(request)
    places = [
        str(each[1 if each[0] == "tmpfs" else 2])[len(NEW) :] for each in plan.rest if each[0] in ("tmpfs", "bind")
    ]
    assert places.index("/home") < places.index("/home/user")


def test_plan_makes_missing_points_before_anything_covers_them() -> None:
    plan = plan_container(make_request())
    made = [(each[0], str(each[1])[len(NEW) :]) for each in plan.making]
    assert ("folder", "/home/user") in made
    assert ("file", "/etc/hosts") in made
    assert ("folder", "/proc") not in made


def test_plan_current_folder_elsewhere_is_bound() -> None:
    assert destinations(plan_container(make_request(cwd="/scratch/job")))[-1] == "/scratch/job"


@pytest.mark.parametrize(
    "cwd",
    [
        *("/", "/etc", "/bin", "/mnt", "/usr", "/var", "/opt", "/sbin", "/lib", "/lib64"),
        *("/proc", "/proc/self", "/sys/class", "/dev/shm", "/tmp/x", "/home/user"),
    ],
)
def test_plan_current_folder_of_the_system_is_not_bound(cwd: str) -> None:
    assert destinations(plan_container(make_request(cwd=cwd)))[-1] == "/home/user"


@pytest.mark.parametrize("name", ["sys", "proc", "dev"])
def test_plan_current_folder_of_the_system_is_not_bound_in_place_of_what_was_left_out(name: str) -> None:
    plan = plan_container(make_request(cwd=f"/{name}/x", no_mount=[name]))
    assert not [each for each in destinations(plan) if each.startswith(f"/{name}")]


def test_plan_current_folder_does_not_hide_another_home() -> None:
    request = make_request(cwd="/home/user", home="/scratch/job:/home/user")
    assert [each[1] for each in plan_container(request).rest if each[0] == "bind"][-1] == OLD + "/scratch/job"


def test_plan_current_folder_lies_above_a_bind_that_covers_it() -> None:
    request = make_request(cwd="/home/user/work")
    request.binds = [Bind("/scratch", "/home/user")]
    assert "/home/user/work" not in destinations(plan_container(request))  # nothing is made in /scratch
    request.host.view = TableView({**HOST, "/scratch/work": None})
    assert destinations(plan_container(request))[-1] == "/home/user/work"


@pytest.mark.parametrize("links", [{"/var/tmp": "-> /tmp", "/tmp": None}, {"/tmp": "-> var/tmp", "/var/tmp": None}])
def test_plan_tmp_that_is_a_link_to_the_other_is_mounted_once(links: dict[str, str | None]) -> None:
    request = make_request()
    request.image.view = TableView({**IMAGE, **links})
    shown = destinations(plan_container(request))
    assert ("/tmp" in shown, "/var/tmp" in shown) == (True, False)


def test_plan_no_mount_leaves_out() -> None:
    plan = plan_container(make_request(no_mount=["home,tmp", "proc"]))
    left = set(destinations(plan))
    assert not left & {"/proc", "/tmp", "/var/tmp", "/home/user"}
    assert "/sys" in left


def test_plan_contain_is_private() -> None:
    request = make_request(contain=True)
    request.private_size = 1 << 26
    request.additions.devices = ["/dev/infiniband", "/dev/absent"]
    plan = plan_container(request)
    assert set(destinations(plan, "tmpfs")) == {"/dev", "/dev/shm", "/tmp", "/var/tmp", "/home/user"}
    assert "/home/user/work" not in destinations(plan)
    assert {"/dev/null", "/dev/infiniband"} <= set(destinations(plan))
    assert "/dev/absent" not in destinations(plan)
    assert plan.rest[-1] == ("chdir", "/home/user\n/", 0)


def test_plan_bind_below_a_private_folder_is_made_there() -> None:
    request = make_request(contain=True)
    request.binds = [Bind("/data", "/tmp/data", readonly=True)]
    plan = plan_container(request)
    assert ("folder", NEW + "/tmp/data", 0o755, "must") in plan.rest
    flags = find_bind(plan, "/tmp/data")[3]
    assert isinstance(flags, int)
    assert flags & MS_RDONLY


def test_plan_bind_below_a_bind_is_made_there_when_it_is_covered() -> None:
    request = make_request()
    request.binds = [Bind("/data", "/home/user/data")]
    plan = plan_container(request)
    assert not [each for each in plan.making if "/data" in str(each[1])]
    made = plan.rest.index(("folder", NEW + "/home/user/data", 0o755, "may"))
    assert made == plan.rest.index(find_bind(plan, "/home/user/data")) - 1


def test_plan_folder_is_bound_before_what_lies_in_it() -> None:
    request = make_request()
    request.binds = [Bind("/data/file", "/x/y/file"), Bind("/scratch", "/x"), Bind("/data", "/x/y")]
    assert [each for each in destinations(plan_container(request)) if each.startswith("/x")] == [
        "/x",
        "/x/y",
        "/x/y/file",
    ]


def test_plan_own_bind_wins_over_a_generated_file() -> None:
    request = make_request()
    request.passwd = b"generated\n"
    request.binds = [Bind("/data/file", "/etc/passwd")]
    binds = [each for each in plan_container(request).rest if each[0] == "bind" and each[2] == NEW + "/etc/passwd"]
    assert binds[-1][1] == OLD + "/data/file"


def test_plan_home_must_go_to_an_absolute_path() -> None:
    with pytest.raises(UsageError, match="must be absolute"):
        make_request(home="other")
    assert find_bind(plan_container(make_request(home="../:/home/me")), "/home/me")[1] == OLD + "/home/user"


def test_plan_lost_folder_leads_home() -> None:
    request = make_request(cwd="/")
    request.host.has_folder = False
    assert plan_container(request).rest[-1] == ("chdir", "/home/user\n/", 0)


@pytest.mark.parametrize("text", ["host.example", "1.2.3", "1.2.3.400", "", "1.1.1.1,x"])
def test_plan_name_servers_are_addresses(text: str) -> None:
    with pytest.raises(UsageError, match="is not an IP address"):
        plan_container(make_request(dns=text or ","))


def test_plan_name_servers_are_written_one_to_a_line() -> None:
    plan = plan_container(make_request(dns="255.0.0.1, 10.0.0.255,fd00::1"))
    [text] = [each[2] for each in plan.rest if each[0] == "write" and str(each[1]).endswith("/resolv.conf")]
    assert text == "nameserver 255.0.0.1\nnameserver 10.0.0.255\nnameserver fd00::1\n"


def test_plan_of_a_script_with_programs_of_the_host_has_the_image_as_one_directory() -> None:
    request = make_request()
    request.options.step = StepOptions({"context": "/home/user/work"})
    shown = [describe(each) for each in plan_container(request).rest]
    assert "bind container:/ to session:/script/rootfs" in shown
    assert shown[-1] == "change to /home/user/work"


def test_plan_missing_source_is_an_error() -> None:
    request = make_request()
    request.binds = [Bind("/nowhere", "/data", origin="--bind")]
    with pytest.raises(FileProblem, match="cannot bind /nowhere"):
        plan_container(request)
    request.binds = [Bind("/nowhere", "/data", is_optional=True)]
    plan_container(request)


def test_plan_device_binds_keep_their_devices() -> None:
    request = make_request()
    request.binds = [Bind("/dev/infiniband", "/dev/infiniband"), Bind("/data", "/data")]
    plan = plan_container(request)
    device, plain = find_bind(plan, "/dev/infiniband")[3], find_bind(plan, "/data")[3]
    assert isinstance(device, int)
    assert isinstance(plain, int)
    assert not device & MS_NODEV
    assert plain & MS_NODEV


def test_plan_home_elsewhere() -> None:
    plan = plan_container(make_request(home="/scratch/job:/home/me"))
    assert find_bind(plan, "/home/me")[1] == OLD + "/scratch/job"


def test_plan_fakeroot_home_is_root() -> None:
    assert find_bind(plan_container(make_request(fakeroot=True)), "/root")[1] == OLD + "/home/user"


def test_plan_working_folder_order() -> None:
    assert plan_container(make_request(pwd="/x")).rest[-1] == ("chdir", "/x", 1)
    request = make_request(verb="run")
    request.payload.workdir = "/workspace"
    here = request.host.cwd
    assert plan_container(request).rest[-1] == ("chdir", f"/workspace\n{here}\n/home/user\n/", 0)


def test_plan_driver_libraries_are_gathered_in_one_folder() -> None:
    request = make_request()
    request.additions.libraries = [("/usr/lib/libcuda.so.580.1", "libcuda.so.1")]
    plan = plan_container(request)
    assert ("file", f"{SESSION}/libs/libcuda.so.1", "must") in plan.rest
    assert "/.singularity.d/libs" in destinations(plan)


def test_plan_is_pure() -> None:
    assert plan_container(make_request()).rest == plan_container(make_request()).rest


def test_operations_are_described_in_one_line_each() -> None:
    plan = plan_container(make_request(contain=True, hostname="node", dns="1.1.1.1"))
    overlay = ("overlay", f"{SESSION}/layer0\n{OLD}/images/a", f"{SESSION}/upper", f"{SESSION}/work", NEW, 1)
    shown = [describe(each) for each in (*plan.making, *plan.rest, overlay)]
    assert all(shown)
    assert not [line for line in shown if "\n" in line]
    assert describe(("chdir", "/here\n/root/x\n/", 0)) == "change to /here, else /root/x, else /"
    assert "lower session:/layer0 over host:/images/a, upper session:/upper" in shown[-1]


def test_operations_every_kind_can_be_performed() -> None:
    assert Builder("/nowhere", lambda level, text: None).kinds() == set(kinds())


@pytest.mark.parametrize(
    ("source", "guarded"),
    [
        ("/var", "/mnt/tmp/kedge-1000"),
        ("/", "/mnt/var/tmp/kedge-1000"),
        ("/var/tmp/kedge-1000", "/mnt"),
        ("/var/tmp/kedge-1000/images", "/mnt"),
        ("/way", "/mnt/kedge-1000"),
    ],
)
def test_plan_images_on_the_node_are_read_only_wherever_they_appear(source: str, guarded: str) -> None:
    request = make_request(contain=True)
    request.host.view = TableView({**HOST, "/var/tmp/kedge-1000/images": None, "/way": "-> /var/tmp"})
    request.store = "/var/tmp/kedge-1000"
    request.binds = [Bind(source, "/mnt")]
    mounts = [each for each in plan_container(request).rest if each[0] == "bind" and each[2] == NEW + guarded]
    assert mounts
    assert int(mounts[-1][3]) & MS_RDONLY


def test_plan_what_is_being_unpacked_on_the_node_may_be_written() -> None:
    request = make_request(contain=True)
    request.host.view = TableView({**HOST, "/var/tmp/kedge-1000/session/1/root": None})
    request.store = "/var/tmp/kedge-1000"
    request.binds = [Bind("/var/tmp/kedge-1000/session/1/root", "/mnt")]
    assert not int(find_bind(plan_container(request), "/mnt")[3]) & MS_RDONLY
