# SPDX-License-Identifier: BSD-3-Clause
"""The instructions of one Dockerfile stage, one after the other, into the sections of a definition file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from kedge.builds.convert.bases_for_dockerfiles import SCHEMES
from kedge.builds.convert.commands import write_command
from kedge.builds.convert.definition_draft import Command, DefinitionDraft
from kedge.builds.convert.notes import NoteTaker
from kedge.builds.convert.quoting import Pieces, Variable, join_literal, read_dockerfile_value, write_shell_value
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
)
from kedge.builds.dockerfile.section import clean_path, resolve_destination
from kedge.builds.step_values import RecipePlace, ValuesTooLong

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
