# SPDX-License-Identifier: BSD-3-Clause
"""A definition file as a recipe: stages whose steps come in the order in which Apptainer builds, not that of the file.

%pre, the base, apps, `%files from`, %setup, %files, %post with the apps' installs, metadata, %test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kedge.base.frozen import replace
from kedge.builds.definition.arguments import expand_arguments
from kedge.builds.definition.definition import (
    Definition,
    FilesSection,
    Script,
    parse_stage,
    parse_stages,
    read_labels,
    replace_bytes,
)
from kedge.builds.definition.metadata import render_script, write_foundation, write_metadata
from kedge.builds.definition.settle_files import BUILD_LABELS
from kedge.builds.go_strings import cut_comment, split_words, trim
from kedge.builds.step_values import (
    SCRIPT_PATH,
    Base,
    BuildArguments,
    CopyOrigin,
    CopyStep,
    HostScriptStep,
    InlineFile,
    Recipe,
    RecipePlace,
    RunStep,
    StagePlan,
    Step,
    TreeFile,
    WriteFilesStep,
    number_stage,
    refuse_recipe,
)
from kedge.image.formats.go_json import encode_json, encode_text
from kedge.image.formats.singularityd import fixed_files
from kedge.image.formats.singularityd.derive_config import derive_section
from kedge.image.formats.singularityd.inspect_report import InspectReport
from kedge.system.outside import Outside

# bases that bring a /.singularity.d of their own, which stays
_IMAGES_OF_THIS_KIND = ("localimage", "library", "oras", "shub")
_POST_SCRIPT = "/.post.script"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENVIRONMENT_FILE = "/.singularity.d/env/91-environment.sh"
# what Apptainer's shell does before a program: variables of the base's own environment and of the apps
_SOURCE_ENVIRONMENT = 'for file in /.singularity.d/env/*.sh; do if [ -f "$file" ]; then . "$file"; fi; done; exec "$@"'


@dataclass(frozen=True, slots=True)
class DefinitionStage:
    """One stage of a definition file."""

    index: int
    definition: Definition
    full_text: str  # of the whole recipe; empty for a stage that files are only copied from, which it must not change
    earlier: Mapping[str, int] = field(default_factory=dict)  # names of the stages before
    arguments: BuildArguments = field(default_factory=BuildArguments)

    @property
    def name(self) -> str:
        """What `Stage:` says."""
        return self.definition.header.get("stage", "")

    @property
    def base(self) -> Base:
        """What the header says, or the sandbox that is updated."""
        header, lines = self.definition.header, self.definition.header_lines
        if self._is_update:
            return Base(self._place(0), "localimage", self.arguments.updated, platform=self.arguments.target_platform)
        line = lines.get("from") or lines.get("bootstrap") or self.definition.line
        rest = {key: Outside(value) for key, value in header.items() if key not in ("bootstrap", "from", "stage")}
        return Base(
            RecipePlace(self.definition.name, line),
            header["bootstrap"].lower(),
            header.get("from", ""),
            platform=self.arguments.target_platform,
            fields=rest,
        )

    @property
    def needs(self) -> tuple[int, ...]:
        """The stages that `%files from` names."""
        origins = (self._find_origin(section) for section in self.definition.files)
        return tuple(sorted({stage for stage in origins if stage is not None}))

    def plan(self, section: Mapping[str, Any]) -> StagePlan:
        """The steps above a base with this config."""
        return StagePlan(tuple(self._list_steps(section)), self._make_section(section), is_decorated=True)

    def _list_steps(self, section: Mapping[str, Any]) -> Iterator[Step]:
        apps = list_apps(self.definition) if self._wants("apps") else []
        yield from self._host_script("pre")
        yield write_foundation(self._place(0), section, keeps=self.base.agent in _IMAGES_OF_THIS_KIND)
        if apps:
            yield WriteFilesStep(
                apps[0].place, "write the files of the apps", write_app_files(apps), list_app_directories(apps)
            )
        yield from list_app_copies(apps)
        files = self.definition.files if self._wants("files") else ()
        for part in files:
            if self._find_origin(part) is not None:
                yield from self._copy(part)
        yield from self._host_script("setup")
        for part in files:
            if self._find_origin(part) is None:
                yield from self._copy(part)
        yield from self._post(apps, section)
        if self.full_text or self.definition.script("test").script:
            yield write_metadata(self._select(), self.full_text, self._architecture)
        yield from self._test(section)

    def _wants(self, section: str) -> bool:
        """Whether --section asks for it; apps go with %post."""
        wanted = self.arguments.sections
        if "none" in wanted:
            return False
        return "all" in wanted or section in wanted or (section == "apps" and "post" in wanted)

    def _select(self) -> Definition:
        """The stage with those sections alone that are wanted."""
        scripts = {name: script for name, script in self.definition.scripts.items() if self._wants(name)}
        labels = self.definition.labels if self._wants("labels") else {}
        header = {} if self._is_update else self.definition.header  # its base was not looked at
        return replace(self.definition, scripts=scripts, labels=labels, header=header)

    @property
    def _is_update(self) -> bool:
        return bool(self.arguments.updated and self.full_text)

    @property
    def _architecture(self) -> str:
        return self.arguments.target_platform.split("/")[1] if "/" in self.arguments.target_platform else ""

    def _place(self, line: int) -> RecipePlace:
        return RecipePlace(self.definition.name, line or self.definition.line)

    def _host_script(self, name: str) -> Iterator[Step]:
        script = self.definition.script(name)
        if script.script and self._wants(name):
            place = self._place(script.line)
            argv = _make_argv(script, SCRIPT_PATH, place, name)
            yield HostScriptStep(place, f"%{name}", name, argv, _encode(script.script))

    def _find_origin(self, files: FilesSection) -> int | None:
        """The stage that a %files section copies from; None for the host."""
        words = split_words(cut_comment(files.arguments))
        if not words:
            return None
        if len(words) != 2:
            raise refuse_recipe(
                self._place(files.line),
                f"'%files {trim(files.arguments)}' is not valid",
                hint="write '%files from STAGE', or '%files' alone for files of this host",
            )
        if words[1] not in self.earlier:
            known = ", ".join(name for name in self.earlier if name)
            raise refuse_recipe(
                self._place(files.line),
                f"unknown stage '{words[1]}'",
                hint=f"stages before this one: {known}"
                if known
                else f"add 'Stage: {words[1]}' to the header of a stage above",
            )
        return self.earlier[words[1]]

    def _copy(self, files: FilesSection) -> Iterator[Step]:
        origin = self._find_origin(files)
        for transfer in files.transfers:
            if not transfer.source:
                continue
            target = transfer.destination
            yield CopyStep(
                self._place(transfer.line),
                trim(f"%files {files.arguments}") + f": {transfer.source} {target}".rstrip(),
                (transfer.source,),
                f"/{target}" if target and not target.startswith("/") else target,
                CopyOrigin(stage=origin),
                is_definition=True,
            )

    def _post(self, apps: list[App], section: Mapping[str, Any]) -> Iterator[Step]:
        post = self.definition.script("post") if self._wants("post") else Script()
        text = post.script + write_installs(apps)
        if not text:
            return
        place = self._place(post.line) if post.script else apps[0].place
        argv = _make_argv(post, _POST_SCRIPT, place, "post")
        places = {"ENVIRONMENT": _ENVIRONMENT_FILE, "LABELS": BUILD_LABELS}
        extra = {f"{tool}_{key}": path for key, path in places.items() for tool in ("APPTAINER", "SINGULARITY")}
        yield RunStep(
            place,
            "%post" if post.script else "%appinstall",
            ("/bin/sh", "-c", _SOURCE_ENVIRONMENT, "sh", *argv),
            self._make_environment(section, extra),
            section="post",
            script=InlineFile(_POST_SCRIPT, _encode(text)),
            proxies=self._proxies,
        )

    @property
    def _proxies(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(self.arguments.environment.items()))

    def _make_environment(self, section: Mapping[str, Any], extra: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        values = {"PATH": _PATH, "HOME": "/root", "LANG": "C"}
        values |= {f"{tool}_{key}": "rootfs" for key in ("CONTAINER", "NAME") for tool in ("APPTAINER", "SINGULARITY")}
        for entry in section.get("Env") or ():
            key, _, value = str(entry).partition("=")
            values[key] = value
        return tuple(sorted({**values, **extra}.items()))

    def _test(self, section: Mapping[str, Any]) -> Iterator[Step]:
        test = self.definition.script("test")
        if test.script and self._wants("test"):
            argv = ("/bin/sh", "-c", _SOURCE_ENVIRONMENT, "sh", "/.singularity.d/test")
            environment = self._make_environment(section, {})
            yield RunStep(self._place(test.line), "%test", argv, environment, section="test", proxies=self._proxies)

    def _make_section(self, section: Mapping[str, Any]) -> dict[str, Any]:
        """The config for images that are no SIF: exports, run script and labels, as far as a config holds them."""
        wanted = self._select()
        exports = replace_bytes(wanted.script("environment").script)
        run = wanted.script("runscript")
        report = InspectReport(
            environment={f"/.singularity.d/env/{fixed_files.CUSTOM_ENVIRONMENT}": exports},
            labels={replace_bytes(key): replace_bytes(value) for key, value in wanted.labels.items()},
            runscript=replace_bytes(render_script(run)) if run.script else "",
        )
        return derive_section(report, dict(section))[0]


def _make_argv(script: Script, path: str, place: RecipePlace, name: str) -> tuple[str, ...]:
    """`/bin/sh -ex PATH`, with the section's arguments; all behind `-c` is one word that ends with the path."""
    words = split_words(cut_comment(script.arguments))
    if "-c" not in words:
        return ("/bin/sh", "-ex", *words, path)
    index = words.index("-c")
    shell = " ".join(words[index + 1 :])
    if not shell:
        raise refuse_recipe(place, f"-c of %{name} needs a shell", hint=f"example: %{name} -c /bin/bash")
    return ("/bin/sh", "-ex", *words[: index + 1], f"{shell} {path}")


