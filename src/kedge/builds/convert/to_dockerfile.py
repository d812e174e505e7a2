# SPDX-License-Identifier: BSD-3-Clause
"""A definition file as a Dockerfile.

%files stand before %post whatever their order in the file, because that is the order in which Apptainer works; ENV
stands behind RUN, because %post does not see %environment.
"""

from __future__ import annotations

import json
import re
import shlex
import textwrap

from kedge.builds.convert.bases_for_dockerfiles import write_from
from kedge.builds.convert.notes import MARK_BEGIN, MARK_END, ConvertedRecipe, NoteTaker, comment_out
from kedge.builds.convert.quoting import Assignment, mark_to_variables, read_assignments, write_dockerfile_value
from kedge.builds.definition.arguments import mark_arguments, read_defaults
from kedge.builds.definition.definition import (
    Definition,
    FilesSection,
    FileTransfer,
    Script,
    parse_stage,
    parse_stages,
    read_labels,
)
from kedge.builds.definition.metadata import render_script
from kedge.builds.go_strings import cut_comment, split_words, trim

_RUNSCRIPT = "/usr/local/bin/runscript"
_ENVIRONMENT_NAMES = re.compile(r"\$\{?(?:APPTAINER|SINGULARITY)_(ENVIRONMENT|LABELS)\b")
_MARKED = re.compile(f"{MARK_BEGIN}([A-Za-z0-9_]+){MARK_END}")
_NO_EQUAL = {
    "pre": "%pre runs on the host before the build: run it before 'docker build'",
    "setup": "%setup runs on the host: use COPY for files, and RUN for commands in the image",
    "startscript": "%startscript starts instances, which Dockerfiles do not have",
    "test": "%test has no equal in a Dockerfile: run it in the finished image",
}


def convert_to_dockerfile(text: str, name: str) -> ConvertedRecipe:
    """Print a definition file as a Dockerfile."""
    notes = NoteTaker(name)
    stages = [_mark(stage) for stage in parse_stages(text, name)]
    comments = _leading_comments(text)
    lines = ["# syntax=docker/dockerfile:1", *(["", *comments] if comments else [])]  # else they could be directives
    in_headers = {key: None for stage in stages for key in _MARKED.findall("\n".join(stage.header.values()))}
    defaults = {key: value for stage in reversed(stages) for key, value in read_defaults(stage)[0].items()}
    lines += [_write_argument(key, defaults.get(key)) for key in in_headers]
    between: list[str] = []
    for index, stage in enumerate(stages):
        stage, following = _cut_last_comments(stage)
        lines += ["", *between, *_header_comments(stage)]
        lines += _StageWriter(stage, notes, set(in_headers)).write(is_last=index == len(stages) - 1)
        between = following
    lines += ["", *between] if between else []
    return ConvertedRecipe("dockerfile", mark_to_variables("\n".join(lines)) + "\n", tuple(notes.notes))


def _mark(stage: Definition) -> Definition:
    """The stage with `{{ NAME }}` as marks, which survive quotes."""
    return parse_stage(mark_arguments(stage.raw, MARK_BEGIN, MARK_END), stage.name, stage.line)


def _leading_comments(text: str) -> list[str]:
    """Comments at the beginning of the file, before anything else."""
    comments = []
    for line in text.split("\n"):
        if line.startswith("#"):
            comments.append(line.rstrip())
        elif line.strip():
            break
    return comments


def _header_comments(stage: Definition) -> list[str]:
    """Comments between the keys of a header."""
    header = re.split(r"(?m)^[ \t]*%", stage.raw, maxsplit=1)[0]
    return [line.strip() for line in header.split("\n") if line.lstrip().startswith("#")]


def _cut_last_comments(stage: Definition) -> tuple[Definition, list[str]]:
    """The stage without comments at its very end: they belong to what follows in the file."""
    titles = re.findall(r"(?m)^%(\w+)", stage.raw)
    lines = stage.raw.rstrip().split("\n")
    if not titles or titles[-1].lower() not in ("post", "files", "labels", "environment"):
        return stage, []
    count = 0
    while count < len(lines) and (lines[-1 - count].startswith("#") or not lines[-1 - count].strip()):
        count += 1
    comments = [line.rstrip() for line in lines[len(lines) - count :] if line.strip()]
    return parse_stage("\n".join(lines[: len(lines) - count]) + "\n", stage.name, stage.line), comments


