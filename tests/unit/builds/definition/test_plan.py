# SPDX-License-Identifier: BSD-3-Clause
"""A definition file becomes steps in Apptainer's order; its files meet those of the base: kept, replaced, merged."""

from __future__ import annotations

import json

import pytest

from kedge.builds import step_values
from kedge.builds.definition.metadata import write_foundation
from kedge.builds.definition.plan import make_recipe
from kedge.builds.definition.settle_files import settle_files
from kedge.builds.step_values import RecipePlace, TreeFile, WriteFilesStep
from kedge.errors import InvalidRecipe
from tests.builders.rows import each_row, with_rows

HEADER = "Bootstrap: docker\nFrom: debian:12\n"
EVERYTHING = """%test
test
%runscript
run
%post
post
%files
here /there
%files from one
/a b
%setup
setup
%pre
pre
%appfiles app
x
%appinstall app
install
"""


def plan(text: str, section=None, **arguments) -> tuple[step_values.Step, ...]:
    recipe = make_recipe(text, "x.def", step_values.BuildArguments(**arguments))
    return recipe.target.plan(section or {}).steps


def find_run(steps: tuple[step_values.Step, ...], section: str = "post") -> step_values.RunStep:
    (step,) = [step for step in steps if isinstance(step, step_values.RunStep) and step.section == section]
    return step


def find_files(steps: tuple[step_values.Step, ...]) -> dict[str, step_values.TreeFile]:
    return {file.path: file for step in steps if isinstance(step, step_values.WriteFilesStep) for file in step.files}


def test_plan_order_is_apptainers_and_each_stage_its_own() -> None:
    steps = plan(HEADER + "Stage: one\n" + HEADER + EVERYTHING)
    assert [step.text for step in steps] == [
        *("%pre", "prepare /.singularity.d", "write the files of the apps", "%appfiles app: x"),
        *("%files from one: /a b", "%setup", "%files: here /there", "%post", "write labels, environment and scripts"),
        "%test",
    ]
    assert str(steps[4].place) == "x.def:15:1"
    first = HEADER + "Stage: one\n%post\nmake\n"
    plans = [make_recipe(first + HEADER + last, "x.def").stages[0].plan({}) for last in ("", "%post\nx\n")]
    assert plans[0] == plans[1]
    assert [step.text for step in plans[0].steps] == ["prepare /.singularity.d", "%post"]
    tested = make_recipe(first + "%test\nt\n" + HEADER, "x.def").stages[0].plan({}).steps
    assert [step.text for step in tested][2:] == ["write labels, environment and scripts", "%test"]


def test_plan_base_stages_and_copies() -> None:
    text = "BootStrap: yum\nOSVersion: 7\nMirrorURL: u\nInclude: yum\nStage: one\n" + HEADER + "%files from one\n/a\n"
    first, second = make_recipe(text, "x.def").stages
    assert (first.name, first.base.agent, first.base.reference) == ("one", "yum", "")
    assert {key: word.text for key, word in first.base.fields.items()} == {
        "osversion": "7",
        "mirrorurl": "u",
        "include": "yum",
    }
    assert (second.base.agent, second.base.reference, str(second.base.place)) == ("docker", "debian:12", "x.def:7:1")
    assert (first.needs, second.needs) == ((), (0,))
    steps = plan(HEADER + "Stage: one\n" + HEADER + '%files from one # c\n/a\n%files\nx y\n"a b" /c/\n*.py\n')
    copies = [step for step in steps if isinstance(step, step_values.CopyStep)]
    shown = [(step.sources[0], step.destination, step.origin.stage, step.is_definition) for step in copies]
    assert shown == [("/a", "", 0, True), ("x", "/y", None, True), ("a b", "/c/", None, True), ("*.py", "", None, True)]


@with_rows(
    ("", ("-ex", "SCRIPT")),
    ("-u # why", ("-ex", "-u", "SCRIPT")),
    ("-c /bin/bash", ("-ex", "-c", "/bin/bash SCRIPT")),
    ("-u -c bash  -l", ("-ex", "-u", "-c", "bash -l SCRIPT")),
)
def test_plan_interpreter_of_scripts(arguments: str, argv: tuple[str, ...]) -> None:
    steps = plan(f"{HEADER}%post {arguments}\nmake\n%setup {arguments}\nmake\n")
    post = find_run(steps)
    assert post.argv[-len(argv) - 1 :] == ("/bin/sh", *(word.replace("SCRIPT", "/.post.script") for word in argv))
    assert (post.script.name, post.script.data) == ("/.post.script", b"make\n")
    (setup,) = [step for step in steps if isinstance(step, step_values.HostScriptStep)]
    assert setup.argv == ("/bin/sh", *(word.replace("SCRIPT", step_values.SCRIPT_PATH) for word in argv))
    assert setup.script == b"make\n"


