# SPDX-License-Identifier: BSD-3-Clause
"""Host directories and files in the container."""

from __future__ import annotations

from tests.interop.conformance.case import Case, execute

TREE = "mkdir -p tree/sub; echo host > tree/file; echo below > tree/sub/below; echo single > single"
LOOK = "cat /mnt/file; ls /mnt"


def bind(name: str, command: str, flags: str = "", *, image: str = "base.sif", **more: object) -> Case:
    return Case(f"bind-{name}", execute(image, command, flags), **{"setup": TREE, **more})  # type: ignore[arg-type]


WRITE = "echo changed > /mnt/new && echo written; cat /mnt/new"
WROTE = "cat tree/new 2>/dev/null; ls tree"
OTHER = TREE + "; mkdir other; echo i > other/inner"
OTHER_FILE = TREE + "; mkdir other; echo o > other/file"
LINK = TREE + "; ln -s tree link"
CLOSED = "(echo x > /mnt/new) 2>/dev/null || echo refused"
BOTH = LOOK + "; cat /opt/x"
CASES = [
    bind("plain", LOOK, "-B tree:/mnt"),
    bind("equals", LOOK, "--bind=tree:/mnt"),
    bind("absolute", "cat /srv/images/definition.def | head -1", "-B /srv/images"),
    bind("same-place", "cat $PWD/tree/file", "-B tree", status=255, difference="binds", our_status=0, ours="host\n"),
    bind("write", WRITE, "-B tree:/mnt", after=WROTE),
    bind("write-ro", CLOSED, "-B tree:/mnt:ro", after=WROTE),
    bind("file", "cat /mnt/target", "-B single:/mnt/target"),
    bind("file-ro", "(echo x > /data/file) 2>/dev/null || echo refused", "-B single:/data/file:ro", after="cat single"),
    bind("file-write", "echo more >> /data/file", "-B single:/data/file", after="cat single"),
    bind("several", "cat /mnt/file /data/file /opt/x", "-B tree:/mnt,single:/data/file -B single:/opt/x"),
    bind("several-mixed-options", WRITE, "-B single:/data/file:ro,tree:/mnt:rw", after=WROTE),
    bind("missing-destination", "cat /new/deep/place/file; ls -d /new/*", "-B tree:/new/deep/place"),
    bind("missing-destination-file", "cat /new/deep/file; ls /new", "-B single:/new/deep/file"),
    bind("missing-destination-in-folder", "ls /data; cat /data/fresh/file", "-B tree:/data/fresh"),
    bind("missing-source", "true", "-B no-such-thing:/mnt", status=255, mentions=("no-such-thing",)),
    bind("relative-destination", "true", "-B tree:relative", status=255),
    bind("root-destination", "ls /data", "-B tree:/", difference="binds", our_status=255, ours=""),
    bind("empty", "echo ran", "-B ''"),
    bind("bad-option", "true", "-B tree:/mnt:sideways", status=255),
    bind("dot-dot", "ls /mnt | grep bind-dot-dot", "-B ..:/mnt"),
    bind("trailing-slash", LOOK, "-B tree/:/mnt/"),
    bind("destination-dots", "cat /data/file", "-B single:/data/real/../file"),
    bind(
        "escaped-colon",
        "cat /mnt/file",
        "-B 'with\\:colon:/mnt'",
        setup="mkdir with:colon; echo colon > with:colon/file",
    ),
    bind(
        "escaped-comma",
        "cat /mnt/file",
        "-B 'with\\,comma:/mnt'",
        setup="mkdir with,comma; echo comma > with,comma/file",
    ),
    bind(
        "spaces",
        "cat '/mnt/a b/file'",
        "-B 'with space:/mnt/a b'",
        setup="mkdir 'with space'; echo sp > 'with space/file'",
    ),
    bind("nested", "cat /mnt/file /mnt/sub/inner", "-B tree:/mnt -B other:/mnt/sub", setup=OTHER),
    bind("nested-reverse", "ls /mnt/sub", "-B other:/mnt/sub -B tree:/mnt", setup=OTHER),
    bind("twice-same", LOOK, "-B tree:/mnt -B other:/mnt", setup=OTHER_FILE),
    bind(
        "nested-makes-folder",
        "cat /mnt/fresh/file; ls /mnt",
        "-B tree:/mnt -B other:/mnt/fresh",
        setup=OTHER_FILE,
        after="ls tree",
    ),
    bind("submounts", "ls /mnt/images/base.sif", "-B /srv:/mnt"),
    bind("source-link", LOOK, "-B link:/mnt", setup=LINK),
    bind("source-link-same-place", "cat $PWD/link/file", "-B /srv/case/bind-source-link-same-place/link", setup=LINK),
    bind("image-link", "cat /data/real/file; ls -l /data/link | sed 's/.*-> //'", "-B tree:/data/link"),
    bind("image-link-absolute", "cat /data/real/file", "-B tree:/data/absolute"),
    bind("image-link-below", "cat /data/real/fresh/file; ls /data/real", "-B tree:/data/link/fresh"),
    bind("image-link-upwards", "cat /data/real/file", "-B tree:/data/outside"),
    bind("image-link-to-file", "cat /data/file", "-B single:/data/file-link"),
    bind("image-link-dangling", "cat /data/dangling/file", "-B tree:/data/dangling"),
    bind("folder-on-file", "true", "-B tree:/data/file", status=255),
    bind("file-on-folder", "true", "-B single:/data/real", status=255),
    bind(
        "special-device",
        "echo x > /mnt/null && echo fine",
        "-B /dev/null:/mnt/null",
        status=1,
        difference="devices",
        our_status=0,
        ours="fine\n",
    ),
    bind("fifo", "[ -p /mnt/pipe ] && echo pipe", "-B pipe:/mnt/pipe", setup="mkfifo pipe"),
    bind("etc-passwd", "cat /etc/passwd", "-B single:/etc/passwd"),
    bind("over-tmp", "ls /tmp", "-B tree:/tmp"),
    bind("over-home", "ls ~", "-B tree:/home/peer"),
    bind(
        "below-tmp",
        "cat /tmp/below-tmp-case/file",
        "-B tree:/tmp/below-tmp-case",
        after="rmdir /tmp/below-tmp-case; echo $?",
    ),
    bind(
        "below-home",
        "cat ~/below-home-case/file",
        "-B tree:/home/peer/below-home-case",
        after="rmdir ~/below-home-case; echo $?",
    ),
    bind("in-cwd", "cat nested/file", "-B tree:/srv/case/bind-in-cwd/nested", status=1),
    bind("variable", LOOK, env={"APPTAINER_BIND": "tree:/mnt"}),
    bind("variable-path", LOOK, env={"APPTAINER_BINDPATH": "tree:/mnt"}),
    bind("variable-singularity", LOOK, env={"SINGULARITY_BIND": "tree:/mnt"}),
    bind("variable-and-flag", BOTH, "-B single:/opt/x", env={"APPTAINER_BIND": "tree:/mnt"}),
    bind("variable-both", BOTH, env={"APPTAINER_BIND": "tree:/mnt", "APPTAINER_BINDPATH": "single:/opt/x"}),
    bind("told-inside", "echo $APPTAINER_BIND; echo $SINGULARITY_BIND", "-B tree:/mnt,single:/opt/x:ro"),
    bind("mount", LOOK, "--mount type=bind,source=tree,destination=/mnt"),
    bind("mount-target", LOOK, "--mount type=bind,src=tree,target=/mnt"),
    bind("mount-ro", CLOSED, "--mount type=bind,src=tree,dst=/mnt,ro"),
    bind(
        "mount-quoted",
        "cat /mnt/file",
        "--mount 'type=bind,\"src=with,comma\",dst=/mnt'",
        setup="mkdir with,comma; echo c > with,comma/file",
    ),
    bind(
        "mount-colon",
        "cat /mnt/file",
        "--mount type=bind,src=with:colon,dst=/mnt",
        setup="mkdir with:colon; echo c > with:colon/file",
    ),
    bind("mount-without-type", LOOK, "--mount src=tree,dst=/mnt"),
    bind("mount-without-destination", LOOK, "--mount type=bind,src=tree", status=255),
    bind("mount-unknown-key", LOOK, "--mount type=bind,src=tree,dst=/mnt,speed=fast", status=255),
    bind("mount-variable", LOOK, env={"APPTAINER_MOUNT": "type=bind,src=tree,dst=/mnt"}),
    bind(
        "mount-variable-lines",
        BOTH,
        env={"APPTAINER_MOUNT": "type=bind,src=tree,dst=/mnt\ntype=bind,src=single,dst=/opt/x"},
    ),
    bind("image-source", "cat /mnt/file", "-B /srv/images/base.sqsh:/mnt:image-src=/data"),
    bind(
        "image-source-sif",
        "cat /mnt/file",
        "-B /srv/images/base.sif:/mnt:image-src=/data",
        status=255,
        difference="binds",
        our_status=0,
        ours=".*\n",
    ),
    bind("image-source-id", "cat /mnt/data/file", "-B /srv/images/base.sif:/mnt:id=4"),
    bind("image-source-data", "cat /mnt/extra; ls /mnt", "-B /srv/images/rootdata.sif:/mnt:image-src=/"),
    bind("image-source-data-alone", "cat /mnt/extra", "-B /srv/images/data.sif:/mnt:image-src=/"),
    bind("image-source-data-below", "cat /mnt/file", "-B /srv/images/data.sif:/mnt:image-src=/data"),
    bind("image-source-data-id", "cat /mnt/extra", "-B /srv/images/data.sif:/mnt:id=1"),
    bind("image-source-missing", "true", "-B /srv/images/base.sif:/mnt:image-src=/no/such", status=255),
    bind("contain", LOOK + "; ls $HOME", "--contain -B tree:/mnt"),
    bind(
        "flags-of-mount",
        "grep -o ' /mnt [^ ]*' /proc/self/mountinfo | tr , '\\n' | grep -E 'nosuid|nodev|^ro'; true",
        "-B tree:/mnt:ro",
    ),
    bind(
        "box-missing-destination",
        "cat /new/deep/file",
        "-B tree:/new/deep",
        image="box",
        after="ls -d /srv/images/box/new; true",
    ),
    bind("linked-folder", "ls /data/real /mnt", "-B tree:/mnt", image="linkedhome.sif"),
]
