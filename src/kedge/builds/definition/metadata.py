# SPDX-License-Identifier: BSD-3-Clause
"""The files under /.singularity.d that a definition file makes: first those every image has, in the end its own.

Texts, modes and places are Apptainer's. Two things differ on purpose: labels and help of the recipe win over those of
the base (Apptainer drops the recipe's unless --force is given), and no label says when the image was built, so that the
same recipe gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kedge.base.release import VERSION
from kedge.builds.definition.definition import Definition, Script
from kedge.builds.go_strings import cut_comment, trim
from kedge.builds.step_values import RecipePlace, TreeFile, WriteFilesStep
from kedge.image.formats.go_json import clean_text, encode_json, encode_text
from kedge.image.formats.singularityd import fixed_files
from kedge.image.formats.singularityd.scripts import render_environment, render_runscript

_FOLDER = "/.singularity.d"
_SCHEMA = "org.label-schema"
_SCRIPTS = ("startscript", "runscript", "test")


def write_foundation(place: RecipePlace, section: Mapping[str, Any], *, keeps: bool) -> WriteFilesStep:
    """What every image has, before any section runs; `keeps`: files of the base stay."""
    way = "keep" if keeps else "write"
    files = [TreeFile(f"{_FOLDER}/actions/{name}", text.encode(), 0o755) for name, text in fixed_files.ACTIONS.items()]
    files += [TreeFile(f"{_FOLDER}/env/{name}", text.encode(), 0o755) for name, text in fixed_files.ENVIRONMENT.items()]
    files += _write_config({} if keeps else section)  # a config of theirs was derived from these files
    files.append(TreeFile(f"{_FOLDER}/startscript", fixed_files.STARTSCRIPT.encode(), 0o755))
    files += [TreeFile(f"/{path}", b"") for path in fixed_files.BIND_TARGETS]
    return WriteFilesStep(
        place,
        "prepare /.singularity.d",
        tuple(TreeFile(file.path, file.data, file.mode, way) for file in files),
        tuple(f"/{name}" for name in fixed_files.FOLDERS),
        tuple((f"/{name}", target) for name, target in fixed_files.LINKS.items()),
    )


def _write_config(section: Mapping[str, Any]) -> list[TreeFile]:
    """Variables, command and labels of an OCI config."""
    files = []
    variables = tuple(str(entry) for entry in section.get("Env") or ())
    if variables:
        name = fixed_files.OCI_ENVIRONMENT
        files.append(TreeFile(f"{_FOLDER}/env/{name}", encode_text(render_environment(variables)[0]), 0o755))
    entrypoint = [str(word) for word in section.get("Entrypoint") or ()]
    command = [str(word) for word in section.get("Cmd") or ()]
    # an image of a registry runs its arguments at least; a base that is no image (scratch, debootstrap) has no command
    runscript = render_runscript(entrypoint, command) if section else "#!/bin/sh\n"
    files.append(TreeFile(f"{_FOLDER}/runscript", encode_text(runscript), 0o755))
    labels = section.get("Labels") or {}
    if labels:
        files.append(TreeFile(f"{_FOLDER}/labels.json", _encode_labels({k: str(v) for k, v in labels.items()})))
    return files


def write_metadata(stage: Definition, full_text: str, architecture: str) -> WriteFilesStep:
    """What the sections say about the finished image."""
    files = []
    help_text = stage.script("help").script
    if help_text:
        files.append(TreeFile(f"{_FOLDER}/runscript.help", _encode(help_text + "\n")))
    labels = (dict(stage.labels), _automatic_labels(stage, architecture))
    files += [TreeFile(f"{_FOLDER}/labels.json", _encode_labels(some), way="labels") for some in labels]
    if full_text:
        files.append(TreeFile(f"{_FOLDER}/Singularity", _encode(full_text), way="history"))
    environment = stage.script("environment").script
    if environment:
        path = f"{_FOLDER}/env/{fixed_files.CUSTOM_ENVIRONMENT}"
        files.append(TreeFile(path, _encode(f"\n{environment}\n"), 0o755, "append"))
    scripts = [(name, stage.script(name)) for name in _SCRIPTS if stage.script(name).script]
    files += [TreeFile(f"{_FOLDER}/{name}", _encode(render_script(script)), 0o755) for name, script in scripts]
    place = RecipePlace(stage.name, stage.line)
    return WriteFilesStep(place, "write labels, environment and scripts", tuple(files))


def render_script(section: Script) -> str:
    """A %runscript, %startscript or %test as the file it becomes: its own first line, or /bin/sh, with arguments."""
    shebang, script = "#!/bin/sh", section.script
    if trim(script).startswith("#!"):
        first, _, script = script.partition("\n")
        shebang = trim(first)
    if section.arguments:
        shebang += " " + cut_comment(section.arguments)
    return f"{shebang}\n\n{script}\n"


def _automatic_labels(stage: Definition, architecture: str) -> dict[str, str]:
    labels = {
        f"{_SCHEMA}.schema-version": "1.0",
        f"{_SCHEMA}.usage.kedge.version": VERSION,
    }
    if architecture:
        labels[f"{_SCHEMA}.build-arch"] = architecture
    if stage.script("help").script:
        labels[f"{_SCHEMA}.usage"] = f"{_FOLDER}/runscript.help"
        labels[f"{_SCHEMA}.usage.apptainer.runscript.help"] = f"{_FOLDER}/runscript.help"
    labels |= {f"{_SCHEMA}.usage.singularity.deffile.{key}": value for key, value in stage.header.items()}
    return labels


def _encode_labels(labels: Mapping[str, str]) -> bytes:
    clean = {clean_text(name): clean_text(labels[name]) for name in sorted(labels)}
    return encode_text(encode_json(clean, indent="\t"))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
