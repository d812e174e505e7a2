# SPDX-License-Identifier: BSD-3-Clause
"""A Dockerfile becomes stages and steps with the config that `docker build` gives the image."""

from __future__ import annotations

import pytest

from kedge.builds import step_values
from kedge.builds.dockerfile.plan import make_recipe
from kedge.builds.dockerfile.section import DEFAULT_PATH
from kedge.errors import InvalidRecipe
from tests.builders.rows import each_row, with_rows

PATH = f"PATH={DEFAULT_PATH}"


def read(text: str, **given) -> step_values.Recipe:
    return make_recipe(
        text, "D", step_values.BuildArguments(build_platform="linux/amd64", target_platform="linux/arm64/v8", **given)
    )


def plan(text: str, section=None, **given) -> step_values.StagePlan:
    """The plan of the target, whose base stages are planned first."""
    recipe = read(text, **given)
    sections = {}
    made = step_values.StagePlan((), {})
    for stage in recipe.stages:
        made = stage.plan(sections[stage.base.stage] if stage.base.stage is not None else section or {})
        sections[stage.index] = made.section
    return made


def runs(text: str, section=None, **given) -> step_values.RunStep:
    """The last RUN of a file."""
    return [step for step in plan(text, section, **given).steps if isinstance(step, step_values.RunStep)][-1]


def copies(text: str, section=None) -> step_values.CopyStep:
    step = plan(f"FROM x AS x\nFROM a\n{text}", section).steps[-1]
    assert isinstance(step, step_values.CopyStep)
    return step


SECTIONS = {
    # instructions: what the section has beside PATH, for a base without a config
    "ENV a=1 b=$a": {"Env": [PATH, "a=1", "b="]},
    "ENV a=1\nENV b=$a a=2 c=${a}x": {"Env": [PATH, "a=2", "b=1", "c=1x"]},
    'ENV PATH "/code:$PATH"': {"Env": [f"PATH=/code:{DEFAULT_PATH}"]},
    "ENV a b c\nENV PATH=/x:$PATH": {"Env": [f"PATH=/x:{DEFAULT_PATH}", "a=b c"]},
    "ENV a=\"x y\" b='$a' c=d\\ e": {"Env": [PATH, "a=x y", "b=$a", "c=d e"]},
    "ENV a=$PATH${unset}": {"Env": [PATH, f"a={DEFAULT_PATH}"]},
    'LABEL a=b "c d"="e f" g=$PATH': {"Labels": {"a": "b", "c d": "e f", "g": DEFAULT_PATH}},
    "LABEL a b c": {"Labels": {"a": "b c"}},
    "LABEL a=1\nLABEL a=2": {"Labels": {"a": "2"}},
    "WORKDIR /a": {"WorkingDir": "/a"},
    "WORKDIR /a/": {"WorkingDir": "/a/"},
    "WORKDIR a\nWORKDIR ../b/./c": {"WorkingDir": "/b/c"},
    "ENV d=x\nWORKDIR /a/$d": {"Env": [PATH, "d=x"], "WorkingDir": "/a/x"},
    "USER 1:2": {"User": "1:2"},
    "USER $unset": {},
    "EXPOSE 80 443/tcp 53/udp 9000-9001": {
        "ExposedPorts": {"80/tcp": {}, "443/tcp": {}, "53/udp": {}, "9000/tcp": {}, "9001/tcp": {}}
    },
    'ENV p="1 2"\nEXPOSE $p': {"Env": [PATH, "p=1 2"], "ExposedPorts": {"1/tcp": {}, "2/tcp": {}}},
    "VOLUME /a /b": {"Volumes": {"/a": {}, "/b": {}}},
    'VOLUME ["/a b"]': {"Volumes": {"/a b": {}}},
    "CMD a $b": {"Cmd": ["/bin/sh", "-c", "a $b"]},
    'CMD ["a", "$b"]': {"Cmd": ["a", "$b"]},
    "CMD []": {},
    "CMD": {"Cmd": ["/bin/sh", "-c", ""]},
    'ENTRYPOINT ["a"]': {"Entrypoint": ["a"]},
    "ENTRYPOINT a b": {"Entrypoint": ["/bin/sh", "-c", "a b"]},
    'CMD ["a"]\nENTRYPOINT ["b"]': {"Cmd": ["a"], "Entrypoint": ["b"]},
    'SHELL ["/bin/bash", "-ec"]\nCMD a': {"Shell": ["/bin/bash", "-ec"], "Cmd": ["/bin/bash", "-ec", "a"]},
    "STOPSIGNAL SIGINT": {"StopSignal": "SIGINT"},
    "HEALTHCHECK --interval=30s CMD a": {"Healthcheck": {"Test": ["CMD-SHELL", "a"], "Interval": 30_000_000_000}},
    "ONBUILD RUN a\nONBUILD COPY b /c": {"OnBuild": ["RUN a", "COPY b /c"]},
    "ARG a=1\nENV b=$a": {"Env": [PATH, "b=1"]},
    "MAINTAINER me": {},
}


