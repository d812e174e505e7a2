# SPDX-License-Identifier: BSD-3-Clause
"""Dockerfiles printed as definition files: one shell for all of RUN, files first, notes for the rest."""

from __future__ import annotations

from kedge.builds.definition.definition import parse_stages
from kedge.builds.definition.plan import make_recipe
from kedge.builds.recipe_files import convert_recipe
from tests.builders.rows import with_rows
from tests.wording import assert_reads


def convert(text: str):
    converted = convert_recipe(text, "Dockerfile", "dockerfile")
    make_recipe(converted.text, "x.def")
    return converted


def show(text: str) -> str:
    """The sections of the last stage."""
    return parse_stages(convert("FROM debian\n" + text).text, "x.def")[-1].raw.partition("\n\n")[2].strip("\n")


def test_to_definition_two_stages() -> None:
    text = """# syntax=docker/dockerfile:1
# top
ARG TAG=12
FROM debian:${TAG} AS builder
RUN make
# second
FROM debian:$TAG
COPY --from=builder /usr/local/bin/x /usr/local/bin/x
COPY --from=0 /y.txt /
COPY --from=busybox:1 /bin/busybox /bin/busybox
COPY ["a b.txt", "C", "/data/"]
CMD ["x"]
"""
    assert (
        convert(text).text
        == """Bootstrap: docker
From: busybox:1
Stage: image-0

# top
Bootstrap: docker
From: debian:{{ TAG }}
Stage: builder

%arguments
    TAG=12

%post
    make

# second
Bootstrap: docker
From: debian:{{ TAG }}

%arguments
    TAG=12

%files from builder
    /usr/local/bin/x /usr/local/bin/x
    /y.txt /

%files from image-0
    /bin/busybox /bin/busybox

%files
    "a b.txt" /data/
    C /data/

%runscript
    [ "$#" -gt 0 ] || set -- x
    exec "$@"
"""
    )


@with_rows(
    ("make", "make"),
    ("a && b 'x && y' && c", "a\nb 'x && y'\nc"),
    ("a \\\n  # why\n  && b \\\n    -x", "a\nb \\\n    -x"),
    *(("a | b || true", "a | b || true"), ("cd /x && make", "(\ncd /x\nmake\n)"), ("A=1 make", "A=1 make")),
    *(("a; b", "(\nset +e\na; b\n)"), ("a && b || c", "(\na && b || c\n)")),
    ("for i in 1 2; do a; done", "(\nset +e\nfor i in 1 2; do a; done\n)"),
    ("a $(b && c) && d ${e:-f&&g}", "a $(b && c)\nd ${e:-f&&g}"),
    ("a >x 2>&1 && b", "a >x 2>&1\nb"),
    ('["a", "b c"]', "a 'b c'"),
    ("if a && b; then c; fi", "(\nset +e\nif a && b; then c; fi\n)"),
)
def test_to_definition_commands(command: str, expected: str) -> None:
    lines = show(f"RUN {command}\n").split("\n")
    assert lines[0] == "%post"
    assert "\n".join(line.removeprefix("    ") for line in lines[1:]) == expected


def test_to_definition_heredocs_archives_and_addresses() -> None:
    assert show("RUN <<EOF\nset -e\nmake\nEOF\n") == "%post\n    (\n    set -e\n    make\n    )"
    assert show("RUN cat <<EOF >x\n  a\nEOF\n") == "%post\n(\nset +e\ncat <<EOF >x\n  a\nEOF\n)"
    assert show("RUN <<EOF\n#!/usr/bin/env python3\nprint()\nEOF\n").endswith(
        "/usr/bin/env python3 /dev/stdin <<'EOF'\n#!/usr/bin/env python3\nprint()\nEOF\n)"
    )
    assert show("COPY <<EOF /etc/x\n$A\nEOF\n") == "%post\ncat > /etc/x <<EOF\n$A\nEOF"
    text = show("ADD x.tar.gz /opt\nADD https://h.example/y /root\nADD z /\n")
    assert "    x.tar.gz /x.tar.gz\n    z /" in text
    assert "    tar -xf /x.tar.gz -C /opt/\n    rm /x.tar.gz\n" in text
    assert "    curl -fsSL https://h.example/y -o /root/y" in text


