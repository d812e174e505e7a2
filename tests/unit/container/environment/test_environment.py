# SPDX-License-Identifier: BSD-3-Clause
"""The environment of a program in a container, in the order that Apptainer has, and that of a step."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kedge.container.env_scripts import DEFAULT_PATH, split_pairs
from kedge.container.environment.step_payload import plan_step_payload
from kedge.container.facts import Additions
from kedge.container.options import RunOptions
from kedge.container.step_options import StepOptions
from kedge.errors import FileProblem, UsageError
from kedge.system.views import TableView
from tests.builders.payloads import ENV, make_host, make_image, make_plain_image, plan
from tests.builders.rows import each_row, with_rows
from tests.requirements import REPOSITORY


def test_environment_of_a_plain_image_is_apptainers() -> None:
    payload = plan(make_image("PATH=/usr/bin:/bin", "A=1"), {"FOO": "bar", "USER": "user"})
    assert payload.environ == {
        **{"A": "1", "APPTAINER_APPNAME": "", "APPTAINER_BIND": "", "APPTAINER_COMMAND": "exec"},
        "APPTAINER_CONTAINER": "/images/thing.sif",
        "APPTAINER_ENVIRONMENT": "/.singularity.d/env/91-environment.sh",
        "APPTAINER_NAME": "thing.sif",
        "FOO": "bar",
        "HOME": "/home/user",
        "LD_LIBRARY_PATH": "/.singularity.d/libs",
        "PATH": "/usr/bin:/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin",
        "PROMPT_COMMAND": 'PS1="Apptainer> "; unset PROMPT_COMMAND',
        **{"PS1": "Apptainer> ", "PWD": "/home/user", "PYTHONNOUSERSITE": "1", "SINGULARITY_BIND": ""},
        "SINGULARITY_CONTAINER": "/images/thing.sif",
        "SINGULARITY_ENVIRONMENT": "/.singularity.d/env/91-environment.sh",
        "SINGULARITY_NAME": "thing.sif",
        "USER": "user",
        "USER_PATH": "/usr/bin:/bin:/usr/bin:/sbin:/usr/sbin:/usr/local/bin:/usr/local/sbin",
    }
    assert not payload.warnings


def test_environment_drops_host_variables_that_are_the_containers_business() -> None:
    host = {
        **{"HOME": "/x", "LD_LIBRARY_PATH": "/x", "APPTAINER_SHELL": "/x", "SINGULARITY_BIND": "", "KEDGE_STORE": "/x"},
        **{"BASH_FUNC_module%%": "() { :; }", "IFS": ":"},
    }
    environ = plan(make_image(), {**host, "LD_DEBUG": "kept", "a.b": "odd"}).environ
    assert not {"BASH_FUNC_module%%", "KEDGE_STORE", "APPTAINER_SHELL", "IFS"} & set(environ)
    assert environ["a.b"] == "odd"  # no name for a shell, but one for a program
    assert (environ["HOME"], environ["LD_LIBRARY_PATH"]) == ("/home/user", "/.singularity.d/libs")
    assert environ["LD_DEBUG"] == "kept"


@each_row("value", ["a\nb", 'it\'s "q" \\ $HOME `x`', "é€😀", "\udcff\udc80", " ", "", "%s\t\x01"])
def test_environment_carries_any_value_unchanged(value: str) -> None:
    assert plan(make_image(), {"V": value}).environ["V"] == value
    assert plan(make_image(), {"APPTAINERENV_V": value}, no_eval=True).environ["V"] == value


def test_environment_options_keep_names_outside() -> None:
    host = {
        **{"TERM": "xterm", "https_proxy": "p", "NO_PROXY": "n", "FOO": "1", "LANG": "de_DE.UTF-8"},
        "APPTAINERENV_Q": "7",
    }
    environ = plan(make_image("A=1"), host, cleanenv=True).environ
    assert {name: environ.get(name) for name in (*host, "Q", "A", "USER_PATH")} == {
        **{"TERM": "xterm", "https_proxy": "p", "NO_PROXY": "n", "FOO": None, "LANG": "C", "APPTAINERENV_Q": None},
        **{"Q": "7", "A": "1", "USER_PATH": None},
    }
    environ = plan(make_image(), {"A": "1", "B": "2", "C": "3"}, no_env=["A,B"]).environ
    assert ("A" in environ, "B" in environ, environ["C"]) == (False, False, "3")


def test_environment_precedence_of_scripts_and_the_host() -> None:
    image = make_image("A=image", "B=image", "C=image", environment="export B=script C=script D=script")
    host = {**dict.fromkeys("ABCDEF", "host"), "SINGULARITYENV_C": "singularity", "SINGULARITYENV_D": "singularity"}
    host |= {"APPTAINERENV_D": "apptainer", "APPTAINERENV_E": "apptainer", "KEDGEENV_E": "kedge"}
    environ = plan(image, host).environ
    assert [environ[name] for name in "ABCDEF"] == ["image", "script", "singularity", "apptainer", "kedge", "host"]
    environ = plan(
        make_image(environment='export A="${FOO:-default}" B="$HOME:$APPTAINER_NAME"'), {"FOO": "host"}
    ).environ
    assert (environ["A"], environ["B"], environ["FOO"]) == ("default", "/home/user:thing.sif", "host")
    environ = plan(make_image(environment="export A= B=\nC=hidden"), {"A": "host", "C": "host"}).environ
    assert "A" not in environ  # the host had it, the image emptied it
    assert environ["B"] == ""  # only the image knows it
    assert "C" not in environ  # set without export hides the host's


def test_environment_requests_are_evaluated_once() -> None:
    host = {"APPTAINERENV_A": '$PATH:$HOME "q" \\$x \\n ${NO:-d}', "FOO": "host", "APPTAINERENV_B": "$FOO"}
    environ = plan(make_image("PATH=/p"), host).environ
    assert environ["A"] == f'/p:{DEFAULT_PATH}:/home/user "q" $x \\n d'
    assert environ["B"] == ""  # host variables come later
    assert plan(make_image(), {"APPTAINERENV_A": "$HOME"}, no_eval=True).environ["A"] == "$HOME"
    environ = plan(make_image(), no_eval=True).environ
    assert (environ["APPTAINER_NO_EVAL"], environ["SINGULARITY_NO_EVAL"]) == ("1", "1")


@with_rows(
    ({"PREPEND_PATH": "/pre", "APPEND_PATH": "/post"}, f"/pre:{DEFAULT_PATH}:/post"),
    ({"PATH": "/only", "PREPEND_PATH": "/pre"}, "/only"),
    ({"PATH": "/x:$PATH"}, f"/x:{DEFAULT_PATH}"),
)
def test_environment_path_requests(asked: dict[str, str], expected: str) -> None:
    payload = plan(make_image(), {f"APPTAINERENV_{name}": value for name, value in asked.items()})
    assert (payload.environ["PATH"], payload.search) == (expected, expected.split(":"))
    assert not [name for name in payload.environ if "USER_DEFINED" in name or "PREPEND" in name]


def test_environment_requests_for_libraries_and_odd_names() -> None:
    assert (
        plan(make_image(), {"APPTAINERENV_LD_LIBRARY_PATH": "/l"}).environ["LD_LIBRARY_PATH"]
        == "/l:/.singularity.d/libs"
    )
    assert plan(make_image(), {"APPTAINERENV_LD_LIBRARY_PATH": ""}).environ["LD_LIBRARY_PATH"] == ""
    host = {"APPTAINERENV_PREPEND_LD_LIBRARY_PATH": "/a", "APPTAINERENV_APPEND_LD_LIBRARY_PATH": "/z"}
    assert plan(make_image(), host).environ["LD_LIBRARY_PATH"] == "/a:/.singularity.d/libs:/z"
    host = {"APPTAINERENV_HOME": "/q", "APPTAINERENV_A B": "x", "APPTAINERENV_UID": "4", "SINGULARITYENV_C": "c"}
    payload = plan(make_image(), host)
    assert (payload.environ["HOME"], payload.environ["C"]) == ("/home/user", "c")
    assert "UID" not in payload.environ
    assert [("HOME" in text, "--home" in text) for text in payload.warnings] == [(True, True), (False, False)]
    assert "'A B'" in payload.warnings[1]


def test_environment_driver_libraries_come_after_the_images() -> None:
    more = {
        "/etc/ld.so.conf": "include ld.so.conf.d/*.conf\n",
        "/etc/ld.so.conf.d/b.conf": "# multiarch\n/usr/lib/x86_64-linux-gnu\n/missing\n",
        "/etc/ld.so.conf.d/a.conf": "/opt/lib\n",
        "/opt/lib/x": "",
        "/usr/lib/x86_64-linux-gnu/y": "",
        "/lib": "-> usr/lib",
    }
    additions = Additions()
    additions.libraries = [("/usr/lib/libcuda.so.1", "libcuda.so.1"), ("/usr/lib/libdrm.so.2", "libdrm.so.2")]
    additions.variables = {"NVIDIA_X": "1"}
    environ = plan(make_image(more=more), additions=additions).environ
    assert environ["LD_LIBRARY_PATH"] == "/.singularity.d/libs", "what a program's RUNPATH names goes before the rest"
    both = make_image(more={**more, "/usr/lib/x86_64-linux-gnu/libdrm.so.2": ""})
    found = plan(both, additions=additions).environ["LD_LIBRARY_PATH"]
    assert found == "/usr/lib/x86_64-linux-gnu:/.singularity.d/libs", "the image has a library of that name itself"
    assert environ["NVIDIA_X"] == "1"
    own = make_image("LD_LIBRARY_PATH=/usr/local/nvidia/lib", more=more)
    assert plan(own, additions=additions).environ["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib:/.singularity.d/libs"
    additions.prepend_library_path = ["/usr/local/cuda/compat"]
    assert (
        plan(own, additions=additions).environ["LD_LIBRARY_PATH"].startswith("/usr/local/cuda/compat:/usr/local/nvidia")
    )
    asked = plan(own, {"APPTAINERENV_NVIDIA_X": "mine"}, additions=additions).environ
    assert asked["NVIDIA_X"] == "mine"
    additions = Additions()
    additions.libraries = [("/x", "libcuda.so.1")]
    image = make_plain_image({"/bin/sh": "", "/etc/ld.so.cache": "x", "/usr/lib": None})
    assert plan(image, additions=additions).environ["LD_LIBRARY_PATH"] == "/.singularity.d/libs"
    assert "LD_LIBRARY_PATH" not in plan(make_plain_image({"/bin/sh": ""})).environ


@with_rows(
    *(("A=1,B=2", {"A": "1", "B": "2"}), ("A=1,2", {"A": "1,2"}), ('"A=1,2",B=3', {"A": "1,2", "B": "3"})),
    ('"A=a ""b""",B=3', {"A": 'a "b"', "B": "3"}),
    *(("A=x=y", {"A": "x=y"}), ("A=", {"A": ""}), ("=v", {}), ('A="1,2"', {"A": '"1,2'})),
)
def test_environment_env_flag_is_split_as_by_apptainer(text: str, expected: dict[str, str]) -> None:
    assert split_pairs(text) == expected