@each_row("text", SECTIONS)
def test_plan_instructions_change_the_config(text: str) -> None:
    assert plan(f"FROM a\n{text}").section == {"Env": [PATH], **SECTIONS[text]}


BASE = {
    **{"Env": ["PATH=/bin", "x=1"], "Cmd": ["sh"], "Entrypoint": ["/entry"], "WorkingDir": "/base", "User": "me"},
    "Labels": {"a": "1"},
    "ExposedPorts": {"1/tcp": {}},
    **{"Volumes": None, "Shell": ["/bin/bash", "-c"], "StopSignal": "9", "Hostname": "1234567890ab"},
    "AttachStdin": False,
}


def test_plan_the_config_of_the_base_is_kept() -> None:
    kept = {key: value for key, value in BASE.items() if value and key != "Hostname"}
    assert plan("FROM a", BASE).section == kept
    assert BASE["Labels"] == {"a": "1"}
    assert plan("FROM scratch\nCOPY a /b").section == {"Env": [PATH], "WorkingDir": "/"}
    assert plan("FROM a\nMAINTAINER me <x@y>").author == "me <x@y>"


@with_rows(
    ("ENV y=$x x=2", {"Env": ["PATH=/bin", "x=2", "y=1"]}),
    ("LABEL b=2", {"Labels": {"a": "1", "b": "2"}}),
    ('ENTRYPOINT ["b"]', {"Entrypoint": ["b"], "Cmd": None}),
    ("CMD b", {"Cmd": ["/bin/bash", "-c", "b"]}),
    ("ENTRYPOINT []", {"Entrypoint": None, "Cmd": None}),
    ("WORKDIR c", {"WorkingDir": "/base/c"}),
    ("EXPOSE 2", {"ExposedPorts": {"1/tcp": {}, "2/tcp": {}}}),
    ("USER 0", {"User": "0"}),
)
def test_plan_instructions_change_the_config_of_the_base(text: str, changes) -> None:
    expected = {key: value for key, value in (BASE | changes).items() if value and key != "Hostname"}
    assert plan(f"FROM a\n{text}", BASE).section == expected


RUNS: dict[str, tuple[str, ...]] = {
    "RUN a $b 'c'": ("/bin/sh", "-c", "a $b 'c'"),
    'RUN ["a", "$b"]': ("a", "$b"),
    "RUN a \\\n  && b": ("/bin/sh", "-c", "a   && b"),
    "RUN": ("/bin/sh", "-c", ""),
    'SHELL ["bash", "-c"]\nRUN a': ("bash", "-c", "a"),
    "RUN <<EOF\na $b\nEOF": ("/bin/sh", "-c", "a $b\n"),
    "RUN <<-EOF\n\ta\n\t\tb\n\tEOF": ("/bin/sh", "-c", "a\nb\n"),
    "RUN cat <<EOF > /x\na\nEOF": ("/bin/sh", "-c", "cat <<EOF > /x\na\nEOF"),
    "RUN python3 <<A && cat <<-'B'\n1\nA\n\t2\nB": ("/bin/sh", "-c", "python3 <<A && cat <<-'B'\n1\nA\n\t2\nB"),
    "RUN <<EOF cat\na\nEOF": ("/bin/sh", "-c", "<<EOF cat\na\nEOF"),
}