def make_recipe(text: str, name: str, arguments: BuildArguments | None = None) -> Recipe:
    """Read a definition file: templates are replaced stage by stage, then each stage is read again."""
    given = arguments or BuildArguments()
    stages: list[Definition] = []
    used: set[str] = set()
    warnings: list[str] = []
    for stage in parse_stages(text, name):
        expanded = expand_arguments(stage, given.values, keeps_undefined=given.keeps_undefined)
        used |= expanded.used
        warnings += expanded.warnings
        stages.append(parse_stage(expanded.text, name, stage.line))
    stages = stages[: _find_target(stages, given.target) + 1]
    full_text = "".join(stage.raw for stage in stages)
    names: dict[str, int] = {}
    made = []
    for index, stage in enumerate(stages):
        _check_header(stage)
        text_of_stage = full_text if index == len(stages) - 1 else ""
        made.append(DefinitionStage(index, stage, text_of_stage, dict(names), given))
        made[-1].plan({})  # mistakes in any stage show before anything is built
        names.setdefault(stage.header.get("stage") or f"stage-{index}", index)
    return Recipe(
        kind="definition",
        name=name,
        text=text,
        stages=tuple(made),
        warnings=tuple(warnings),
        unused_arguments=tuple(key for key in given.values if key not in used),
        labels={replace_bytes(key): replace_bytes(value) for key, value in stages[-1].labels.items()},
    )


