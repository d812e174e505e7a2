# SPDX-License-Identifier: BSD-3-Clause
"""Values of the options of `kedge build`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.base.image_format import ImageFormat
from kedge.cli.build_words import read_build_arguments, read_export, read_pairs, read_secret
from kedge.errors import FileProblem, KedgeError, UsageError
from tests.builders.rows import each_row


def test_secret_is_a_file_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text("x")
    monkeypatch.chdir(tmp_path)
    assert read_secret(f"id=a,src={file}", {}).path == file
    assert read_secret(f"id=a,type=file,source={file}", {}).path == file
    assert read_secret("id=a,env=TOKEN", {"TOKEN": "x"}).variable == "TOKEN"
    assert read_secret("id=TOKEN,type=env", {"TOKEN": "x"}).variable == "TOKEN"
    assert read_secret("type=env,id=a,src=TOKEN", {"TOKEN": "x"}).variable == "TOKEN"
    assert read_secret("id=TOKEN", {"TOKEN": "x"}).variable == "TOKEN"
    assert read_secret("id=key", {}).path == Path("key")
    assert read_secret(f'"id=a,b","src={file}"', {}).id == "a,b"


@each_row(("text", "message"), [
    ("src=x", "--secret 'src=x' has no id"),
    ("id=a,env=NONE", "the variable NONE of --secret id=a is not set"),
    ("id=a,sorce=x", "--secret has no key 'sorce'"),
    ("", "--secret '' has no id"),
])  # fmt: skip
def test_secret_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_secret(text, {})


def test_secret_file_must_be_readable_and_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="/no/such/file"):
        read_secret("id=a,src=/no/such/file", {})
    with pytest.raises(KedgeError, match=f"--secret id=a: {tmp_path}/missing: .*[Nn]o such file"):
        read_secret(f"id=a,src={tmp_path}/missing", {})
    with pytest.raises(KedgeError, match="--secret id=token: token: ") as caught:
        read_secret("id=token", {})
    assert "--secret id=token,src=FILE" in str(caught.value.hint)


@each_row(("text", "path", "form", "push"), [
    ("x.sif", "x.sif", ImageFormat.SIF, False),
    ("out", "out", ImageFormat.SANDBOX, False),
    ("oci:out:1", "out", ImageFormat.OCI, False),
    ("type=local,dest=out", "out", ImageFormat.SANDBOX, False),
    ("type=oci,dest=x.tar", "x.tar", ImageFormat.OCI_ARCHIVE, False),
    ("type=oci,dest=x,tar=false", "x", ImageFormat.OCI, False),
    ("type=docker,dest=x.tar", "x.tar", ImageFormat.DOCKER_ARCHIVE, False),
    ("type=squashfs,dest=x", "x", ImageFormat.SQUASHFS, False),
    ("type=docker", None, ImageFormat.SIF, False),
    ("type=image,name=a,push=true", None, ImageFormat.SIF, True),
    ("type=image,name=a", None, ImageFormat.SIF, False),
    ("type=registry", None, ImageFormat.SIF, True),
    ("type=cacheonly", None, ImageFormat.SIF, False),
])  # fmt: skip
def test_export_reads_dockers_words_and_kedges(text: str, path: str | None, form: ImageFormat, push: bool) -> None:
    output = read_export(text, tag="t", force=False)
    assert (output.path, output.form, output.push) == (Path(path) if path else None, form, push)


@each_row("text", ["type=tar,dest=x", "type=oci", "type=oci,dest=-", "type=oci,dst=x", "-"])
def test_export_refuses_what_it_cannot_write(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_export(text, tag="", force=False)
    assert caught.value.hint


def test_build_arguments_and_pairs(tmp_path: Path) -> None:
    file = tmp_path / "values"
    file.write_text("# comment\n\nA=1\n B = two words \nC=x=y\n")
    values = read_build_arguments(["A=2", "HOME", "NOT_SET", "E="], [file], {"HOME": "/home/ada"})
    assert values == {"A": "2", "B": "two words", "C": "x=y", "HOME": "/home/ada", "E": ""}
    file = tmp_path / "values"
    file.write_text("A=1\nnonsense\n")
    with pytest.raises(UsageError, match=":2: 'nonsense' is no build argument"):
        read_build_arguments([], [file], {})
    with pytest.raises(UsageError, match="has no name"):
        read_build_arguments(["=x"], [], {})
    assert read_pairs("--label", ["a=1", "b=x=y", "a="]) == {"a": "", "b": "x=y"}
    for text in ("a", "=x"):
        with pytest.raises(UsageError, match="has no value"):
            read_pairs("--label", [text])