@each_row("text", RUNS)
def test_plan_run_becomes_the_words_of_a_program(text: str) -> None:
    assert runs("FROM a\nRUN x", {"Shell": ["/bin/bash", "-c"]}).argv == ("/bin/bash", "-c", "x")
    assert runs(f"FROM a\n{text}").argv == RUNS[text]


def test_plan_run_has_user_directory_variables_and_mounts() -> None:
    text = "FROM a\nARG b=2 c\nENV d=4\nUSER me\nWORKDIR w\nRUN --network=none --mount=type=cache,target=$d x"
    step = runs(text, {"Env": ["PATH=/bin"]})
    assert step.environment == (("PATH", "/bin"), ("b", "2"), ("d", "4"))
    assert (step.user, step.directory, step.network) == ("me", "/w", "none")
    assert [(mount.kind, mount.target, mount.id) for mount in step.mounts] == [("cache", "/w/4", "4")]
    assert str(step.place) == "D:6:1"
    given = {"environment": {"https_proxy": "p", "OTHER": "x"}, "values": {"HTTP_PROXY": "q"}}
    step = runs("FROM a\nENV NO_PROXY=mine\nRUN x", {"Env": ["PATH=/bin"]}, **given)
    assert dict(step.environment) == {"PATH": "/bin", "NO_PROXY": "mine"}
    assert dict(step.proxies) == {"http_proxy": "q", "HTTP_PROXY": "q", "https_proxy": "p", "HTTPS_PROXY": "p"}
    assert read("FROM a", **given).unused_arguments == ()
    step = runs("FROM a\nRUN <<EOF\n#!/usr/bin/python3\nprint(1)\nEOF")
    assert step.argv == ("/dev/pipes/EOF",)
    assert step.script == step_values.InlineFile("/dev/pipes/EOF", b"#!/usr/bin/python3\nprint(1)\n")
    assert step.text == "RUN <<EOF (#!/usr/bin/python3...)"


VARIABLES: dict[str, tuple[str, dict[str, str]]] = {
    "an argument with a default": ("ARG a=1\nRUN x", {"a": "1"}),
    "an argument without a value": ("ARG a\nRUN x", {}),
    "several in one": ("ARG a=1 b=$a c\nRUN x", {"a": "1", "b": "1"}),
    "a given value": ("ARG g=1\nRUN x", {"g": "given"}),
    "a given value is not expanded": ("ARG d=1\nRUN x", {"d": "$PATH"}),
    "one from before FROM": ("ARG top\nRUN x", {"top": "t"}),
    "one from before FROM with a default": ("ARG top=2\nRUN x", {"top": "2"}),
    "one from before FROM that is not asked for": ("RUN x", {}),
    "ENV after ARG": ("ARG a=1\nENV a=2\nRUN x", {"a": "2"}),
    "ARG in ENV": ("ARG a=1\nENV b=${a:-3}\nRUN x", {"a": "1", "b": "1"}),
    "platforms": (
        "ARG TARGETPLATFORM TARGETARCH TARGETVARIANT BUILDPLATFORM BUILDARCH TARGETOS\nRUN x",
        {
            **{"TARGETPLATFORM": "linux/arm64", "TARGETARCH": "arm64", "TARGETVARIANT": ""},
            **{"BUILDPLATFORM": "linux/amd64", "BUILDARCH": "amd64", "TARGETOS": "linux"},
        },
    ),
    "a platform with a default": ("ARG TARGETARCH=x\nRUN x", {"TARGETARCH": "x"}),
    "the target": ("ARG TARGETSTAGE\nRUN x", {"TARGETSTAGE": "default"}),
}


@each_row("name", VARIABLES)
def test_plan_commands_see_arguments(name: str) -> None:
    text, variables = VARIABLES[name]
    step = runs(f"ARG top=t\nARG unused\nFROM a\n{text}", values={"g": "given", "d": "$PATH"})
    assert dict(step.environment) == {"PATH": DEFAULT_PATH, **variables}