def _find_target(stages: list[Definition], target: str) -> int:
    """The number of the stage that --target names; without it the last one."""
    if not target:
        return len(stages) - 1
    names = [stage.header.get("stage", "") for stage in stages]
    if target in names:
        return names.index(target)
    number = number_stage(target)
    if number is not None and number < len(stages):
        return number
    known = ", ".join(name or f"stage-{index}" for index, name in enumerate(names))
    raise refuse_recipe(
        RecipePlace(stages[0].name, stages[0].line),
        f"unknown stage '{target}' (--target)",
        hint=f"stages: {known}",
    )


def _check_header(stage: Definition) -> None:
    if stage.header.get("bootstrap"):
        return
    place = RecipePlace(stage.name, stage.line)
    if stage.header:
        raise refuse_recipe(
            place,
            "the header does not start with 'Bootstrap:'",
            hint="move 'Bootstrap: AGENT' to the first line of the stage, before From: and the other keys",
        )
    raise refuse_recipe(
        place,
        "the stage has no header",
        hint="start it with 'Bootstrap: docker' and 'From: IMAGE'",
    )


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# SCIF apps of a definition file: their directories and files below /scif, and what %appinstall adds to %post.
#
# Apptainer runs the installs of all apps as the tail of %post, in one shell: variables that %post sets are seen there.

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
