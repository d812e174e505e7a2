# SPDX-License-Identifier: BSD-3-Clause
"""What `--dry-run` says of a plan: each kind of operation in a line, the program, and no secrets."""

from __future__ import annotations

import json

from kedge.posix.libc import MS_NOSUID, MS_RDONLY
from kedge.runtime.facts import Payload
from kedge.runtime.mount_operations import LOWER, MAY, MUST, NEW, OLD, SESSION, describe, kinds, render_plan
from tests.builders.rows import each_row

LINES = [
    (("tmpfs", f"{NEW}/tmp", "mode=1777", MUST), "mount an empty tmpfs on container:/tmp (mode=1777)"),
    (("bind", f"{OLD}/a", f"{NEW}/b", MS_NOSUID, MUST), "bind host:/a to container:/b"),
    (("bind", f"{OLD}/a", f"{NEW}/b", MS_NOSUID | MS_RDONLY, MUST), "bind host:/a to container:/b, read-only"),
    (("bind", f"{LOWER}/a", NEW, MS_RDONLY, MUST), "bind image:/a to container:/, read-only"),
    (("folder", f"{NEW}/a", 0o755, MUST), "create the directory container:/a"),
    (("file", f"{NEW}/a", MAY), "create the file container:/a"),
    (("write", f"{SESSION}/passwd", "12345", 0o644), "write session:/passwd (5 bytes)"),
    (("link", "target", f"{NEW}/a"), "create the symlink container:/a -> target"),
    (
        ("owners", f"{SESSION}/layer", f"{OLD}/table"),
        "show the files of session:/layer that have other owners or modes than on this node, from host:/table",
    ),
    (
        ("overlay", f"{SESSION}/one\n{LOWER}", f"{SESSION}/upper", f"{SESSION}/work", NEW, 1),
        "mount an overlay on container:/: lower session:/one over image:/, upper session:/upper",
    ),
    (
        ("relay", LOWER, f"{SESSION}/upper", f"{SESSION}/work", NEW, 1),
        "mount the overlay on container:/ again, above the mount points that the image lacks",
    ),
    (("proc", f"{NEW}/proc", MUST), "mount proc on container:/proc"),
    (("devpts", f"{NEW}/dev/pts", MAY), "mount devpts on container:/dev/pts"),
    (("mqueue", f"{NEW}/dev/mqueue", MAY), "mount mqueue on container:/dev/mqueue"),
    (("readonly", NEW), "make container:/ read-only"),
    (("same", f"{OLD}/a", 1, 2), "show host:/a, which is not the directory that was chosen"),
    (
        ("squashfuse", f"{OLD}/a.sif", 4096, 99, LOWER, "squashfuse_ll"),
        "mount the SquashFS file system in host:/a.sif (offset 4096) on image:/ with squashfuse_ll",
    ),
    (
        ("gocryptfs", f"{OLD}/a.sif", 4096, 99, LOWER, "squashfuse"),
        "decrypt the file system in host:/a.sif (offset 4096) and mount it on image:/ with gocryptfs and squashfuse",
    ),
    (
        ("loop", f"{OLD}/a.sif", 4096, 99, LOWER, "squashfs"),
        "mount the squashfs file system in host:/a.sif (offset 4096) on image:/ with the kernel",
    ),
    (
        ("fuse2fs", f"{OLD}/a.img", 0, 99, SESSION, "fuse2fs"),
        "mount the ext file system in host:/a.img (offset 0) on session:/ (fuse2fs)",
    ),
    (("hostname", "node"), "set the host name to node"),
    (("umask", 0o007), "set the umask to 007"),
    (("enter", NEW), "make container:/ the root"),
    (("chdir", f"{NEW}/x\n/", 0), f"change to {NEW}/x, else /"),
]


@each_row(("operation", "line"), LINES, ids=[str(row[0][0]) for row in LINES])
def test_operation_is_said_in_a_line(operation: tuple[str | int, ...], line: str) -> None:
    assert describe(operation) == line


def test_every_kind_of_operation_has_its_line() -> None:
    assert {str(operation[0]) for operation, _ in LINES} == set(kinds())


PAYLOAD = Payload(
    ["/bin/sh", "-c", "echo a"],
    {"B": "x" * 201, "A": "é", "LINES": "a\nb", "ODD": "\udcff", "API_TOKEN": "s3cr3t-value", "C": "y" * 200},
)


def test_plan_is_printed_with_the_program_and_no_secrets() -> None:
    lines = render_plan([("readonly", NEW), ("umask", 0o22)], PAYLOAD, as_json=False).split("\n")
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
    plan = json.loads(render_plan([("umask", 0o22)], PAYLOAD, as_json=True))
    assert plan["operations"] == [{"kind": "umask", "fields": [18], "text": "set the umask to 022"}]
    assert plan["program"] == ["/bin/sh", "-c", "echo a"]
    assert (plan["environment"]["A"], plan["environment"]["API_TOKEN"]) == ("é", "***")