def test_plan_arguments_of_the_build_and_of_stages() -> None:
    text = "FROM a\nARG SOURCE_DATE_EPOCH\nRUN b"
    assert dict(runs(text, epoch=7).environment)["SOURCE_DATE_EPOCH"] == "7"
    assert "SOURCE_DATE_EPOCH" not in dict(runs("FROM a\nRUN b", epoch=7).environment)
    text = "FROM a AS one\nARG x=1 y=2\nENV z=$x\nFROM one\nENV y=3\nRUN b"
    assert dict(runs(text).environment) == {"PATH": DEFAULT_PATH, "x": "1", "y": "3", "z": "1"}
    assert "x" not in dict(runs("FROM a AS one\nARG x=1\nFROM a\nRUN b").environment)
    values = dict.fromkeys(["top", "inner", "other", "TARGETARCH", "SOURCE_DATE_EPOCH", "BUILDKIT_INLINE_CACHE"], "x")
    assert read("ARG top\nFROM a\nARG inner", values=values).unused_arguments == ("other",)


@with_rows(
    ("FROM a", ("docker", "a", None, "")),
    ("FROM scratch", ("scratch", "scratch", None, "")),
    ("ARG v=1\nARG i=img:$v\nFROM $i", ("docker", "img:1", None, "")),
    ("ARG v\nFROM img:${v:-2}", ("docker", "img:2", None, "")),
    ("ARG g=1\nFROM $g", ("docker", "given", None, "")),
    ("FROM --platform=$BUILDPLATFORM a", ("docker", "a", None, "linux/amd64")),
    *(("FROM a AS One\nFROM one", ("stage", "one", 0, "")), ("FROM a AS one\nFROM One", ("stage", "One", 0, ""))),
    *(("FROM ctx", ("context", "ctx", None, "")), ("FROM a AS ctx", ("context", "ctx", None, ""))),
    ("FROM a AS x\nFROM b AS x\nFROM x", ("stage", "x", 1, "")),
)
def test_plan_bases(text: str, base: tuple[str, str, int | None, str]) -> None:
    read_base = read(text, values={"g": "given"}, contexts=("ctx",)).target.base
    assert (read_base.agent, read_base.reference, read_base.stage, read_base.platform) == base


def test_plan_bases_and_stages_that_do_not_matter() -> None:
    base = read("FROM --platform=$NO $NONE", keeps_undefined=True).target.base
    assert (base.reference, base.platform) == ("$NONE", "$NO")
    assert read("FROM a AS x\nCOPY --from=x a b\nFROM b").target.needs == ()
    recipe = read("FROM a AS ctx\nRUN b\nFROM ctx\nCOPY --from=ctx a b", contexts=("ctx",))
    assert recipe.stages[0].plan({}).steps == ()
    assert (recipe.target.base.stage, recipe.target.needs) == (0, (0,))


def test_plan_needs_are_bases_and_origins() -> None:
    text = (
        "FROM a AS one\nFROM b AS two\nRUN --mount=from=one,target=/x c\nFROM d\nFROM two\nCOPY --from=0 a b\n"
        "COPY --from=image:1 a b\nCOPY --from=ctx a b\nRUN --mount=type=bind,from=image:2,target=/y c\n"
    )
    recipe = read(text, contexts=("ctx",))
    assert [stage.needs for stage in recipe.stages] == [(), (0,), (), (0, 1)]
    steps = recipe.target.plan({}).steps
    assert [step.origin for step in steps if isinstance(step, step_values.CopyStep)] == [
        *(step_values.CopyOrigin(stage=0), step_values.CopyOrigin(image="image:1"), step_values.CopyOrigin(name="ctx")),
    ]


@with_rows(
    ("FROM a AS x\nCOPY --from=x a b", "D:2:13: the stage 'x' is not complete here"),
    ("FROM a\nCOPY --from=0 a b", "D:2:13: the stage '0' is not complete here"),
    ("FROM a\nCOPY --from=7 a b", "D:2:13: there is no stage 7"),
    ("FROM a\nCOPY --from=y a b\nFROM b AS y\nCOPY --from=0 a b", "D:2:13: the stage 'y' is not complete here"),
    ("FROM a\nCOPY --from=$x a b", "D:2:6: --from cannot have variables"),
    ("FROM $nothing", "D:1:6: '$nothing' is empty, so FROM names no image"),
    ("FROM --platform=$nothing a", "D:1:6: --platform=$nothing is empty"),
    ("FROM ${a", "D:1:6: FROM: "),
    ("ARG a=${b\nFROM a", "D:1:7: ARG: "),
)
def test_plan_references_that_lead_nowhere_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRecipe) as caught:
        read(text)
    assert str(caught.value).startswith(message)


