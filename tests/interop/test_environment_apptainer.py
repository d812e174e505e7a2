# SPDX-License-Identifier: BSD-3-Clause
"""The environment that we plan is the one that the real Apptainer gives, variable by variable, for its own images.

It builds the image; what it answered for each row is recorded (`recorded.py`).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from kedge.base.platform import Platform
from kedge.container.facts import Additions, HostFacts, ImageFacts, Payload, make_group, make_passwd
from kedge.container.options import RunOptions
from kedge.container.payload import plan_payload
from kedge.image.formats.oci.writer import write_oci_archive
from kedge.system.views import DirectoryView
from tests.builders.apptainer import Apptainer, apptainer_folder
from tests.builders.busybox import read_busybox
from tests.builders.oci_images import make_image
from tests.interop.recorded import find_changes, recall
from tests.requirements import require_program

VARIABLES = [
    "PATH=/opt/bin:/bin",
    "PLAIN=1",
    "SPACES=a  b",
    'QUOTES=it\'s "q"',
    'JSON={"a": [1, 2]}',
    "EMPTY=",
    "UTF=é",
]
ENTRYPOINT = ["/bin/echo", "entry", "it's", 'q"q']
COMMAND = ["$PLAIN", "a b"]
# Apptainer's own interpreter sets none of these, or we guard them on purpose
IGNORED = {"PYTHONNOUSERSITE", "SHLVL", "OLDPWD", "_"}


@dataclass(frozen=True)
class Row:
    """A start of a container, and what is in its image."""

    words: tuple[str, ...]
    verb: str = "exec"
    script: str | None = None  # of the image's environment
    environ: Mapping[str, str] = field(default_factory=dict)  # beyond PATH and HOME
    flags: tuple[str, ...] = ()
    passwd: str = ""
    group: str = ""
    shell: str = "busybox"  # what /bin/sh leads to


@contextlib.contextmanager
def open_peer() -> Iterator[Apptainer]:
    """Apptainer with a directory `box`, which it made of an image."""
    with apptainer_folder() as made:
        image = make_image(
            [{"bin/busybox": read_busybox(), "etc/passwd": b"", "etc/group": b"", "tmp/.keep": b""}],
            tag="box:1",
            architecture=Platform.host().architecture,
            section={"Env": VARIABLES, "Entrypoint": ENTRYPOINT, "Cmd": COMMAND},
        )
        with (made.folder / "box.tar").open("w+b") as file:
            write_oci_archive(file, [image])
        made.own(made.folder / "box.tar")
        made.run("build", "--sandbox", "box", "oci-archive:box.tar")
        for name in ("env", "echo", "cat", "true", "id"):
            (made.folder / "box/bin" / name).symlink_to("busybox")
        (made.folder / "box/bin/busybox").chmod(0o755)
        yield made


@pytest.fixture(scope="module")
def peer() -> Iterator[Apptainer]:
    with open_peer() as made:
        yield made


def fill_box(peer: Apptainer, row: Row) -> None:
    """Put into the image what the row says."""
    box = peer.folder / "box"
    text = "" if row.script is None else f"#!/bin/sh\n{row.script}\n"
    (box / ".singularity.d/env/90-environment.sh").write_text(text)
    (box / "etc/passwd").write_text(row.passwd)
    (box / "etc/group").write_text(row.group)
    (box / "bin/sh").unlink(missing_ok=True)
    if row.shell:
        (box / "bin/sh").symlink_to(row.shell)


def ask_apptainer(names: list[str]) -> dict[str, Any]:
    """Status and output of Apptainer, with FOLDER for the directory of the image."""
    answers = {}
    with open_peer() as peer:
        for name in names:
            row = ROWS[name]
            fill_box(peer, row)
            done = run_theirs(peer, row)
            texts = [text.replace(str(peer.folder), "FOLDER") for text in (done.stdout, done.stderr)]
            answers[name] = [done.returncode, *texts]
    return answers


@pytest.fixture(scope="module")
def theirs(peer: Apptainer) -> dict[str, tuple[int, str, str]]:
    """Status, output and errors of Apptainer by row."""
    found = recall("environment", ROWS, ask_apptainer)
    folder = str(peer.folder)
    return {name: (each[0], each[1].replace("FOLDER", folder), each[2]) for name, each in found.items()}


def run_theirs(peer: Apptainer, row: Row) -> subprocess.CompletedProcess[str]:
    given = [f"{name}={value}" for name, value in {"PATH": "/usr/bin:/bin", **row.environ}.items()]
    words = ("apptainer", "-s", row.verb, *row.flags, "box", *row.words)
    return peer.run("env", "-i", "HOME=/home/peer", *given, *words, check=False, shell=True)


def plan_ours(peer: Apptainer, row: Row, **options: object) -> Payload:
    root = str(peer.folder / "box")
    host = HostFacts(
        view=DirectoryView("/"),
        environ={"PATH": "/usr/bin:/bin", **row.environ},
        uid=1500,
        gid=1500,
        user="peer",
        home="/home/peer",
        cwd=str(peer.folder),
    )
    image = ImageFacts(view=DirectoryView(root), path=root)
    return plan_payload(RunOptions(verb=row.verb, arguments=list(row.words), **options), host, image, Additions())


def run_ours(peer: Apptainer, payload: Payload) -> subprocess.CompletedProcess[str]:
    """In the image's tree; /proc and the like are not needed for these programs."""
    root = peer.folder / "box"
    argv = list(payload.argv)
    if "/" not in argv[0]:
        argv[0] = next(
            f"{folder}/{argv[0]}" for folder in payload.search if os.path.lexists(f"{root}{folder}/{argv[0]}")
        )
    (root / str(peer.folder).lstrip("/")).mkdir(parents=True, exist_ok=True)
    command = [require_program("chroot"), str(root), *argv]
    return subprocess.run(
        command, env=payload.environ, capture_output=True, text=True, errors="surrogateescape", check=False
    )


