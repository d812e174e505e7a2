# SPDX-License-Identifier: BSD-3-Clause
"""A definition file as a recipe: stages whose steps come in the order in which Apptainer builds, not that of the file.

%pre, the base, apps, `%files from`, %setup, %files, %post with the apps' installs, metadata, %test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kedge.base.frozen import replace
from kedge.builds.definition.apps import (
    App,
    list_app_copies,
    list_app_directories,
    list_apps,
    write_app_files,
    write_installs,
)
from kedge.builds.definition.arguments import expand_arguments
from kedge.builds.definition.definition import Definition, FilesSection, Script, replace_bytes
from kedge.builds.definition.metadata import render_script, write_foundation, write_metadata
from kedge.builds.definition.parse import parse_stage, parse_stages
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
    WriteFilesStep,
    number_stage,
    refuse_recipe,
)
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
