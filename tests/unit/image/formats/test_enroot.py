# SPDX-License-Identifier: BSD-3-Clause
"""The files that make a tree an image for Enroot, also where an image's config means no good."""

from __future__ import annotations

from kedge.base.tree import Node, NodeKind, find, walk
from kedge.image.formats.enroot import (
    add_enroot_files,
    has_enroot_files,
    read_section,
    render_environment,
    render_fstab,
    render_rc,
)
from kedge.system.views import TableView
from tests.builders.layers import MemorySink


def make_tree() -> Node:
    root = Node(NodeKind.DIRECTORY)
    root.children[b"etc"] = Node(NodeKind.DIRECTORY)
    passwd = root.children[b"etc"].children[b"passwd"] = Node(NodeKind.FILE)
    passwd.size, passwd.content = 1, b"x"
    return root


def test_enroot_files_are_put_in() -> None:
    root = make_tree()
    assert not has_enroot_files(root)
    section = {"Env": ["A=1"], "Cmd": ["x"], "WorkingDir": "/a/b", "Volumes": {"/data": {}, "etc/more": {}}}
    assert add_enroot_files(root, MemorySink(), section, mtime=7, source="sha256:0") == []
    environment = find(root, b"etc/environment")
    assert (environment.content, environment.mode, environment.mtime) == (b"A=1\n", 0o644, 7)
    for folder in (b"a/b", b"data", b"etc/more"):
        node = find(root, folder)
        assert (node.kind, node.mode) == (NodeKind.DIRECTORY, 0o755)
    assert has_enroot_files(root)


def test_enroot_folders_never_leave_the_tree() -> None:
    root = make_tree()
    section = {"WorkingDir": "/etc/passwd/../../../x", "Volumes": {"../../y": {}, "n" * 300: {}, "a\0b": {}}}
    add_enroot_files(root, MemorySink(), section)
    names = {part for path, _ in walk(root) for part in path.split(b"/")}
    assert names == {b"etc", b"passwd", b"environment", b"fstab", b"rc", b"x", b"y"}


def test_enroot_link_in_the_way_is_replaced_and_not_followed() -> None:
    root = make_tree()
    link = root.children[b"etc"].children[b"rc"] = Node(NodeKind.SYMLINK)
    link.target = b"/etc/passwd"
    add_enroot_files(root, MemorySink(), {"Cmd": ["x"]})
    made, passwd = find(root, b"etc/rc"), find(root, b"etc/passwd")
    assert (made.kind, passwd.content) == (NodeKind.FILE, b"x")


def test_enroot_environment_takes_single_lines_with_names() -> None:
    text, warnings = render_environment(["A=1", "B", "2C=x", "D=a\nE=stolen", "F=a=b"])
    assert text == "A=1\nF=a=b\n"
    assert len(warnings) == 1
    assert "D" in warnings[0]


def test_enroot_fstab_escapes_and_expands_nothing() -> None:
    options = "none x-create=dir,bind,rw,nosuid,nodev"
    assert render_fstab({"/b c": {}, "/": {}, "/${HOME}": {}, "/../d": {}}) == (
        f"${{ENROOT_ROOTFS}}/d /d {options}\n${{ENROOT_ROOTFS}}/b\\040c /b\\040c {options}\n"
    )


def test_enroot_script_quotes_every_word() -> None:
    text = render_rc(
        {"Entrypoint": ["$(touch /x)"], "WorkingDir": "/a b'c", "Labels": {"l": "x\ntouch /y"}}, "sha256:1"
    )
    assert text.startswith("# made from sha256:1\n# l x touch /y\n\n")
    assert "exec '$(touch /x)' \"$@\"\n" in text
    assert "cd '/a b'\"'\"'c' || exit 1\n" in text
    assert render_rc({}).endswith("exec /bin/sh\n")


def test_an_image_of_enroots_own_is_read_back() -> None:
    files = {"/etc/rc": "exec sh\n", "/etc/environment": "PATH=/bin\nA='b c'\n# note\n1=2\n"}
    section = {"Env": ["PATH=/bin", "A=b c"], "Entrypoint": ["/bin/sh", "/etc/rc"]}
    assert read_section(TableView(files)) == section
    assert read_section(TableView({"/etc/rc": ""})) == {}
