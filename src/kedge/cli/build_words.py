# SPDX-License-Identifier: BSD-3-Clause
"""What the words of `kedge build` ask for: `OUTPUT SPEC` as Apptainer's, `-t NAME -f FILE CONTEXT` as docker's.

People mix the two: `OUTPUT -f FILE CONTEXT` is understood as well, and where the order is odd kedge says how.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen, replace
from kedge.base.image_argument import is_address, is_reference
from kedge.base.image_format import ImageFormat
from kedge.base.nearest import propose
from kedge.builds.request import BuildOutput, BuildRequest, BuildSecret
from kedge.errors import FileProblem, InvalidSetting, KedgeError, UsageError
from kedge.image.formats.identify import FileKind, identify_file
from kedge.image.output_name import read_output
from kedge.system.files import explained

if TYPE_CHECKING:
    from kedge.cli.console import Console

_RECIPES = ("Dockerfile", "Containerfile")  # what docker and podman look for in a context
_PARTS = (".singularity.d", "usr", "etc", "bin/sh")  # what a directory that is an image has at least one of
_SHAPES = "kedge build OUTPUT.sif RECIPE, or kedge build -t NAME -f RECIPE CONTEXT"


@frozen
class _Shape:
    """What is built, from where and into which file."""

    spec: str
    context: Path | None = None
    output: str = ""  # as the user wrote it; empty: none in front of the recipe
    text: bytes | None = None
    note: str = ""  # how the words were understood, where people may mean something else


def read_request(arguments: argparse.Namespace, console: Console) -> BuildRequest:
    """The request for a build, from the options and the words."""
    environ = console.environ
    shape = _read_shape(arguments)
    if shape.note:
        console.progress.note(shape.note)
    build_arguments = read_build_arguments(arguments.build_arg, arguments.build_arg_file, environ)
    output = _read_outputs(arguments, shape)
    updates = arguments.update and not arguments.force  # with both, Apptainer builds anew
    return BuildRequest(
        spec=shape.spec,
        text=shape.text,
        output=choose_update(output) if updates else output,
        updates=updates,
        context=shape.context,
        contexts=read_pairs("--build-context", arguments.build_context),
        allowed=tuple(arguments.context),
        is_contained=arguments.contained,
        arguments=build_arguments,
        warns_unused=arguments.warn_unused_build_args,
        secrets=tuple(read_secret(text, environ) for text in arguments.secret),
        ssh=tuple(arguments.ssh),
        target=arguments.target,
        platform=_read_platform(arguments),
        sections=_read_sections(arguments.section),
        labels=read_pairs("--label", arguments.label),
        use_cache=not arguments.no_cache,
        pull=arguments.pull or "auto",
        tests=not arguments.notest,
        binds=tuple(arguments.bind),
        options=_list_options(arguments),
        uses_host=arguments.setup_on_host,
        protect=arguments.protect,
        lock=_choose_lock(arguments, shape),
        shell_on_error=arguments.shell_on_error,
        epoch=read_epoch(environ, build_arguments),
        log=arguments.log,
    )


def _read_shape(arguments: argparse.Namespace) -> _Shape:
    words = arguments.words
    if not words:
        raise UsageError("kedge build needs a recipe", hint=_SHAPES)
    if len(words) > 2:
        raise UsageError(f"kedge build takes at most two words, not {len(words)}: {shlex.join(words)}", hint=_SHAPES)
    if len(words) == 1:
        if arguments.file and not arguments.output and _is_output(words[0]):
            return _read_output_alone(words[0], arguments.file)
        return _read_context(words[0], arguments.file, has_tag=bool(arguments.tag))
    if arguments.output:
        option = f"-o {arguments.output[0]}"
        raise UsageError(f"'{option}' does not go with two words: {shlex.join(words)}", hint=_SHAPES)
    if arguments.file:
        return _read_mixed(words[0], words[1], arguments.file)
    return _read_spec(*words)


def _read_mixed(output: str, context: str, file: str) -> _Shape:
    """`OUTPUT -f RECIPE CONTEXT`: Apptainer's output and docker's recipe and context, in either order."""
    note = ""
    if Path(output).is_dir() and not Path(context).exists():
        output, context = context, output
        note = f"kedge build takes {output} as the output and {context} as the context"
    _refuse_reference(output)
    if Path(context).is_file():
        raise UsageError(
            f"-f {file} and {context} both name a recipe, and kedge build takes one",
            hint=f"kedge build {shlex.quote(output)} {shlex.quote(context)}, or name a directory as the context. In"
            " 'apptainer build' -f is --fakeroot, which kedge needs nowhere",
        )
    return replace(_read_context(context, file, has_tag=False), output=output, note=note)


def _is_output(word: str) -> bool:
    """Whether the only word is the name of an image to write, and no context."""
    return not Path(word).is_dir() and not is_address(word) and word != "-" and read_output(word).form is not None


def _read_output_alone(output: str, file: str) -> _Shape:
    """`OUTPUT.sif -f RECIPE`: who writes so leaves the context out, or means Apptainer's --fakeroot with -f."""
    _refuse_reference(output)
    note = f"kedge build takes {output} as the output and {file} as the recipe"
    if file == "-":
        return _Shape("-", None, output, _read_input(), note)
    return replace(_read_spec(output, file), note=note)