def test_plan_variables_of_post() -> None:
    section = {"Env": ["PATH=/opt/bin:/bin", "A=b=c"]}
    step = find_run(plan(HEADER + "%post\nx\n", section, environment={"https_proxy": "p"}))
    variables = dict(step.environment)
    assert step.proxies == (("https_proxy", "p"),)
    assert variables["PATH"] == "/opt/bin:/bin"
    assert (variables["A"], variables["HOME"]) == ("b=c", "/root")
    for tool in ("APPTAINER", "SINGULARITY"):
        assert variables[f"{tool}_ENVIRONMENT"] == "/.singularity.d/env/91-environment.sh"
        assert variables[f"{tool}_LABELS"] == "/.build.labels"
    assert not any(name.endswith("_ROOTFS") for name in variables)


def test_plan_metadata_files() -> None:
    text = (
        HEADER
        + "%runscript -e # c\n  #!/bin/bash\nrun\n%test\ntest\n%help\nhelp\n%environment\nexport A=b\n%labels\nC d\n"
    )
    files = find_files(plan("# left out\n" + text, {"Cmd": ["bash"], "Env": ["X=y"]}, target_platform="linux/arm64"))
    shown = {path.removeprefix("/.singularity.d/"): file for path, file in files.items()}
    assert shown["runscript"].data == b"#!/bin/bash -e \n\nrun\n\n"
    assert (shown["test"].data, shown["runscript.help"].data) == (b"#!/bin/sh\n\ntest\n\n", b"help\n\n")
    assert shown["Singularity"].data == text.encode()
    assert (shown["env/90-environment.sh"].data, shown["env/90-environment.sh"].way) == (b"\nexport A=b\n\n", "append")
    assert b"X=" in shown["env/10-docker2singularity.sh"].data
    assert {name: oct(shown[name].mode) for name in ("runscript", "runscript.help", "labels.json")} == {
        "runscript": "0o755",
        "runscript.help": "0o644",
        "labels.json": "0o644",
    }
    assert b'"org.label-schema.build-arch": "arm64"' in shown["labels.json"].data
    assert b'"org.label-schema.usage.singularity.deffile.from": "debian:12"' in shown["labels.json"].data
    steps = plan("Bootstrap: localimage\nFrom: a.sif\n")
    foundation = steps[0]
    assert {file.way for file in foundation.files} == {"keep"}


@each_row(("section", "runs"), [({"Env": ["A=b"]}, True), ({"Cmd": ["ls"]}, True), ({}, False)])
def test_plan_images_of_registries_run_their_arguments(section, runs: bool) -> None:
    step = write_foundation(step_values.RecipePlace("a.def", 1), section, keeps=False)
    (script,) = (file.data.decode() for file in step.files if file.path.endswith("/runscript"))
    assert ('exec "$@"' in script) is runs


def test_plan_apps() -> None:
    text = (
        HEADER
        + "%post\nX=1\n%appenv my-app\nexport A=b\n%apprun my-app\nrun\n"
        + "%applabels my-app\nC d\n%appinstall my-app\nmake\n"
    )
    steps = plan(text)
    files = find_files(steps)
    meta = "/scif/apps/my-app/scif"
    assert files[f"{meta}/runscript"].data == b"#!/bin/sh\n\nrun\n\n"
    assert files[f"{meta}/labels.json"].data == b'{\n\t"C": "d",\n\t"SCIF_APP_NAME": "my-app"\n}'
    assert b"SCIF_APPROOT_my_app=/scif/apps/my_app\n" in files["/.singularity.d/env/94-appsbase.sh"].data
    script = find_run(steps).script
    assert script.data.startswith(
        b"X=1\n\ncd /\n. /scif/apps/my-app/scif/env/01-base.sh\n\ncd /scif/apps/my-app\nmake\n"
    )


def test_plan_config_updates_and_arguments() -> None:
    text = HEADER + "%environment\nexport A=b\nexport C=$(date)\n%runscript\nrun\n%labels\nD e\n"
    section = make_recipe(text, "x.def").target.plan({"Env": ["P=q"], "Cmd": ["x"], "WorkingDir": "/w"}).section
    assert section["Env"] == ["P=q", "A=b"]
    assert section["Entrypoint"] == ["/bin/sh", "-c", "#!/bin/sh\n\nrun", "runscript"]
    assert (section["Labels"], section["WorkingDir"], "Cmd" in section) == ({"D": "e"}, "/w", False)
    text = HEADER + "%environment\nexport A=b\n%runscript\nrun\n%labels\nD e\n"
    recipe = make_recipe(text, "x.def", step_values.BuildArguments(sections=("post", "environment")))
    assert recipe.target.plan({"Cmd": ["x"]}).section == {"Cmd": ["x"], "Env": ["A=b"]}
    text = HEADER + "Stage: one\n" + HEADER + "%files from one\n/a /b\n"
    recipe = make_recipe(text, "x.def", step_values.BuildArguments(updated="/sandbox"))
    bases = [(stage.base.agent, stage.base.reference) for stage in recipe.stages]
    assert bases == [("docker", "debian:12"), ("localimage", "/sandbox")]
    labels = [file.data for file in find_files(recipe.target.plan({}).steps).values() if file.way == "labels"]
    assert not any(b"deffile.from" in data for data in labels)
    text = "Bootstrap: docker\nFrom: {{ BASE }}\n%arguments\nBASE=debian\nB=1\n%post\necho {{ B }} # {{ C }}\n"
    recipe = make_recipe(text, "x.def", step_values.BuildArguments({"BASE": "ubuntu", "C": "2"}))
    assert recipe.target.base.reference == "ubuntu"
    script = find_run(recipe.target.plan({}).steps).script
    assert script.data == b"echo 1 # {{ C }}\n"
    assert recipe.unused_arguments == ("C",)


