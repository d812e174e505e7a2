# SPDX-License-Identifier: BSD-3-Clause
"""Whole plans of containers, operation by operation: tests/golden/plans. KEDGE_GOLDEN=write writes them anew.

Each operation is said as `--dry-run` says it, then as `enter` reads it.
"""

from __future__ import annotations

import os

from kedge.container.facts import Additions, Bind, HostFacts, ImageFacts, Payload
from kedge.container.image_users import ImageUser
from kedge.container.mount_operations import WriteFile, describe, list_fields
from kedge.container.mounting import MountPlan, PlanRequest, plan_container
from kedge.container.options import RunOptions
from kedge.container.step_options import StepOptions
from kedge.system.views import TableView
from tests.builders.rows import each_row
from tests.requirements import REPOSITORY

GOLDEN = REPOSITORY / "tests/golden/plans"
WRITES = os.environ.get("KEDGE_GOLDEN") == "write"
IMAGE = {"/bin/sh": b"", "/etc/passwd": b"", "/etc/group": b"", "/proc": None, "/dev": None, "/tmp": None}
HOST = {
    **{"/home/user/work": None, "/scratch/job": None, "/tmp": None, "/var/tmp/kedge/images": None, "/etc/hosts": b""},
    "/etc/resolv.conf": "-> ../run/resolv.conf",
    "/run/resolv.conf": b"",
    "/etc/localtime": "-> /usr/share/zoneinfo/UTC",
    "/usr/share/zoneinfo/UTC": b"",
    **dict.fromkeys(("/dev/null", "/dev/zero", "/dev/tty", "/dev/nvidia0", "/dev/pts/3"), b""),
    "/dev/infiniband": None,
    "/data/file": b"",
}


def make_request(*, cwd: str = "/home/user/work", **options: object) -> PlanRequest:
    host = HostFacts(view=TableView(HOST), environ={}, cwd=cwd, umask=0o027)
    image = ImageFacts(view=TableView(IMAGE), path="/images/a.sif", kind="sif")
    request = PlanRequest(RunOptions(**options), host, image, Additions(), Payload(["/bin/sh"], {}))
    request.private_size = 64 << 20
    return request


def plan_default() -> PlanRequest:
    return make_request()


def plan_contained() -> PlanRequest:
    request = make_request(containall=True)
    request.additions.devices = ["/dev/nvidia0", "/dev/infiniband", "/dev/absent"]
    request.terminal = "/dev/pts/3"
    return request


def plan_workdir() -> PlanRequest:
    request = make_request(contain=True, workdir="/scratch/job", no_mount=["devpts"])
    request.scratch = ["/scratch/memory"]
    return request


def plan_identity() -> PlanRequest:
    request = make_request(fakeroot=True, hostname="node", dns="10.0.0.1, fd00::1", no_umask=True, pwd="/work")
    request.binds = [Bind("/", "/mnt")]
    request.passwd, request.group = b"root:x:0:0::/root:/bin/sh\n", b"root:x:0:\n"
    return request


def plan_sandbox() -> PlanRequest:
    """A writable one: nothing is made in it."""
    request = make_request()
    request.is_direct = request.is_writable = True
    return request


def plan_homeless() -> PlanRequest:
    request = make_request()
    request.host.home, request.home = "/gone", ("/gone", "/gone")
    return request


def plan_nothing_of_the_host() -> PlanRequest:
    return make_request(no_mount=["proc", "sys", "dev", "bind-paths", "tmp", "home", "cwd", "/etc/resolv.conf"])


def plan_binds() -> PlanRequest:
    request = make_request(cwd="/scratch/job", home="/data:/home/me", no_mount=["/etc/hosts"])
    request.binds = [
        Bind("/data/file", "/mnt/deep/file", readonly=True),
        *(Bind("/dev/infiniband", "/dev/infiniband"), Bind("/nowhere", "/optional", is_optional=True)),
        *(Bind("/scratch", "/mnt"), Bind("/", "/host")),
    ]
    request.store = "/var/tmp/kedge"
    return request


def plan_libraries() -> PlanRequest:
    request = make_request(no_mount=["home,tmp"], cwd="/")
    file = "/usr/lib/libcuda.so.580"
    request.additions.libraries = [(file, "libcuda.so.1"), (file, "libcuda.so"), ("/usr/lib/libnvidia-ml.so", "ml.so")]
    request.additions.binds = [Bind("/data/file", "/usr/bin/nvidia-smi", readonly=True, is_optional=True)]
    request.payload.workdir = "/workspace"
    return request


def plan_step() -> PlanRequest:
    """Of a build."""
    request = make_request(contain=True, no_mount=["cwd"], pwd="/src")
    request.options.step = StepOptions(
        {
            "tmpfs": [["/cache", "1048576", "1777"], ["/small", "", "755"]],
            "files": [["/run/secrets/token", "secret", "400"], ["/run/secrets/key", "key", "440"]],
        }
    )
    request.payload.user = ImageUser(1000, 100)
    request.binds = [Bind("/data", "/in", readonly=True)]
    return request


MAKERS = (plan_default, plan_contained, plan_workdir, plan_identity, plan_sandbox, plan_homeless)
MAKERS += (plan_nothing_of_the_host, plan_binds, plan_libraries, plan_step)
PLANS = {each.__name__.removeprefix("plan_"): each for each in MAKERS}


def show(plan: MountPlan) -> str:
    lines = []
    for operation in (*plan.making, *plan.rest):
        words = [
            oct(word) if isinstance(word, int) and word > 7 else repr(word)
            for word in (operation.kind, *list_fields(operation))
        ]
        lines += [describe(operation), f"    {' '.join(words)}"]
    return "\n".join([*lines, ""])


@each_row("name", PLANS)
def test_whole_plan(name: str) -> None:
    golden = GOLDEN / f"{name}.txt"
    found = show(plan_container(PLANS[name]()))
    if WRITES:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(found)
    assert found == golden.read_text()


def test_plans_of_steps_give_secrets_to_root_where_no_user_is_named() -> None:
    request = plan_step()
    request.payload.user = None
    written = [each for each in plan_container(request).rest if isinstance(each, WriteFile)]
    assert [(each.user, each.group) for each in written] == [(0, 0), (0, 0)]