def _read_input() -> bytes:
    from kedge.builds.recipe_files import read_input  # late: few recipes come from there

    return read_input()


def _read_spec(output: str, spec: str) -> _Shape:
    """Apptainer's shape; a directory with a Dockerfile is a context, any other one an image."""
    _refuse_reference(output)
    _refuse_recipe(output, spec)
    if spec == "-":
        return _Shape("-", None, output, _read_input())
    folder = Path(spec)
    if not is_reference(spec) and _is_context(folder):
        return _Shape(str(_find_recipe(folder)), folder, output)
    if not is_reference(spec) and not folder.exists():
        raise FileProblem(
            f"{spec}: no such recipe or image",
            hint=_propose_file(folder)
            or "name a definition file, a Dockerfile, an image file, or an image as docker://NAME",
        )
    if not is_reference(spec) and folder.is_dir() and not _is_image(folder):
        parts = ", ".join(_PARTS)
        raise _explain_missing(folder, f"{spec} has no Dockerfile, and is no image either: it has none of {parts}")
    return _Shape(spec, None, output)


def _refuse_recipe(output: str, spec: str) -> None:
    """Raise where words are swapped: the output is a text that exists, and the recipe has the name of an image."""
    if not is_reference(spec) and Path(output).is_file() and read_output(spec).form is not None:
        with explained(output), Path(output).open("rb") as file:
            kind = identify_file(file)
        if kind in (FileKind.TEXT, FileKind.SCRIPT):
            raise UsageError(
                f"'{output}' is given as the output, but it is a recipe",
                hint=f"the output comes first: kedge build {shlex.quote(spec)} {shlex.quote(output)}",
            )


def _refuse_reference(output: str) -> None:
    if is_reference(output) and output.partition(":")[0] not in set(ImageFormat):
        raise UsageError(
            f"'{output}' is given as the output, but it is a reference",
            hint=f"to push the result: kedge build -t {output.removeprefix('docker://')} --push CONTEXT",
        )


def _read_context(word: str, file: str, *, has_tag: bool) -> _Shape:
    """Docker's shape: the context, and a recipe in it or named by -f."""
    if word == "-":
        if file and file != "-":
            raise UsageError("'-' reads the recipe from standard input, and -f names another", hint=_SHAPES)
        return _Shape("-", None, "", _read_input())
    if is_address(word) or word.startswith("git@"):
        raise UsageError(
            f"kedge build cannot fetch the context '{word}'", hint="clone or download it first, and name the directory"
        )
    folder = Path(word)
    if not folder.exists():
        raise FileProblem(f"{word}: no such directory", hint=_SHAPES)
    if not folder.is_dir():
        hint = f"name the output first: kedge build OUTPUT.sif {shlex.quote(word)}"
        if file:
            hint = f"leave out -f, which names a recipe: kedge build {shlex.quote(file)} {shlex.quote(word)}"
        elif has_tag:
            hint = f"name the recipe with -f: kedge build -t NAME -f {shlex.quote(word)} ."
        raise UsageError(f"{word} is a file, where kedge build needs a directory as context", hint=hint)
    if file == "-":
        return _Shape("-", folder, "", _read_input())
    recipe = Path(file) if file else _find_recipe(folder)
    if not recipe.is_file() and not recipe.is_fifo():
        inside = folder / file
        near = f"there is {inside}: -f {shlex.quote(str(inside))}" if inside.is_file() else _SHAPES
        raise FileProblem(f"{recipe}: no such recipe", hint=near)
    return _Shape(str(recipe), folder)


def _propose_file(path: Path) -> str | None:
    """The file beside that is called nearly so."""
    try:
        names = [other.name for other in path.parent.iterdir()]
    except OSError:
        return None
    return propose(path.name, names)


