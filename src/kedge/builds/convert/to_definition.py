# SPDX-License-Identifier: BSD-3-Clause
"""A Dockerfile as a definition file.

Definition files have no stage on top of a stage: what such a stage is based on is written into it again. Files of
other images come from a stage of their own. All files are copied before %post, wherever COPY stands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

from kedge.builds.convert.bases_for_dockerfiles import SCHEMES
from kedge.builds.convert.notes import ConvertedRecipe, NoteTaker
from kedge.builds.convert.quoting import Pieces, Variable, join_literal, read_dockerfile_value, write_shell_value
from kedge.builds.definition.arguments import list_arguments
from kedge.builds.dockerfile.expand import ExpansionBudget, ExpansionLimitError
from kedge.builds.dockerfile.instructions import (
    ArgInstruction,
    CopyInstruction,
    FromInstruction,
    HealthInstruction,
    Instruction,
    OnbuildInstruction,
    PairsInstruction,
    RunInstruction,
    WordsInstruction,
    read_instruction,
)
from kedge.builds.dockerfile.section import clean_path, resolve_destination
from kedge.builds.dockerfile.syntax import read_syntax
from kedge.builds.step_values import RecipePlace, ValuesTooLong, refuse_recipe


def convert_to_definition(text: str, name: str) -> ConvertedRecipe:
    """Print a Dockerfile as a definition file."""
    syntax = read_syntax(text, name)
    converter = _Converter(name, text, syntax.escape)
    for node in syntax.nodes:
        converter.add(read_instruction(node))
    return converter.finish()


class _Converter:
    """Goes through the instructions of a file."""

    def __init__(self, name: str, text: str, escape: str) -> None:
        self.lines = text.removeprefix("\ufeff").split("\n")
        self.escape = escape
        self.notes = NoteTaker(name)
        self.globals: dict[str, str] = {}
        self.budget = ExpansionBudget()
        self.writers: list[DraftWriter] = []
        self.names: dict[str, int] = {}
        self.images: dict[str, str] = {}  # images that files are copied from, and the names of their stages
        self.wanted: set[int] = set()  # stages that files are copied from
        self.parents: dict[int, int] = {}  # stages that are based on others
        self.comments: list[str] = []  # before the next FROM

    def add(self, instruction: Instruction) -> None:
        """Take one instruction."""
        if isinstance(instruction, FromInstruction):
            self._begin(instruction)
        elif not self.writers:
            if not isinstance(instruction, ArgInstruction):
                place = instruction.node.place
                raise refuse_recipe(place, f"{instruction.node.keyword} stands before the first FROM")
            self.comments += [f"# {comment}".rstrip() for comment in instruction.node.line.comments]
            for key, value in instruction.arguments:
                self.globals[key] = join_literal(read_dockerfile_value(value or "", self.escape))
        else:
            if isinstance(instruction, CopyInstruction) and instruction.origin:
                self.writers[-1].origin = self._find_origin(instruction.origin)
            self.writers[-1].add(instruction)

    def _begin(self, instruction: FromInstruction) -> None:
        """A stage: on a base, or on a copy of what an earlier one has collected."""
        parent = self.names.get(instruction.image.lower())
        draft = deepcopy(self.writers[parent].draft) if parent is not None else DefinitionDraft()
        writer = DraftWriter(draft, self.notes, self.lines, self.escape)
        if parent is not None:
            self.parents[len(self.writers)] = parent
            writer.inherit(self.writers[parent])
            draft.header = [line for line in draft.header if not line.startswith("Stage: ")]
        writer.globals = self.globals
        writer.budget = self.budget
        writer.line = instruction.node.place.line
        draft.comments += [*self.comments, *(f"# {comment}".rstrip() for comment in instruction.node.line.comments)]
        self.comments = []
        if parent is None:
            writer.set_base(instruction)
        if instruction.name:
            draft.header.append(f"Stage: {instruction.name}")
            self.names[instruction.name] = len(self.writers)
        self.writers.append(writer)

    def _find_origin(self, name: str) -> str:
        """The name of the stage that `--from` means."""
        index = int(name) if re.fullmatch("[0-9]{1,4}", name) else self.names.get(name.lower(), -1)
        if 0 <= index < len(self.writers) - 1:
            self.wanted.add(index)
            return self._name_stage(index)
        return self.images.setdefault(name, f"image-{len(self.images)}")

    def _name_stage(self, index: int) -> str:
        """The name of a stage; one that had none gets its number."""
        header = self.writers[index].draft.header
        for line in header:
            if line.startswith("Stage: "):
                return line.removeprefix("Stage: ")
        header.append(f"Stage: stage-{index}")
        return f"stage-{index}"

    def _list_parents(self) -> set[int]:
        """The stages that are written into another one which is printed."""
        parents: set[int] = set()
        for index in (*self.wanted, len(self.writers) - 1):
            while index in self.parents:
                index = self.parents[index]
                parents.add(index)
        return parents

    def finish(self) -> ConvertedRecipe:
        """The whole text."""
        if not self.writers:
            place = self.notes.file
            raise refuse_recipe(RecipePlace(place, 1), "no FROM in this file")
        stages = [f"Bootstrap: docker\nFrom: {image}\nStage: {name}\n" for image, name in self.images.items()]
        last = len(self.writers) - 1
        for index, writer in enumerate(self.writers):
            if index == last or index in self.wanted:
                writer.close(is_last=index == last)
                stages.append(_print(writer.draft, is_last=index == last))
            elif index not in self._list_parents():
                self.notes.add(writer.line, "this stage is left out: the last one does not need it")
        return ConvertedRecipe("definition", "\n".join(stages), tuple(self.notes.notes))


def _print(draft: DefinitionDraft, *, is_last: bool) -> str:
    """The text of a stage; braces of other programs become arguments that stand for themselves."""
    text = draft.print(is_last=is_last)
    others = [name for name in list_arguments(text) if name not in draft.arguments]
    if not others:
        return text
    draft.arguments |= {name: f"{{{{ {name} }}}}" for name in others}
    return draft.print(is_last=is_last)


# The instructions of one Dockerfile stage, one after the other, into the sections of a definition file.

_DEFAULT_SHELL = ("/bin/sh", "-c")
_ARCHIVE = re.compile(r"\.(tar|tar\.gz|tgz|tar\.bz2|tbz2|tar\.xz|txz|tar\.zst)$")
_ADDRESS = re.compile(r"(https?|ftp)://", re.IGNORECASE)
_GIT = re.compile(r"git@|git://|https?://.*\.git(#|$)", re.IGNORECASE)
_PROGRAMS = re.compile(r"bin/[^/]+$")  # these are files
_PLATFORM_NAMES = re.compile(r"(TARGET|BUILD)(PLATFORM|OS|ARCH|VARIANT|OSVERSION)$")
_KNOWN_DIRECTORIES = (
    *("/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/media", "/mnt", "/opt", "/root", "/run", "/sbin", "/srv"),
    *("/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/local/bin", "/usr/local/lib", "/usr/local/sbin"),
    *("/usr/sbin", "/usr/share", "/usr/src", "/var", "/var/lib", "/var/tmp"),
)
_NO_EQUAL = {
    "EXPOSE": "ports need no EXPOSE: containers share the network of the host",
    "VOLUME": "VOLUME has no equal: bind a directory with --bind",
    "STOPSIGNAL": "STOPSIGNAL has no equal",
}


class DraftWriter:
    """Collects one stage."""

    def __init__(self, draft: DefinitionDraft, notes: NoteTaker, lines: list[str], escape: str) -> None:
        self.budget = ExpansionBudget()
        self.draft = draft
        self.notes = notes
        self.lines = lines
        self.escape = escape
        self.globals: dict[str, str] = {}
        self.values: dict[str, str | None] = {}  # ENV; None where a value is known in the container alone
        self.directory = "/"
        self.shell: tuple[str, ...] = _DEFAULT_SHELL
        self.shells: set[tuple[str, ...]] = set()  # that RUN has used
        self.has_run = False
        self.line = 1  # of FROM
        self.directories = {*_KNOWN_DIRECTORIES}
        self.origin = ""  # the stage that the next COPY takes its files from

    def inherit(self, parent: DraftWriter) -> None:
        """Go on where the stage below ended."""
        self.values = dict(parent.values)
        self.directory, self.shell, self.has_run = parent.directory, parent.shell, parent.has_run
        self.shells = set(parent.shells)
        self.directories = set(parent.directories)

    def set_base(self, instruction: FromInstruction) -> None:
        """FROM."""
        line = instruction.node.place.line
        if instruction.platform:
            self._remark(line, f"definition files do not name a platform: use --arch for {instruction.platform}")
        image = self._expand(instruction.image, line, is_base=True)
        self.draft.header = _write_header(image)

    def add(self, instruction: Instruction) -> None:
        """Any other instruction."""
        comments = [f"# {comment}".rstrip() for comment in instruction.node.line.comments]
        if isinstance(instruction, RunInstruction | ArgInstruction) or instruction.node.keyword in ("ENV", "WORKDIR"):
            self.draft.post += comments
        else:
            self.draft.remarks += comments
        handlers: dict[type, Callable[..., None]] = {
            RunInstruction: self._run,
            CopyInstruction: self._copy,
            PairsInstruction: self._pairs,
            ArgInstruction: self._argument,
            HealthInstruction: self._health,
            OnbuildInstruction: self._onbuild,
            WordsInstruction: self._words,
        }
        handlers[type(instruction)](instruction)

    def _remark(self, line: int, message: str) -> None:
        self.draft.remarks += self.notes.add(line, message)

    def _expand(self, text: str, line: int, *, is_base: bool = False) -> str:
        """Text for places where no shell works: values of ENV, and build arguments as templates."""
        result = ""
        for piece in read_dockerfile_value(text, self.escape):
            if isinstance(piece, str):
                result += piece
            elif self.values.get(piece.name) is not None and not is_base:
                result += self._take_value(piece.name, line, len(result))
            elif piece.name in self.draft.arguments or (is_base and piece.name in self.globals):
                self.draft.arguments.setdefault(piece.name, self.globals.get(piece.name, piece.rest[2:]))
                result += f"{{{{ {piece.name} }}}}"
            else:
                self._remark(line, f"the value of ${piece.name} is known only while the image is built")
                result += str(piece)
        return result

    def _take_value(self, name: str, line: int, so_far: int) -> str:
        value = self.values[name] or ""
        try:
            self.budget.take(len(value), so_far)
        except ExpansionLimitError as error:
            raise ValuesTooLong(RecipePlace(self.notes.file, line), str(error)) from None
        return value

    # ---- variables

    def _argument(self, instruction: ArgInstruction) -> None:
        for name, value in instruction.arguments:
            line = instruction.node.place.line
            default = self.globals.get(name, "") if value is None else self._expand(value, line)
            if value is None and _PLATFORM_NAMES.match(name):
                self._remark(line, f"{name} has no value by itself in a definition file: give it with --build-arg")
            self.draft.arguments[name] = default.replace("\n", " ")
            if name not in self.values:
                self.draft.post.append(f'export {name}="{{{{ {name} }}}}"')

    def _with_templates(self, text: str) -> Pieces:
        """A value for a shell: build arguments are replaced before it runs."""
        pieces: list[str | Variable] = []
        for piece in read_dockerfile_value(text, self.escape):
            is_argument = isinstance(piece, Variable) and piece.name in self.draft.arguments
            if isinstance(piece, Variable) and is_argument and piece.name not in self.values:
                pieces.append(f"{{{{ {piece.name} }}}}")
            else:
                pieces.append(piece)
        return tuple(pieces)

    def _pairs(self, instruction: PairsInstruction) -> None:
        line = instruction.node.place.line
        for raw_name, value in instruction.pairs:
            name = self._expand(raw_name, line)
            if instruction.node.keyword == "LABEL":
                self._label(name, self._expand(value, line), line)
                continue
            pieces = self._with_templates(value)
            export = f"export {name}={write_shell_value(pieces)}"
            self.draft.environment.append(export)
            self.draft.post.append(export)
            is_known = all(isinstance(piece, str) for piece in pieces)
            self.values[name] = join_literal(pieces) if is_known else None

    def _label(self, name: str, value: str, line: int) -> None:
        if len(value.split("\n")) > 1 or len(name.split()) != 1:
            self._remark(line, f"the label '{name}' is written on one line, blanks in its name as underscores")
        self.draft.labels["_".join(name.split())] = " ".join(value.split("\n"))

    # ---- commands

    def _run(self, instruction: RunInstruction) -> None:
        node = instruction.node
        line = node.place.line
        for mount in instruction.mounts:
            self.draft.post += self.notes.add(line, f"--mount={mount} has no equal in %post")
        if instruction.network != "default":
            self.draft.post += self.notes.add(line, f"--network={instruction.network} has no equal in %post")
        self.has_run = True
        if node.is_json:
            self.draft.post.append(shlex.join(instruction.words))
            return
        if node.heredocs and any(part.lstrip().startswith("%") for part in self.lines[line : node.end]):
            self.draft.post += self.notes.add(line, "a line that begins with % would begin a section: change it")
        self.shells.add(self.shell)
        text = self._read_command(instruction)
        if len(self.shells) > 1 and self.shell != _DEFAULT_SHELL:
            self.draft.post.append(shlex.join([*self.shell, text]))
        elif node.heredocs:
            tolerant = [] if re.match(r"set -[a-z]*e", text) else ["set +e"]
            self.draft.post.append("\n".join(["(", *tolerant, text, ")"]))
        else:
            self.draft.post += write_command(text)

    def _read_command(self, instruction: RunInstruction) -> str:
        """The command as it is written: its lines are kept, comments between them go."""
        node = instruction.node
        if node.heredocs and _is_only_heredoc(node.words):
            content = node.heredocs[0].stripped.rstrip("\n")
            if content.startswith("#!"):
                return f"{content.partition(chr(10))[0][2:].strip()} /dev/stdin <<'EOF'\n{content}\nEOF"
            return content
        if self.escape != "\\":
            return instruction.words[0]
        lines = [line.rstrip("\r") for line in self.lines[node.line.start - 1 : node.line.end]]
        lines = [lines[0], *(text for text in lines[1:] if text.strip() and not text.lstrip().startswith("#"))]
        command = re.sub(r"^\s*\S+\s+", "", "\n".join(line.rstrip() for line in lines), count=1)
        for flag in node.flags:
            command = re.sub(rf"^(?:\s|\\\n)*{re.escape(flag)}(?:\s|\\\n)+", "", command, count=1)
        if any(part.lstrip().startswith("%") for part in lines[1:]) and not node.heredocs:
            return instruction.words[0]  # in one line, because a line that begins with % begins a section
        documents = "\n".join(self.lines[node.line.end : node.end])
        return command.strip() + (f"\n{documents}" if node.heredocs else "")

    def close(self, *, is_last: bool) -> None:
        """The shell of %post, once all of RUN is known, and what a container would begin with."""
        if is_last and self.directory != "/":
            message = f"containers begin in the directory they are started from: use --pwd {self.directory} for WORKDIR"
            self._remark(self.line, message)
        if len(self.shells) == 1 and self.shells != {_DEFAULT_SHELL}:
            (shell,) = self.shells
            self.draft.post_arguments = f"-c {shell[0]}"
            self.draft.post.insert(0, "set -ex" + ("o pipefail" if "pipefail" in shell else ""))

    # ---- files

    def _copy(self, instruction: CopyInstruction) -> None:
        node, line = instruction.node, instruction.node.place.line
        target = resolve_destination(self.directory, self._expand(instruction.destination, line))
        sources = [self._expand(source, line) for source in instruction.sources]
        is_folder = len(sources) + len(instruction.inline) > 1 or target in self.directories
        if is_folder and not target.endswith("/"):
            target += "/"
        for flag in ("exclude", "parents", "checksum", "keep-git-dir"):
            if any(text.startswith(f"--{flag}") for text in node.flags):
                self._remark(line, f"{node.keyword} --{flag} has no equal in %files")
        if self.has_run and sources:
            self._remark(line, "%files are copied before %post runs, though this COPY stands after RUN")
        for source in sources:
            self._copy_one(source, target, node.keyword, line)
        for document in instruction.inline:
            path = target + document.name if target.endswith("/") else target
            quoted = document.name if document.expands and "$" in document.content else f"'{document.name}'"
            self.draft.post.append(f"cat > {shlex.quote(path)} <<{quoted}\n{document.stripped}{document.name}")
            self._own(instruction, path)
        for source in sources:
            name = source.rpartition("/")[2]
            is_named = target.endswith("/") and name not in ("", ".") and not any(sign in name for sign in "*?[")
            self._own(instruction, target + name if is_named else target)
            if is_named and "." not in name and name.islower() and not _PROGRAMS.search(source):
                self._remark(line, f"if {source} is a directory, COPY takes what is in it: write {source}/. then")
        self.origin = ""

    def _copy_one(self, source: str, target: str, keyword: str, line: int) -> None:
        path = target + source.rstrip("/").rpartition("/")[2] if target.endswith("/") else target
        if keyword == "ADD" and _GIT.match(source):
            self.draft.post.append(f"git clone {shlex.quote(source)} {shlex.quote(target)}")
        elif keyword == "ADD" and _ADDRESS.match(source):
            self._remark(line, f"{source} is downloaded with curl, which the image must have")
            self.draft.post.append(f"curl -fsSL {shlex.quote(source)} -o {shlex.quote(path)}")
        elif keyword == "ADD" and _ARCHIVE.search(source):
            packed = "/" + source.rpartition("/")[2]
            self._add_file(source, packed)
            self.draft.post += [
                f"mkdir -p {shlex.quote(target)}",
                f"tar -xf {shlex.quote(packed)} -C {shlex.quote(target)}",
                f"rm {shlex.quote(packed)}",
            ]
        else:
            self._add_file(f"{source}." if source.endswith("/") else source, target)

    def _add_file(self, source: str, target: str) -> None:
        words = [f'"{word}"' if any(character.isspace() for character in word) else word for word in (source, target)]
        if self.origin and not words[0].startswith(("/", '"')):
            words[0] = f"/{words[0]}"
        self.draft.files.setdefault(self.origin, []).append(" ".join(words))

    def _own(self, instruction: CopyInstruction, path: str) -> None:
        owner, mode = instruction.flags.text("chown"), instruction.flags.text("chmod")
        if owner:
            self.draft.post.append(f"chown -R {shlex.quote(owner)} {shlex.quote(path)}")
        if mode:
            self.draft.post.append(f"chmod -R {shlex.quote(mode)} {shlex.quote(path)}")

    # ---- the rest

    def _health(self, instruction: HealthInstruction) -> None:
        self._remark(instruction.node.place.line, "HEALTHCHECK has no equal")

    def _onbuild(self, instruction: OnbuildInstruction) -> None:
        self._remark(instruction.node.place.line, f"ONBUILD has no equal: {instruction.expression}")

    def _words(self, instruction: WordsInstruction) -> None:
        node, words = instruction.node, instruction.words
        line = node.place.line
        if node.keyword in ("CMD", "ENTRYPOINT"):
            shown = words if node.is_json else (*self.shell, " ".join(words))
            made = Command(tuple(shown) if words else (), not node.is_json)
            if node.keyword == "CMD":
                self.draft.command = made
            else:
                self.draft.entrypoint, self.draft.command = made, Command()
        elif node.keyword == "SHELL":
            self.shell = words
        elif node.keyword == "MAINTAINER":
            self.draft.labels["maintainer"] = words[0]
        elif node.keyword == "WORKDIR":
            path = self._expand(words[0], line)
            self.directory = path if path.startswith("/") else clean_path(f"{self.directory}/{path}")
            quoted = shlex.quote(self.directory)
            self.directories.add(self.directory)
            self.draft.post += [f"mkdir -p {quoted}", f"cd {quoted}"]
        elif node.keyword == "USER":
            self._remark(line, f"USER {words[0]}: %post runs as root, and the image as the user who starts it")
        elif node.keyword in _NO_EQUAL:
            self._remark(line, f"{node.keyword} {' '.join(words)}: {_NO_EQUAL[node.keyword]}")


def _write_header(image: str) -> list[str]:
    if image.lower() == "scratch":
        return ["Bootstrap: scratch"]
    if image.startswith(("/", "./", "../")):
        return ["Bootstrap: localimage", f"From: {image}"]
    for agent, scheme in SCHEMES.items():
        if image.startswith(scheme):
            return [f"Bootstrap: {agent}", f"From: {image.removeprefix(scheme)}"]
    return ["Bootstrap: docker", f"From: {image}"]


def _is_only_heredoc(words: tuple[str, ...]) -> bool:
    """Whether a RUN is a heredoc and nothing else."""
    return bool(re.fullmatch(r"""<<-?\s*(['"]?)[^\s'"]+\1""", " ".join(words).strip()))


