# SPDX-License-Identifier: BSD-3-Clause
"""Keys of steps: what changes them, and what does not."""

from __future__ import annotations

from kedge.base.frozen import replace
from kedge.builds.cache_keys import state_key, step_key
from kedge.builds.step_values import (
    ConfigStep,
    CopyOrigin,
    CopyStep,
    DirectoryStep,
    HostScriptStep,
    InlineFile,
    RecipePlace,
    RunStep,
    Step,
    StepMount,
    TreeFile,
    WriteFilesStep,
)
from tests.builders.rows import with_rows

PLACE = RecipePlace("Dockerfile", 3)
RUN = RunStep(PLACE, "RUN make", ("/bin/sh", "-c", "make"), (("A", "1"), ("http_proxy", "http://a")), "/src", "app")
COPY = CopyStep(PLACE, "COPY a /b/", ("a",), "/b/")
FILES = WriteFilesStep(PLACE, "metadata", (TreeFile("/a", b"1"),), ("/d",))
SETUP = HostScriptStep(PLACE, "%setup", "setup", ("/bin/sh",), b"true")


def key(step: Step, state: str = "s", platform: str = "linux/arm64", **inputs: str) -> str:
    return step_key(state, step, inputs, platform)


@with_rows(
    replace(RUN, place=RecipePlace("other", 99)),
    replace(RUN, text="RUN  make # twice"),
    replace(RUN, proxies=(("http_proxy", "http://b"), ("NO_PROXY", "x"))),
    replace(RUN, environment=(("http_proxy", "http://a"), ("A", "1"))),
)
def test_key_of_a_run_is_the_same(other: RunStep) -> None:
    assert key(RUN) == key(other)


@with_rows(
    *(replace(RUN, argv=("/bin/sh", "-c", "make all")), replace(RUN, argv=("/bin/sh -c", "make"))),
    *(replace(RUN, environment=(("A", "2"),)), replace(RUN, environment=(("A", "1"),))),
    replace(RUN, environment=(("A", "1"), ("http_proxy", "http://b"))),
    replace(RUN, environment=(("A", "1"), ("HTTP_PROXY", "http://a"))),
    *(replace(RUN, directory="/"), replace(RUN, user=""), replace(RUN, stdin=b"x"), replace(RUN, network="none")),
    *(replace(RUN, section="test"), replace(RUN, script=InlineFile("/.post.script", b"x"))),
    *(replace(RUN, mounts=(StepMount("cache", "/cache"),)), replace(RUN, mounts=(StepMount("cache", "/other"),))),
    replace(RUN, mounts=(StepMount("secret", "/cache", id="x"),)),
)
def test_key_of_a_run_differs(other: RunStep) -> None:
    assert key(RUN) != key(other)


def test_all_parts_of_a_key_count() -> None:
    keys = [
        *(key(RUN), key(RUN, state="t"), key(RUN, platform="linux/amd64"), key(RUN, files="1"), key(RUN, files="2")),
        *(key(RUN, file="s1"), key(COPY), key(replace(COPY, owner="1")), key(replace(COPY, mode="1"))),
        *(key(replace(COPY, destination="/b")), key(replace(COPY, is_link=True)), key(replace(COPY, excluded=("x",)))),
        *(key(replace(COPY, inline=(InlineFile("a", b"b"),))), key(replace(COPY, inline=(InlineFile("b", b"a"),)))),
        *(key(DirectoryStep(PLACE, "WORKDIR /a", "/a")), key(DirectoryStep(PLACE, "WORKDIR /a", "/a", "user"))),
        *(key(FILES), key(replace(FILES, links=(("a", "b"),)))),
        key(replace(FILES, files=(TreeFile("/a", b"1", way="append"),))),
        *(key(SETUP), key(replace(SETUP, script=b"false")), key(replace(SETUP, section="pre"))),
    ]
    assert len(set(keys)) == len(keys)
    assert all(len(text) == 64 for text in keys)


def test_keys_stay_the_same_from_one_version_to_the_next() -> None:
    """Else everybody's steps run again after an update; where that must be, raise `_FORMAT`."""
    mount = StepMount("cache", "/c", id="pip", mode=0o755, uid=1, gid=2, size=3, variable="V")
    run = replace(RUN, mounts=(mount,), stdin=b"x", script=InlineFile("/s", b"y"), network="none", section="post")
    copy = replace(COPY, inline=(InlineFile("a", b"b"),), excluded=("x",), unpacks=True, checksum="c", mode="1")
    steps: list[Step] = [run, copy, DirectoryStep(PLACE, "WORKDIR /a", "/a", "user"), FILES, SETUP]
    config = ConfigStep(PLACE, "ENV A=b")
    keys = [state_key("base", ["a", "b"]), *(key(step, files="1") for step in steps), step_key("s", config, {})]
    assert [each[:16] for each in keys] == [
        *("7599ed9c67a2b93d", "c755bf1208738b3f", "e06f9d577d70d8c0", "8a657a6c62b15264", "a51d3d2f1921089d"),
        *("55cc91b372432154", "61752f28aee87615"),
    ]


def test_origin_order_of_layers_and_odd_bytes_count() -> None:
    """Which stage files come from is no part of the step: the digest of that stage is among the inputs."""
    assert key(replace(COPY, origin=CopyOrigin(stage=1)), files="x") == key(COPY, files="x")
    keys = {state_key("base", layers) for layers in ([], ["a"], ["a", "b"], ["b", "a"])}
    assert len(keys | {state_key("other", [])}) == 5
    assert key(replace(RUN, argv=("\udcff",))) != key(replace(RUN, argv=("\udcfe",)))