def _is_context(folder: Path) -> bool:
    """Whether a directory is a context, and no sandbox."""
    return any((folder / name).is_file() for name in _RECIPES) and not (folder / ".singularity.d").exists()


def _is_image(folder: Path) -> bool:
    """Whether a directory looks like a root file system: a project without a Dockerfile must not become an image."""
    return any((folder / name).exists() or (folder / name).is_symlink() for name in _PARTS)


def _find_recipe(folder: Path) -> Path:
    for name in _RECIPES:
        if (folder / name).is_file():
            return folder / name
    raise _explain_missing(folder, f"{folder} has no Dockerfile")


def _explain_missing(folder: Path, message: str) -> FileProblem:
    others = sorted(path for pattern in ("*.def", "Definition*", "Singularity*") for path in folder.glob(pattern))
    return FileProblem(
        message,
        hint=f"to build {others[0]}: kedge build OUTPUT.sif {shlex.quote(str(others[0]))}"
        if others
        else "name the recipe: kedge build -t NAME -f RECIPE CONTEXT",
    )


def _read_outputs(arguments: argparse.Namespace, shape: _Shape) -> BuildOutput:
    form = ImageFormat(arguments.format) if arguments.format else None
    for name in arguments.tag:
        from kedge.image.local_names import read_name  # late: few builds have a tag

        read_name(name)  # a mistake in it is found before anything is built
    tag, *further = arguments.tag or [""]
    if len(arguments.output) > 1:
        raise UsageError("kedge build writes one output", hint="write further formats with: kedge convert IMAGE OUTPUT")
    if arguments.output:
        output = read_export(arguments.output[0], tag=tag, force=arguments.force)
        output = replace(output, form=form or output.form)
    elif shape.output:
        target = read_output(shape.output, ImageFormat.SANDBOX if arguments.update else form)
        output = BuildOutput(
            target.path, target.form or ImageFormat.SIF, tag or target.tag or "", force=arguments.force
        )
    elif form is not None:
        raise UsageError(f"--format {form} needs an output file", hint=f"{_SHAPES}; or add --output FILE")
    else:
        output = BuildOutput(tag=tag, force=arguments.force)
    push = arguments.push or output.push
    if push and not output.tag:
        raise UsageError("--push needs a name to push to", hint="add -t HOST/NAME:TAG")
    return replace(output, push=push, further_tags=tuple(further))


def _read_platform(arguments: argparse.Namespace) -> str:
    platform: str = arguments.platform
    if "," in platform:
        raise UsageError(f"kedge build makes one platform at a time, not {platform}", hint="run it once per platform")
    return platform or (f"linux/{arguments.architecture}" if arguments.architecture else "")


def _read_sections(texts: Sequence[str]) -> tuple[str, ...]:
    """`--section post,environment`, several times too."""
    return tuple(name.strip().removeprefix("%") for text in texts for name in text.split(",") if name.strip()) or (
        "all",
    )


def _list_options(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The options of exec that every step gets."""
    from kedge.container.options import list_switches  # late: `configure` has loaded it

    switches = [f"--{switch.name}" for switch in list_switches() if getattr(arguments, switch.attribute, False)]
    mounts = [word for mount in arguments.mount for word in ("--mount", mount)]
    return (*switches, *mounts, *(["--ignore-subuid"] if arguments.ignore_subuid else []))


def _choose_lock(arguments: argparse.Namespace, shape: _Shape) -> Path | None:
    """The file of --lock: beside the recipe, unless --lock-file names another."""
    if arguments.lock_file or not arguments.lock:
        return Path(arguments.lock_file) if arguments.lock_file else None
    if shape.spec == "-" or is_reference(shape.spec):
        raise UsageError("--lock needs a recipe in a file", hint="name the lock file: --lock-file FILE")
    return Path(f"{shape.spec}.lock")


def read_epoch(environ: Mapping[str, str], arguments: Mapping[str, str] | None = None) -> int | None:
    """SOURCE_DATE_EPOCH: the time that everything gets that is made now. A build argument of that name counts first."""
    text = (arguments or {}).get("SOURCE_DATE_EPOCH") or environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise InvalidSetting(
            f"SOURCE_DATE_EPOCH is '{text}', not a number of seconds", hint="unset it, or: export SOURCE_DATE_EPOCH=0"
        )
    return int(text)


# Values of the options of `kedge build`, as Docker's and Apptainer's users write them.

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
