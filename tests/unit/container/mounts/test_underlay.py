# SPDX-License-Identifier: BSD-3-Clause
"""Plans that rebuild directories around mount points that an image lacks."""

from __future__ import annotations

from kedge.container.mount_operations import (
    MAY,
    MUST,
    WARN,
    BindMount,
    MakeDirectory,
    MakeFile,
    MakeLink,
    MakeReadonly,
    Tmpfs,
)
from kedge.container.mounts.underlay import plan_underlay
from kedge.system.libc import MS_RDONLY
from kedge.system.views import DirectoryView, TableView

IMAGE = {
    **{"/bin": "-> usr/bin", "/etc/passwd": b"root", "/etc/ssl/cert.pem": b"", "/home": None, "/usr/bin/sh": b""},
    **{"/usr/lib/libc.so": b"", "/var/run": "-> /run", "/lib/loop": "-> loop"},
}


def folder(path, policy=MAY):
    return MakeDirectory("/root" + path, policy=policy)


def back(path, shape="d"):
    """An entry of the image, bound back."""
    made = folder(path, WARN) if shape == "d" else MakeFile("/root" + path, WARN)
    return [made, BindMount("/lower" + path, "/root" + path, MS_RDONLY, WARN)]


def test_points_that_exist_are_left_alone_also_in_the_other_shape() -> None:
    assert plan_underlay([], TableView(IMAGE)) == []
    assert plan_underlay([("/home", "d"), ("/etc/passwd", "d"), ("/", "d")], TableView(IMAGE)) == []


def test_a_folder_is_rebuilt_with_its_entries_and_made_readonly() -> None:
    assert plan_underlay([("/etc/resolv.conf", "f")], TableView(IMAGE)) == [
        Tmpfs("/root/etc", "mode=755"),
        *back("/etc/passwd", "f"),
        *back("/etc/ssl"),
        MakeFile("/root/etc/resolv.conf", MAY),
        MakeReadonly("/root/etc"),
    ]
    assert plan_underlay([("/home/user/project", "d"), ("/home/user", "d")], TableView(IMAGE)) == [
        *(Tmpfs("/root/home", "mode=755"), folder("/home/user/project"), folder("/home/user")),
        MakeReadonly("/root/home"),
    ]


def test_the_root_itself_is_rebuilt_for_a_missing_top_folder_and_links_are_copied():
    assert plan_underlay([("/scratch/a/b", "d")], TableView(IMAGE)) == [
        Tmpfs("/root", "mode=755"),
        MakeLink("usr/bin", "/root/bin"),
        *back("/etc"),
        *back("/home"),
        *back("/lib"),
        *back("/usr"),
        *back("/var"),
        folder("/scratch/a/b"),
    ]


def test_folders_inside_rebuilt_ones_share_or_get_a_file_system() -> None:
    operations = plan_underlay([("/data", "d"), ("/etc/hosts", "f"), ("/etc/ssl/own", "d")], TableView(IMAGE))
    assert [each for each in operations if isinstance(each, Tmpfs)] == [Tmpfs("/root", "mode=755")]
    assert BindMount("/lower/etc", "/root/etc", MS_RDONLY, WARN) not in operations
    assert BindMount("/lower/etc/ssl", "/root/etc/ssl", MS_RDONLY, WARN) not in operations
    assert BindMount("/lower/etc/ssl/cert.pem", "/root/etc/ssl/cert.pem", MS_RDONLY, WARN) in operations
    assert operations.index(folder("/etc", MUST)) < operations.index(MakeFile("/root/etc/hosts", MAY))
    operations = plan_underlay([("/data", "d"), ("/usr/lib/nvidia", "d")], TableView(IMAGE))
    bound = operations.index(BindMount("/lower/usr", "/root/usr", MS_RDONLY, WARN))
    assert operations.index(Tmpfs("/root/usr/lib", "mode=755")) > bound
    assert operations[-1] == MakeReadonly("/root/usr/lib")


def test_links_on_the_way_are_followed_inside_the_image_and_a_point_is_made_once() -> None:
    assert plan_underlay([("/bin/nvidia-smi", "f")], TableView(IMAGE))[0] == Tmpfs("/root/usr/bin", "mode=755")
    assert folder("/run/munge") in plan_underlay([("/var/run/munge", "d")], TableView(IMAGE))
    operations = plan_underlay([("/bin/x", "f"), ("/usr/bin/x", "f")], TableView(IMAGE))
    assert operations.count(MakeFile("/root/usr/bin/x", MAY)) == 1


def test_a_folder_on_disk_gives_the_same_plan_as_a_written_one(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root")
    (tmp_path / "bin").symlink_to("usr/bin")
    written = TableView({"/etc/passwd": b"root", "/bin": "-> usr/bin"})
    missing = [("/data", "d"), ("/etc/hosts", "f")]
    assert plan_underlay(missing, DirectoryView(str(tmp_path))) == plan_underlay(missing, written)