@with_rows(
    (("none",), ["prepare /.singularity.d", "write labels, environment and scripts"]),
    (("files",), ["prepare /.singularity.d", "%files: here /there", "write labels, environment and scripts"]),
    (("test",), ["prepare /.singularity.d", "write labels, environment and scripts", "%test"]),
)
def test_plan_chosen_sections(sections: tuple[str, ...], expected: list[str]) -> None:
    text = HEADER + EVERYTHING.replace("%files from one\n/a b\n", "")
    steps = plan(text, sections=sections)
    assert [step.text for step in steps] == expected
    assert ("/.singularity.d/test" in find_files(steps)) == ("test" in sections)


def test_plan_a_stage_without_a_name_is_called_by_its_number_everywhere() -> None:
    text = HEADER + "%post\nx\n" + HEADER + "Stage: named\n%files from stage-0\na b\n" + HEADER
    (copied,) = [step for step in plan(text, target="named") if isinstance(step, step_values.CopyStep)]
    assert copied.origin.stage == 0
    indexes = [
        make_recipe(text, "x.def", step_values.BuildArguments(target=name)).target.index for name in ("stage-2", "2")
    ]
    assert indexes == [2, 2]
    with pytest.raises(InvalidRecipe, match="unknown stage 'other'") as caught:
        make_recipe(text, "x.def", step_values.BuildArguments(target="other"))
    assert caught.value.hint == "stages: stage-0, named, stage-2"


@with_rows(
    ("%post\nx\ny\n", "x.def:1:1: the stage has no header"),
    ("From: a\nBootstrap: docker\n", "x.def:1:1: the header does not start with 'Bootstrap:'"),
    (HEADER + "%post -c\nx\n", "x.def:3:1: -c of %post needs a shell"),
    (HEADER + "%files from nowhere\nx\n", "x.def:3:1: unknown stage 'nowhere'"),
    (HEADER + "%files builder\nx\n", "x.def:3:1: '%files builder' is not valid"),
    (HEADER + "%apprun  a\nx\n", "x.def:3:1: '' is not a valid app name"),
    (HEADER + "%apprun ../a\nx\n", "x.def:3:1: '../a' is not a valid app name"),
)
def test_plan_errors_name_the_place(text: str, message: str) -> None:
    with pytest.raises(InvalidRecipe) as caught:
        make_recipe(text, "x.def")
    assert caught.value.message == message
    assert caught.value.hint


PLACE = RecipePlace("x.def", 1)
LABELS = "/.singularity.d/labels.json"


def settle(tree: dict[str, bytes], *files: TreeFile) -> tuple[dict[str, bytes], tuple[str, ...]]:
    settled = settle_files(WriteFilesStep(PLACE, "", files), tree.get)
    assert {file.way for file in settled.files} <= {"write"}
    return {file.path: file.data for file in settled.files}, settled.removed


@with_rows(
    *(("write", b"old", b"new"), ("keep", b"old", None), ("keep", None, b"new"), ("append", b"old", b"oldnew")),
    ("append", None, b"new"),
)
def test_settle_one_file(way: str, old: bytes | None, expected: bytes | None) -> None:
    written, _ = settle({} if old is None else {"/a": old}, TreeFile("/a", b"new", way=way))
    assert written.get("/a") == expected


def test_settle_labels_of_base_recipe_and_post() -> None:
    tree = {LABELS: b'{"a": "base", "b": "base", "n": 1}', "/.build.labels": b"c post\nb post\nx y z\n"}
    recipe = TreeFile(LABELS, b'{"a": "recipe", "c": "recipe"}', way="labels")
    automatic = TreeFile(LABELS, b'{"x": "kedge"}', way="labels")
    written, removed = settle(tree, recipe, automatic)
    assert json.loads(written[LABELS]) == {"a": "recipe", "b": "post", "c": "post", "x": "kedge"}
    assert removed == ("/.build.labels",)


@each_row("broken", [b"", b"[", b"[1]", b"\xff", b'"a"'])
def test_settle_broken_labels_count_as_none(broken: bytes) -> None:
    written, removed = settle({LABELS: broken}, TreeFile(LABELS, b'{"a": "b"}', way="labels"))
    assert (json.loads(written[LABELS]), removed) == ({"a": "b"}, ())


def test_settle_old_definitions_go_into_history() -> None:
    path, history = "/.singularity.d/Singularity", "/.singularity.d/bootstrap_history"
    tree = {path: b"old", f"{history}/Singularity0": b"older"}
    written, _ = settle(tree, TreeFile(path, b"new", way="history"))
    assert written == {path: b"new", f"{history}/Apptainer1": b"old"}