@each_row("text", ["A", "A=1,B,C=2", '"A=1"x,B=2', '"A=1,B=2'])
def test_environment_env_flag_that_makes_no_sense_is_an_error(text: str) -> None:
    with pytest.raises(UsageError):
        split_pairs(text)


def test_environment_files_are_evaluated_and_env_wins() -> None:
    view = TableView(
        {
            "/data/one": '# comment\nA=plain\nexport B="quo ted $A"\nC=\'sin\'"$HOSTV"\nHOME=/x\nD=one\n',
            "/data/two": 'D=two\nif [ -n "$HOSTV" ]; then E=yes; fi\n',
        }
    )
    host = make_host({"HOSTV": "hv", "A": "host", "APPTAINERENV_D": "variable"}, view=view, cwd="/data")
    environ = plan(make_image(), host=host, env_file=["one,two"], env=["C=wins"]).environ
    assert {name: environ[name] for name in ("A", "B", "C", "D", "E", "HOME")} == {
        **{"A": "plain", "B": "quo ted plain", "C": "wins", "D": "two", "E": "yes", "HOME": "/home/user"}
    }


@each_row("text", ["A=hello world\n", "A=$(date)\n", "ls /\n"])
def test_environment_files_run_nothing(text: str) -> None:
    host = make_host(view=TableView({"/f": text}))
    with pytest.raises(UsageError, match="is not NAME=VALUE"):
        plan(make_image(), host=host, env_file=["/f"])


