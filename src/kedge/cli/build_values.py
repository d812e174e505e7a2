# SPDX-License-Identifier: BSD-3-Clause
"""Values of the options of `kedge build`, as Docker's and Apptainer's users write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kedge.base.frozen import replace
from kedge.base.image_format import ImageFormat
from kedge.base.nearest import propose
from kedge.builds.request import BuildOutput, BuildSecret
from kedge.errors import KedgeError, UsageError
from kedge.image.output_name import read_output
from kedge.system.files import explained

# what docker calls an exporter, and the format that kedge writes for it
_EXPORTERS = {"local": ImageFormat.SANDBOX, "oci": ImageFormat.OCI_ARCHIVE, "docker": ImageFormat.DOCKER_ARCHIVE}
_TO_REGISTRY = ("image", "registry")
_OUTPUT_KEYS = frozenset(("type", "dest", "name", "push", "tar"))
_YES = ("", "1", "true", "yes")


def read_fields(option: str, text: str) -> dict[str, str]:
    """`id=key,src=FILE` as a dictionary; a word without `=` has an empty value. Fields may be quoted as in CSV."""
    import csv  # late: most builds have no such option

    try:
        row = next(csv.reader([text]), [])
    except csv.Error:
        raise UsageError(f"cannot read {option} '{text}'", hint=f"write it as {option} KEY=VALUE,KEY=VALUE") from None
    fields = {}
    for field in row:
        name, _, value = field.strip().partition("=")
        fields[name.lower()] = value
    return fields


def read_secret(text: str, environ: Mapping[str, str]) -> BuildSecret:
    """`id=NAME,src=FILE`, `id=NAME,env=VARIABLE`, or `id=NAME` for the variable or the file of that name."""
    fields = read_fields("--secret", text)
    _refuse_unknown("--secret", fields, ("id", "type", "src", "source", "env"))
    name = fields.get("id", "")
    if not name:
        raise UsageError(f"--secret '{text}' has no id", hint="write it as --secret id=NAME,src=FILE")
    path, variable = fields.get("src", fields.get("source", "")), fields.get("env", "")
    if fields.get("type") == "env" and not variable:
        path, variable = "", path or name
    if not path and not variable:
        path, variable = ("", name) if name in environ else (name, "")
    if variable:
        if variable not in environ:
            raise UsageError(
                f"the variable {variable} of --secret id={name} is not set", hint=f"set it: export {variable}=VALUE"
            )
        return BuildSecret(name, None, variable)
    file = Path(path).expanduser()
    try:
        with explained(file), file.open("rb"):
            return BuildSecret(name, file)
    except KedgeError as problem:
        problem.message = f"--secret id={name}: {problem.message}"
        problem.args = (problem.message,)
        if not fields.keys() & {"src", "source"}:
            problem.hint = f"set the variable {name}, or name the file: --secret id={name},src=FILE"
        raise


def read_export(text: str, *, tag: str, force: bool) -> BuildOutput:
    """`type=oci,dest=x.tar` as docker's, with kedge's formats as further types; or a path, whose ending says it."""
    if "=" not in text.partition(",")[0]:
        output = read_output(text)
        form = output.form or ImageFormat.SANDBOX  # as docker writes a directory
        return BuildOutput(output.path, form, tag or output.tag or "", force=force)
    fields = read_fields("--output", text)
    _refuse_unknown("--output", fields, _OUTPUT_KEYS)
    kind, dest, tag = fields.get("type", "local"), fields.get("dest", ""), fields.get("name") or tag
    if kind in _TO_REGISTRY:
        push = kind == "registry" or fields.get("push", "false").lower() in _YES
        return BuildOutput(None, tag=tag, push=push, force=force)
    if kind == "cacheonly" or (kind == "docker" and not dest):
        return BuildOutput(None, tag=tag, force=force)
    form = _find_form(kind, is_tar=fields.get("tar", "true").lower() in _YES)
    if not dest or dest == "-":
        raise UsageError(f"--output '{text}' names no file", hint=f"write it as --output type={kind},dest=PATH")
    return BuildOutput(Path(dest), form, tag, force=force)


def choose_update(output: BuildOutput) -> BuildOutput:
    """The output of --update: a sandbox that is there, and is replaced when all sections ran."""
    path = output.path
    if path is None:
        raise UsageError("--update needs the sandbox to change", hint="kedge build --update SANDBOX RECIPE")
    if not path.is_dir():
        what = "is not a directory" if path.exists() else "does not exist"
        hint = f"make it first: kedge build --sandbox {path} RECIPE"
        raise UsageError(f"--update changes sandboxes, and {path} {what}", hint=hint)
    return replace(output, form=ImageFormat.SANDBOX, force=True)


def read_pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` of an option that may be given several times; the last one counts."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} '{text}' has no value", hint=f"write it as {option} NAME=VALUE")
        pairs[name] = value
    return pairs


def read_build_arguments(texts: Sequence[str], files: Sequence[Path], environ: Mapping[str, str]) -> dict[str, str]:
    """--build-arg-file first, then --build-arg, which wins; a name alone takes its value from the environment."""
    values: dict[str, str] = {}
    for file in files:
        values |= _read_argument_file(file)
    for text in texts:
        name, equals, value = text.partition("=")
        if not name:
            raise UsageError(f"--build-arg '{text}' has no name", hint="write it as --build-arg NAME=VALUE")
        if equals or name in environ:
            values[name] = value if equals else environ[name]
    return values


def _read_argument_file(file: Path) -> dict[str, str]:
    """Lines `NAME=VALUE`; empty lines and comments are passed over."""
    with explained(file):
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
    values = {}
    for number, line in enumerate(text.splitlines(), 1):
        shown = line.strip()
        if not shown or shown.startswith("#"):
            continue
        name, equals, value = shown.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{file}:{number}: '{shown}' is no build argument", hint="write lines as NAME=VALUE")
        values[name.strip()] = value.strip()
    return values


def _find_form(kind: str, *, is_tar: bool) -> ImageFormat:
    if kind == "oci" and not is_tar:
        return ImageFormat.OCI
    if kind in _EXPORTERS:
        return _EXPORTERS[kind]
    if kind in set(ImageFormat):
        return ImageFormat(kind)
    known = [*_EXPORTERS, *_TO_REGISTRY, *(form for form in ImageFormat if form not in _EXPORTERS)]
    raise UsageError(
        f"--output has no type '{kind}'; use one of: {', '.join(known)}",
        hint=propose(kind, known) or "to write a directory of the image's files: --output type=local,dest=DIR",
    )


def _refuse_unknown(option: str, fields: Mapping[str, str], known: Sequence[str] | frozenset[str]) -> None:
    for name in fields:
        if name not in known:
            hint = propose(name, list(known)) or f"its keys are: {', '.join(sorted(known))}"
            raise UsageError(f"{option} has no key '{name}'", hint=hint)
