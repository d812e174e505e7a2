# SPDX-License-Identifier: BSD-3-Clause
"""What `--dry-run` says of a plan: each kind of operation in a line, the program, and no secrets."""

from __future__ import annotations

import json
from typing import get_args

from kedge.container import mount_operations as operations
from kedge.container.facts import Payload
from kedge.container.mount_operations import LOWER, NEW, OLD, SESSION
from kedge.system.libc import MS_NOSUID, MS_RDONLY
from tests.builders.rows import each_row, with_rows

IMAGE = operations.FilePart(f"{OLD}/a.sif", 4096, 99, LOWER)
OVERLAY = operations.Overlay((f"{SESSION}/one", LOWER), f"{SESSION}/upper", f"{SESSION}/work", NEW, is_written=True)
LINES: list[tuple[operations.Operation, str]] = [
    (operations.Tmpfs(f"{NEW}/tmp", "mode=1777"), "mount an empty tmpfs on container:/tmp (mode=1777)"),
    (operations.BindMount(f"{OLD}/a", f"{NEW}/b", MS_NOSUID), "bind host:/a to container:/b"),
    (operations.BindMount(f"{OLD}/a", f"{NEW}/b", MS_NOSUID | MS_RDONLY), "bind host:/a to container:/b, read-only"),
    (operations.BindMount(f"{LOWER}/a", NEW, MS_RDONLY), "bind image:/a to container:/, read-only"),
    (operations.MakeDirectory(f"{NEW}/a"), "create the directory container:/a"),
    (operations.MakeFile(f"{NEW}/a", operations.MAY), "create the file container:/a"),
    (operations.WriteFile(f"{SESSION}/passwd", "12345"), "write session:/passwd (5 bytes)"),
    (operations.MakeLink("target", f"{NEW}/a"), "create the symlink container:/a -> target"),
    (
        operations.RestoreOwners(f"{SESSION}/layer", f"{OLD}/table"),
        "show the files of session:/layer that have other owners or modes than on this node, from host:/table",
    ),
    (OVERLAY, "mount an overlay on container:/: lower session:/one over image:/, upper session:/upper"),
    (operations.Relay(OVERLAY), "mount the overlay on container:/ again, above the mount points that the image lacks"),
    (operations.KernelTree("proc", f"{NEW}/proc"), "mount proc on container:/proc"),
    (operations.KernelTree("devpts", f"{NEW}/dev/pts", operations.MAY), "mount devpts on container:/dev/pts"),
    (operations.KernelTree("mqueue", f"{NEW}/dev/mqueue", operations.MAY), "mount mqueue on container:/dev/mqueue"),
    (operations.MakeReadonly(NEW), "make container:/ read-only"),
    (operations.RequireSame(f"{OLD}/a", 1, 2), "show host:/a, which is not the directory that was chosen"),
    (
        operations.Squashfuse(IMAGE, "squashfuse_ll"),
        "mount the SquashFS file system in host:/a.sif (offset 4096) on image:/ with squashfuse_ll",
    ),
    (
        operations.Gocryptfs(IMAGE, "squashfuse"),
        "decrypt the file system in host:/a.sif (offset 4096) and mount it on image:/ with gocryptfs and squashfuse",
    ),
    (
        operations.Loop(IMAGE, "squashfs"),
        "mount the squashfs file system in host:/a.sif (offset 4096) on image:/ with the kernel",
    ),
    (
        operations.Fuse2fs(operations.FilePart(f"{OLD}/a.img", 0, 99, SESSION), "ro"),
        "mount the ext file system in host:/a.img (offset 0) on session:/ (ro)",
    ),
    (operations.SetHostName("node"), "set the host name to node"),
    (operations.SetUmask(0o007), "set the umask to 007"),
    (operations.Enter(NEW), "make container:/ the root"),
    (operations.ChangeDirectory((f"{NEW}/x", "/"), is_strict=False), f"change to {NEW}/x, else /"),
    (operations.ChangeDirectory(("/here", "/root/x", "/"), is_strict=False), "change to /here, else /root/x, else /"),
    (
        operations.Overlay((f"{SESSION}/a", f"{OLD}/images/a"), f"{SESSION}/upper", "", NEW, is_written=True),
        "mount an overlay on container:/: lower session:/a over host:/images/a, upper session:/upper",
    ),
]


@each_row(("operation", "line"), LINES, ids=[row[0].kind for row in LINES])
def test_operation_is_said_in_a_line(operation: operations.Operation, line: str) -> None:
    assert operations.describe(operation) == line


def test_every_kind_of_operation_has_its_line() -> None:
    assert {type(operation) for operation, _ in LINES} == set(get_args(operations.Operation))


PAYLOAD = Payload(
    ["/bin/sh", "-c", "echo a"],
    {"B": "x" * 201, "A": "é", "LINES": "a\nb", "ODD": "\udcff", "API_TOKEN": "s3cr3t-value", "C": "y" * 200},
)


def test_plan_is_printed_with_the_program_and_no_secrets() -> None:
    lines = operations.render_plan(
        [operations.MakeReadonly(NEW), operations.SetUmask(0o22)], PAYLOAD, as_json=False
    ).split("\n")
    assert lines == [
        *("make container:/ read-only", "set the umask to 022", "run /bin/sh -c 'echo a'", "  A=é", "  API_TOKEN=***"),
        *(f"  B={'x' * 200}… (201 characters)", f"  C={'y' * 200}", "  LINES=a\\nb", "  ODD=\\udcff"),
    ]
    plan = json.loads(operations.render_plan([operations.SetUmask(0o22)], PAYLOAD, as_json=True))
    assert plan["operations"] == [{"kind": "umask", "fields": [18], "text": "set the umask to 022"}]
    assert plan["program"] == ["/bin/sh", "-c", "echo a"]
    assert (plan["environment"]["A"], plan["environment"]["API_TOKEN"]) == ("é", "***")


@with_rows(
    (OVERLAY, [f"{SESSION}/one\n{LOWER}", f"{SESSION}/upper", f"{SESSION}/work", NEW, 1]),
    (operations.Relay(OVERLAY), [f"{SESSION}/one\n{LOWER}", f"{SESSION}/upper", f"{SESSION}/work", NEW, 1]),
    (operations.Squashfuse(IMAGE, "squashfuse"), [f"{OLD}/a.sif", 4096, 99, LOWER, "squashfuse"]),
    (operations.KernelTree("proc", f"{NEW}/proc", operations.MAY), [f"{NEW}/proc", "may"]),
    (operations.MakeDirectory(f"{NEW}/a"), [f"{NEW}/a", 0o755, "must"]),
    (operations.WriteFile(f"{SESSION}/a", "x"), [f"{SESSION}/a", "x", 0o644]),
    (operations.WriteFile(f"{SESSION}/a", "x", 0o600, 0, 100), [f"{SESSION}/a", "x", 0o600, 0, 100]),
    (operations.ChangeDirectory(("/a", "/"), is_strict=True), ["/a\n/", 1]),
)
def test_fields_are_texts_and_numbers_for_programs(operation: operations.Operation, fields: list[str | int]) -> None:
    assert operations.list_fields(operation) == fields
    assert [type(each) for each in operations.list_fields(operation)] == [type(each) for each in fields]