def test_environment_file_must_be_there_and_may_be_a_pipe_of_the_shell(tmp_path) -> None:
    with pytest.raises(FileProblem, match="/no/such"):
        plan(make_image(), env_file=["/no/such"])
    path = tmp_path / "vars"
    path.write_text("A=piped\n")
    with path.open("rb") as stream:
        payload = plan(make_image(), env_file=[f"/dev/fd/{stream.fileno()}"])
    assert payload.environ["A"] == "piped"


@each_row("path", ["/dev/fd/987", "/proc/self/fd/987", f"/dev/fd/{10**30}"])
def test_environment_file_that_somebody_closed_is_said_to_be(path: str) -> None:
    with pytest.raises(FileProblem, match="is not open for reading") as problem:
        plan(make_image(), env_file=[path])
    assert "closes what <(command) opens" in str(problem.value.hint)


def test_environment_names_binds_and_instances() -> None:
    environ = plan(make_image(), bind=["/data:/mnt,/scratch"]).environ
    assert environ["APPTAINER_BIND"] == environ["SINGULARITY_BIND"] == "/mnt,/scratch"
    environ = plan(make_image(environment="export A=$APPTAINER_INSTANCE"), verb="start", instance="web").environ
    assert [environ[name] for name in ("APPTAINER_INSTANCE", "SINGULARITY_INSTANCE", "A")] == ["web", "web", "web"]