# RUN commands as lines of %post.
#
# Each RUN has a shell of its own; %post is one shell with -e. Under -e a command before `&&` may fail unnoticed, so
# chains become lines of their own. What changes the shell (cd, export, variables) stands in parentheses.

_KEYWORDS = ("if", "for", "while", "until", "case", "select", "function", "{", "[[", "!")
_CHANGES_SHELL = re.compile(
    r"(?:cd|pushd|popd|export|set|umask|exit|exec|source|\.|alias|unset|trap|ulimit|shopt|eval|hash|enable)(?=\s|$)"
    r"|[A-Za-z_]\w*=\S*\s*$"
)
_CLOSING = {"(": ")", "{": "}"}


def write_command(text: str) -> list[str]:
    """Lines of %post that do what a RUN in the shell form does."""
    parts = _split_chain(text)
    if parts is None:
        needs_no_errexit = ";" in text or "\n" in text.replace("\\\n", "")
        return ["(", *(["set +e"] if needs_no_errexit else []), text, ")"]
    if any(_CHANGES_SHELL.match(part) for part in parts):
        return ["(", *parts, ")"]
    return parts


def _split_chain(text: str) -> list[str] | None:
    """The commands of `a && b && c`; None where the text is anything but such a chain, a pipe or `a || b`."""
    operators: list[tuple[int, str]] = []
    position = 0
    while position < len(text):
        step, operator = _read_step(text, position)
        if step < 0:
            return None
        if operator:
            operators.append((position, operator))
        position += step
    if {operator for _, operator in operators} == {"&&", "||"}:
        return None
    parts = []
    begin = 0
    for place, operator in [*operators, (len(text), "&&")]:
        if operator == "&&":
            parts.append(_trim_part(text[begin:place]))
            begin = place + 2
    has_keyword = any(part.split(None, 1)[:1] == [word] for part in parts for word in _KEYWORDS)
    return None if has_keyword or not all(parts) else parts