def test_to_definition_variables() -> None:
    text = 'ARG V=1\nENV A=$V B="x y" PATH=/opt/$V:$PATH\nWORKDIR /w/$B\nCOPY z $A/\nRUN make\nLABEL l=$A n=$V\n'
    assert (
        show(text)
        == """%arguments
    V=1

%files
    z "/w/x y/{{ V }}/"

%post
    export V="{{ V }}"
    export A="{{ V }}"
    export B="x y"
    export PATH="/opt/{{ V }}:${PATH}"
    mkdir -p '/w/x y'
    cd '/w/x y'
    make

%environment
    export A="{{ V }}"
    export B="x y"
    export PATH="/opt/{{ V }}:${PATH}"

%labels
    l {{ V }}
    n {{ V }}"""
    )


@with_rows(
    ('ENTRYPOINT ["a", "b c"]', ["exec a 'b c' \"$@\""]),
    ('ENTRYPOINT ["a"]\nCMD ["-h"]', ['[ "$#" -gt 0 ] || set -- -h', 'exec a "$@"']),
    ("CMD a $B", ["[ \"$#\" -gt 0 ] || set -- /bin/sh -c 'a $B'", 'exec "$@"']),
    ("ENTRYPOINT a\nCMD b", ["exec /bin/sh -c a"]),
    ('CMD ["x"]\nENTRYPOINT ["a"]', ['exec a "$@"']),
)
def test_to_definition_runscript(text: str, expected: list[str]) -> None:
    assert [line.strip() for line in show(text + "\n").split("\n")] == ["%runscript", *expected]


def test_to_definition_stages_that_others_need_or_nobody() -> None:
    text = "FROM debian AS a\nENV X=1\nRUN one\nFROM a AS b\nRUN two\nFROM b\nRUN three\n"
    (stage,) = parse_stages(convert(text).text, "x.def")
    assert stage.header == {"bootstrap": "docker", "from": "debian"}
    assert stage.script("post").script.split() == ["export", "X=1", "one", "two", "three"]
    converted = convert("FROM a\nRUN x\nFROM b\n")
    assert_reads([str(note) for note in converted.notes], "build/dockerfile-stage-left-out-last")


def test_to_definition_shell_and_braces() -> None:
    shell = 'SHELL ["/bin/bash", "-o", "pipefail", "-c"]\n'
    assert show(shell + "RUN a | b\n") == "%post -c /bin/bash\n    set -exo pipefail\n    a | b"
    assert "    /bin/bash -o pipefail -c 'a | b'" in show("RUN x\n" + shell + "RUN a | b\n")
    converted = convert("FROM debian\nRUN render '{{ name }}'\n")
    recipe = make_recipe(converted.text, "x.def")
    scripts = [getattr(step, "script", None) for step in recipe.target.plan({}).steps]
    assert [script.data for script in scripts if script] == [b"    render '{{ name }}'\n"]


@with_rows(
    *("EXPOSE 80", "VOLUME /data", "USER me", "HEALTHCHECK CMD x", "ONBUILD RUN x", "STOPSIGNAL 9"),
    *("RUN --mount=type=cache,target=/c x", "RUN --network=none x", "WORKDIR /w", "RUN a\nCOPY b /c"),
    *("COPY --exclude=x b /c", "COPY src /c/"),
)
def test_to_definition_what_has_no_equal_is_said(line: str) -> None:
    converted = convert(f"FROM debian\n{line}\n")
    (note,) = converted.notes
    assert f"# NOTE: {note.message}\n" in converted.text + "\n"


@with_rows(
    ("./a.sif", {"bootstrap": "localimage", "from": "./a.sif"}),
    ("library://a/b:1", {"bootstrap": "library", "from": "a/b:1"}),
    ("scratch", {"bootstrap": "scratch"}),
)
def test_to_definition_bases(image: str, header: dict[str, str]) -> None:
    assert parse_stages(convert(f"FROM {image}\n").text, "x.def")[0].header == header
