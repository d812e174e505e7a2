# SPDX-License-Identifier: BSD-3-Clause
"""SCIF apps of a definition file: their directories and files below /scif, and what %appinstall adds to %post.

Apptainer runs the installs of all apps as the tail of %post, in one shell: variables that %post sets are seen there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kedge.builds.definition.definition import Definition, Script
from kedge.builds.definition.parse import read_labels
from kedge.builds.go_strings import cut_comment, trim
from kedge.builds.step_values import CopyStep, RecipePlace, TreeFile, refuse_recipe
from kedge.image.formats.go_json import encode_json, encode_text

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")
_WHOLE_IMAGE = "/.singularity.d/env/94-appsbase.sh"


@dataclass(frozen=True, slots=True)
class App:
    """One app; the texts of its sections by their names: apprun, appenv and so on."""

    name: str
    sections: dict[str, str]
    place: RecipePlace
    files_line: int = 0

    @property
    def root(self) -> str:
        """Where its files are."""
        return f"/scif/apps/{self.name}"


def list_apps(stage: Definition) -> list[App]:
    """The apps in the order of the file."""
    apps = []
    sections: dict[str, dict[str, Script]] = {name: {} for name in stage.app_order}
    for key, item in stage.custom.items():
        section, _, name = key.partition(" ")
        sections[name][section] = item
    for name, scripts in sections.items():
        place = RecipePlace(stage.name, min((item.line for item in scripts.values()), default=1))
        if not name or name in (".", "..") or "/" in name:
            raise refuse_recipe(
                place,
                f"'{name}' is not a valid app name",
                hint="write one space and a name without slashes after the section: %apprun NAME",
            )
        texts = {key: item.script for key, item in scripts.items()}
        files = scripts.get("appfiles")
        apps.append(App(name, texts, place, files.line if files else 0))
    return apps


def list_app_directories(apps: list[App]) -> tuple[str, ...]:
    """Return all directories that the apps need, parents first."""
    folders: list[str] = ["/scif", "/scif/apps", "/scif/data"] if apps else []
    for app in apps:
        folders += [app.root, *(f"{app.root}/{name}" for name in ("bin", "lib", "scif", "scif/env"))]
        folders += [f"/scif/data/{app.name}{name}" for name in ("", "/input", "/output")]
    return tuple(folders)


def write_app_files(apps: list[App]) -> tuple[TreeFile, ...]:
    """Scripts, environment, help and labels of every app, and the variables that name them all."""
    files: list[TreeFile] = []
    for app in apps:
        files += _write_one(app)
    files.append(TreeFile(_WHOLE_IMAGE, _encode("".join(_list_variables(app) for app in apps)), 0o755))
    return tuple(files)


def _write_one(app: App) -> list[TreeFile]:
    meta = f"{app.root}/scif"
    files = [TreeFile(f"{meta}/env/01-base.sh", _encode(_base_environment(app)), 0o755)]
    if app.sections.get("appenv"):
        files.append(TreeFile(f"{meta}/env/90-environment.sh", _encode(app.sections["appenv"]), 0o755))
    for section, name in (("apprun", "runscript"), ("appstart", "startscript"), ("apptest", "test")):
        if app.sections.get(section):
            files.append(TreeFile(f"{meta}/{name}", _encode(f"#!/bin/sh\n\n{app.sections[section]}\n"), 0o755))
    if app.sections.get("apphelp"):
        files.append(TreeFile(f"{meta}/runscript.help", _encode(app.sections["apphelp"])))
    labels = {"SCIF_APP_NAME": app.name, **read_labels(app.sections.get("applabels", ""))}
    files.append(TreeFile(f"{meta}/labels.json", encode_text(encode_json(dict(sorted(labels.items())), indent="\t"))))
    return files


def _base_environment(app: App) -> str:
    values = {
        "APPNAME": app.name,
        "APPROOT": f'"{app.root}"',
        "APPMETA": f'"{app.root}/scif"',
        "DATA": '"/scif/data"',
        "APPDATA": f'"/scif/data/{app.name}"',
        "APPINPUT": f'"/scif/data/{app.name}/input"',
        "APPOUTPUT": f'"/scif/data/{app.name}/output"',
    }
    lines = "".join(f"SCIF_{name}={value}\n" for name, value in values.items())
    return f"#!/bin/sh\n\n{lines}export {' '.join(f'SCIF_{name}' for name in values)}\n"


def _list_variables(app: App) -> str:
    """The lines of an app in 94-appsbase.sh; there its name has letters, digits and underscores only."""
    name = _NOT_IN_NAMES.sub("_", app.name)
    root = f"/scif/apps/{name}"
    places = {"APPDATA": f"/scif/data/{name}", "APPMETA": f"{root}/scif", "APPROOT": root}
    places |= {"APPBIN": f"{root}/bin", "APPLIB": f"{root}/lib"}
    text = f"## App Global Exports For: {name}\n\n"
    text += "".join(f"SCIF_{key}_{name}={place}\n" for key, place in places.items())
    text += f"\nexport {' '.join(f'SCIF_{key}_{name}' for key in places)}\n"
    optional = {
        "APPENV": ("appenv", "env/90-environment.sh"),
        "APPRUN": ("apprun", "runscript"),
        "APPSTART": ("appstart", "startscript"),
    }
    for key, (section, file) in optional.items():
        if app.sections.get(section):
            text += f'export SCIF_{key}_{name}="{root}/scif/{file}"\n'
        if key == "APPENV":
            text += f'export SCIF_APPLABELS_{name}="{root}/scif/labels.json"\n'
    return text


def list_app_copies(apps: list[App]) -> list[CopyStep]:
    """A step for every line of %appfiles; the destination is below the app's own directory."""
    steps = []
    for app in apps:
        for number, raw in enumerate(app.sections.get("appfiles", "").split("\n"), app.files_line + 1):
            content = trim(raw)
            if not content or content.startswith("#"):
                continue
            source, _, destination = trim(cut_comment(content)).partition(" ")
            place = RecipePlace(app.place.file, number)
            target = f"{app.root}/{(destination or source).lstrip('/')}"
            text = f"%appfiles {app.name}: {source}"
            steps.append(CopyStep(place, text, (source,), target, is_definition=True))
    return steps


def write_installs(apps: list[App]) -> str:
    """The lines that every app, even one without %appinstall, adds to %post."""
    return "".join(
        f"\ncd /\n. {app.root}/scif/env/01-base.sh\n\ncd {app.root}\n{app.sections.get('appinstall', '')}\n\ncd /\n"
        for app in apps
    )


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
