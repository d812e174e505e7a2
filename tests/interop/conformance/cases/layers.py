# SPDX-License-Identifier: BSD-3-Clause
"""Writable layers: overlays, --writable-tmpfs, --writable; and a root that is read-only without them."""

from __future__ import annotations

from tests.interop.conformance.case import IMAGES, Case, execute

BASE = f"{IMAGES}/base.sif"
TRY = "(touch {0}) 2>/dev/null && echo written || echo refused"
CLOSED = ("/new", "/data/new", "/data/file", "/etc/new", "/usr/bin/x", "/etc/passwd")
FOLDER = "mkdir -p over/upper over/work"
UPPER = FOLDER + "; mkdir over/upper/data; echo upper > over/upper/data/file; echo extra > over/upper/extra"
LIST = "cd over/upper && find . | sort"


def layer(name: str, command: str, flags: str = "", *, image: str = "base.sif", **more: object) -> Case:
    return Case(f"layer-{name}", execute(image, command, flags), **more)  # type: ignore[arg-type]


def twice(name: str, flags: str, first: str, second: str, **more: object) -> Case:
    """What one container writes, and the next one sees."""
    script = f"$runtime exec {flags} {BASE} sh -c '{first}'; $runtime exec {flags} {BASE} sh -c '{second}'"
    return Case(f"layer-{name}", script=script, **more)  # type: ignore[arg-type]


