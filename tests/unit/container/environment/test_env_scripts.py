# SPDX-License-Identifier: BSD-3-Clause
"""Our own reader of environment scripts agrees with real shells wherever it takes a script, and else says so."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kedge.container.env_scripts import (
    Entrypoint,
    EnvironmentInputs,
    NotPlain,
    Variables,
    expand_quoted,
    is_idle_script,
    run_script,
    split_words,
)
from kedge.container.environment.action_script import make_shell_payload, uses_bash
from kedge.container.payload import make_plain_payload, run_steps
from kedge.image.formats.singularityd import fixed_files
from kedge.image.formats.singularityd.scripts import render_environment
from kedge.system.views import DirectoryView, TableView
from tests.builders.busybox import read_busybox
from tests.builders.rows import each_row, with_rows
from tests.requirements import require_program

FEW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

NAMES = st.sampled_from(["A", "B", "PATH", "LD_LIBRARY_PATH", "_x1"])
TEXT = st.text(st.sampled_from("ab c$\"'\\`{}:-+*;#~=\n\té"), max_size=12)
LITERAL = st.text(st.sampled_from("ab c:-+=/.,é%@"), max_size=8)

SHELL_OWN = {"_", "SHLVL", "OLDPWD", "PWD"}
SHELLS = ("dash", "bash", "busybox")


@functools.cache
def busybox_path() -> str:
    """The suite's busybox, as a file that can be run."""
    folder = tempfile.mkdtemp(prefix="kedge-busybox-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "busybox"
    path.write_bytes(read_busybox())
    path.chmod(0o755)
    return str(path)


def shell_words(name: str) -> list[str]:
    return [busybox_path(), "sh"] if name == "busybox" else [require_program(name)]


def run_shell(shell: str, scripts: list[str], environ: dict[str, str] | None = None) -> list[dict[str, str]]:
    """Of each script the environment of a program that a shell starts after it; one shell runs them all."""
    env = require_program("env")
    text = "\n".join(f"(\n{script}\nexec {env} -0\n) || exit 1\nprintf '\\001\\000'" for script in scripts)
    words = [*shell_words(shell), "-c", text]
    done = subprocess.run(words, env=environ or {}, capture_output=True, check=True, timeout=30)
    found = [each.split("\0")[:-1] for each in os.fsdecode(done.stdout).split("\x01\0")[:-1]]
    assert len(found) == len(scripts)
    pairs = [dict(each.split("=", 1) for each in variables) for variables in found]
    return [{name: value for name, value in each.items() if name not in SHELL_OWN} for each in pairs]


def read(script: str, view: TableView | None = None, **values: str) -> dict[str, str]:
    variables = Variables(values, set(values))
    run_script(script, variables, view)
    return variables.exports()


AGREED: list[tuple[str, dict[str, str]]] = [
    ("export A=1", {"A": "1"}),
    ("A=1; export A", {"A": "1"}),
    ("A=1\nB=2\nexport A B # both", {"A": "1", "B": "2"}),
    ("A=1", {}),
    ("export A; A=later", {"A": "later"}),
    ("export A=1 B='two words' C=\"$D\"", {"A": "1", "B": "two words", "C": ""}),
    ('export A="${A:-"v\\"al"}"', {"A": 'v"al'}),
    ('export A="${A:-"{\\"k\\": \\$v}"}"', {"A": '{"k": $v}'}),
    ('A=x\nexport A="${A:-y}" B="${NO-n}" C="${A:+z}" D="${NO:+z}"', {"A": "x", "B": "n", "C": "z", "D": ""}),
    *(("export A=a\\ b\\\n  B=c", {"A": "a b", "B": "c"}), ("export A=1\nunset A", {}), ("export A=$B:$C", {"A": ":"})),
    ("export A=5$ B=a#b", {"A": "5$", "B": "a#b"}),
    ('if [ -z "$A" ]; then export A=1; else export A=2; fi', {"A": "1"}),
    ('if test -n "$A"; then\n export A=1\nelif [ x = x ]; then\n export B=1\nelse\n export C=1\nfi', {"B": "1"}),
    ("if [ x != x ]; then\n if true; then\n  nosuch\n fi\n A=1\nfi\nexport B=1", {"B": "1"}),
    ("if [ ! a = a ]; then\n export A=1\nfi", {}),
    ('if [ -n "$A" ]; then A=1; elif [ -z "$A" ]; then export B=2; else A=3; fi', {"B": "2"}),
    ("if [ a = b ]; then\n A=1 # not; fi\n :;\nfi; export A=2", {"A": "2"}),
    *((script, {}) for script in ("", "# only a comment")),
]


@each_row("shell", SHELLS)
def test_reader_and_shell_agree_on_scripts(shell: str) -> None:
    for (script, expected), found in zip(AGREED, run_shell(shell, [script for script, _ in AGREED]), strict=True):
        assert read(script) == expected, script
        assert {name: value for name, value in found.items() if name in "ABCD"} == expected, script


@with_rows(
    *("export A=$(date)", "export A=`date`", "A=$((1+1))", "export A=$1", "A=(a b)", "A+=x", "export A={a,b}"),
    *("export A=~/x", "export -n A", "echo hi", "A=1 cmd", "set -e", "exit 1", "return", ". /etc/profile"),
    *("source /opt/x.sh", "for x in a; do :; done", "f() { :; }", "A=$RANDOM", "export A='", 'export A="', "A=a&"),
    *("if true; then A=1; fi", "if [ -d /opt ]; then A=1; fi", "case x in x) A=1;; esac", "fi", "else", "if [ a"),
    *("if [ -z a ]; then\n", "export A=${A%b}", "export A=${#A}", "export A=$'x'", "A=\\", "export A=1\0", "1A=2"),
    *("if [ -z a ]; then\n cat <<x\nfi\nx\nfi", "if [ -z a ]; then\n A='\nfi'\nfi", 'export "A=1"', "unset -f f"),
    *(*("if [ -n a ]; then\r\nA=1\r\nfi\r\n", "export A=1 && B=2", "A=1 | B=2", "umask 077"), "if [ a ]; then A=1; fi"),
)
def test_reader_leaves_to_a_shell(script: str) -> None:
    with pytest.raises(NotPlain):
        read(script, TableView({"/opt/x.sh": "A=1"}))


def test_reader_sources_scripts_of_apps_only() -> None:
    view = TableView({"/scif/apps/x/scif/env/90-environment.sh": "export A=app", "/scif/apps/x/lib": None})
    script = 'if [ -d "/scif/apps/$N/lib" ]; then . "/scif/apps/$N/scif/env/90-environment.sh"; fi'
    assert (read(script, view, N="x"), read(script, view, N="y")) == ({"A": "app", "N": "x"}, {"N": "y"})
    itself = ". /.singularity.d/env/a.sh"
    with pytest.raises(NotPlain):
        read(itself, TableView({"/.singularity.d/env/a.sh": itself}))


def test_reader_assigns_in_order_as_apptainer_does_but_not_what_a_runtime_guards() -> None:
    assert read("export A=1 B=$A") == {"A": "1", "B": "1"}
    variables = Variables({"APPTAINER_NAME": "real"}, {"APPTAINER_NAME"})
    run_script("export APPTAINER_NAME=false", variables, None)
    assert variables.exports() == {"APPTAINER_NAME": "real"}


@with_rows(
    'export A="' + "${A:-" * 9000 + "}" * 9000 + '"',
    "if [ -n '' ]; then\n" + "A=1\nelif [ -n '' ]; then\n" * 2000 + "A=1\nfi",
    *("A=" + "x" * 100_000, "A='", "export " + "A=1 " * 10_000 + "$(x)"),
    ids=["nested", "branches", "long", "open", "many"],
)
def test_reader_survives_hostile_scripts(script: str) -> None:
    with pytest.raises(NotPlain):
        read(script)


@given(st.lists(st.dictionaries(st.sampled_from("ABCD"), TEXT, max_size=4), min_size=1, max_size=12))
@FEW
def test_reader_takes_every_oci_environment(environments: list[dict[str, str]]) -> None:
    scripts = [render_environment([f"{name}={value}" for name, value in each.items()])[0] for each in environments]
    assert [read(script) for script in scripts] == environments
    for shell in ("dash", "busybox"):
        for values, found in zip(environments, run_shell(shell, scripts), strict=True):
            assert {name: found.get(name) for name in values} == values


def _lines() -> st.SearchStrategy[str]:
    quoted = st.builds(lambda text: '"' + text.replace('"', '\\"') + '"', TEXT)
    single = st.builds(lambda text: "'" + text.replace("'", "") + "'", TEXT)
    parameter = st.builds("{}{}".format, st.just("$"), NAMES)
    default = st.builds('"${{{}:-{}}}"'.format, NAMES, LITERAL)
    value = st.lists(st.one_of(quoted, single, parameter, default, st.from_regex(r"[a-z:/.\\]{0,4}", fullmatch=True)))
    joined = st.builds("".join, value)
    export = st.builds("export {}={}".format, NAMES, joined)
    assign = st.builds("{}={}; export {}".format, NAMES, joined, NAMES)
    branch = st.builds('export {}="{}"'.format, NAMES, LITERAL)
    condition = st.builds('if [ -{} "${}" ]; then {}; fi'.format, st.sampled_from("nz"), NAMES, branch)
    return st.one_of(export, assign, condition, st.builds("unset {}".format, NAMES), st.just("# it's a comment"))


def take(evaluate, texts: list[str]):
    """What our reader makes of those of the texts that it takes."""
    taken = {}
    for text in texts:
        with contextlib.suppress(NotPlain):
            taken[text] = evaluate(text)
    return taken


@given(st.lists(st.lists(_lines(), max_size=6).map("\n".join), min_size=1, max_size=12))
@FEW
def test_reader_agrees_with_a_shell_on_whatever_it_takes(texts: list[str]) -> None:
    taken = take(read, ["unset PS1 PATH\n" + text for text in texts])
    for shell in ("dash", "busybox"):
        for expected, found in zip(taken.values(), run_shell(shell, list(taken)), strict=True):
            if "PATH" not in expected:
                found.pop("PATH", None)  # busybox exports it, whatever one does
            assert found == expected


@given(st.lists(TEXT, min_size=1, max_size=12))
@FEW
def test_quoted_values_agree_with_a_shell(texts: list[str]) -> None:
    values = {"a": "1", "ab": "two words", "c": ""}
    taken = take(lambda text: expand_quoted(text, values.get), texts)
    scripts = ['A="' + text.replace('"', '\\"') + '"\nexport A' for text in taken]
    for shell in SHELLS:
        assert [found["A"] for found in run_shell(shell, scripts, values)] == list(taken.values())


@given(st.lists(st.text(st.sampled_from("ab $\"'\\x"), max_size=14), min_size=1, max_size=12))
@FEW
def test_words_agree_with_a_shell(texts: list[str]) -> None:
    values = {"a": "one", "b": "two words"}
    taken = take(lambda text: split_words(text, values.get), texts)
    scripts = [f'set -- {text}\nA=$#; for word in "$@"; do A="$A:$word"; done; export A' for text in taken]
    for shell in SHELLS:
        found = [each["A"] for each in run_shell(shell, scripts, values)]
        assert found == [":".join([str(len(words)), *words]) for words in taken.values()]


HOST_NAMES = st.sampled_from(["A", "B", "FOO", "PS1", "HOSTNAME", "SHELL", "TERM", "LC_ALL", "PROMPT_COMMAND"])
HOST_TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=()), max_size=20).filter(
    lambda text: text.encode(errors="surrogatepass").decode(errors="replace") == text or text.isascii()
)


