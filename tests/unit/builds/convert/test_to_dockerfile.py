# SPDX-License-Identifier: BSD-3-Clause
"""Definition files printed as Dockerfiles: sections in the order in which they work, notes for the rest."""

from __future__ import annotations

from kedge.builds.dockerfile.plan import make_recipe
from kedge.builds.recipe_files import convert_recipe
from tests.builders.rows import each_row, with_rows

HEADER = "Bootstrap: docker\nFrom: debian:12\n"


def convert(text: str):
    converted = convert_recipe(text, "x.def", "definition")
    make_recipe(converted.text, "Dockerfile")
    return converted


def show(text: str) -> str:
    """The Dockerfile without its first line, and without empty ones."""
    return "\n".join(line for line in convert(text).text.split("\n")[1:] if line)


def test_to_dockerfile_two_stages() -> None:
    text = f"""# top
{HEADER}Stage: Builder
%post
    make \\
      install
# between
{HEADER}%post
    apt-get update
    apt-get install -y x
%files from Builder
    /usr/local/bin/x
%files
    "a b" /c
    data.csv data/
    *.py
%environment
    # where it is
    export PATH=/opt/bin:$PATH
%labels
    Author Some One
%runscript
    exec x --run "$@"
"""
    converted = convert(text)
    assert not converted.notes
    assert (
        show(text)
        == """# top
FROM debian:12 AS builder
RUN make \\
  install
# between
FROM debian:12
COPY --from=builder /usr/local/bin/x /usr/local/bin/x
COPY ["a b", "/c"]
COPY data.csv /data/
COPY *.py /
RUN <<'EOF'
set -ex
apt-get update
apt-get install -y x
EOF
# where it is
ENV PATH=/opt/bin:${PATH}
LABEL Author="Some One"
ENTRYPOINT ["x", "--run"]"""
    )


def test_to_dockerfile_arguments() -> None:
    text = "Bootstrap: docker\nFrom: debian:{{ TAG }}\n%arguments\nTAG=12\nN=4 5\n%post\nmake -j{{ N }} {{ M }}\n"
    assert show(text) == 'ARG TAG=12\nFROM debian:${TAG}\nARG N="4 5"\nARG M\nRUN make -j${N} ${M}'


@with_rows(
    ("export A=b", "ENV A=b"),
    ("export A='$b' B=\"$b c\"", 'ENV A="\\$b"\nENV B="${b} c"'),
    ("A=1; export A # why", "ENV A=1"),
    ("export A=${B:-x}", "ENV A=${B:-x}"),
    ("export A=\\\n1", "ENV A=1"),
    ("export A=$(date)", "# NOTE: ENV cannot hold 'export A=$(date)': it needs a shell when the container starts"),
    (". /opt/x.sh", "# NOTE: ENV cannot hold '. /opt/x.sh': it needs a shell when the container starts"),
    ("export A=~/x", "# NOTE: ENV cannot hold 'export A=~/x': it needs a shell when the container starts"),
)
def test_to_dockerfile_environment(line: str, expected: str) -> None:
    assert show(f"{HEADER}%environment\n{line}\n") == f"FROM debian:12\n{expected}"


@with_rows(
    ('exec python /x.py "$@"', 'ENTRYPOINT ["python", "/x.py"]'),
    ("python '/a b' $@", 'ENTRYPOINT ["python", "/a b"]'),
    ('[ "$#" -gt 0 ] || set -- -h\nexec x "$@"', 'ENTRYPOINT ["x"]\nCMD ["-h"]'),
    (
        "echo hi",
        "COPY --chmod=0755 <<'EOF' /usr/local/bin/runscript\n#!/bin/sh\necho hi\nEOF\n"
        'ENTRYPOINT ["/usr/local/bin/runscript"]',
    ),
    (
        "#!/bin/bash\nexec $X EOF\nEOF",
        "COPY --chmod=0755 <<'EOF1' /usr/local/bin/runscript\n#!/bin/bash\nexec $X EOF\nEOF\nEOF1\n"
        'ENTRYPOINT ["/usr/local/bin/runscript"]',
    ),
)
def test_to_dockerfile_runscript(script: str, expected: str) -> None:
    assert show(f"{HEADER}%runscript\n{script}\n") == f"FROM debian:12\n{expected}"


@with_rows(
    ("Bootstrap: docker\nFrom: docker://x/y\nRegistry: r.example\nNamespace: n", "FROM r.example/n/x/y"),
    ("Bootstrap: scratch", "FROM scratch"),
    ("Bootstrap: debootstrap\nOSVersion: jammy\nMirrorURL: u\nInclude: vim", "FROM ubuntu:jammy"),
    ("Bootstrap: yum\nOSVersion: 7\nMirrorURL: u\nInclude: yum", "FROM centos:7"),
    ("Bootstrap: localimage\nFrom: a.sif", "FROM ./a.sif"),
    ("Bootstrap: library\nFrom: a/b/c:1", "FROM library://a/b/c:1"),
    ("Bootstrap: oci-archive\nFrom: /x/y.tar", "FROM oci-archive:/x/y.tar"),
    ("Bootstrap: shub\nFrom: x", "FROM scratch"),
)
def test_to_dockerfile_bases(header: str, expected: str) -> None:
    converted = convert(header + "\n")
    assert f"\n{expected}\n" in converted.text
    assert bool(converted.notes) == (header.split("\n", maxsplit=1)[0].split()[1] not in ("docker", "scratch"))


@each_row("section", ["pre", "setup", "startscript", "test", "apprun a"])
def test_to_dockerfile_what_has_no_equal_is_said(section: str) -> None:
    converted = convert(f"{HEADER}%{section}\ndo something\n")
    (note,) = converted.notes
    assert str(note).startswith("x.def:3:1: ")
    assert f"# NOTE: {note.message}\n" in converted.text
    assert "#   do something\n" in converted.text


@with_rows(
    ("mkdir -p ${SINGULARITY_ROOTFS}/opt/a $APPTAINER_ROOTFS/b", "RUN mkdir -p /opt/a /b"),
    ('cp -v data.csv "$SINGULARITY_ROOTFS/opt/"', "COPY data.csv /opt/"),
    ("cp -r src ${APPTAINER_ROOTFS}/opt/", "COPY src /opt/src"),
    ("cp a b $SINGULARITY_ROOTFS", "COPY a b /"),
    ("touch $SINGULARITY_ROOTFS/x", "RUN touch /x"),
)
def test_to_dockerfile_setup_that_copies(line: str, expected: str) -> None:
    converted = convert(f"{HEADER}%setup\n  # why\n  {line}\n")
    assert f"\n# why\n{expected}\n" in converted.text
    assert not converted.notes


@each_row("line", ["cp /host/x $SINGULARITY_ROOTFS/", "mkdir /x", "cp a b; c", "cp '", "cp $X $SINGULARITY_ROOTFS/"])
def test_to_dockerfile_setup_that_needs_the_host(line: str) -> None:
    assert len(convert(f"{HEADER}%setup\n{line}\n").notes) == 1


def test_to_dockerfile_interpreter_of_post() -> None:
    assert "RUN <<'EOF'\n#!/bin/bash -l\nshopt\nEOF\n" in convert(f"{HEADER}%post -c /bin/bash -l\nshopt\n").text
    assert "set -ex -u\n" in convert(f"{HEADER}%post -u\nmake\n").text