def read_variables(text: str) -> dict[str, str]:
    found = dict(each.split("=", 1) for each in text.split("\0") if each)
    return {name: value for name, value in found.items() if name not in IGNORED}


CASES: list[tuple[str, str, dict[str, str], dict[str, object], list[str]]] = [
    ("plain", "", {"FOO": "bar", "USER": "peer", "PLAIN": "host"}, {}, []),
    ("values", "", {"A": "a\nb", "B": "it's \"q\" \\ $x `y`", "C": "", "D": "é😀", "odd-name": "x"}, {}, []),
    ("exports", "export A=1 PATH=/s:$PATH Z=$A\nB=no\nexport PLAIN=\nexport C='$x'", {"B": "h", "PLAIN": "h"}, {}, []),
    ("defaults", 'export A="${FOO:-d}" B=${PLAIN:-no} C="${PLAIN:+yes}"', {"FOO": "host"}, {}, []),
    ("branches", 'if [ -n "$FOO" ]; then\nexport A=1\nelse\nexport A=2\nfi', {"FOO": "host"}, {}, []),
    ("commands", "export A=$(echo hi) B=`echo there`; export C=$((1 + 2))", {"A": "host", "HOSTNAME": "h"}, {}, []),
    ("loops", "for x in a b; do B=$B$x; done; export B", {"TERM": "xterm", "SHELL": "/bin/zsh"}, {}, []),
    ("failing", "nosuchcommand 2>/dev/null; export A=after; return 3", {}, {}, []),
    ("cleared", "", {"FOO": "1", "TERM": "t", "http_proxy": "p", "APPTAINERENV_Q": "q"}, {"cleanenv": True}, ["-e"]),
    ("requests", "", {"APPTAINERENV_A": "$PLAIN:\"q\"\\$x", "SINGULARITYENV_B": "b"}, {}, []),
    ("empty request", "", {"APPTAINERENV_E": "", "E": "host"}, {}, []),
    ("request commands", "", {"APPTAINERENV_A": "$(echo ${PLAIN})"}, {}, []),
    ("literal", "", {"APPTAINERENV_A": "$PLAIN `x` \\ \"q\""}, {"no_eval": True}, ["--no-eval"]),
    ("paths", "", {"APPTAINERENV_PREPEND_PATH": "/pre", "APPTAINERENV_APPEND_PATH": "/post"}, {}, []),
    ("libraries", "export LD_LIBRARY_PATH=/script", {"LD_LIBRARY_PATH": "/host"}, {}, []),
    ("own libraries", "", {"APPTAINERENV_LD_LIBRARY_PATH": "/mine"}, {}, []),
    ("flag", "", {}, {"env": ["A=1,B=x=y", 'C=1,2']}, ["--env", "A=1,B=x=y", "--env", "C=1,2"]),
    ("prompt", "export PS1='me> '", {"PROMPT_COMMAND": "true"}, {}, []),
    ("guarded names", "export SINGULARITY_CONTAINER=zz A=$APPTAINER_NAME", {}, {}, []),
]  # fmt: skip


