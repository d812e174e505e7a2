# SPDX-License-Identifier: BSD-3-Clause
"""What of the host does not reach a program in a container, how that is said, and how to let it in."""

from __future__ import annotations

import subprocess
import sys

from kedge.container.payload import has_locale, has_plain_utf8
from kedge.system.views import TableView
from tests.builders.payloads import make_host, make_image, plan
from tests.builders.rows import each_row, with_rows
from tests.requirements import REPOSITORY
from tests.wording import assert_says

GUARDED = (
    *("PYTHONPATH", "PYTHONHOME", "LD_PRELOAD", "R_LIBS_USER", "PERL5LIB", "CONDA_PREFIX", "VIRTUAL_ENV", "BASH_ENV"),
)


@each_row("name", GUARDED)
def test_leaks_guarded_variables_stay_outside(name: str) -> None:
    assert name not in plan(make_image(), {name: "/host"}).environ
    assert plan(make_image(), {name: "/host"}, keep=[name]).environ[name] == "/host"
    assert plan(make_image(), {name: "/host"}, keep=["all"]).environ[name] == "/host"
    assert plan(make_image(), {name: "/host", f"APPTAINERENV_{name}": "/mine"}).environ[name] == "/mine"
    assert plan(make_image(), {name: "/host"}, env=[f"{name}=/mine"]).environ[name] == "/mine"
    assert plan(make_image(f"{name}=/image"), {name: "/host"}).environ[name] == "/image"


def test_leaks_are_said_in_one_line_or_noted() -> None:
    payload = plan(make_image(), dict.fromkeys(("PYTHONPATH", "LD_PRELOAD", "PERL5LIB"), "/x"))
    assert len(payload.warnings) == 1
    assert "LD_PRELOAD, PERL5LIB, PYTHONPATH" in payload.warnings[0]
    assert "--keep" in payload.warnings[0]
    payload = plan(make_image(), {"BASH_ENV": "/usr/share/lmod/init/bash", "BASH_FUNC_which%%": "() { :; }"})
    assert not payload.warnings
    assert any("BASH_ENV, BASH_FUNC_which%%" in note for note in payload.notes)
    assert "BASH_FUNC_which%%" not in payload.environ
    host = {
        **{"LOADEDMODULES": "gcc", "SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0", "OMPI_MCA_btl": "tcp"},
        "LANG": "C",
    }
    payload = plan(make_image(), host)
    assert not payload.warnings
    assert {name: payload.environ[name] for name in host} == host
    assert not plan(make_image(), {"PYTHONPATH": "/x"}, cleanenv=True).warnings
    assert not plan(make_image(), {"PYTHONPATH": "/x"}, keep=["PYTHONPATH"]).warnings
    host = make_host({"PYTHONPATH": "/opt/host:src", "PERL5LIB": "src"}, view=PROJECT, cwd="/home/user/project")
    payload = plan(make_image(), host=host)
    assert_says(payload.warnings[0], "run/pythonpath-opt-host-not-passed", "PYTHONPATH")
    assert payload.environ["PERL5LIB"] == "/home/user/project/src"


@each_row("name", GUARDED)
def test_leaks_an_empty_variable_is_not_worth_a_word(name: str) -> None:
    payload = plan(make_image(), {name: ""})
    assert name not in payload.environ
    assert not payload.warnings
    assert not any(name in note for note in payload.notes)


PROJECT = TableView(
    {
        "/home/user/project/pyproject.toml": b"",
        "/home/user/project/src/pkg.py": b"",
        "/home/user/project/run": None,
        "/home/user/project/env/pyvenv.cfg": b"",
        "/home/user/modules": None,
    }
)


def see_path(value: str, *, cwd: str = "/home/user/project", **options: object) -> str:
    """PYTHONPATH in a container that is started in `cwd`."""
    host = make_host({"PYTHONPATH": value}, view=PROJECT, cwd=cwd)
    return plan(make_image(), host=host, **options).environ.get("PYTHONPATH", "")  # type: ignore[arg-type]


@with_rows(
    ("/home/user/project/src", "/home/user/project", "/home/user/project/src"),
    ("src:", "/home/user/project", "/home/user/project/src"),
    (".:../src", "/home/user/project/run", "/home/user/project/run:/home/user/project/src"),
    ("/opt/host/lib:/home/user/project/src", "/home/user/project", "/home/user/project/src"),
    ("/home/user/modules", "/home/user/project", ""),  # of another project
    ("/home/user/modules", "/home/user", ""),  # the home is no project
    ("/home/user/project/env/lib/python3.11", "/home/user/project", ""),  # the host's Python made it
    ("/home/user/project/lib/python3.11/site-packages", "/home/user/project", ""),
    ("/home/user/project-2", "/home/user/project", ""),
    ("/x", "/", ""),
)
def test_leaks_paths_in_the_current_project_pass(value: str, cwd: str, expected: str) -> None:
    assert see_path(value, cwd=cwd) == expected


