# SPDX-License-Identifier: BSD-3-Clause
"""The commands of a script: words, pipes, variables, places."""

from __future__ import annotations

from kedge.builds.lint.recipe_view import ShellCommand, read_commands
from kedge.builds.step_values import RecipePlace
from tests.builders.rows import each_row, with_rows


def read(text: str) -> list[ShellCommand]:
    return read_commands(text, lambda offset: RecipePlace("a", 1, offset + 1))


@with_rows(
    ("a b && c; d || e & f", ["a b", "c", "d", "e", "f"]),
    ("a 'b c' \"d && e\" f\\ g", ["a b c d && e f g"]),
    ("a \\\n  b\nc", ["a b", "c"]),
    ("# x\na # y\n", ["a"]),
    ("if test -f a; then b; else c; fi", ["test -f a", "b", "c"]),
    ("x=$(a; b) c `d; e`", ["c `d; e`"]),
    ("cat <<EOF > x\na && b\nEOF\nc", ["cat > x", "c"]),
    ("cat <<-'EOF'\n\ta\n\tEOF\nc", ["cat", "c"]),
    *(("(cd a && b)", ["cd a", "b"]), ("a 2>&1 | b &> c", ["a 2>&1", "b &> c"]), ("sudo -E a b", ["a b"])),
    ("", []),
    ("cat <<EOF\r\na && b\r\nEOF\r\nc \\\r\n  d\r\n", ["cat", "c d"]),
    ('a "$(b "c; d")" >x 2>&1', ['a $(b "c; d") > x 2>&1']),
)
def test_commands_are_split_as_a_shell_does(text: str, commands: list[str]) -> None:
    assert [command.text for command in read(text) if command.words] == commands


def test_commands_know_what_they_read_from_variables_and_places() -> None:
    first, second = read("curl x | sh")
    assert second.source == first
    assert first.source is None
    (command,) = read("  A=1 B='2 3' sudo /usr/bin/make -j4 install > log")
    assert (command.assignments, command.program) == ((("A", "1"), ("B", "2 3")), "make")
    assert (command.arguments, command.names) == (("-j4", "install"), ("install",))
    assert (command.text, command.place.column) == ("/usr/bin/make -j4 install > log", 3)


@with_rows(("a -y", True), ("a -qyf", True), ("a --yes", True), ("a --yes=1", True), ("a y -q", False))
def test_commands_know_flags(text: str, has: bool) -> None:
    assert read(text)[0].has_flag("y", "--yes") is has


@each_row("text", ["'", '"', "$(", "`", "<<", "a <<E", "\\", "&&&&", ";;", "a 'b", 'a "b\\'])
def test_commands_broken_text_is_no_error(text: str) -> None:
    read(text)
