# SPDX-License-Identifier: BSD-3-Clause
"""Definition files are cut into stages, headers and sections by Apptainer's rules."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.builds.definition.definition import parse_stages, read_labels
from kedge.errors import InvalidRecipe
from tests.builders.matrices import EVERY
from tests.builders.rows import with_rows

HEADER = "Bootstrap: docker\nFrom: debian\n"


def refuse(text: str) -> str:
    with pytest.raises(InvalidRecipe) as caught:
        parse_stages(text, "x.def")
    return caught.value.message


def test_parse_stages_scripts_and_comments() -> None:
    (stage,) = parse_stages(HEADER + "\n%post\n    make\n%post -c /bin/bash\n    make install", "x.def")
    assert stage.header == {"bootstrap": "docker", "from": "debian"}
    assert stage.header_lines == {"bootstrap": 1, "from": 2}
    post = stage.script("post")
    assert (post.script, post.arguments, post.line) == ("    make\n    make install\n", "-c /bin/bash", 4)
    text = "# first\n\n" + HEADER + "Stage: one\n%post\n\tmake\n# second\n" + HEADER + "%post\n\tmake"
    first, second = parse_stages(text, "x.def")
    assert (first.line, second.line) == (3, 9)
    assert first.script("post").script == "\tmake\n# second\n"
    assert second.script("post").line == 11
    stages = parse_stages(HEADER + "%help\nbootstrap: docker\nFrom: other\n", "x.def")
    assert [stage.header["from"] for stage in stages] == ["debian", "other"]
    (stage,) = parse_stages("  %post\n  make\n\n", "x.def")
    assert (stage.script("post").script, stage.script("post").line) == ("  make", 1)


@with_rows(
    ("BootStrap: docker # why\n", {"bootstrap": "docker"}),
    ("  BOOTSTRAP :docker\r\n\r\n#From: x\r\n", {"bootstrap": "docker"}),
    ("bootstrap: yum\nInclude: a \\\n  b \\\n c\n", {"bootstrap": "yum", "include": "a b c"}),
    ("bootstrap: yum\nInclude: a\\n\\\n  b\n", {"bootstrap": "yum", "include": "a\nb"}),
    ("bootstrap: zypper\nOtherURL12: u\n", {"bootstrap": "zypper", "otherurl12": "u"}),
    ("bootstrap: docker\nFrom: a\nFrom: b\n", {"bootstrap": "docker", "from": "b"}),
    ("bootstrap: docker\nFrom: a \\", {"bootstrap": "docker"}),
    ("bootstrap: docker\nFrom:\n", {"bootstrap": "docker", "from": ""}),
)
def test_parse_headers(header: str, expected: dict[str, str]) -> None:
    assert parse_stages(header, "x.def")[0].header == expected


@with_rows(
    *(("a b", "a", "b"), ("  a   b  c", "a", "b"), ("a", "a", ""), ('"a b" "/c d"', "a b", "/c d")),
    *(("a\tb", "a", "b"), ("*.py /opt", "*.py", "/opt")),
    ("{{ a }}/x-{{ b }} /opt/{{c}}.d", "{{ a }}/x-{{ b }}", "/opt/{{c}}.d"),
    ("'a b' c", "'a b", "' c"),  # Apptainer knows no single quotes
    ("a # b", "a", "#"),
)
def test_parse_files(line: str, source: str, destination: str) -> None:
    (stage,) = parse_stages(f"{HEADER}%files\n\n # no\n{line}\n", "x.def")
    (transfer,) = stage.files[0].transfers
    assert (transfer.source, transfer.destination, transfer.line) == (source, destination, 6)


def test_parse_files_labels_and_apps() -> None:
    text = HEADER + "%files from a\nx\n%files\ny\n%files from a\nz\n"
    (stage,) = parse_stages(text, "x.def")
    assert [(part.arguments, [each.source for each in part.transfers]) for part in stage.files] == [
        ("from a", ["x", "z"]),
        ("", ["y"]),
    ]
    text = "\n  A  b c \n# no\nB\nC\td\n E=f\nA last"
    assert read_labels(text) == {"A": "last", "B": "", "C\td": "", "E=f": ""}
    (stage,) = parse_stages(HEADER + "%apprun b\nrun\n%appenv a\nenv\n%apprun b more\nagain\n", "x.def")
    assert stage.app_order == ("b", "a")
    assert {key: item.script for key, item in stage.custom.items()} == {"apprun b": "run\nagain\n", "appenv a": "env\n"}


@with_rows(
    *(("", "1:1", "empty"), ("# nothing\n\n", "1:1", "empty"), ("hello\n", "1:1", "no colon")),
    (HEADER + "  Foo: bar\n", "3:3", "unknown header key 'foo'"),
    (HEADER + "%configure\nx\n", "3:1", "unknown section '%configure'"),
    (HEADER + "% post\nx\n", "3:1", "is not written as Apptainer requires"),
    (HEADER + "\n\t%post\nx\n", "4:2", "is not written as Apptainer requires"),
    (HEADER + "%AppRun foo\nx\n", "3:1", "is not written as Apptainer requires"),
    (HEADER + "%apprun\nx\n", "3:1", "has no app name"),
    ("%post", "1:1", "section %post is empty"),
    (HEADER + '%files\n"\n', "4:1", "contains no file name"),
    ("Bootstrap: yum\nInclude: a \\\n\nFrom: b\n", "3:1", "the backslash in line 2 continues 'include'"),
)
def test_parse_errors_name_the_place(text: str, place: str, reason: str) -> None:
    message = refuse(text)
    assert message.startswith(f"x.def:{place}: ")
    assert reason in message


def test_parse_document_has_the_shape_of_apptainers() -> None:
    text = HEADER + "%post\nx\n%files\n%labels\nA b\n%apprun c\ny\n"
    (stage,) = parse_stages(text, "x.def")
    empty = {"args": "", "script": ""}
    assert stage.as_dict() == {
        "header": {"bootstrap": "docker", "from": "debian"},
        "imageData": {
            "metadata": None,
            "labels": {"A": "b"},
            "imageScripts": dict.fromkeys(("help", "environment", "runScript", "test", "startScript"), empty),
        },
        "buildData": {
            "files": [{"args": "", "files": None}],
            "buildScripts": dict.fromkeys(("pre", "setup", "test", "arguments"), empty)
            | {"post": {"args": "", "script": "x\n"}},
        },
        "customData": {"apprun c": "y\n"},
        "raw": stage.as_dict()["fullraw"],
        "fullraw": "Qm9vdHN0cmFwOiBkb2NrZXIKRnJvbTogZGViaWFuCiVwb3N0CngKJWZpbGVzCiVsYWJlbHMKQSBiCiVhcHBydW4gYwp5Cg==",
        "appOrder": ["c"],
    }


PIECES = st.sampled_from(
    [
        *("%post", "%files", "%apprun x", "%", "%labels\n", "%arguments\n", "Bootstrap: docker", "From: x"),
        *("\n", "\n", " ", "\t", "#", "\\", '"', "'", "{{ a }}", "\r\n", "\x85", "\udcff", "a", ":"),
    ]
)


@settings(max_examples=100, deadline=None)
@given(st.lists(PIECES, max_size=40))
def test_parse_any_text_is_read_or_refused(pieces: list[str]) -> None:
    try:
        for stage in parse_stages("".join(pieces), "x.def"):
            stage.as_dict()
    except InvalidRecipe:
        return


@EVERY
def test_parse_takes_linear_time(is_every: bool) -> None:
    size = 10_000 if is_every else 2_000
    for text in (
        HEADER + "%post\n" + "x" * 40 + "\n" * 20 * size,
        *(HEADER + "%files\n" + word * 4 * size for word in ("{{ a }}", "{{a")),
        HEADER + "%labels\n" + "A b\n" * 6 * size,
        "Bootstrap: docker\n" * size,
        HEADER + "%post\nmake some more of it\n" * 3 * size,
        HEADER + "%files\na b\n" * 3 * size,
        HEADER + "".join(f"%apprun a{number}\nx\n" for number in range(size)),
        HEADER + "Include: a\\\n" * 2 * size,
    ):
        began = time.process_time()
        parse_stages(text, "x.def")
        assert time.process_time() - began < 1 + size / 2500, text[:60]
