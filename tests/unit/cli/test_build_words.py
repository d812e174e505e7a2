# SPDX-License-Identifier: BSD-3-Clause
"""Both shapes of `kedge build`, and what is said where neither fits."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from kedge.base.image_format import ImageFormat
from kedge.builds.request import BuildRequest
from kedge.cli.build_words import read_request
from kedge.cli.console import Console
from kedge.cli.main import make_parser
from kedge.errors import FileProblem, InvalidSetting, KedgeError, UsageError
from tests.builders.rows import each_row
from tests.wording import assert_says


def read(*words: str, environ: dict[str, str] | None = None) -> BuildRequest:
    arguments = make_parser("build", is_for_help=False).parse_args(words)
    return read_request(arguments, Console(environ=environ or {}))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ctx").mkdir()
    (tmp_path / "ctx/Dockerfile").write_text("FROM scratch\n")
    (tmp_path / "tools.def").write_text("Bootstrap: scratch\n")
    return tmp_path


def test_apptainers_shape(place: Path) -> None:
    request = read("out.sif", "tools.def")
    assert (request.spec, request.context) == ("tools.def", None)
    assert (request.output.path, request.output.form) == (Path("out.sif"), ImageFormat.SIF)
    assert read("--sandbox", "out", "tools.def").output.form is ImageFormat.SANDBOX
    assert read("-s", "-F", "out", "tools.def").output.force
    assert read("out", "docker://debian").spec == "docker://debian"
    assert read("oci:out:tag", "tools.def").output.tag == "tag"
    request = read("out.sif", "ctx")
    assert (request.spec, request.context) == ("ctx/Dockerfile", Path("ctx"))
    (place / "ctx/.singularity.d").mkdir()
    assert read("out.sif", "ctx").spec == "ctx"


def test_dockers_shape() -> None:
    request = read("-t", "a/b:1", "-t", "a/b:2", "ctx")
    assert (request.spec, request.context) == ("ctx/Dockerfile", Path("ctx"))
    assert (request.output.path, request.output.tag, request.output.further_tags) == (None, "a/b:1", ("a/b:2",))
    assert read("ctx").output.path is None
    assert read("-t", "a", "-f", "tools.def", "ctx").spec == "tools.def"
    assert read("-t", "a", "--push", "ctx").output.push
    assert read("--pull", "ctx").pull == "always"
    assert read("--pull=newer", "ctx").pull == "newer"
    assert read("-o", "type=oci,dest=x.tar", "ctx").output.form is ImageFormat.OCI_ARCHIVE


def test_an_output_beside_dockers_words(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("out.sif", "-f", "tools.def", "ctx"), ("-f", "tools.def", "out.sif", "ctx")):
        request = read(*words)
        assert (request.spec, request.context, request.output.path) == ("tools.def", Path("ctx"), Path("out.sif"))
    assert capsys.readouterr().err == ""
    request = read("--sandbox", "-t", "name", "out", "-f", "ctx/Dockerfile", ".")
    assert (request.output.path, request.output.form) == (Path("out"), ImageFormat.SANDBOX)
    request = read("-f", "tools.def", "ctx", "out.sif")
    assert (request.context, request.output.path) == (Path("ctx"), Path("out.sif"))
    assert_says(capsys.readouterr().err, "build/takes-output-ctx-context", "out.sif")
    request = read("out.sif", "-f", "tools.def")
    assert (request.spec, request.context, request.output.path) == ("tools.def", None, Path("out.sif"))
    assert_says(capsys.readouterr().err, "build/takes-output-recipe", "out.sif", "tools.def")


def test_recipes_of_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    for words, context in ((("-",), None), (("-f", "-", "ctx"), Path("ctx")), (("out.sif", "-"), None)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"FROM scratch\n")))
        request = read(*words)
        assert (request.spec, request.text, request.context) == ("-", b"FROM scratch\n", context)


@each_row(("words", "kind", "message"), [
    ((), UsageError, "needs a recipe"),
    (("a", "b", "c"), UsageError, "at most two words"),
    (("tools.def",), UsageError, "is a file"),
    (("-f", "out.sif", "tools.def"), UsageError, "is a file"),
    (("-f", "tools.def", "out.sif", "tools.def"), UsageError, "both name a recipe"),
    (("-f", "missing", "out.sif", "ctx"), FileProblem, "no such recipe"),
    (("-f", "tools.def", "docker://a/b", "ctx"), UsageError, "is a reference"),
    (("-f", "missing.def", "out.sif"), FileProblem, "no such recipe"),
    (("-o", "x", "out.sif", "ctx"), UsageError, "does not go with two words"),
    (("missing",), FileProblem, "no such directory"),
    (("out.sif", "missing.def"), FileProblem, "no such recipe or image"),
    (("-f", "missing", "ctx"), FileProblem, "no such recipe"),
    (("https://example.org/x.git",), UsageError, "cannot fetch the context"),
    (("docker://a/b", "tools.def"), UsageError, "is a reference"),
    (("--push", "ctx"), UsageError, "--push needs a name"),
    (("--platform", "linux/amd64,linux/arm64", "ctx"), UsageError, "one platform"),
    (("--format", "oci", "ctx"), UsageError, "needs an output"),
    (("-o", "a", "-o", "b", "ctx"), UsageError, "one output"),
    (("-f", "x", "-"), UsageError, "names another"),
    (("--lock", "out.sif", "docker://x"), UsageError, "--lock needs a recipe"),
])  # fmt: skip
def test_what_is_unclear_is_refused_with_a_hint(words: tuple[str, ...], kind: type[KedgeError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        read(*words)
    assert caught.value.hint


def test_a_directory_without_a_dockerfile_is_no_recipe(place: Path) -> None:
    with pytest.raises(FileProblem, match="has no Dockerfile") as caught:
        read("-t", "x", str(place))
    assert "tools.def" in str(caught.value.hint)
    project = place / "project"
    project.mkdir()
    (project / "main.py").touch()
    with pytest.raises(FileProblem, match="project has no Dockerfile, and is no image either"):
        read("out.sif", str(project))
    (project / "etc").mkdir()
    assert read("out.sif", str(project)).spec == str(project)


def test_options_become_the_request_and_defaults_are_its_own() -> None:
    request = read(
        *("--no-cache", "--notest", "--nv", "-B", "/a:/b", "--mount", "type=bind,src=/a,dst=/b", "--target", "x"),
        *("--section", "post,%test", "--label", "a=b", "--protect", "--lock", "--shell-on-error", "--arch", "arm64"),
        *("--build-context", "n=p", "--ssh", "default", "--setup-on-host", "--context", "a", "--context", "b"),
        *("--contained", "out.sif", "tools.def"),
        environ={"SOURCE_DATE_EPOCH": "17"},
    )
    assert not request.use_cache
    assert not request.tests
    assert request.options == ("--nv", "--mount", "type=bind,src=/a,dst=/b")
    assert request.binds == ("/a:/b",)
    assert request.sections == ("post", "test")
    assert request.lock == Path("tools.def.lock")
    assert (request.target, request.platform, request.epoch) == ("x", "linux/arm64", 17)
    assert (request.protect, request.shell_on_error, request.uses_host) == (True, True, True)
    assert (request.labels, request.contexts, request.ssh) == ({"a": "b"}, {"n": "p"}, ("default",))
    assert (request.allowed, request.is_contained) == ((Path("a"), Path("b")), True)
    assert not read("--contained", "--no-contained", "out.sif", "tools.def").is_contained
    request = read("out.sif", "tools.def")
    same = BuildRequest("tools.def", output=request.output)
    assert request == same
    with pytest.raises(InvalidSetting, match="SOURCE_DATE_EPOCH"):
        read("out.sif", "tools.def", environ={"SOURCE_DATE_EPOCH": "yesterday"})


def test_an_update_names_a_sandbox_that_is_there(place: Path) -> None:
    with pytest.raises(UsageError, match="--update changes sandboxes, and box does not exist"):
        read("--update", "box", "tools.def")
    (place / "box").mkdir()
    request = read("--sandbox", "-u", "box", "tools.def")
    assert (request.updates, request.output.form, request.output.force) == (True, ImageFormat.SANDBOX, True)
    assert read("-u", "box", "tools.def") == request
    assert not read("-u", "-F", "box", "tools.def").updates  # as Apptainer: built anew
    with pytest.raises(UsageError, match="--update needs the sandbox"):
        read("--update", "-t", "name", "ctx")
