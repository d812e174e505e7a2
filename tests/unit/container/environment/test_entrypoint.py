# SPDX-License-Identifier: BSD-3-Clause
"""Which program each verb starts, for images of all kinds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.container.env_scripts import is_oci_script, read_workdir
from kedge.errors import CannotStart
from kedge.image.formats.singularityd.scripts import render_runscript
from kedge.system.views import TableView
from tests.builders.payloads import make_host, make_image, make_plain_image, plan
from tests.builders.rows import each_row, with_rows

WORD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
RUNSCRIPT = "/.singularity.d/runscript"

# The shape of what Singularity 3 and Apptainer write, with its three cases.
FOREIGN_RUNSCRIPT = """#!/bin/sh
OCI_ENTRYPOINT='"/bin/entry"'
OCI_CMD='"one" "it'"'"'s"'
CMDLINE_ARGS=""
# prepare
for arg in "$@"; do
    CMDLINE_ARGS="${CMDLINE_ARGS} \\"$arg\\""
done
if [ $# -gt 0 ]; then
    SINGULARITY_OCI_RUN="${OCI_ENTRYPOINT} ${CMDLINE_ARGS}"
else
    SINGULARITY_OCI_RUN="${OCI_ENTRYPOINT} ${OCI_CMD}"
fi
eval "set ${SINGULARITY_OCI_RUN}"
exec "$@"
"""


@each_row(
    ("entrypoint", "command", "arguments", "expected"),
    [
        *(((), ("a", "b"), [], ["a", "b"]), ((), ("a", "b"), ["x", "y z"], ["x", "y z"])),
        *((("/e", "-f"), (), [], ["/e", "-f"]), (("/e", "-f"), (), ["x"], ["/e", "-f", "x"])),
        *((("/e",), ("a",), [], ["/e", "a"]), (("/e",), ("a",), ["x"], ["/e", "x"]), ((), (), [], ["/bin/sh"])),
        ((), (), ["ls"], ["ls"]),
    ],
)
@each_row("no_eval", [False, True])
def test_run_starts_entrypoint_and_command(entrypoint, command, arguments, expected, *, no_eval) -> None:
    image = make_image(entrypoint=entrypoint, command=command)
    payload = plan(image, verb="run", arguments=arguments, no_eval=no_eval)
    assert (payload.argv, bool(payload.search)) == (expected, "/" not in expected[0])


@settings(max_examples=40)
@given(st.lists(WORD, min_size=1, max_size=3), st.lists(WORD, max_size=3))
def test_run_gives_words_of_any_kind_unchanged(entrypoint: list[str], command: list[str]) -> None:
    image = make_image(entrypoint=tuple(entrypoint), command=tuple(command), shells=())
    assert plan(image, verb="run", arguments=[]).argv == [*entrypoint, *command]


def test_run_evaluates_words_once_unless_told_not_to() -> None:
    image = make_image("A=from image", entrypoint=("echo",), command=())
    words = ["$A", "a b", "x\\y", "\\$A", '"q"']
    assert plan(image, verb="run", arguments=words).argv == ["echo", "from image", "a b", "x\\y", "$A", "q"]
    assert plan(image, verb="run", arguments=words, no_eval=True).argv == ["echo", *words]
    payload = plan(make_image(entrypoint=("echo",)), verb="run", arguments=["$(date)"])
    assert payload.argv == [RUNSCRIPT, "$(date)"]


def test_scripts_that_read_the_config_are_understood() -> None:
    image = make_image(more={RUNSCRIPT: FOREIGN_RUNSCRIPT})
    assert plan(image, verb="run", arguments=[]).argv == ["/bin/entry", "one", "it's"]
    assert plan(image, verb="run", arguments=["x"]).argv == ["/bin/entry", "x"]
    assert is_oci_script(render_runscript(["a'b", 'c"d'], ["$e"]))


@with_rows(
    *(FOREIGN_RUNSCRIPT.replace("# prepare", "module load x"), FOREIGN_RUNSCRIPT.replace("#!/bin/sh", "#!/bin/bash")),
    *(FOREIGN_RUNSCRIPT.replace('eval "set', 'eval "set --'), '#!/bin/sh\nexec python3 "$@"\n'),
)
def test_run_starts_scripts_that_somebody_wrote(script: str) -> None:
    assert not is_oci_script(script)
    assert plan(make_image(more={RUNSCRIPT: script}), verb="run", arguments=["x"]).argv == [RUNSCRIPT, "x"]


def test_verbs_take_the_scripts_and_programs_there_are() -> None:
    payload = plan(make_plain_image({"/bin/sh": ""}), verb="run", arguments=["-c", "true"])
    assert payload.argv == ["/bin/sh", "-c", "true"]
    assert any("kedge starts /bin/sh" in note for note in payload.notes)
    config = json.dumps({"config": {"Entrypoint": ["/app"], "Cmd": ["$x"]}}).encode()
    bare = make_plain_image({}, executables=(), config=config)
    assert plan(bare, verb="run", arguments=[]).argv == ["/app", "$x"]
    assert plan(bare, verb="run", arguments=["y"]).argv == ["/app", "y"]
    with pytest.raises(CannotStart, match="has no default command"):
        plan(make_plain_image({}, executables=()), verb="run", arguments=[])
    assert plan(make_image(), verb="test", arguments=[]).argv == []
    assert plan(make_plain_image({"/bin/sh": ""}), verb="start", arguments=[]).argv == []
    tested = make_image(more={"/.singularity.d/test": "#!/bin/sh\ntrue\n"})
    assert plan(tested, verb="test", arguments=["x"]).argv == ["/.singularity.d/test", "x"]
    assert plan(make_image(), verb="start", arguments=["x"]).argv == ["/.singularity.d/startscript", "x"]
    payload = plan(make_image("PATH=/opt/bin"), None, "prog", "-x")
    assert (payload.argv, payload.search[0]) == (["prog", "-x"], "/opt/bin")
    assert plan(make_image(), None, "./prog").search == []


def test_shell_prefers_what_is_asked_for() -> None:
    image = make_image()
    payload = plan(image, verb="shell", arguments=[])
    assert (payload.argv, payload.environ["SHELL"]) == (["/bin/bash", "--norc"], "/bin/bash")
    payload = plan(make_image(shells=("/bin/sh",)), {"SHELL": "/bin/zsh"}, verb="shell", arguments=[])
    assert (payload.argv, payload.environ["SHELL"]) == (["/bin/sh"], "/bin/sh")
    payload = plan(make_image(more={"/bin/busybox": b""}), verb="shell", shell="/bin/busybox", arguments=[])
    assert (payload.argv, payload.environ["SINGULARITY_SHELL"]) == (["/bin/busybox"], "/bin/busybox")
    payload = plan(image, verb="shell", shell="/bin/zsh", arguments=[])
    assert payload.argv == ["/bin/bash", "--norc"]
    assert any("/bin/zsh" in text for text in payload.warnings)
    with pytest.raises(CannotStart, match="no shell"):
        plan(make_image(shells=()), verb="shell", arguments=[])


def test_apps_have_their_own_scripts() -> None:
    image = make_image(more={"/scif/apps/foo/scif/runscript": "#!/bin/sh\n", "/.singularity.d/env/95-apps.sh": ""})
    assert plan(image, verb="run", app="foo", arguments=["x"]).argv == ["/scif/apps/foo/scif/runscript", "x"]
    for verb in ("run", "exec", "shell", "test"):
        with pytest.raises(CannotStart, match="no app bar") as caught:
            plan(image, verb=verb, app="bar", arguments=[])
        assert "foo" in str(caught.value.hint)


@each_row(
    ("config", "expected"),
    [
        ({"config": {"WorkingDir": "/work space"}}, "/work space"),
        *(({"config": {"WorkingDir": '/w"q'}}, '/w"q'), ({"config": {"WorkingDir": "/"}}, "")),
        *(({"config": {"WorkingDir": ""}}, ""), ({"config": {"WorkingDir": "relative"}}, "")),
        ({"config": {"WorkingDir": "/right"}, "container_config": {"WorkingDir": "/wrong"}}, "/right"),
        ({"config": {"Labels": {"x": '"WorkingDir": "/wrong"'}}}, ""),
        ({"config": None}, ""),
        ({}, ""),
    ],
)
@each_row("indent", [None, 2])
def test_workdir_is_read_from_the_config(config: object, expected: str, indent: int | None) -> None:
    assert read_workdir(json.dumps(config, indent=indent).encode()) == expected


def test_workdir_is_honoured_by_run_only() -> None:
    assert read_workdir(b'{"WorkingDir": 1, "WorkingDir"') == ""
    assert read_workdir(b'["WorkingDir"]') == ""
    image = make_image(config=b'{"config":{"WorkingDir":"/workspace"}}')
    payload = plan(image, verb="run", arguments=[])
    assert (payload.workdir, payload.environ["PWD"]) == ("/workspace", "/workspace")
    assert any("--no-workdir" in note for note in payload.notes)
    assert plan(image, verb="exec").workdir == ""
    assert plan(image, verb="run", arguments=[], no_workdir=True).workdir == ""
    assert plan(image, verb="run", arguments=[], pwd="/x").workdir == ""


def test_workdir_hides_files_of_the_current_folder_and_that_is_said() -> None:
    image = make_image(config=b'{"config":{"WorkingDir":"/workspace"}}', more={"/workspace/there.py": ""})
    files = {"/home/user/project/train.py": b"", "/home/user/project/there.py": b""}
    host = make_host(view=TableView(files), cwd="/home/user/project")

    def warn(*arguments: str, **more: object) -> list[str]:
        return plan(image, host=host, verb="run", arguments=list(arguments), **more).warnings

    (said,) = warn("python", "train.py", "--lr", "1")
    assert "train.py is in /home/user/project" in said
    assert "--no-workdir" in said
    assert warn("python", "there.py") == warn("python", "-c", "train") == []
    assert warn("python", "train.py", no_workdir=True) == []