def _read_step(text: str, position: int) -> tuple[int, str]:
    """How many characters belong together here, and the operator they are; -1 for what is no simple chain."""
    character = text[position]
    if character == "\\":
        return 2, ""
    if character in "'\"`":
        return _skip_quoted(text, position), ""
    if text.startswith(("$(", "${"), position):
        return _skip_nested(text, position + 1), ""
    if character == "(":
        return _skip_nested(text, position), ""
    pair = text[position : position + 2]
    if pair in ("&&", "||"):
        return 2, pair
    if pair in (">&", "<&", "&>"):
        return 2, ""
    if character in ";&\n)" or pair == "<<" or (character == "#" and text[position - 1 : position].isspace()):
        return -1, ""
    return 1, ""


def _skip_quoted(text: str, position: int) -> int:
    """The length of a quoted stretch; -1 if it does not end."""
    quote = text[position]
    end = position + 1
    while end < len(text) and text[end] != quote:
        end += 2 if text[end] == "\\" and quote != "'" else 1
    return end + 1 - position if end < len(text) else -1


def _skip_nested(text: str, position: int) -> int:
    """The length from before a parenthesis or brace, or the dollar sign before it, to the one that closes it."""
    begin = position - 1 if text[position - 1 : position] == "$" else position
    opening, closing = text[position], _CLOSING[text[position]]
    depth = 0
    end = position
    while end < len(text):
        if text[end] in "'\"":
            length = _skip_quoted(text, end)
            if length < 0:
                return -1
            end += length
            continue
        depth += (text[end] == opening) - (text[end] == closing)
        end += 2 if text[end] == "\\" else 1
        if depth == 0:
            return end - begin
    return -1