def test_environment_home_and_folder_of_images_new_and_old() -> None:
    old = make_plain_image({"/environment": "export OLD=yes\nPATH=/old:$PATH\n", "/bin/sh": ""})
    environ = plan(old, {"APPTAINERENV_A": "1"}).environ
    assert (environ["OLD"], environ["PATH"], environ["A"]) == ("yes", f"/old::{DEFAULT_PATH}", "1")
    plain = plan(make_plain_image({"/bin/sh": ""}), {"APPTAINERENV_A": "1"}).environ
    assert (plain["PATH"], plain["A"], plain["PS1"]) == (DEFAULT_PATH, "1", "Apptainer> ")
    assert plan(make_image(), fakeroot=True).environ["HOME"] == "/root"
    assert plan(make_image(), home="/a:/b").environ["HOME"] == "/b"
    assert plan(make_image(), home="/a", fakeroot=True).environ["HOME"] == "/a"
    assert plan(make_image(), pwd="/work").environ["PWD"] == "/work"
    assert plan(make_image(), contain=True).environ["PWD"] == "/home/user"


def test_environment_apps_have_their_own() -> None:
    more: dict[str, bytes | str | None] = {
        "/scif/apps/foo/bin": None,
        "/scif/apps/foo/lib": None,
        "/scif/apps/foo/scif/env/01-base.sh": "export SCIF_APPNAME=foo\n",
        "/scif/apps/foo/scif/env/90-environment.sh": "export APPVAR=yes\n",
    }
    more[ENV + "95-apps.sh"] = make_image().view.read(ENV + "95-apps.sh")
    payload = plan(make_image(more=more), app="foo")
    assert payload.argv[0] == "/bin/sh"
    assert any("95-apps.sh needs a shell" in note for note in payload.notes)


def test_environment_scripts_that_need_a_shell_get_the_images() -> None:
    payload = plan(make_image(environment="export A=$(date)"), {"SECRET": "s3cret"}, "prog", "arg")
    assert (payload.argv[0], payload.argv[-3:]) == ("/bin/sh", ["/.singularity.d/actions/exec", "prog", "arg"])
    assert not any("s3cret" in word or "date" in word for word in payload.argv)
    assert {name for name in payload.environ if not name.startswith("KEDGE_ACTION_")} == {"HOME", "PWD"}
    assert any("90-environment.sh needs a shell" in note for note in payload.notes)
    bash = plan(make_image(environment="[[ -n x ]] && export A=1"))
    assert bash.argv[0] == "/bin/bash"
    only_sh = plan(make_image(environment="source /opt/x", shells=("/bin/sh",)))
    assert only_sh.argv[0] == "/bin/sh"
    image = make_image("A=1", environment="export B=$(date)", shells=())
    payload = plan(image, {"APPTAINERENV_C": "$(date)"})
    assert payload.argv == ["env"]
    assert (payload.environ["A"], payload.environ["C"], "B" in payload.environ) == ("1", "$(date)", False)
    assert any("90-environment.sh is skipped" in text for text in payload.warnings)