def _write_argument(key: str, value: str | None) -> str:
    if value is None:
        return f"ARG {key}"
    return f"ARG {key}={write_dockerfile_value((value,))}"


class _StageWriter:
    """Writes one stage."""

    def __init__(self, stage: Definition, notes: NoteTaker, known: set[str]) -> None:
        self.stage = stage
        self.notes = notes
        self.known = known  # build arguments that are declared above the first FROM

    def write(self, *, is_last: bool) -> list[str]:
        """Return all lines of the stage."""
        above, image, below = write_from(self.stage, self.notes)
        name = self.stage.header.get("stage", "")
        lines = [*above, f"FROM {image}" + (f" AS {_stage_name(name)}" if name else ""), *below, *self._arguments()]
        lines += self._without_equal("pre") + self._setup()
        for files in self.stage.files:
            lines += self._files(files)
        lines += self._apps() + self._post() + self._environment()
        lines += self._labels()
        if is_last:
            lines += self._help() + self._runscript()
        return [*lines, *self._without_equal("startscript"), *self._without_equal("test")]

    def _arguments(self) -> list[str]:
        """ARG for all that the sections use, with the default of this stage."""
        defaults, _ = read_defaults(self.stage)
        body = re.sub(r"(?ms)^%arguments\b.*?(?=^%|\Z)", "", self.stage.raw)
        used = dict.fromkeys([*defaults, *_MARKED.findall(body)])
        in_header = set(_MARKED.findall("\n".join(self.stage.header.values())))
        in_sections = set(_MARKED.findall("\n".join(body.split("\n%")[1:])))
        wanted = [key for key in used if key not in self.known or key in in_sections or key not in in_header]
        if wanted and any("'" in line and MARK_BEGIN in line for line in body.split("\n")):
            self.notes.add(
                self.stage.script("arguments").line or self.stage.line,
                "{{ }} is replaced everywhere in a definition file; ${} is not replaced between single quotes in RUN",
            )
        return [_write_argument(key, None if key in self.known else defaults.get(key)) for key in wanted]

    def _without_equal(self, section: str) -> list[str]:
        script = self.stage.script(section)
        if not script.script.strip():
            return []
        return ["", *self.notes.add(script.line, _NO_EQUAL[section]), *comment_out(script.script)]

    def _setup(self) -> list[str]:
        lines = convert_setup(self.stage.script("setup"))
        return self._without_equal("setup") if lines is None else (["", *lines] if lines else [])

    def _labels(self) -> list[str]:
        """LABEL for every name, with the comments between them."""
        lines = []
        for raw in self.stage.script("labels").script.split("\n"):
            if raw.lstrip().startswith("#"):
                lines.append(raw.strip())
            lines += [f"LABEL {_quote(key)}={_quote(value)}" for key, value in read_labels(raw).items()]
        return ["", *lines] if lines else []

    def _files(self, files: FilesSection) -> list[str]:
        words = split_words(cut_comment(files.arguments))
        flags = ""
        if len(words) == 2:
            flags = f"--from={_stage_name(words[1])} "
        return ["", *(line for transfer in files.transfers if transfer.source for line in self._copy(transfer, flags))]

    def _copy(self, transfer: FileTransfer, flags: str) -> list[str]:
        source, target = transfer.source, transfer.destination
        lines: list[str] = []
        if not flags and (source.startswith("/") or ".." in source.split("/")):
            lines += self.notes.add(
                transfer.line, f"COPY takes files of the build context only: copy {source} there before the build"
            )
        if not target:
            folder = source.rpartition("/")[0].strip("/")
            has_pattern = any(character in source for character in "*?[")
            target = f"/{folder}/".replace("//", "/") if has_pattern else "/" + source.lstrip("/").removeprefix("./")
        target = target if target.startswith("/") else f"/{target}"
        if any(character.isspace() for character in source + target):
            return [*lines, f"COPY {flags}{json.dumps([source, target], ensure_ascii=False)}"]
        return [*lines, f"COPY {flags}{source} {target}".replace("$", "\\$")]

    def _apps(self) -> list[str]:
        if not self.stage.app_order:
            return []
        line = min(item.line for item in self.stage.custom.values())
        lines = ["", *self.notes.add(line, "Dockerfiles have no apps: make an image or a script of each")]
        for key, item in self.stage.custom.items():
            lines += [f"#   %{key}", *comment_out(item.script)]
        return lines

    def _post(self) -> list[str]:
        post = self.stage.script("post")
        if not post.script.strip():
            return []
        words = split_words(cut_comment(post.arguments))
        script = remove_indent(post.script.strip("\n"))
        lines = [""]
        prologue = []
        if _ENVIRONMENT_NAMES.search(script):
            lines += self.notes.add(
                post.line, "what %post appends to $APPTAINER_ENVIRONMENT works in SIF files only: use ENV and LABEL"
            )
            prologue = ["mkdir -p /.singularity.d/env"]
            prologue += [f"{tool}_ENVIRONMENT=/.singularity.d/env/91-environment.sh" for tool in _TOOLS]
            prologue += [f"{tool}_LABELS=/.build.labels" for tool in _TOOLS]
        if not words and not prologue and is_one_command(script):
            return [*lines, f"RUN {script}"]
        delimiter = find_delimiter(script)
        first = (
            [f"#!{' '.join(words[words.index('-c') + 1 :])}"]
            if "-c" in words
            else [f"set -ex {' '.join(words)}".strip()]
        )
        return [*lines, f"RUN <<'{delimiter}'", *first, *prologue, script, delimiter]

    def _environment(self) -> list[str]:
        script = self.stage.script("environment")
        lines: list[str] = []
        exported: set[str] = set()
        assignments: list[Assignment] = []
        for number, line in join_lines(script):
            if not line.strip():
                continue
            if line.lstrip().startswith("#"):
                lines.append(line.strip())
                continue
            set_here = read_assignments(line)
            if set_here is None:
                message = f"ENV cannot hold '{line.strip()}': it needs a shell when the container starts"
                lines += [*self.notes.add(number, message)]
                continue
            exported |= {item.name for item in set_here if item.is_exported}
            assignments += set_here
            lines += [
                f"ENV {item.name}={write_dockerfile_value(item.value)}" for item in set_here if item.value is not None
            ]
        for item in assignments:
            if item.name not in exported:
                self.notes.add(script.line, f"{item.name} is set but not exported in %environment; ENV exports it")
        return ["", *lines] if lines else []

    def _help(self) -> list[str]:
        text = self.stage.script("help").script.strip("\n")
        if not text.strip():
            return []
        if any(character in text for character in '\n"\\'):
            self.notes.add(
                self.stage.script("help").line, "%help becomes the label org.opencontainers.image.description"
            )
        return ["", f"LABEL org.opencontainers.image.description={_quote(remove_indent(text))}"]

    def _runscript(self) -> list[str]:
        run = self.stage.script("runscript")
        if not run.script.strip():
            return []
        text = trim(remove_indent(run.script.strip("\n")))
        commands = read_exec(text) if not run.arguments.strip() else {}
        if commands:
            return ["", *(f"{key} {json.dumps(words, ensure_ascii=False)}" for key, words in commands.items())]
        whole = render_script(Script(text, run.arguments)).rstrip("\n")
        delimiter = find_delimiter(whole)
        return [
            "",
            f"COPY --chmod=0755 <<'{delimiter}' {_RUNSCRIPT}",
            whole,
            delimiter,
            f'ENTRYPOINT ["{_RUNSCRIPT}"]',
        ]