@each_row(("target", "index"), [("one", 0), ("ONE", 0), ("1", 1), ("", 2)])
def test_plan_the_target_is_the_last_stage(target: str, index: int) -> None:
    assert read("FROM a AS one\nFROM b\nFROM c AS two", target=target).target.index == index


def test_plan_stages_have_names_or_numbers() -> None:
    with pytest.raises(InvalidRecipe, match="no stage 'bild'") as caught:
        read("FROM a AS build", target="bild")
    assert caught.value.hint == "did you mean 'build'?"
    text = "FROM a\nFROM b AS named\nCOPY --from=stage-0 x y\nCOPY --from=stage-1 x y\nFROM c"
    recipe = read(text, target="named")
    copies = [step for step in recipe.target.plan({}).steps if isinstance(step, step_values.CopyStep)]
    assert copies[0].origin == step_values.CopyOrigin(stage=0)
    assert copies[1].origin == step_values.CopyOrigin(image="stage-1")  # that stage has a name of its own
    assert [read(text, target=target).target.index for target in ("stage-0", "0", "stage-2", "2")] == [0, 0, 2, 2]
    with pytest.raises(InvalidRecipe, match="no stage 'other'") as caught:
        read(text, target="other")
    assert caught.value.hint == "stages: stage-0, named, stage-2"


COPIES = {
    "COPY a b /c/": {"sources": ("a", "b"), "destination": "/c/"},
    "COPY a b /c/ ": {"sources": ("a", "b"), "destination": "/c/"},
    "COPY a .": {"sources": ("a",), "destination": "/w/"},
    "COPY a ./": {"sources": ("a",), "destination": "/w/"},
    "COPY a c": {"sources": ("a",), "destination": "/w/c"},
    "COPY a ../c/.": {"sources": ("a",), "destination": "/c/"},
    "COPY a /../c//d": {"sources": ("a",), "destination": "/c/d"},
    "COPY $x ${x}y": {"sources": ("1",), "destination": "/w/1y"},
    'COPY ["a b", "c d"]': {"sources": ("a b",), "destination": "/w/c d"},
    "COPY --chown=$x:2 --chmod=0755 --link --parents --exclude=$x a b": {
        **{"sources": ("a",), "destination": "/w/b", "owner": "1:2", "mode": "0755", "is_link": True},
        **{"keeps_parents": True, "excluded": ("$x",)},
    },
    "COPY --chmod=u=rwX,go-w a b": {"sources": ("a",), "destination": "/w/b", "mode": "u=rwX,go-w"},
    "COPY --from=x a b": {"sources": ("a",), "destination": "/w/b", "origin": step_values.CopyOrigin(stage=0)},
    "ADD http://a/b.tar /c": {"sources": ("http://a/b.tar",), "destination": "/c", "is_addition": True},
    "ADD --checksum=sha256:$x --unpack --keep-git-dir https://a/b /c": {
        **{"sources": ("https://a/b",), "destination": "/c", "is_addition": True, "checksum": "sha256:1"},
        **{"unpacks": True, "keeps_git": True},
    },
    "COPY <<EOF <<'RAW' /c/\na $x \"q\" \\$x ${y:-z}\nEOF\n$x\nRAW": {
        "sources": (),
        "destination": "/c/",
        "inline": (step_values.InlineFile("EOF", b'a 1 "q" $x z\n'), step_values.InlineFile("RAW", b"$x\n")),
    },
    "COPY <<-EOF c\n\t\ta\xe9\udcff\n\tEOF": {
        "sources": (),
        "destination": "/w/c",
        "inline": (step_values.InlineFile("EOF", b"a\xc3\xa9\xff\n"),),
    },
}


@each_row("text", COPIES)
def test_plan_copies(text: str) -> None:
    step = copies(text, {"WorkingDir": "/w", "Env": ["x=1"]})
    assert step == step_values.CopyStep(step.place, step.text, **COPIES[text])