ENDING = ("exit 3", "set -e; false", "exit 0")
ABSENT = ("nosuch", "/nosuch", "/etc/passwd", "/etc")
RUN_WORDS: tuple[tuple[str, ...], ...] = ((), ("x", "a b", "$PLAIN", '"q"', "b\\c", "it's"), ("$(echo sub)",))
ODD_PASSWD = "root:x:0:0:root:/root:/bin/sh\n\nx:*:1500:7:I, x:/h:/bin/zz\nl:x:5:5::/:/no"
ODD_GROUP = "a:x:1:\nb:x:1500:q"
# with --fakeroot and no line for root Apptainer adds the caller, we add root
IDENTITIES = (("", ()), ("", ("--home", "/tmp:/mnt")), (ODD_PASSWD, ()), (ODD_PASSWD, ("--fakeroot",)))
ROWS = {
    **{
        f"environment: {name}": Row(("env", "-0"), script=script, environ=environ, flags=tuple(flags))
        for name, script, environ, _, flags in CASES
    },
    **{f"ending: {script}": Row(("echo", "started"), script=script) for script in ENDING},
    **{f"absent: {word}": Row((word,), script="export A=$(echo x)") for word in ABSENT},
    **{
        f"run: {' '.join((*flags, *words))}": Row(words, verb="run", flags=flags)
        for words in RUN_WORDS
        for flags in ((), ("--no-eval",))
    },
    "no shell": Row(("x",), verb="run", shell=""),
    **{
        f"identity {number}": Row(("cat", "/etc/passwd", "/etc/group"), flags=flags, passwd=passwd, group=ODD_GROUP)
        for number, (passwd, flags) in enumerate(IDENTITIES)
    },
}
Theirs = dict[str, tuple[int, str, str]]


def test_environment_is_apptainers(peer: Apptainer, theirs: Theirs) -> None:
    wrong = []
    for name, _, _, options, _ in CASES:
        row, (status, output, errors) = ROWS[f"environment: {name}"], theirs[f"environment: {name}"]
        fill_box(peer, row)
        assert status == 0, errors
        ours = run_ours(peer, plan_ours(peer, row, **options))
        expected, found = read_variables(output), read_variables(ours.stdout)
        if ours.returncode or {**found, "PWD": expected["PWD"]} != expected:
            wrong.append(f"{name}: {sorted(set(found.items()) ^ set(expected.items()))} {ours.stderr}")
    assert not wrong, "\n".join(wrong)


def test_environment_scripts_that_end_the_start_do(peer: Apptainer, theirs: Theirs) -> None:
    for script in ENDING:
        row = ROWS[f"ending: {script}"]
        fill_box(peer, row)
        ours = run_ours(peer, plan_ours(peer, row))
        assert (ours.returncode, ours.stdout) == theirs[f"ending: {script}"][:2], script


def test_programs_that_cannot_be_started_fail_in_the_shell_as_with_apptainer(peer: Apptainer, theirs: Theirs) -> None:
    for word in ABSENT:
        row, (status, _, errors) = ROWS[f"absent: {word}"], theirs[f"absent: {word}"]
        fill_box(peer, row)
        ours = run_ours(peer, plan_ours(peer, row))
        assert (ours.returncode, status) == (255, 255), word
        assert errors.strip().removeprefix("FATAL:").strip() in ours.stderr, word


def test_run_gives_the_words_that_apptainer_gives(peer: Apptainer, theirs: Theirs) -> None:
    for name, row in ROWS.items():
        if not name.startswith("run: "):
            continue
        fill_box(peer, row)
        payload = plan_ours(peer, row, no_eval=bool(row.flags))
        ours = run_ours(peer, payload)
        assert (ours.returncode, ours.stdout) == theirs[name][:2], f"{name}: {ours.stderr}"
        if row.words != ("$(echo sub)",) or row.flags:
            assert payload.argv[0] == "/bin/echo", f"{name}: no shell is started for it"


def test_scripts_that_apptainer_writes_need_no_shell(peer: Apptainer, theirs: Theirs) -> None:
    row = ROWS["no shell"]
    fill_box(peer, row)
    ours = run_ours(peer, plan_ours(peer, row))
    assert (ours.returncode, ours.stdout) == theirs["no shell"][:2] == (0, "entry it's q\"q x\n")


def test_identity_is_apptainers(theirs: Theirs) -> None:
    host = HostFacts(
        view=DirectoryView("/"),
        environ={},
        uid=1500,
        gid=1500,
        user="peer",
        home="/home/peer",
        groups=((1500, "peer"),),
    )
    for number, (passwd, flags) in enumerate(IDENTITIES):
        home = {"--fakeroot": "/root", "--home": "/mnt"}.get("".join(flags[:1]), "/home/peer")
        ours = [
            make_passwd(passwd.encode(), host, home, fakeroot="--fakeroot" in flags),
            make_group(ODD_GROUP.encode(), host),
        ]
        assert b"".join(each or b"" for each in ours).decode() == theirs[f"identity {number}"][1], (passwd, flags)


@pytest.mark.long
def test_answers_are_recorded_as_apptainer_gives_them() -> None:
    assert find_changes("environment", ROWS, ask_apptainer) == []