_TOOLS = ("APPTAINER", "SINGULARITY")


def _stage_name(name: str) -> str:
    """A name that Dockerfiles take: lower case, letters first."""
    clean = re.sub(r"[^a-z0-9._-]", "-", name.lower())
    return clean if clean[:1].isalpha() else f"stage-{clean}"


def _quote(text: str) -> str:
    """Quote a label's name or value; a newline is a backslash and an n, which is what Docker keeps of it."""
    return write_dockerfile_value((text.replace("\n", "\\n"),)).replace("\\\\n", "\\n")


# %setup scripts that only make directories and copy files into the image, as COPY and RUN.

_ROOT = re.compile(r"\$(?:\{(?:SINGULARITY|APPTAINER)_ROOTFS\}|(?:SINGULARITY|APPTAINER)_ROOTFS\b)")
_MARK = "\x01"
_OPERATORS = re.compile(r"[$`;&|<>(){}~#]")


def convert_setup(script: Script) -> list[str] | None:
    """The lines of a Dockerfile; None where the script does anything else on the host."""
    lines: list[str] = []
    for _, line in join_lines(script):
        content = line.strip()
        if not content or content.startswith("#"):
            lines += [content] if content else []
            continue
        converted = _convert_line(_ROOT.sub(_MARK, content))
        if converted is None:
            return None
        lines.append(converted)
    return lines


