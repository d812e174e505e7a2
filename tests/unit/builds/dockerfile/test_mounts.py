# SPDX-License-Identifier: BSD-3-Clause
"""`RUN --mount` with all types, keys and defaults; durations, sizes, ports and signals as Docker reads them."""

from __future__ import annotations

import pytest

from kedge.builds.dockerfile.mounts import MountContext, read_bytes, read_mount, read_nanoseconds
from kedge.builds.dockerfile.plan import PortError, is_signal, read_ports
from kedge.builds.dockerfile.syntax import read_syntax
from kedge.builds.step_values import CopyOrigin, StepMount
from kedge.errors import InvalidRecipe
from tests.builders.rows import each_row, with_rows


def read_one(text: str) -> StepMount:
    node = read_syntax(f"RUN --mount={text} a").nodes[0]
    context = MountContext(node, lambda word: word.replace("$A", "one"), lambda name: CopyOrigin(image=name), "/here")
    return read_mount(node.flags[0].removeprefix("--mount="), context)


MOUNTS = {
    "target=/a": StepMount("bind", "/a", is_readonly=True),
    "type=bind,source=x,target=b,rw": StepMount("bind", "/here/b", "x"),
    "src=x,dst=/b,from=img": StepMount("bind", "/b", "x", CopyOrigin(image="img"), is_readonly=True),
    "type=bind,destination=/b,readwrite=true": StepMount("bind", "/b"),
    "target=/b,Z": StepMount("bind", "/b", is_readonly=True),
    "target=/b,ro=false": StepMount("bind", "/b"),
    "type=cache,target=/c/": StepMount("cache", "/c", id="/c"),
    "type=cache,target=c": StepMount("cache", "/here/c", id="c"),
    "TYPE=Cache,Target=/c,id=$A,sharing=Locked,mode=0700,uid=1,gid=2,ro": StepMount(
        "cache", "/c", id="one", sharing="locked", mode=0o700, uid=1, gid=2, is_readonly=True
    ),
    "type=tmpfs,target=/t,size=64m": StepMount("tmpfs", "/t", size=64 << 20),
    "type=tmpfs,target=/t": StepMount("tmpfs", "/t"),
    "type=secret,id=s": StepMount("secret", "/run/secrets/s", id="s", is_readonly=True),
    "type=secret,id=a/s,required": StepMount("secret", "/run/secrets/s", id="a/s", is_readonly=True, is_required=True),
    "type=secret,target=/x/y": StepMount("secret", "/x/y", id="y", is_readonly=True),
    "type=secret,source=s,target=/x,mode=0444": StepMount("secret", "/x", id="s", is_readonly=True, mode=0o444),
    "type=secret,id=s,env=S": StepMount("secret", "", id="s", is_readonly=True, variable="S"),
    "type=secret,id=s,env=": StepMount("secret", "", id="s", is_readonly=True, variable="s"),
    "type=secret,id=s,env=S,target=/x": StepMount("secret", "/x", id="s", is_readonly=True, variable="S"),
    "type=ssh": StepMount("ssh", "", id="default", is_readonly=True),
    "type=ssh,id=k,target=/k,required=true": StepMount("ssh", "/k", id="k", is_readonly=True, is_required=True),
    "'type=cache,\"target=/a,b\"'": StepMount("cache", "/a,b", id="/a,b"),
}


@each_row("text", MOUNTS)
def test_mounts_are_read(text: str) -> None:
    assert read_one(text) == MOUNTS[text]


REFUSED = {
    "type=bnid,target=/a": "type=bnid in --mount is unknown",
    "type=cache,sharing=all,target=/a": "sharing=all",
    "type=cache,targt=/a": "does not know 'targt'",
    "target": "'target' in --mount has no value",
    "target=/a,ro=maybe": "neither true nor false",
    "target=/a,required": "'required' is not for mounts of type bind",
    "target=/a,size=1": "'size' is not for mounts of type bind",
    "type=tmpfs,target=/a,size=x": "not a size",
    "type=tmpfs,target=/a,mode=1": "mode, uid and gid",
    "target=/a,uid=1": "mode, uid and gid",
    "type=cache,target=/a,mode=9": "not an octal number",
    "type=cache,target=/a,uid=-1": "not a number",
    "type=secret": "needs an id",
    "type=secret,id=a,source=b": "either 'id' or 'source'",
    "type=secret,id=a,from=b": "no 'from'",
    "type=tmpfs,target=/a,sharing=shared": "'sharing' is not for",
    "target=/": "cannot be on '/'",
    "target=..": "cannot be on '/'",
    "'a\"b'": "quotes",
}


@each_row("text", REFUSED)
def test_mounts_mistakes_are_refused(text: str) -> None:
    with pytest.raises(InvalidRecipe) as caught:
        read_one(text)
    assert str(caught.value).startswith("Dockerfile:1:")
    assert REFUSED[text] in str(caught.value)


@with_rows(
    *(("0", 0), ("1ns", 1), ("1.5us", 1500), ("2\xb5s", 2000), ("1h2m3.5s", 3723_500_000_000)),
    *(("-1s", -1_000_000_000), ("+.5s", 500_000_000), ("1.s", 1_000_000_000)),
    *((wrong, None) for wrong in ("", "1", "s", "1d", "1s2", ".s", "1 s", "9999999999h")),
)
def test_values_durations(text: str, time: int | None) -> None:
    assert read_nanoseconds(text) == time


@with_rows(
    *(("0", 0), ("1", 1), ("1b", 1), ("1k", 1024), ("1.5KiB", 1536), ("2 mb", 2 << 20), ("1G", 1 << 30)),
    *((wrong, None) for wrong in ("", "k", "1x", "-1", "1kbb", "1  k")),
)
def test_values_sizes(text: str, size: int | None) -> None:
    assert read_bytes(text) == size


@with_rows(
    *(("80", ["80/tcp"]), ("80/UDP", ["80/udp"]), ("80/", ["80/tcp"])),
    ("8000-8002/sctp", ["8000/sctp", "8001/sctp", "8002/sctp"]),
    *(("8080:80", ["80/tcp"]), ("127.0.0.1::80", ["80/tcp"]), ("[::1]:8080:80", ["80/tcp"]), ("1-2:3", ["3/tcp"])),
    ("1-2:3-4", ["3/tcp", "4/tcp"]),
)
def test_values_ports(word: str, ports: list[str]) -> None:
    assert read_ports(word) == ports


@each_row("word", ["", "/tcp", "a", "80/icmp", "65536", "2-1", "1-2:3-5", "x:1:2", "a:80", "-1", "80-"])
def test_values_wrong_ports(word: str) -> None:
    with pytest.raises(PortError):
        read_ports(word)


@each_row(("text", "is_one"), [("SIGTERM", 1), ("term", 1), ("9", 1), ("RTMIN+3", 1), ("0", 0), ("X", 0)])
def test_values_signals(text: str, is_one: int) -> None:
    assert is_signal(text) == bool(is_one)
