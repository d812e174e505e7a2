# SPDX-License-Identifier: BSD-3-Clause
"""What `--dry-run` says of a plan: each kind of operation in a line, the program, and no secrets."""

from __future__ import annotations

import json
from typing import get_args

from kedge.container.facts import Payload
from kedge.container.mount_operations import (
    LOWER,
    MAY,
    NEW,
    OLD,
    SESSION,
    BindMount,
    ChangeDirectory,
    Enter,
    FilePart,
    Fuse2fs,
    Gocryptfs,
    KernelTree,
    Loop,
    MakeDirectory,
    MakeFile,
    MakeLink,
    MakeReadonly,
    Operation,
    Overlay,
    Relay,
    RequireSame,
    RestoreOwners,
    SetHostName,
    SetUmask,
    Squashfuse,
    Tmpfs,
    WriteFile,
    describe,
    list_fields,
    render_plan,
)
from kedge.system.libc import MS_NOSUID, MS_RDONLY
from tests.builders.rows import each_row

IMAGE = FilePart(f"{OLD}/a.sif", 4096, 99, LOWER)
OVERLAY = Overlay((f"{SESSION}/one", LOWER), f"{SESSION}/upper", f"{SESSION}/work", NEW, is_written=True)
LINES: list[tuple[Operation, str]] = [
    (Tmpfs(f"{NEW}/tmp", "mode=1777"), "mount an empty tmpfs on container:/tmp (mode=1777)"),
    (BindMount(f"{OLD}/a", f"{NEW}/b", MS_NOSUID), "bind host:/a to container:/b"),
    (BindMount(f"{OLD}/a", f"{NEW}/b", MS_NOSUID | MS_RDONLY), "bind host:/a to container:/b, read-only"),
    (BindMount(f"{LOWER}/a", NEW, MS_RDONLY), "bind image:/a to container:/, read-only"),
    (MakeDirectory(f"{NEW}/a"), "create the directory container:/a"),
    (MakeFile(f"{NEW}/a", MAY), "create the file container:/a"),
    (WriteFile(f"{SESSION}/passwd", "12345"), "write session:/passwd (5 bytes)"),
    (MakeLink("target", f"{NEW}/a"), "create the symlink container:/a -> target"),
    (
        RestoreOwners(f"{SESSION}/layer", f"{OLD}/table"),
        "show the files of session:/layer that have other owners or modes than on this node, from host:/table",
    ),
    (OVERLAY, "mount an overlay on container:/: lower session:/one over image:/, upper session:/upper"),
    (Relay(OVERLAY), "mount the overlay on container:/ again, above the mount points that the image lacks"),
    (KernelTree("proc", f"{NEW}/proc"), "mount proc on container:/proc"),
    (KernelTree("devpts", f"{NEW}/dev/pts", MAY), "mount devpts on container:/dev/pts"),
    (KernelTree("mqueue", f"{NEW}/dev/mqueue", MAY), "mount mqueue on container:/dev/mqueue"),
    (MakeReadonly(NEW), "make container:/ read-only"),
    (RequireSame(f"{OLD}/a", 1, 2), "show host:/a, which is not the directory that was chosen"),
    (
        Squashfuse(IMAGE, "squashfuse_ll"),
        "mount the SquashFS file system in host:/a.sif (offset 4096) on image:/ with squashfuse_ll",
    ),
    (
        Gocryptfs(IMAGE, "squashfuse"),
        "decrypt the file system in host:/a.sif (offset 4096) and mount it on image:/ with gocryptfs and squashfuse",
    ),
    (Loop(IMAGE, "squashfs"), "mount the squashfs file system in host:/a.sif (offset 4096) on image:/ with the kernel"),
    (
        Fuse2fs(FilePart(f"{OLD}/a.img", 0, 99, SESSION), "ro"),
        "mount the ext file system in host:/a.img (offset 0) on session:/ (ro)",
    ),
    (SetHostName("node"), "set the host name to node"),
    (SetUmask(0o007), "set the umask to 007"),
    (Enter(NEW), "make container:/ the root"),
    (ChangeDirectory((f"{NEW}/x", "/"), is_strict=False), f"change to {NEW}/x, else /"),
]


@each_row(("operation", "line"), LINES, ids=[row[0].kind for row in LINES])
def test_operation_is_said_in_a_line(operation: Operation, line: str) -> None:
    assert describe(operation) == line


def test_every_kind_of_operation_has_its_line() -> None:
    assert {type(operation) for operation, _ in LINES} == set(get_args(Operation))


PAYLOAD = Payload(
    ["/bin/sh", "-c", "echo a"],
    {"B": "x" * 201, "A": "é", "LINES": "a\nb", "ODD": "\udcff", "API_TOKEN": "s3cr3t-value", "C": "y" * 200},
)


def test_plan_is_printed_with_the_program_and_no_secrets() -> None:
    lines = render_plan([MakeReadonly(NEW), SetUmask(0o22)], PAYLOAD, as_json=False).split("\n")
    assert lines == [
        "make container:/ read-only",
        "set the umask to 022",
        "run /bin/sh -c 'echo a'",
        "  A=é",
        "  API_TOKEN=***",
        f"  B={'x' * 200}… (201 characters)",
        f"  C={'y' * 200}",
        "  LINES=a\\nb",
        "  ODD=\\udcff",
    ]


def test_plan_as_json_has_the_fields_of_each_operation() -> None:
    plan = json.loads(render_plan([SetUmask(0o22)], PAYLOAD, as_json=True))
    assert plan["operations"] == [{"kind": "umask", "fields": [18], "text": "set the umask to 022"}]
    assert plan["program"] == ["/bin/sh", "-c", "echo a"]
    assert (plan["environment"]["A"], plan["environment"]["API_TOKEN"]) == ("é", "***")


@each_row(
    ("operation", "fields"),
    [
        (OVERLAY, [f"{SESSION}/one\n{LOWER}", f"{SESSION}/upper", f"{SESSION}/work", NEW, 1]),
        (Relay(OVERLAY), [f"{SESSION}/one\n{LOWER}", f"{SESSION}/upper", f"{SESSION}/work", NEW, 1]),
        (Squashfuse(IMAGE, "squashfuse"), [f"{OLD}/a.sif", 4096, 99, LOWER, "squashfuse"]),
        (KernelTree("proc", f"{NEW}/proc", MAY), [f"{NEW}/proc", "may"]),
        (MakeDirectory(f"{NEW}/a"), [f"{NEW}/a", 0o755, "must"]),
        (WriteFile(f"{SESSION}/a", "x"), [f"{SESSION}/a", "x", 0o644]),
        (WriteFile(f"{SESSION}/a", "x", 0o600, 0, 100), [f"{SESSION}/a", "x", 0o600, 0, 100]),
        (ChangeDirectory(("/a", "/"), is_strict=True), ["/a\n/", 1]),
    ],
)
def test_fields_are_texts_and_numbers_for_programs(operation: Operation, fields: list[str | int]) -> None:
    assert list_fields(operation) == fields
    assert [type(each) for each in list_fields(operation)] == [type(each) for each in fields]