@given(
    script=st.lists(st.builds("export {}='{}'".format, NAMES, LITERAL) | st.just("B="), max_size=3),
    asked=st.dictionaries(
        st.sampled_from(["A", "Q", "SING_USER_DEFINED_PREPEND_PATH", "SING_USER_DEFINED_PATH", "LD_LIBRARY_PATH"]),
        st.one_of(LITERAL, st.sampled_from(["$A:x", "${NO:-d}", "\\$x", 'q"q'])),
        max_size=3,
    ),
    host=st.dictionaries(HOST_NAMES, HOST_TEXT, max_size=4),
    is_literal=st.booleans(),
    folders=st.sampled_from(["", "/lib:/usr/lib"]),
)
@FEW
def test_both_evaluators_give_the_same_environment(tmp_path, *, script, asked, host, is_literal, folders) -> None:
    path, base = tmp_path / "90-environment.sh", tmp_path / "99-base.sh"
    path.write_text("\n".join(script) + "\n")
    base.write_text(fixed_files.ENVIRONMENT["99-base.sh"])

    def make() -> EnvironmentInputs:
        made = EnvironmentInputs()
        made.steps = [("default-path", ""), ("script", str(path)), ("repair-path", ""), ("script", str(base))]
        made.steps += [("requests", ""), ("finish", "")]
        made.requests, made.is_literal, made.library_path = dict(asked), is_literal, folders
        made.restored = {name: value for name, value in host.items() if name not in asked}
        made.restored |= {"APPTAINER_NAME": "i", "APPTAINER_CONTAINER": "/i"}
        made.variables.assign("HOME", "/home/user", is_exported=True)
        return made

    plain = make()
    assert run_steps(plain, DirectoryView("/")) == len(plain.steps)
    expected = make_plain_payload(plain, Entrypoint(["env"])).environ
    payload = make_shell_payload(make(), 0, Entrypoint([require_program("env"), "-0"]), DirectoryView("/"), "exec")
    for shell in SHELLS:
        words = [*shell_words(shell), *payload.argv[1:]]
        done = subprocess.run(words, env=payload.environ, capture_output=True, check=True, timeout=30)
        found = dict(each.split("=", 1) for each in os.fsdecode(done.stdout).split("\0")[:-1])
        assert not done.stderr
        differing = {name for name in {*found, *expected} - SHELL_OWN if found.get(name) != expected.get(name)}
        assert not differing


def test_quoted_values_that_nest_too_deeply_are_left_to_a_shell() -> None:
    deep = "${A:-" * 9000 + "}" * 9000
    values = {"B": "1"}
    with pytest.raises(NotPlain):
        expand_quoted(deep, values.get)
    with pytest.raises(NotPlain):
        split_words(f'"{deep}"', values.get)


def test_scripts_of_bash_and_of_apps_are_known() -> None:
    for script in ("[[ a ]]", "source x", "A+=b", "a=(1 2)", "function f { :; }"):
        assert uses_bash(f"#!/bin/sh\n{script}\n")
    assert not uses_bash("#!/bin/sh\n# source it with [[ ]]\nexport A=http://x\n")
    text = fixed_files.ENVIRONMENT["95-apps.sh"]
    assert is_idle_script(text, Variables()), "note its size and hash in env_scripts"
    assert not is_idle_script(text, Variables({"SINGULARITY_APPNAME": "one"}))
    assert not is_idle_script(text.replace("/scif", "/Scif"), Variables())
    assert read(text, A="1") == read("", A="1")