def test_leaks_paths_of_the_project_that_the_container_does_not_show_stay_outside() -> None:
    own = "/home/user/project/src"
    assert see_path(own, no_home=True) == own  # the current directory is there
    assert (see_path(own, cwd="/home/user/project/run", no_home=True), see_path(own, contain=True)) == ("", "")
    assert see_path(own, contain=True, bind=["/home/user/project"]) == own
    assert see_path(own, bind=[f"/data:{own}"]) == ""


def test_leaks_user_packages_of_python() -> None:
    home = TableView({"/home/user/.local/lib/python3.11/site-packages/x.py": ""})
    with_python = make_image(more={"/usr/lib/python3.11": None})
    other_python = make_image(more={"/usr/lib/python3.12": None})
    payload = plan(with_python, host=make_host(view=home))
    assert payload.environ["PYTHONNOUSERSITE"] == "1"
    assert "python3.11" in payload.warnings[0]
    assert not plan(other_python, host=make_host(view=home)).warnings
    assert not plan(with_python, host=make_host(view=home), contain=True).warnings
    kept = plan(with_python, host=make_host(view=home), keep=["user-site"])
    assert "PYTHONNOUSERSITE" not in kept.environ
    assert not kept.warnings
    own = plan(with_python, host=make_host({"PYTHONNOUSERSITE": ""}, view=home))
    assert own.environ["PYTHONNOUSERSITE"] == ""
    assert plan(with_python, {"APPTAINERENV_PYTHONNOUSERSITE": ""}).environ["PYTHONNOUSERSITE"] == ""


def test_leaks_locales_that_the_image_lacks_become_plain_utf8() -> None:
    host = {"LANG": "de_DE.UTF-8", "LC_TIME": "fr_FR.UTF-8", "LC_ALL": "C"}
    payload = plan(make_image(), host)
    assert [payload.environ[name] for name in ("LANG", "LC_TIME", "LC_ALL")] == ["C.UTF-8", "C.UTF-8", "C"]
    assert "de_DE.UTF-8, fr_FR.UTF-8" in payload.warnings[0]
    assert plan(make_image(), host, keep=["locale"]).environ["LANG"] == "de_DE.UTF-8"
    assert plan(make_image(), {**host, "APPTAINERENV_LANG": "xx"}).environ["LANG"] == "xx"
    english = plan(make_image(), {"LANG": "en_US.UTF-8"})
    assert english.environ["LANG"] == "C.UTF-8"
    assert not english.warnings
    assert any("en_US.UTF-8" in note for note in english.notes)
    image = make_image(more={"/lib/ld-musl-x86_64.so.1": b""})
    assert plan(image, {"LANG": "de_DE.UTF-8"}).environ["LANG"] == "de_DE.UTF-8"
    old: dict[str, bytes | str | None] = {"/lib64/libc.so.6": "-> libc-2.17.so", "/lib64/libc-2.17.so": b""}
    assert not has_plain_utf8(TableView(old), [])
    assert has_plain_utf8(TableView(old), ["C.utf8"])
    assert has_plain_utf8(TableView({"/lib/x86_64-linux-gnu/libc.so.6": b""}), [])
    assert plan(make_image(more=old), {"LANG": "de_DE.UTF-8"}).environ["LANG"] == "C"


@with_rows(
    ({"/usr/lib/locale/de_DE.utf8": None}, True),
    ({"/usr/lib/locale/de_DE.UTF-8": None}, True),
    ({"/usr/lib/locale/locale-archive": b"\0xde_DE.utf8\0"}, True),
    ({"/usr/lib/locale/locale-archive": b"\0en_US.utf8\0"}, False),
    ({}, False),
)
def test_leaks_locales_are_found(entries: dict[str, bytes | None], *, expected: bool) -> None:
    view = TableView(entries)
    assert has_locale(view, "de_DE.UTF-8", view.names("/usr/lib/locale")) == expected


@each_row(("given", "expected"), [({}, "None"), ({"LC_CTYPE": "C.UTF-8"}, "C.UTF-8")])
def test_leaks_what_python_sets_for_itself_stays_outside(given: dict[str, str], expected: str) -> None:
    code = "import os; from kedge.container.facts import copy_environ; print(copy_environ(os.environ).get('LC_CTYPE'))"
    environment = {**given, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
