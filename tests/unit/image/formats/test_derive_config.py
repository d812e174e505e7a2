# SPDX-License-Identifier: BSD-3-Clause
"""From .singularity.d back to an OCI config: exact for generated scripts, careful with hand-written ones."""

from __future__ import annotations

import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.image.formats.singularityd.derive_config import derive_section, read_oci_words
from kedge.image.formats.singularityd.inspect_report import InspectReport
from kedge.image.formats.singularityd.scripts import render_environment, render_runscript
from tests.builders.rows import each_row
from tests.requirements import require_program
from tests.wording import assert_says

TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=30)
OCI_FILE = "/.singularity.d/env/10-docker2singularity.sh"
CUSTOM_FILE = "/.singularity.d/env/90-environment.sh"


@settings(deadline=None)
@given(st.lists(TEXT, max_size=4), st.lists(TEXT, min_size=1, max_size=4))
def test_derive_entrypoint_and_command_come_back(entrypoint: list[str], command: list[str]) -> None:
    assert read_oci_words(render_runscript(entrypoint, command).rstrip("\n")) == (entrypoint, command)


@settings(deadline=None)
@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), TEXT, max_size=5))
def test_derive_environment_comes_back(values: dict[str, str]) -> None:
    entries = [f"{name}={value}" for name, value in values.items()]
    report = InspectReport(environment={OCI_FILE: render_environment(entries)[0].rstrip("\n")})
    found = derive_section(report)[0].get("Env", [])
    # trailing newlines of the whole file are not kept by a report; inside quotes they are
    assert found == entries


def test_derive_scripts_of_apptainer() -> None:
    report = InspectReport(
        environment={OCI_FILE: '#!/bin/sh\nexport PATH="/usr/bin:/bin"\nexport LANG="${LANG:-"C.UTF-8"}"\n'},
        runscript="#!/bin/sh\nOCI_ENTRYPOINT=''\nOCI_CMD='\"sh\" \"-l\"'\n\n# more\n",
    )
    assert derive_section(report)[0] == {"Env": ["PATH=/usr/bin:/bin", "LANG=C.UTF-8"], "Cmd": ["sh", "-l"]}


def test_derive_definition_file_build() -> None:
    """%environment and %runscript of a definition file: what is literal is kept, what is computed is said."""
    custom = "#!/bin/sh\nexport A=1\n  export B='two words'  # why\nexport PATH=/opt/bin:$PATH\nexport C=`date`\nD=4\n"
    script = '#!/bin/sh\n\nexec /opt/tool --flag "$@"\n'
    report = InspectReport(
        environment={CUSTOM_FILE: custom},
        runscript=script,
        labels={"Author": "me", "org.label-schema.build-date": "x", "org.label-schema.name": "kept"},
    )
    section, warnings = derive_section(report)
    assert section["Env"] == ["A=1", "B=two words"]
    assert section["Entrypoint"] == ["/bin/sh", "-c", script.rstrip("\n"), "runscript"]
    assert section["Labels"] == {"Author": "me", "org.label-schema.name": "kept"}
    assert [warning.split()[3] for warning in warnings] == ["PATH", "C"]


def test_derive_runscript_as_entrypoint_means_the_same() -> None:
    script = '#!/bin/sh\nprintf "[%s]" "$0" "$@"\n'
    words = derive_section(InspectReport(runscript=script))[0]["Entrypoint"]
    done = subprocess.run([*words, "a b", "$c"], capture_output=True, text=True, check=True)
    assert done.stdout == "[runscript][a b][$c]"
    again = render_runscript(words, [])
    shell = require_program("sh")
    done = subprocess.run([shell, "-c", again, "x", "a b", "c"], capture_output=True, text=True, check=True)
    assert done.stdout == "[runscript][a b][c]"


def test_derive_known_section_is_kept_and_overridden_only_by_hand_written_scripts() -> None:
    known = {"Env": ["A=1", "B=2"], "Cmd": ["old"], "WorkingDir": "/w", "Labels": {"l": "1"}}
    oci = InspectReport(runscript=render_runscript([], ["old"]), labels={"l": "1"})
    assert derive_section(oci, known) == (known, [])
    custom = InspectReport(environment={CUSTOM_FILE: "export B=3\n"}, runscript="echo hi\n")
    section, _ = derive_section(custom, known)
    assert section["Env"] == ["A=1", "B=3"]
    assert section["Entrypoint"] == ["/bin/sh", "-c", "echo hi", "runscript"]
    assert "Cmd" not in section


@each_row("script", ["#!/usr/bin/python3\nprint(1)\n", "#!/bin/sh\n" + "x" * 200_000])
def test_derive_runscripts_that_fit_nowhere_are_said(script: str) -> None:
    section, warnings = derive_section(InspectReport(runscript=script))
    assert "Entrypoint" not in section
    assert len(warnings) == 1


@each_row(
    "word",
    [
        *("'cost $5'", "'`id` $(id) ${HOME}'", '"a\\$b"', '"\\`x\\` \\"y\\" \\\\ \\n"', "a\\$b\\ c"),
        *("'one'\"two\"three", "a#b", "x   # '$comment'", "plain;", "", "'two\nlines $x'", '"joined \\\nlines"'),
        "{a,b}*?",
    ],
)
def test_derive_takes_constants_as_a_shell_does(word: str) -> None:
    script = f"before=1\nexport NAME={word}\nexport LAST=2\n"
    done = subprocess.run(
        ["/bin/sh", "-fc", f'{script}printf "%s" "$NAME"'], capture_output=True, text=True, check=True
    )
    section, warnings = derive_section(InspectReport(environment={CUSTOM_FILE: script}))
    assert section["Env"] == [f"NAME={done.stdout}", "LAST=2"]
    assert warnings == []


@each_row("word", ["$HOME", '"$HOME"', '"a`id`"', "`id`", "$(id)", "~/x", "a b=c", "'open", '"open', "a&", "a | b"])
def test_derive_warns_of_what_a_shell_computes(word: str) -> None:
    section, warnings = derive_section(InspectReport(environment={CUSTOM_FILE: f"export NAME={word}\n"}))
    assert "Env" not in section
    assert_says(warnings[0], "image/computed-script", "NAME")