@with_rows(
    *(("COPY http://a/b /c", "COPY cannot fetch"), ("COPY git@a:b.git /c", "COPY cannot fetch")),
    *(("COPY --chmod=888 a b", "not a mode"), ("COPY --chmod=77777 a b", "not a mode")),
    ("COPY --chmod=u:x a b", "not a mode"),
    ("ADD --checksum=sha256:1 a b", "--checksum is for addresses"),
    ("ADD --checksum=sha256:1 http://a http://b c", "--checksum is for one source"),
    *(('COPY "a b', "double quote"), ("EXPOSE 99999", "not a port"), ("STOPSIGNAL SIGNOTHING", "not a signal")),
    *(("VOLUME $nothing", "empty value"), ('ENV a="${b?must be set}"', "b: must be set")),
    *(("RUN --mount=type=$nothing,target=/a b", "type="), ("COPY <<EOF /a\n${b\nEOF", "not a substitution")),
)
def test_plan_values_that_cannot_be_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRecipe) as caught:
        plan(f"FROM a\n{text}")
    assert str(caught.value).startswith("D:2:")
    assert message in str(caught.value)


def test_plan_triggers_of_bases_and_stages_run_in_those_that_build_on_them() -> None:
    made = plan("FROM a\nRUN last", {"OnBuild": ["ENV a=1", "RUN first $a", "COPY <<E /x\nb $a\nE"]})
    assert made.section == {"Env": [PATH, "a=1"]}
    first, last = (step for step in made.steps if isinstance(step, step_values.RunStep))
    assert (first.argv[-1], last.argv[-1]) == ("first $a", "last")
    assert (str(first.place), first.text) == ("D:1:1", "ONBUILD RUN first $a")
    assert isinstance(made.steps[2], step_values.CopyStep)
    assert made.steps[2].inline == (step_values.InlineFile("E", b"b 1\n"),)
    text = "FROM a AS src\nFROM b AS one\nONBUILD COPY --from=src /x /y\nONBUILD RUN z\nFROM one\nENV c=1"
    recipe = read(text)
    assert [stage.needs for stage in recipe.stages] == [(), (), (0, 1)]
    made = plan(text)
    assert [type(step) for step in made.steps] == [step_values.CopyStep, step_values.RunStep, step_values.ConfigStep]
    assert "OnBuild" not in made.section
    recipe = read("FROM a AS one\nFROM b")
    with pytest.raises(InvalidRecipe, match="ONBUILD of the base image copies from the stage 'one'"):
        recipe.target.plan({"OnBuild": ["COPY --from=one /a /b"]})


@each_row("trigger", ["FROM b", "RNU a", "RUN a\nRUN b", "", "COPY a", "ENV a", "RUN <<EOF\na"])
def test_plan_wrong_triggers_of_a_base_are_refused(trigger: str) -> None:
    with pytest.raises(InvalidRecipe):
        plan("FROM a", {"OnBuild": [trigger]})


def test_plan_steps_have_their_place_and_text() -> None:
    made = plan("FROM a\n\nenv a=1\n  run b \\\n   c\n")
    assert [(str(step.place), step.text) for step in made.steps] == [("D:3:1", "ENV a=1"), ("D:4:3", "RUN b c")]
    steps = plan("FROM a\nWORKDIR /\nUSER me\nWORKDIR x\n").steps
    assert [type(step) for step in steps] == [step_values.ConfigStep, step_values.ConfigStep, step_values.DirectoryStep]
    assert steps[-1] == step_values.DirectoryStep(steps[-1].place, "WORKDIR x", "/x", "me")


def test_plan_warns_of_flags_without_effect_and_unset_variables() -> None:
    made = plan("FROM a\nRUN --security=insecure --device=nvidia.com/gpu=all b\nRUN --security=sandbox c")
    assert [warning.partition(";")[0] for warning in made.warnings] == [
        "D:2:1: --security=insecure has no effect",
        "D:2:1: --device has no effect",
    ]
    made = plan("FROM a\nARG known\nENV verson=1\nLABEL a=$version b=$known c=${other:-x}\nRUN $shell")
    assert made.warnings == (
        "D:4:1: nothing sets the variable 'version' (did you mean 'verson'?) (UndefinedVar)",
        "D:4:1: nothing sets the variable 'other' (UndefinedVar)",
    )