def _convert_line(line: str) -> str | None:
    if _OPERATORS.search(line):
        return None
    try:
        program, *words = shlex.split(line)
    except ValueError:
        return None
    flags = [word for word in words if word.startswith("-")]
    paths = [word for word in words if not word.startswith("-")]
    if program in ("mkdir", "touch") and paths and all(path.startswith(f"{_MARK}/") for path in paths):
        return f"RUN {shlex.join([program, *flags, *(path[1:] for path in paths)])}"
    if program == "cp" and len(paths) > 1 and paths[-1].startswith(_MARK) and _MARK not in "".join(paths[:-1]):
        return _copy(paths[:-1], paths[-1][1:] or "/", is_deep=any(set(flag) & set("rRa") for flag in flags))
    return None


def _copy(sources: list[str], target: str, *, is_deep: bool) -> str | None:
    """COPY; a directory goes into one that is there by its own name, as with cp."""
    if any(source.startswith(("/", "..")) or len(source.split()) != 1 for source in sources):
        return None
    if is_deep and target.endswith("/") and len(sources) == 1:
        target += sources[0].rstrip("/").rpartition("/")[2]
    if len(sources) > 1 and not target.endswith("/"):
        target += "/"
    return f"COPY {' '.join(sources)} {target}"


# Scripts of definition files looked at from outside: their lines, their indent, and whether they are one command.

_SIMPLE_WORD = r"""(?:[A-Za-z0-9_./:=+,@%^-]|"[^"$`\\]*"|'[^']*')+"""
_EXEC = re.compile(
    r"""(?:\[ "\$\#" -gt 0 \] \|\| set -- (?P<defaults>.*)\n)?(?:exec[ \t]+)?(?P<program>.*?)[ \t]*"?\$@"?"""
)


def remove_indent(text: str) -> str:
    """The lines without the blanks that all of them begin with."""
    return textwrap.dedent(text.expandtabs(4) if text.startswith("\t") and "<<-" not in text else text)


def is_one_command(script: str) -> bool:
    """Whether the text is one logical line without comments or documents in it."""
    lines = script.split("\n")
    if any(line.lstrip().startswith("#") or not line.strip() for line in lines) or "<<" in script:
        return False
    return all(re.search(r"(?<!\\)\\$", line) for line in lines[:-1]) and not lines[-1].endswith("\\")


def find_delimiter(text: str) -> str:
    """A word for a heredoc that is no line of the text."""
    number = 0
    while f"EOF{number or ''}" in text.split("\n"):
        number += 1
    return f"EOF{number or ''}"


def join_lines(script: Script) -> list[tuple[int, str]]:
    """Logical lines with their numbers."""
    joined: list[tuple[int, str]] = []
    pending = ""
    for number, line in enumerate(script.script.split("\n"), script.line + 1):
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            pending += line[:-1]
            continue
        joined.append((number, pending + line))
        pending = ""
    return [*joined, (script.line, pending)] if pending else joined


def read_exec(text: str) -> dict[str, list[str]]:
    """ENTRYPOINT and CMD of `exec PROGRAM "$@"`, with a line for default arguments; nothing for other scripts."""
    match = _EXEC.fullmatch(text)
    if not match:
        return {}
    commands = {"ENTRYPOINT": match["program"], "CMD": match["defaults"]}
    chosen = {}
    for key, words in commands.items():
        if words:
            if not re.fullmatch(rf"(?:{_SIMPLE_WORD}(?:[ \t]+|$))+", words):
                return {}
            chosen[key] = shlex.split(words)
    return chosen