def test_environment_scripts_for_a_shell_come_in_pieces_that_the_kernel_takes() -> None:
    host = {f"V{number}": "é" * 60_000 for number in range(4)}
    payload = plan(make_image(environment=": $(date)"), host)
    pieces = [name for name in payload.environ if name.startswith("KEDGE_ACTION_")]
    assert len(pieces) > 5
    assert max(len(payload.environ[name].encode()) for name in pieces) < 100_000
    done = subprocess.run(
        ["/bin/sh", "-c", payload.argv[2], "x", "/bin/sh", "-c", 'echo "${#V3}"; env | grep -c KEDGE_'],
        env={**payload.environ, "PWD": "/"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split()[0] in ("60000", "120000")  # characters or bytes, as the shell counts
    assert done.stdout.split()[1] == "0"


def test_environment_modules_are_lean() -> None:
    code = (
        "import errno, os, stat, __future__; before = set(sys.modules);"
        "from kedge.container.environment import action_script; from kedge.container import facts, payload;"
        "print(*sorted(set(sys.modules) - before))"
    )
    source = REPOSITORY / "src"
    argv = [sys.executable, "-SI", "-c", f"import sys; sys.path.insert(0, {str(source)!r}); {code}"]
    loaded = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if not name.startswith("kedge")], loaded
    assert "kedge.errors" not in loaded


IMAGE = TableView({"/etc/passwd": b"app:x:1000:50:App:/srv/app:/bin/sh\n", "/.singularity.d/env/90.sh": b"x"})


def test_step_payload_has_the_recipes_variables_and_home() -> None:
    options = RunOptions(arguments=["sh", "-c", "x"])
    payload = plan_step_payload(options, StepOptions({"environment": {"A": "$B"}, "user": "app"}), IMAGE, Additions())
    assert (payload.argv, set(payload.environ)) == (["sh", "-c", "x"], {"A", "PATH", "HOME"})
    assert (payload.environ["A"], payload.environ["HOME"]) == ("$B", "/srv/app")
    assert payload.user is not None
    assert "/usr/bin" in payload.search
    options = RunOptions(arguments=["/bin/x"])
    given = {"HOME": "/h", "PATH": "/a::/b"}
    payload = plan_step_payload(options, StepOptions({"environment": given}), IMAGE, Additions())
    assert (payload.environ, payload.user, payload.search) == (given, None, [])
    options.arguments = ["x"]
    assert plan_step_payload(options, StepOptions({"environment": given}), IMAGE, Additions()).search == [
        *("/a", ".", "/b"),
    ]


def test_step_payload_has_the_drivers_libraries() -> None:
    additions = Additions()
    additions.libraries = [("/usr/lib/libcuda.so.1", "libcuda.so.1")]
    additions.variables = {"NVIDIA_X": "1", "A": "driver"}

    def environ(**given: str) -> dict[str, str]:
        payload = plan_step_payload(RunOptions(arguments=["/x"]), StepOptions({"environment": given}), IMAGE, additions)
        return payload.environ

    assert environ()["LD_LIBRARY_PATH"] == "/.singularity.d/libs"
    assert environ(LD_LIBRARY_PATH="/a:/b")["LD_LIBRARY_PATH"] == "/a:/b:/.singularity.d/libs"
    assert (environ(A="recipe")["A"], environ()["NVIDIA_X"]) == ("recipe", "1")
    additions.prepend_library_path = ["/compat"]
    assert environ(LD_LIBRARY_PATH="/a")["LD_LIBRARY_PATH"] == "/compat:/a:/.singularity.d/libs"
