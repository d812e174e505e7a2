# SPDX-License-Identifier: BSD-3-Clause
"""The images of the conformance suite: small OCI images that kedge makes into SIFs, and some that Apptainer builds."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.builders.apptainer import PEER_USER
from tests.builders.busybox import read_busybox
from tests.builders.images import MACHINE, kedge_here
from tests.builders.oci_archive import Entry, OciArchive
from tests.requirements import require_program

FOLDERS = (
    *("bin", "etc", "data", "data/real", "data/inner", "data/inner/deep", "opt", "mnt", "var", "run", "usr", "usr/bin"),
    *("dev", "proc", "sys", "root", "home", "lib"),
)
SHOW = b"""#!/bin/sh
printf '%s:' "$#"
for each; do printf '[%s]' "$each"; done
echo
"""
APPLETS = """
    sh ash env ls cat true false printf echo id whoami groups pwd ps sleep kill touch mkdir rm stat grep sed awk sort
    head tail wc tr cut mount umount df hostname test [ expr readlink find chmod chown mktemp date dd seq tty mountpoint
    basename dirname ln cp mv xargs timeout uname od ip
"""
PASSWD = b"root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\n"
GROUP = b"root:x:0:\ndaemon:x:1:\n"
PATH = "PATH=/usr/local/bin:/usr/bin:/bin"
TRAPS = [  # values that a shell would change if they were not quoted well
    *("DOLLAR=a$HOME b", "BACKSLASH=a\\nb\\\\c", 'QUOTES=it\'s "quoted"', "BACKTICK=`echo no`"),
    *("PARENTHESES=$(echo no)", "SPACES=  two  spaces  ", "STAR=*", "HASH=a # b", "EXCLAMATION=a!b"),
    *("EQUALS=a=b=c", "SEMICOLON=a;echo b|cat&", "UNICODE=äöü…", "TAB=a\tb"),
]
WORDS = ["a b", "$HOME", "it's", '"q"', "`x`", "\\back", "", "*", "$(id)", "ä", "a;b", "-n", "$$"]

SHAPES: dict[str, dict[str, Any]] = {
    "base": {"Env": [PATH, "FROM_IMAGE=image", "BOTH=image"], "Cmd": ["/bin/sh"]},
    "none": {"Env": [PATH]},
    "entrypoint": {"Env": [PATH], "Entrypoint": ["/bin/show", "entry"]},
    "command": {"Env": [PATH], "Cmd": ["/bin/show", "command"]},
    "both": {"Env": [PATH], "Entrypoint": ["/bin/show", "entry"], "Cmd": ["command"]},
    "traps": {"Env": [PATH], "Entrypoint": ["/bin/show", *WORDS], "Cmd": WORDS},
    "failing": {"Env": [PATH], "Entrypoint": ["/bin/sh", "-c", "exit 42"]},
    "absent": {"Env": [PATH], "Entrypoint": ["/bin/no-such-program"]},
    "bare": {"Env": [PATH], "Entrypoint": ["show"], "Cmd": ["found by PATH"]},
    "workdir": {"Env": [PATH], "WorkingDir": "/data/real", "Cmd": ["/bin/pwd"]},
    "variables": {
        "Env": [
            "PATH=/opt/bin:/bin",
            *("EMPTY=", "LD_LIBRARY_PATH=/opt/lib", "HOME=/image/home", "USER=imageuser", "TERM=image", "LANG=xx"),
            *("PWD=/image", "SHELL=/bin/image", "PS1=image> ", "SINGLE=x", "REFERS=$SINGLE", "bad-name=1", "NO_VALUE"),
            *TRAPS,
        ]
    },
    "user": {"Env": [PATH], "User": "1234:1234", "Cmd": ["/bin/sh"], "ExposedPorts": {"80/tcp": {}}},
}


def base_entries() -> list[Entry]:
    """A root with busybox and things for mounts to meet: links, a file, directories in directories."""
    return [
        *(Entry(name) for name in FOLDERS),
        Entry("tmp", mode=0o1777),
        Entry("bin/busybox", read_busybox()),
        *(Entry(f"bin/{name}", target="busybox") for name in list_applets()),
        Entry("bin/show", SHOW),
        Entry("bin/not-executable", b"#!/bin/sh\necho no\n", mode=0o644),
        Entry("bin/bad-interpreter", b"#!/no/such/interpreter\n"),
        Entry("bin/no-format", b"echo ran without a first line\n"),
        Entry("etc/passwd", PASSWD, mode=0o644),
        Entry("etc/group", GROUP, mode=0o644),
        Entry("data/file", b"image file\n", mode=0o644),
        Entry("data/real/inside", b"image inside\n", mode=0o644),
        Entry("data/inner/deep/file", b"image deep\n", mode=0o644),
        Entry("data/link", target="real"),
        Entry("data/absolute", target="/data/real"),
        Entry("data/file-link", target="file"),
        Entry("data/dangling", target="/data/nowhere"),
        Entry("data/outside", target="../../../../data/real"),
        Entry("root/secret", b"image root\n", mode=0o644),
        Entry("opt/readonly", mode=0o555),
    ]


def list_applets() -> list[str]:
    """The programs that the cases use."""
    return APPLETS.split()


def special_entries() -> dict[str, list[Entry]]:
    """Roots that lack something, or say other things than most."""
    base = base_entries()
    passwd = b"root:x:0:0:root:/root:/bin/sh\nimageuser:x:1500:99:Image User:/image/home:/bin/imageshell"
    group = b"root:x:0:\nimagegroup:x:1500:someone\npeer:x:77:"
    users = [each for each in base if each.name not in ("etc/passwd", "etc/group")]
    return {
        "users": [*users, Entry("etc/passwd", passwd, mode=0o644), Entry("etc/group", group, mode=0o644)],
        "nousers": users,
        "noshell": [
            *(Entry(name) for name in ("bin", "etc", "tmp")),
            Entry("bin/busybox", read_busybox()),
            Entry("bin/cat", target="busybox"),
            Entry("bin/env", target="busybox"),
        ],
        "linkedhome": [
            *(each for each in base if each.name not in ("home", "mnt")),
            Entry("data/homes"),
            Entry("home", target="data/homes"),
            Entry("mnt", target="/data/real"),
        ],
        "linkedtmp": [*base, Entry("var/tmp", target="/tmp")],
        "linkedvar": [*(each for each in base if each.name != "tmp"), Entry("var/tmp"), Entry("tmp", target="var/tmp")],
    }


DEFINITION = """Bootstrap: localimage
From: {base}

%environment
    export DEFINED="from definition"
    export BOTH=definition
    export WITH_DEFAULT="${{WITH_DEFAULT:-default}}"
    export FROM_OTHER="$FROM_IMAGE and more"
    export PATH="/opt/definition:$PATH"
    export LATER=$(echo computed)
    NOT_EXPORTED=hidden
    export QUOTED='single $HOME'
    if [ -n "$HOME" ]; then export HAS_HOME=yes; fi

%post
    echo 'export FROM_POST=post' >> "$APPTAINER_ENVIRONMENT"

%runscript
    echo "run $# [$1] [$2] $DEFINED"
    exit ${{CODE:-0}}

%startscript
    echo "started [$1]" > /tmp/started-$USER
    exec sleep 600

%test
    echo "test $# [$1] $DEFINED"
    exit ${{CODE:-0}}

%labels
    Maker kedge

%help
    How to use it.

%apprun first
    echo "app $SCIF_APPNAME [$1] $APP_VARIABLE $DEFINED"

%appenv first
    export APP_VARIABLE=first-value

%apptest first
    echo "test of $SCIF_APPNAME"

%apprun second
    exit 9

%appinstall third
    mkdir -p bin; printf '#!/bin/sh\\necho tool of third\\n' > bin/tool; chmod 755 bin/tool
"""

EXOTIC = """Bootstrap: localimage
From: {base}

%environment
    greet() {{ echo "hello $1"; }}
    export GREETING="$(greet world)"
    export LIST=""
    for each in a b c; do LIST="$LIST$each,"; done
    case "$FROM_IMAGE" in image) export CASE=matched ;; *) export CASE=other ;; esac
    export LENGTH=${{#FROM_IMAGE}} SUFFIX=${{FROM_IMAGE%ge}} NUMBER=$((3 * 4))
    export MANY=1 WORDS="two words"
    unset BOTH
    echo "said by the environment"
    export LINES="first
second"
    . /data/more.sh

%post
    printf 'export SOURCED=yes\\n' > /data/more.sh

%runscript
    #!/bin/sh -e
    echo "$GREETING"
    false
    echo "not reached"
"""

OWN_INTERPRETER = """Bootstrap: localimage
From: {base}

%runscript
    #!/bin/cat
    this is printed by cat
"""

Peer = Callable[..., subprocess.CompletedProcess[str]]


def pull(target: Path, source: str, *flags: str) -> None:
    """Make an image with kedge, in this process."""
    kedge_here("pull", "--quiet", *flags, target, source, cache=target.parent / "store")


def make_archive(path: Path, entries: list[Entry], config: Mapping[str, Any]) -> Path:
    """An OCI archive with one layer."""
    OciArchive(entries, dict(config), MACHINE).write(path)
    return path


def make_images(folder: Path) -> None:
    """All images that need no Apptainer."""
    base = base_entries()
    for name, config in SHAPES.items():
        pull(folder / f"{name}.sif", f"oci-archive:{make_archive(folder / f'{name}.oci.tar', base, config)}")
    for name, entries in special_entries().items():
        config = {"Env": ["PATH=/bin"], "Cmd": ["/bin/cat", "/etc/passwd"]}
        pull(folder / f"{name}.sif", f"oci-archive:{make_archive(folder / f'{name}.oci.tar', entries, config)}")
    source = f"oci-archive:{folder / 'base.oci.tar'}"
    pull(folder / "base.docker.tar", source)
    pull(folder / "base.sqsh", source)
    pull(folder / "box", source, "--sandbox")
    shutil.copy(folder / "base.sif", folder / "name with space.sif")
    make_overlay(folder)
    for each in (folder, *folder.rglob("*")):
        os.chown(each, PEER_USER, PEER_USER, follow_symlinks=False)
    folder.chmod(0o755)


def make_overlay(folder: Path) -> None:
    """A SquashFS that lies above an image: one file that is new, one that the image has too."""
    tree = folder / "over"
    (tree / "data").mkdir(parents=True)
    (tree / "extra").write_text("extra\n")
    (tree / "data/file").write_text("over\n")
    command = [require_program("mksquashfs"), str(tree), str(folder / "over.sqsh"), "-quiet", "-no-progress"]
    subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL)


def build_images(folder: Path, peer: Peer) -> None:
    """The images that Apptainer itself builds, from definition files."""
    for name, text in {"definition": DEFINITION, "exotic": EXOTIC, "interpreter": OWN_INTERPRETER}.items():
        recipe = folder / f"{name}.def"
        recipe.write_text(text.format(base="/srv/images/base.sif"))
        done = peer("apptainer", "-s", "build", f"/srv/images/{name}.sif", f"/srv/images/{name}.def")
        assert done.returncode == 0, done.stderr
    add_data(folder, peer)


def add_data(folder: Path, peer: Peer) -> None:
    """SIFs with a partition for data, one of them with nothing else."""
    shutil.copy(folder / "base.sif", folder / "rootdata.sif")
    for name in ("base.sif", "rootdata.sif"):
        os.chown(folder / name, PEER_USER, PEER_USER)
    words = ("sif", "add", "--datatype", "4", "--parttype", "3", "--partfs", "1", "--partarch", "2", "--groupid", "1")
    for command in (
        ("sif", "new", "/srv/images/data.sif"),
        *((*words, f"/srv/images/{name}.sif", "/srv/images/over.sqsh") for name in ("data", "rootdata")),
    ):
        done = peer("apptainer", "-s", *command)
        assert done.returncode == 0, done.stderr
