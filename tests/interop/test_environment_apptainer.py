# SPDX-License-Identifier: BSD-3-Clause
"""The environment that we plan is the one that the real Apptainer gives, variable by variable, for its own images."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from kedge.formats.oci.writer import write_oci_archive
from kedge.model.platform import Platform
from kedge.posix.views import DirectoryView
from kedge.runtime.facts import Additions, HostFacts, ImageFacts, Payload, make_group, make_passwd
from kedge.runtime.options import RunOptions
from kedge.runtime.payload import plan_payload
from tests.builders.apptainer import Apptainer, apptainer_folder
from tests.builders.busybox import read_busybox
from tests.builders.oci_images import make_image
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


@pytest.fixture(scope="module")
def peer() -> Iterator[Apptainer]:
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
        programs = ("sh", "env", "echo", "cat", "true", "id")
        for name in programs:
            (made.folder / "box/bin" / name).symlink_to("busybox")
        (made.folder / "box/bin/busybox").chmod(0o755)
        yield made


def run_theirs(
    peer: Apptainer, verb: str, words: list[str], environ: dict[str, str], *flags: str
) -> subprocess.CompletedProcess[str]:
    given = [f"{name}={value}" for name, value in {"PATH": "/usr/bin:/bin", **environ}.items()]
    return peer.run(
        "env", "-i", "HOME=/home/peer", *given, "apptainer", "-s", verb, *flags, "box", *words, check=False, shell=True
    )


def plan_ours(peer: Apptainer, verb: str, words: list[str], environ: dict[str, str], **options: object) -> Payload:
    root = str(peer.folder / "box")
    host = HostFacts(
        view=DirectoryView("/"),
        environ={"PATH": "/usr/bin:/bin", **environ},
        uid=1500,
        gid=1500,
        user="peer",
        home="/home/peer",
        cwd=str(peer.folder),
    )
    image = ImageFacts(view=DirectoryView(root), path=root)
    return plan_payload(RunOptions(verb=verb, arguments=words, **options), host, image, Additions())


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


@pytest.mark.parametrize(
    ("script", "environ", "options", "flags"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_environment_is_apptainers(
    peer: Apptainer, script: str, environ: dict[str, str], options: dict[str, object], flags: list[str]
) -> None:
    (peer.folder / "box/.singularity.d/env/90-environment.sh").write_text(f"#!/bin/sh\n{script}\n")
    theirs = run_theirs(peer, "exec", ["env", "-0"], environ, *flags)
    assert theirs.returncode == 0, theirs.stderr
    ours = run_ours(peer, plan_ours(peer, "exec", ["env", "-0"], environ, **options))
    assert ours.returncode == 0, ours.stderr
    expected, found = read_variables(theirs.stdout), read_variables(ours.stdout)
    assert {**found, "PWD": expected["PWD"]} == expected


@pytest.mark.parametrize("script", ["exit 3", "set -e; false", "exit 0"])
def test_environment_scripts_that_end_the_start_do(peer: Apptainer, script: str) -> None:
    (peer.folder / "box/.singularity.d/env/90-environment.sh").write_text(f"{script}\n")
    theirs = run_theirs(peer, "exec", ["echo", "started"], {})
    ours = run_ours(peer, plan_ours(peer, "exec", ["echo", "started"], {}))
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)


@pytest.mark.parametrize("words", [["nosuch"], ["/nosuch"], ["/etc/passwd"], ["/etc"]])
def test_programs_that_cannot_be_started_fail_in_the_shell_as_with_apptainer(peer: Apptainer, words: list[str]) -> None:
    (peer.folder / "box/.singularity.d/env/90-environment.sh").write_text("export A=$(echo x)\n")
    theirs = run_theirs(peer, "exec", words, {})
    ours = run_ours(peer, plan_ours(peer, "exec", words, {}))
    assert (ours.returncode, theirs.returncode) == (255, 255)
    assert theirs.stderr.strip().removeprefix("FATAL:").strip() in ours.stderr


@pytest.mark.parametrize("no_eval", [False, True])
@pytest.mark.parametrize("words", [[], ["x", "a b", "$PLAIN", '"q"', "b\\c", "it's"], ["$(echo sub)"]])
def test_run_gives_the_words_that_apptainer_gives(peer: Apptainer, words: list[str], *, no_eval: bool) -> None:
    (peer.folder / "box/.singularity.d/env/90-environment.sh").write_text("")
    theirs = run_theirs(peer, "run", words, {}, *(["--no-eval"] if no_eval else []))
    payload = plan_ours(peer, "run", words, {}, no_eval=no_eval)
    ours = run_ours(peer, payload)
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout), ours.stderr
    if words != ["$(echo sub)"] or no_eval:
        assert payload.argv[0] == "/bin/echo"  # no shell is started for it


def test_scripts_that_apptainer_writes_need_no_shell(peer: Apptainer) -> None:
    (peer.folder / "box/.singularity.d/env/90-environment.sh").write_text("")
    bare = peer.folder / "box/bin/sh"
    bare.unlink()
    try:
        ours = run_ours(peer, plan_ours(peer, "run", ["x"], {}))
        theirs = run_theirs(peer, "run", ["x"], {})
    finally:
        bare.symlink_to("busybox")
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout) == (0, "entry it's q\"q x\n")


ODD_PASSWD = "root:x:0:0:root:/root:/bin/sh\n\nx:*:1500:7:I, x:/h:/bin/zz\nl:x:5:5::/:/no"


@pytest.mark.parametrize(
    ("passwd", "flags"),
    # with --fakeroot and no line for root Apptainer adds the caller, we add root
    [("", []), ("", ["--home", "/tmp:/mnt"]), (ODD_PASSWD, []), (ODD_PASSWD, ["--fakeroot"])],
)
def test_identity_is_apptainers(peer: Apptainer, passwd: str, flags: list[str]) -> None:
    (peer.folder / "box/.singularity.d/env/90-environment.sh").write_text("")
    (peer.folder / "box/etc/passwd").write_text(passwd)
    (peer.folder / "box/etc/group").write_text("a:x:1:\nb:x:1500:q")
    host = HostFacts(
        view=DirectoryView("/"),
        environ={},
        uid=1500,
        gid=1500,
        user="peer",
        home="/home/peer",
        groups=((1500, "peer"),),
    )
    home = {"--fakeroot": "/root", "--home": "/mnt"}.get("".join(flags[:1]), "/home/peer")
    ours = [
        make_passwd(passwd.encode(), host, home, fakeroot="--fakeroot" in flags),
        make_group(b"a:x:1:\nb:x:1500:q", host),
    ]
    theirs = run_theirs(peer, "exec", ["cat", "/etc/passwd", "/etc/group"], {}, *flags)
    assert b"".join(each or b"" for each in ours).decode() == theirs.stdout