SUB = "mkdir sub; echo x > sub/x"
BOX = f"cp -a {IMAGES}/box ."
NEW = TRY.format("/data/new")
SECOND = UPPER + "; mkdir -p two/upper two/work; echo 2 > two/upper/second"
SQUASHED = "cat /extra; " + NEW
CASES = [
    layer("readonly", "; ".join(map(TRY.format, CLOSED))),
    layer("readonly-message", "touch /data/new", status=1, mentions=("Read-only file system",)),
    layer("readonly-box", NEW, image="box", after="ls /srv/images/box/data"),
    layer("tmpfs", "echo new > /data/new && cat /data/new; rm /data/file; ls /data", "--writable-tmpfs"),
    layer("tmpfs-root", "mkdir /fresh && echo x > /fresh/x && cat /fresh/x; ls -d /fresh", "--writable-tmpfs"),
    layer(
        "tmpfs-change",
        "echo more >> /data/file; cat /data/file; mv /data/real /data/moved; ls /data",
        "--writable-tmpfs",
    ),
    layer(
        "tmpfs-chmod",
        "chmod 700 /data/file; stat -c %a /data/file; ln -s x /data/l; ln /data/file /data/hard; ls /data",
        "--writable-tmpfs",
    ),
    layer("tmpfs-passwd", TRY.format("/etc/passwd") + "; whoami", "--writable-tmpfs"),
    layer("tmpfs-variable", NEW, env={"APPTAINER_WRITABLE_TMPFS": "1"}),
    layer(
        "tmpfs-size",
        "dd if=/dev/zero of=/data/big bs=1M count=80 2>/dev/null; echo $?",
        "--writable-tmpfs",
        difference="sizes",
        ours="0\n",
    ),
    layer("tmpfs-box", NEW, "--writable-tmpfs", image="box", after="ls /srv/images/box/data"),
    layer("tmpfs-bind", "cat /new/place/x; " + NEW, "--writable-tmpfs -B sub:/new/place", setup=SUB),
    twice("tmpfs-lost", "--writable-tmpfs", "echo a > /data/kept; ls /data", "ls /data"),
    twice(
        "folder-kept",
        "--overlay over",
        "echo a > /data/kept; rm /data/file; mkdir /new",
        "ls -A /data; ls -d /new",
        setup=FOLDER,
        after="cat over/upper/data/kept; ls over/upper",
    ),
    twice(
        "folder-created",
        "--overlay fresh",
        "echo a > /data/kept",
        "cat /data/kept",
        setup="mkdir fresh",
        after="ls fresh | sort",
    ),
    layer("folder-missing", "true", "--overlay no-such-folder", status=255, mentions=("no-such-folder",)),
    layer("folder-seen", "cat /data/file /extra; ls /data", "--overlay over", setup=UPPER),
    layer("folder-ro", "cat /data/file; " + NEW, "--overlay over:ro", setup=UPPER, after=LIST),
    layer(
        "folder-change",
        "echo more >> /data/real/inside; cat /data/real/inside; chmod 600 /data/inner/deep/file",
        "--overlay over",
        setup=FOLDER,
        after="cat over/upper/data/real/inside; stat -c %a over/upper/data/inner/deep/file",
    ),
    layer("folder-variable", "cat /extra", env={"APPTAINER_OVERLAYIMAGE": "over"}, setup=UPPER),
    layer("folder-bind", "cat /new/x", "--overlay over -B sub:/new", setup=UPPER + "; mkdir sub; echo x > sub/x"),
    layer(
        "folder-two",
        "cat /extra /second; " + NEW,
        "--overlay over:ro --overlay two",
        setup=SECOND,
        after="find two/upper | sort",
    ),
    layer(
        "folder-two-order",
        "cat /extra",
        "--overlay over:ro --overlay two:ro",
        setup=UPPER + "; mkdir -p two/upper two/work; echo 2 > two/upper/extra",
    ),
    layer(
        "folder-two-writable",
        "true",
        "--overlay over --overlay two",
        setup=UPPER + "; mkdir -p two/upper two/work",
        status=255,
    ),
    layer("folder-comma", "cat /extra /second", "--overlay over:ro,two:ro", setup=SECOND),
    layer("folder-and-tmpfs", SQUASHED, "--overlay over:ro --writable-tmpfs", setup=UPPER, after=LIST),
    layer("folder-box", SQUASHED, "--overlay over", image="box", setup=UPPER, after=LIST + "; ls /srv/images/box/data"),
    layer("folder-fakeroot", "touch /data/new; stat -c '%u %g' /data/new", "--fakeroot --overlay over", setup=FOLDER),
    layer("squashfs", "cat /data/file; ls /", f"--overlay {IMAGES}/over.sqsh", ignore="^(srv|home|var)$"),
    layer("squashfs-writable", SQUASHED, f"--overlay {IMAGES}/over.sqsh --overlay over", setup=FOLDER, after=LIST),
    layer("overlay-text", "true", "--overlay text", setup="echo text > text", status=255, mentions=("text",)),
    layer("writable-sif", NEW, "--writable", status=255),
    Case(
        "layer-writable",
        ("exec", "--writable", "box", "sh", "-c", "echo new > /data/new; rm /data/file; ls /data"),
        setup=BOX,
        after="ls box/data; cat box/data/new",
    ),
    Case("layer-writable-variable", ("exec", "box", "sh", "-c", NEW), env={"APPTAINER_WRITABLE": "1"}, setup=BOX),
    Case(
        "layer-writable-bind",
        ("exec", "-w", "-B", "sub:/mnt", "box", "cat", "/mnt/x"),
        setup=f"cp -a {IMAGES}/box .; mkdir sub; echo x > sub/x",
    ),
    Case(
        "layer-writable-bind-missing",
        ("exec", "-w", "-B", "sub:/fresh", "box", "cat", "/fresh/x"),
        setup=f"cp -a {IMAGES}/box .; mkdir sub; echo x > sub/x",
        after="ls -d box/fresh",
        status=255,
    ),
    Case(
        "layer-writable-home",
        ("exec", "-w", "box", "sh", "-c", "echo $HOME; pwd"),
        setup=BOX,
        after="ls box/home box/srv",
    ),
    Case(
        "layer-writable-fakeroot",
        ("exec", "-w", "--fakeroot", "box", "sh", "-c", "touch /data/new; stat -c %u:%g /data/new"),
        setup=BOX,
        after="stat -c %U box/data/new",
    ),
    Case("layer-writable-and-tmpfs", ("exec", "-w", "--writable-tmpfs", "box", "true"), setup=BOX),
    Case(
        "layer-writable-and-overlay",
        ("exec", "-w", "--overlay", "over", "box", "true"),
        setup=f"cp -a {IMAGES}/box .; {FOLDER}",
        status=255,
    ),
    layer(
        "underlay-in-folder",
        "cat /data/fresh/x; ls /data; cat /data/file; ls -l /data/link | sed 's/.*-> //'",
        "--underlay -B sub:/data/fresh",
        setup=SUB,
    ),
    layer("underlay-readonly", NEW + "; " + TRY.format("/new/x"), "--underlay -B sub:/new/place", setup="mkdir sub"),
]
