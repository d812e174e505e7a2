# SPDX-License-Identifier: BSD-3-Clause
"""Commands of a shell as a recipe: what succeeded, without what only looks, and with answers for those who ask."""

from __future__ import annotations

from kedge.builds.commit import (
    TypedCommand,
    read_typed_commands,
    render_typed_definition,
    render_typed_dockerfile,
    select_commands,
)
from kedge.builds.read_recipe import read_recipe
from tests.builders.rows import each_row, with_rows

HEADER = [("Bootstrap", "docker"), ("From", "ubuntu:22.04")]


def select(*texts: str) -> list[str]:
    return select_commands([TypedCommand(0, "/", text) for text in texts])


def test_typed_records_are_read_and_failed_commands_left_out() -> None:
    data = b"0\t/root\tpip install x\0001\t/\tfalse\0garbage\0\t\t\0000\t/\tcat <<E\n\ta\nE\0"
    assert read_typed_commands(data) == [
        TypedCommand(0, "/root", "pip install x"),
        TypedCommand(1, "/", "false"),
        TypedCommand(0, "/", "cat <<E\n\ta\nE"),
    ]
    assert select_commands([TypedCommand(127, "/", "make"), TypedCommand(0, "/", "make install")]) == ["make install"]


@each_row("text", ["ls -l", "cat /etc/os-release", "pwd", "exit", "pip list", "nvidia-smi", "# note", "echo $PATH"])
def test_typed_looks_are_left_out(text: str) -> None:
    assert select(text) == []


@each_row("text", ["echo a > /b", "cat a | tee b", "ls; make", "pip install list", "cd /opt", "find . -x && make"])
def test_typed_changes_are_kept(text: str) -> None:
    assert select(text) == [text]


@with_rows(
    ("apt install gcc", "apt install -y gcc"),
    ("DEBIAN_FRONTEND=x apt-get -q install gcc", "DEBIAN_FRONTEND=x apt-get -q install -y gcc"),
    ("apt-get install -y gcc", "apt-get install -y gcc"),
    ("apt-get -y install gcc", "apt-get -y install gcc"),
    *(("apt install gcc -qy", "apt install gcc -qy"), ("conda install numpy", "conda install -y numpy")),
    *(("dnf install gcc", "dnf install -y gcc"), ("apt update", "apt update"), ("pip install y", "pip install y")),
)
def test_typed_installers_that_asked_get_an_answer(typed: str, written: str) -> None:
    assert select(typed) == [written]


def test_typed_commands_become_recipes() -> None:
    text = render_typed_definition(HEADER, ["cd /opt", "cat > x <<E\na\nE"])
    assert text == "Bootstrap: docker\nFrom: ubuntu:22.04\n\n%post\n    cd /opt\ncat > x <<E\na\nE\n"
    assert read_recipe(text.encode(), "a.def").target.base.reference == "ubuntu:22.04"
    text = render_typed_dockerfile("ubuntu:22.04", ["cd /opt", "make"])
    assert text == "FROM ubuntu:22.04\nRUN <<'END'\nset -e\ncd /opt\nmake\nEND\n"
    assert read_recipe(text.encode(), "Dockerfile").target.base.reference == "ubuntu:22.04"
    assert "END_OF_COMMANDS" in render_typed_dockerfile("a", ["cat <<END\nx\nEND"])
    text = render_typed_definition(HEADER, select("apt install gcc"))
    assert "apt install -y gcc" in text