def _trim_part(text: str) -> str:
    """A command without blanks and continuations around it."""
    begin, end = 0, len(text)
    while begin < end and (text[begin].isspace() or text.startswith("\\\n", begin)):
        begin += 1 if text[begin].isspace() else 2
    while begin < end and text[end - 1].isspace():
        end -= 2 if text.endswith("\\\n", begin, end) else 1
    return text[begin:end]


# A stage of a definition file in the making: what its sections will have, and how they are printed.

_INDENT = "    "


@dataclass(slots=True)
class Command:
    """ENTRYPOINT or CMD."""

    words: tuple[str, ...] = ()
    is_shell: bool = False


@dataclass(slots=True)
class DefinitionDraft:
    """All that a stage collects; a stage that is based on another one begins with a copy of its draft."""

    header: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)  # above the header
    arguments: dict[str, str] = field(default_factory=dict)
    files: dict[str, list[str]] = field(default_factory=dict)  # by origin: empty, or the name of a stage
    post: list[str] = field(default_factory=list)
    post_arguments: str = ""
    environment: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)  # comments about what has no equal
    entrypoint: Command = field(default_factory=Command)
    command: Command = field(default_factory=Command)

    def print(self, *, is_last: bool) -> str:
        """The text; of stages that others copy from, only what is needed to make their files."""
        sections = [[*self.comments, *self.header, *self.remarks]]
        if self.arguments:
            sections.append(["%arguments", *(f"{_INDENT}{key}={value}" for key, value in self.arguments.items())])
        for origin, lines in self.files.items():
            sections.append([f"%files from {origin}" if origin else "%files", *(_INDENT + line for line in lines)])
        if self.post:
            title = f"%post {self.post_arguments}".rstrip()
            sections.append([title, *(_indent(lines) for lines in self.post)])
        if is_last:
            sections += self._describe()
        return "\n\n".join("\n".join(lines) for lines in sections) + "\n"

    def _describe(self) -> list[list[str]]:
        sections = []
        if self.environment:
            sections.append(["%environment", *(_INDENT + line for line in self.environment)])
        if self.labels:
            sections.append(["%labels", *(f"{_INDENT}{key} {value}".rstrip() for key, value in self.labels.items())])
        run = _write_runscript(self.entrypoint, self.command)
        if run:
            sections.append(["%runscript", *(_INDENT + line for line in run)])
        return sections


def _indent(text: str) -> str:
    """Lines as they stand in %post; a heredoc stays as it is, because its end must be at the beginning of a line."""
    if "<<" in text:
        return text
    return "\n".join(_INDENT + line if line.strip() else "" for line in text.split("\n"))


def _write_runscript(entrypoint: Command, command: Command) -> list[str]:
    """ENTRYPOINT and CMD as Docker puts them together."""
    if entrypoint.is_shell and entrypoint.words:
        return [f"exec {shlex.join(entrypoint.words)}"]
    fixed = shlex.join(entrypoint.words)
    if not fixed and not command.words:
        return []
    start = f'exec {fixed} "$@"' if fixed else 'exec "$@"'
    if not command.words:
        return [start]
    return [f'[ "$#" -gt 0 ] || set -- {shlex.join(command.words)}', start]
