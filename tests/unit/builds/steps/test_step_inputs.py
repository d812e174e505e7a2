# SPDX-License-Identifier: BSD-3-Clause
"""What the key of a step in a stage depends on beside the step itself: files, earlier stages, options of the build."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from kedge.base.digest import Digest
from kedge.base.manifest import Descriptor, ImageConfig
from kedge.base.platform import Platform
from kedge.builds.bases.bases import OpenedBase
from kedge.builds.request import BuildOutput, BuildRequest
from kedge.builds.states.build_place import BuildState, StageResult, StepLayer
from kedge.builds.step_values import CopyOrigin, CopyStep, HostScriptStep, RecipePlace, RunStep, Stage, Step, StepMount
from kedge.builds.steps.origins import FileOrigins
from kedge.builds.steps.stage_builder import StageBuilder
from tests.builders.copy_cases import write_tree
from tests.builders.rows import each_row

PLACE = RecipePlace("Dockerfile", 3)
RUN = RunStep(PLACE, "RUN make", ("make",))
COPY = CopyStep(PLACE, "COPY a /a", ("a",), "/a")


def make_state(key: str = "base", platform: str = "linux/amd64", *layers: str) -> BuildState:
    base = OpenedBase("", key, ImageConfig(Platform.parse(platform)))
    made = [StepLayer(Descriptor("", Digest.of(each.encode()), 1), Digest.of(each.encode())) for each in layers]
    return BuildState(base, tuple(made))


@pytest.fixture(autouse=True)
def context(tmp_path):
    write_tree(tmp_path / "context", {"a": b"1", "b": b"2"})
    return tmp_path / "context"


class Keys:
    """Keys of steps in a state; each is that of a new build, which has read nothing yet."""

    def __init__(self, context) -> None:
        self.context = context
        self.state = make_state()
        self.stage = make_state("stage")

    def find(self, step: Step, **request: object) -> str:
        asked = BuildRequest("Dockerfile", output=BuildOutput(), use_cache=False, **request)  # type: ignore[arg-type]
        session = SimpleNamespace(request=asked, context=self.context, recipe_path=None, reach=None)
        origins = FileOrigins(session, is_definition=False)  # type: ignore[arg-type]
        waiter = lambda index: StageResult(self.stage, {})  # noqa: E731
        builder = StageBuilder(session, Stage, origins, waiter)  # type: ignore[arg-type]
        builder.state = self.state
        return builder.make_key(step)


@pytest.fixture
def keys(context) -> Keys:
    return Keys(context)


def test_key_of_a_copy_follows_its_files_and_that_of_a_host_script_nothing(keys: Keys) -> None:
    first = keys.find(COPY)
    (keys.context / "b").write_bytes(b"changed")
    assert keys.find(COPY) == first
    (keys.context / "a").write_bytes(b"changed")
    assert keys.find(COPY) != first
    setup = HostScriptStep(PLACE, "%setup", "setup", ("/bin/sh",), b"true")
    assert keys.find(setup, uses_host=True) != keys.find(setup, uses_host=True)


@pytest.mark.parametrize(
    "step",
    [
        CopyStep(PLACE, "COPY --from=0 /a /a", ("/a",), "/a", CopyOrigin(stage=0)),
        RunStep(PLACE, "RUN", ("make",), mounts=(StepMount("bind", "/in", origin=CopyOrigin(stage=0)),)),
    ],
)
def test_key_of_what_takes_from_a_stage_follows_that_stage(keys: Keys, step: Step) -> None:
    first = keys.find(step)
    (keys.context / "a").write_bytes(b"changed")
    assert keys.find(step) == first
    keys.stage = make_state("stage", "linux/amd64", "one")
    assert keys.find(step) != first


def test_key_follows_mounted_files_and_their_place(keys: Keys) -> None:
    bound = RunStep(PLACE, "RUN", ("make",), mounts=(StepMount("bind", "/in", "/a"),))
    cached = RunStep(PLACE, "RUN", ("make",), mounts=(StepMount("cache", "/in", "/a"),))
    before = [keys.find(step) for step in (bound, cached)]
    (keys.context / "a").write_bytes(b"changed")
    assert [keys.find(step) == key for step, key in zip((bound, cached), before, strict=True)] == [False, True]
    # Two directories that change places are not what they were.
    mounts = (StepMount("bind", "/x", "/a"), StepMount("bind", "/y", "/b"))
    step = RunStep(PLACE, "RUN", ("make",), mounts=mounts)
    first = keys.find(step)
    write_tree(keys.context, {"a": b"2", "b": b"1"})
    assert keys.find(step) != first


@each_row(
    ("request_values", "counts_for_copies"),
    [
        *(({"epoch": 0}, True), ({"epoch": 1}, True), ({"options": ("--nv",)}, False), ({"binds": ("/data",)}, False)),
        ({"protect": True}, False),
    ],
)
def test_key_follows_the_options_of_the_build(keys, request_values, counts_for_copies) -> None:
    assert keys.find(RUN, **request_values) != keys.find(RUN)
    assert (keys.find(COPY, **request_values) != keys.find(COPY)) is counts_for_copies


def test_key_follows_the_state_and_the_platform(keys: Keys) -> None:
    found = set()
    for keys.state in (
        *(make_state(), make_state("other"), make_state("base", "linux/arm64")),
        make_state("base", "linux/amd64", "one"),
        make_state("base", "linux/amd64", "one", "two"),
        make_state("base", "linux/amd64", "two", "one"),
    ):
        found.add(keys.find(RUN))
    assert len(found) == 6


def test_keys_stay_the_same_from_one_version_to_the_next(keys: Keys) -> None:
    """Else everybody's steps run again after an update; where that must be, raise `_FORMAT` of cache_keys.py."""
    bound = StepMount("bind", "/in", "/a")
    run = RunStep(PLACE, "RUN", ("make",), mounts=(bound,))
    write_tree(keys.context, {"d/e/x": b"x", "d/link": "-> e"})
    os.link(keys.context / "d/e/x", keys.context / "d/e/y")
    tree = CopyStep(PLACE, "COPY d /d", ("d",), "/d")
    found = [
        keys.find(COPY),
        keys.find(tree),
        keys.find(run, epoch=1, options=("--nv",), binds=("/data",), protect=True),
    ]
    assert [key[:16] for key in found] == ["018b677a344001d0", "e13690ca15ed8f82", "eb86b40bbc90ec8f"]


def test_state_after_a_step_has_its_layer_and_its_line_of_history() -> None:
    state = make_state()
    [layer] = make_state("base", "linux/amd64", "one").layers
    first = state.after("RUN make", layer, created=7)
    second = first.after("ENV A=b", None)
    assert second.layers == (layer,)
    assert second.history == ({"created_by": "RUN make"}, {"created_by": "ENV A=b", "empty_layer": True})
    assert (state.created, first.created, second.created) == (0, 7, 7), "that of the youngest step"
    assert first.after("RUN older", layer, created=3).created == 7
    assert state.after("ENV A=b", None).created == 0
    assert second.key == first.key != state.key
