# SPDX-License-Identifier: BSD-3-Clause
"""Environment scripts and start scripts of an image, read without a shell where they are plain enough."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kedge.container.facts import HostFacts, ImageFacts
    from kedge.container.options import RunOptions
    from kedge.system.views import View

    Lookup = Callable[[str], str | None]  # the value of a variable, None when it is unset
    Step = tuple[str, str]  # what, and the path of a script
    hash_bytes: Callable[[int, bytes], bytes]
else:
    from _imp import source_hash as hash_bytes


# Words of shell text: quotes, backslashes and plain parameters, with the meaning that every POSIX shell gives them.
#
# What needs a real shell (commands, arithmetic, patterns, tildes, positional parameters) raises `NotPlain`.

_BLANKS = " \t"
_ENDS = " \t\n;"
_SHELL_ONLY = "`<>&|(){}~"  # outside quotes these mean work for a shell
_PATTERNS = "*?["
_PLAIN_STOPS = frozenset(_ENDS + _SHELL_ONLY + _PATTERNS + "\\'\"$")
_ESCAPABLE = '$`"\\\n'
_JOINED = "\\\n"  # a shell takes it away first: what stands before and after it may be one name
# Shells make these up themselves, each in its own way.
_DYNAMIC = frozenset(
    (
        *("IFS", "OPTIND", "PPID", "RANDOM", "SECONDS", "LINENO", "HOSTNAME", "HOSTTYPE", "MACHTYPE", "OSTYPE"),
        *("SHLVL", "OLDPWD", "PS2", "PS4", "COLUMNS", "LINES", "EPOCHSECONDS", "SHELLOPTS", "FUNCNAME", "_"),
    )
)


class NotPlain(Exception):
    """This text needs a real shell."""


def is_name(text: str) -> bool:
    """Whether a text can be the name of a variable."""
    return text.isascii() and text.isidentifier()


def read_word(text: str, at: int, lookup: Lookup, *, is_value: bool = True) -> tuple[str, int]:
    """The word that starts at `at`, and where it ends; a value is not split and matches no files."""
    pieces: list[str] = []
    size = len(text)
    while at < size:
        character = text[at]
        if character in _ENDS:
            break
        if character == '"':
            piece, at = _read_quoted(text, at + 1, lookup)
        elif character in "'\\$":
            piece, at = _read_part(text, at, lookup)
            if character == "$" and not is_value and (not piece or any(special in piece for special in " \t\n*?[")):
                raise NotPlain("it would be split")
        elif character in _SHELL_ONLY or (character in _PATTERNS and not is_value):
            raise NotPlain(text[at:])
        else:
            piece, at = _read_plain(text, at)
        pieces.append(piece)
    return "".join(pieces), at


def split_words(text: str, lookup: Lookup) -> list[str]:
    """The words of one line, as the arguments of a command."""
    words: list[str] = []
    at = 0
    while True:
        while at < len(text) and text[at] in _BLANKS:
            at += 1
        if at >= len(text):
            return words
        if text[at] in "\n;#":
            raise NotPlain(text)
        try:
            word, at = read_word(text, at, lookup, is_value=False)
        except RecursionError:
            raise NotPlain("nested too deeply") from None
        words.append(word)


def expand_quoted(text: str, lookup: Lookup) -> str:
    """What text inside double quotes comes to; a double quote in it is an ordinary character."""
    if "\\" not in text and "$" not in text and "`" not in text:
        return text
    escaped = text.replace('"', '\\"')
    try:
        value, end = _read_quoted(escaped + '"', 0, lookup)
    except RecursionError:
        raise NotPlain("nested too deeply") from None
    if end != len(escaped) + 1:
        raise NotPlain(text)
    return value


def quote(text: str) -> str:
    """Text in single quotes, for any shell."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _read_plain(text: str, at: int) -> tuple[str, int]:
    end = at + 1
    while end < len(text) and text[end] not in _PLAIN_STOPS:
        end += 1
    return text[at:end], end


def _read_escaped(text: str, at: int) -> tuple[str, int]:
    following = text[at + 1 : at + 2]
    if not following:
        raise NotPlain("a backslash at the end")
    return "" if following == "\n" else following, at + 2


def _read_quoted(text: str, at: int, lookup: Lookup) -> tuple[str, int]:
    """The inside of double quotes from `at` on, and the place after the closing one."""
    end = text.find('"', at)
    piece = text[at:end]
    if end >= 0 and "\\" not in piece and "$" not in piece and "`" not in piece:
        return piece, end + 1
    pieces: list[str] = []
    while at < len(text):
        character = text[at]
        if character == '"':
            return "".join(pieces), at + 1
        piece, at = _read_inside(text, at, lookup)
        pieces.append(piece)
    raise NotPlain("a quote that is not closed")


def _read_inside(text: str, at: int, lookup: Lookup, also_escaped: str = "") -> tuple[str, int]:
    """Read one step inside double quotes."""
    character = text[at]
    if character == "`":
        raise NotPlain(text[at:])
    if character == "$":
        return _read_parameter(text, at, lookup, is_quoted=True)
    if character == "\\":
        following = text[at + 1 : at + 2]
        if following and following in _ESCAPABLE + also_escaped:
            return "" if following == "\n" else following, at + 2
        return "\\", at + 1
    return character, at + 1


def _read_parameter(text: str, at: int, lookup: Lookup, *, is_quoted: bool) -> tuple[str, int]:
    """`$NAME`, `${NAME}`, `${NAME:-word}` and the like; a dollar before anything else is itself."""
    start = at + 1
    following = text[start : start + 1]
    if text.startswith(_JOINED, start):
        raise NotPlain(text[at:])
    if following == "{":
        return _read_braces(text, start + 1, lookup, is_quoted=is_quoted)
    if not is_name(following):
        if following and following in ("0123456789@*#?!$-(" if is_quoted else "0123456789@*#?!$-('\"["):
            raise NotPlain(text[at:])
        return "$", start
    end = _find_name_end(text, start)
    if text.startswith(_JOINED, end):
        raise NotPlain(text[at:])
    return _look_up(text[start:end], lookup) or "", end


def _read_braces(text: str, at: int, lookup: Lookup, *, is_quoted: bool) -> tuple[str, int]:
    end = _find_name_end(text, at)
    name = text[at:end]
    if not is_name(name):
        raise NotPlain(text[at:])
    value = _look_up(name, lookup)
    if text[end : end + 1] == "}":
        return value or "", end + 1
    has_colon = text[end : end + 1] == ":"
    end += has_colon
    operator = text[end : end + 1]
    if not operator or operator not in "-+":
        raise NotPlain(text[at:])
    word, end = _read_default(text, end + 1, lookup, is_quoted=is_quoted)
    is_there = bool(value) if has_colon else value is not None
    if operator == "+":
        return word if is_there else "", end
    return value or "" if is_there else word, end


def _read_default(text: str, at: int, lookup: Lookup, *, is_quoted: bool) -> tuple[str, int]:
    """The word of `${NAME:-word}`, up to the brace that closes it."""
    pieces: list[str] = []
    while at < len(text):
        character = text[at]
        if character == "}":
            return "".join(pieces), at + 1
        if character == '"':
            piece, at = _read_quoted(text, at + 1, lookup)
        elif is_quoted:
            if character in "'{":
                raise NotPlain(text[at:])
            piece, at = _read_inside(text, at, lookup, "}")
        elif character in "'\\$":
            piece, at = _read_part(text, at, lookup)
        elif character in _SHELL_ONLY or character in _ENDS:
            raise NotPlain(text[at:])
        else:
            piece, at = character, at + 1
        pieces.append(piece)
    raise NotPlain("a brace that is not closed")


def _read_part(text: str, at: int, lookup: Lookup) -> tuple[str, int]:
    """A quoted, escaped or expanded part of a word outside double quotes."""
    if text[at] == "'":
        end = text.find("'", at + 1)
        if end < 0:
            raise NotPlain(text[at:])
        return text[at + 1 : end], end + 1
    if text[at] == "\\":
        return _read_escaped(text, at)
    return _read_parameter(text, at, lookup, is_quoted=False)


def _find_name_end(text: str, at: int) -> int:
    while at < len(text) and text[at].isascii() and (text[at].isalnum() or text[at] == "_"):
        at += 1
    return at


def _look_up(name: str, lookup: Lookup) -> str | None:
    value = lookup(name)
    if value is None and (name in _DYNAMIC or (name.startswith("BASH") and name != "BASH_ENV")):
        raise NotPlain(name)
    return value


# Reads the environment scripts of an image without a shell, where they are plain enough.
#
# Plain: assignments, export, unset, `if` with test or [ ], and sourcing of the image's own scripts. That covers what
# Apptainer, Singularity and kedge write into every image and most of what people add. All else raises `NotPlain`.

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROMPT = "Apptainer> "
_READ_ONLY = ("APPTAINER_NAME", "APPTAINER_CONTAINER", "APPTAINER_INSTANCE")
_OWN_FOLDERS = ("/scif/", "/.singularity.d/")  # the view shows what binds change in these
_FILE_TESTS = {"-d": "d", "-f": "f", "-e": "dfc"}
# 95-apps.sh as kedge and as Apptainer write it into every image: one `if` around all of it, which takes a start longer
# to read than all other scripts. By size, with a hash whose key is the size.
_APPS_SCRIPTS = {930: b"`iU\x04_ls\x00", 1994: b")\x9c'\xc9\xea#T\xa0"}
_APPS_CONDITION = "SINGULARITY_APPNAME"
_BRANCH_WORDS = frozenset(("if", "elif", "else", "fi"))
_LONGEST = 64_000  # characters; longer ones are read sooner by a shell
_DEEPEST = 8  # scripts that source each other
_LARGEST = 1 << 20  # bytes: no environment script is that large, and a shell would read it for minutes
_WAY_AROUND = "the image is broken or malicious; inspect it: kedge inspect --environment IMAGE"
_MOST = 1000  # scripts in one image
_LONGEST_VALUE = 131_072  # the kernel gives no program a longer variable; `A=$A$A` grows without end
_MOST_EXPANDED = 8 << 20  # characters of all values that are put into others: `B=$A$A…` of a long A fills the memory


class Variables:
    """Shell variables: set or not, exported or not."""

    def __init__(self, values: dict[str, str] | None = None, exported: set[str] | None = None) -> None:
        self.values = dict(values or {})
        self.exported = set(exported or ())
        self.exports_all = False
        self.expanded = 0  # characters
        self.sourced = 0  # scripts

    def copy(self) -> Variables:
        """Return a copy of the variables, to try something on."""
        return Variables(self.values, self.exported)

    def lookup(self, name: str) -> str | None:
        """The value; None when it is unset."""
        value = self.values.get(name)
        self.expanded += len(value or "")
        if self.expanded > _MOST_EXPANDED:
            raise NotPlain("more text than an environment can hold")
        return value

    def assign(self, name: str, value: str, *, is_exported: bool = False) -> None:
        """Set it; names that a runtime guards keep their value, as with Apptainer."""
        if name in _READ_ONLY and name in self.values:
            return
        self.values[name] = value
        if is_exported or self.exports_all:
            self.exported.add(name)

    def unset(self, name: str) -> None:
        """Make it as if it never was."""
        self.values.pop(name, None)
        self.exported.discard(name)

    def exports(self) -> dict[str, str]:
        """What a program gets."""
        return {name: value for name, value in self.values.items() if name in self.exported}


class EnvironmentInputs:
    """Everything that both evaluators of an environment, our own reader and the image's shell, work from."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.requests: dict[str, str] = {}  # what the user asks for
        self.additions: dict[str, str] = {}  # what devices ask for; taken as it is
        self.is_literal = False  # --no-eval
        self.library_path = ""  # LD_LIBRARY_PATH where it would be empty or LIBRARIES alone
        self.first_libraries = ""  # go before everything but the user's
        self.restored: dict[str, str] = {}  # host variables and our own, for what no script set
        self.variables = Variables()  # what scripts see at their start
        self.warnings: list[str] = []
        self.notes: list[str] = []


def list_scripts(present: list[str], folder: str) -> list[str]:
    """Return those names in a folder of the image that are scripts, in the order they are run."""
    names = [name for name in present if name.endswith(".sh") and not name.startswith(".")]
    if len(names) <= _MOST:
        return names
    from kedge.errors import CannotStart  # late: only for an error

    raise CannotStart(f"the image has too many environment scripts: {len(names)} in {folder}", hint=_WAY_AROUND)


def read_script(view: View, path: str) -> str:
    """The text of an image's script; empty where it is no file."""
    data = view.read(path, _LARGEST) or b""
    if len(data) < _LARGEST:
        return data.decode(errors="surrogateescape")
    from kedge.errors import CannotStart  # late: only for an error

    raise CannotStart(f"{path} in the image is too large for an environment script (over 1 MiB)", hint=_WAY_AROUND)


def run_script(text: str, variables: Variables, view: View | None, depth: int = 0) -> None:
    """Do what the script does to `variables`; raises NotPlain, with `variables` half changed, when it needs a shell."""
    if len(text) > _LONGEST or "\0" in text or depth > _DEEPEST:
        raise NotPlain("a script of unusual size")
    if is_idle_script(text, variables):
        return
    try:
        _Reader(text, variables, view, depth).run()
    except RecursionError:
        raise NotPlain("nested too deeply") from None


def is_idle_script(text: str, variables: Variables) -> bool:
    """Whether a script is known to do nothing, because no app of the image was asked for."""
    known = _APPS_SCRIPTS.get(len(text))
    if known is None or variables.values.get(_APPS_CONDITION):
        return False
    return hash_bytes(len(text), text.encode(errors="surrogateescape")) == known


class _Reader:
    def __init__(self, text: str, variables: Variables, view: View | None, depth: int) -> None:
        self.text = text
        self.at = 0
        self.variables = variables
        self.view = view
        self.depth = depth
        self.open_ifs: list[bool] = []  # for each `if`: whether one of its branches was taken
        self.commands: dict[str, Callable[[], None]] = {
            "export": self._run_export,
            "unset": self._run_unset,
            "if": self._run_if,
            "elif": self._run_else,
            "else": self._run_else,
            "fi": self._run_fi,
            ".": self._run_source,
            "source": self._run_source,
        }

    def run(self) -> None:
        while self._find_statement():
            word = self._read_literal()
            run = self.commands.get(word)
            if run is not None:
                run()
            else:
                self._run_assignments(word)
        if self.open_ifs:
            raise NotPlain("an if without fi")

    def _find_statement(self) -> bool:
        """Go to the next statement, past blank lines and comments."""
        text, size, at = self.text, len(self.text), self.at
        while at < size:
            end = text.find("\n", at)
            end = size if end < 0 else end
            rest = text[at:end].lstrip(" \t")  # a line at once: every start reads dozens of indented ones
            if rest and rest[0] != "#":
                self.at = end - len(rest)
                return True
            at = end + 1
        self.at = size
        return False

    def _skip_line(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _read_literal(self) -> str:
        """The first word of a statement, up to a blank or the equals sign of an assignment."""
        text, size, at = self.text, len(self.text), self.at
        while at < size and text[at] not in " \t\n;=":
            at += 1
        start, self.at = self.at, at
        return text[start:at]

    def _has_more(self) -> bool:
        """Whether the statement goes on; if not, go past its end."""
        text = self.text
        while text.startswith("\\\n", self.at) or text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 2 if text[self.at] == "\\" else 1
        following = text[self.at : self.at + 1]
        if following == "#":
            self._skip_line()
            following = text[self.at : self.at + 1]
        if following in ("", "\n", ";"):
            if text.startswith(";;", self.at):
                raise NotPlain(";;")
            self.at += 1
            return False
        return True

    def _read_value(self) -> str:
        value, self.at = read_word(self.text, self.at, self.variables.lookup)
        if len(value) > _LONGEST_VALUE:
            raise NotPlain("a value that cannot be passed to a program")
        return value

    def _run_assignments(self, name: str) -> None:
        """`NAME=VALUE`, several of them maybe; a command after them needs a shell."""
        while True:
            if not is_name(name) or self.text[self.at : self.at + 1] != "=":
                raise NotPlain(name)
            self.at += 1
            self.variables.assign(name, self._read_value())
            if not self._has_more():
                return
            name = self._read_literal()

    def _run_export(self) -> None:
        """`export A=1 B=$A`: B sees the new A, as with Apptainer; a POSIX shell would expand both first."""
        while self._has_more():
            name = self._read_literal()
            if not is_name(name):
                raise NotPlain(name)
            self.variables.exported.add(name)
            if self.text[self.at : self.at + 1] == "=":
                self.at += 1
                self.variables.assign(name, self._read_value())

    def _run_unset(self) -> None:
        while self._has_more():
            name = self._read_literal()
            if name in _READ_ONLY or not is_name(name):
                raise NotPlain(name)
            self.variables.unset(name)

    def _run_source(self) -> None:
        if not self._has_more():
            raise NotPlain("nothing to source")
        path = self._read_value()
        data = None
        if self.view is not None and path.startswith(_OWN_FOLDERS) and ".." not in path:
            data = self.view.read(path)
        self.variables.sourced += 1  # scripts that source the next one a hundred times each never end
        if data is None or self._has_more() or self.variables.sourced > _MOST:
            raise NotPlain(path)
        run_script(data.decode(errors="surrogateescape"), self.variables, self.view, self.depth + 1)

    def _run_if(self) -> None:
        self.open_ifs.append(False)
        self._choose()

    def _choose(self) -> None:
        """Read a condition and its `then`; go on behind it, or at the next branch."""
        is_true = self._read_condition()
        if not self._find_statement() or self._read_literal() != "then":
            raise NotPlain("an if without then")
        if is_true:
            self.open_ifs[-1] = True
        else:
            self._skip_branch()

    def _run_else(self) -> None:
        """The end of a branch that was run: nothing else of this `if` is."""
        if not self.open_ifs:
            raise NotPlain("else")
        while self._skip_branch() != "fi":
            pass

    def _run_fi(self) -> None:
        if not self.open_ifs or self._has_more():
            raise NotPlain("fi")
        self.open_ifs.pop()

    def _skip_branch(self) -> str:
        """Go past a branch that is not run; a branch that follows is taken if none was."""
        depth = 0
        while self._find_statement():
            start = self.at
            word = _find_branch_word(self._cut_statement())
            depth += word == "if"
            if depth == 0 and word:
                self.at = start + len(word)
                if word == "fi":
                    self._run_fi()
                elif not self.open_ifs[-1]:
                    self._take_branch(word)
                return word
            depth -= word == "fi"
        raise NotPlain("an if without fi")

    def _cut_statement(self) -> str:
        """The text up to the next line or semicolon, quoted or not, without a comment."""
        text, start = self.text, self.at
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        for mark in (";", " #", "\t#"):
            found = text.find(mark, start, end)
            end = end if found < 0 else found
        self.at = end + 1
        return text[start:end]

    def _take_branch(self, word: str) -> None:
        if word == "elif":
            self._choose()
        else:
            self.open_ifs[-1] = True

    def _read_condition(self) -> bool:
        if not self._has_more():
            raise NotPlain("an if without a condition")
        command = self._read_literal()
        words: list[str] = []
        while self._has_more():
            word, self.at = read_word(self.text, self.at, self.variables.lookup, is_value=False)
            words.append(word)
        if command == "[" and words[-1:] == ["]"]:
            words.pop()
        elif command != "test":
            raise NotPlain(command)
        if words[:1] == ["!"]:
            return not self._test(words[1:])
        return self._test(words)

    def _test(self, words: list[str]) -> bool:
        if len(words) == 3 and words[1] in ("=", "!="):
            return (words[0] == words[2]) == (words[1] == "=")
        if len(words) == 2 and words[0] in ("-n", "-z"):
            return bool(words[1]) == (words[0] == "-n")
        if len(words) == 2 and words[0] in _FILE_TESTS and self.view is not None:
            path = words[1]
            if path.startswith(_OWN_FOLDERS) and ".." not in path:
                kind = self.view.kind(path)
                return bool(kind) and kind in _FILE_TESTS[words[0]]
        raise NotPlain(" ".join(words))


def _find_branch_word(statement: str) -> str:
    """`if`, `elif`, `else` or `fi` when the statement begins with it, else the empty string.

    Text in which they could be anywhere else raises NotPlain: quotes that are not closed, here documents.
    """
    count = statement.count  # every start reads dozens of these: no loops
    is_even = not (count('"') % 2 or count("'") % 2 or count("`") % 2)
    is_closed = count("{") == count("}") and count("(") == count(")")
    if not is_even or not is_closed or "<<" in statement or "\\" in statement:
        raise NotPlain(statement)
    words = statement.split()
    if not _BRANCH_WORDS.isdisjoint(words[1:]):
        raise NotPlain(statement)
    return words[0] if words and words[0] in _BRANCH_WORDS else ""


# Which program a verb starts: the words of `exec`, the image's scripts, or a shell.

_FOLDER = "/.singularity.d"
# Scripts made from an OCI config hold this very line; with it and the two assignments their meaning is known.
_EVAL_LINE = 'eval "set ${SINGULARITY_OCI_RUN}"'
ENROOT_ENVIRONMENT = "/etc/environment"
_ENROOT_SCRIPT = "/etc/rc"
_SCRIPT_NAMES = {"run": "runscript", "test": "test", "start": "startscript"}
_KNOWN_STARTS = (
    *("if [ ", "else", "fi", "done", 'exec "$@"', _EVAL_LINE),
    *('for arg in "$@"; do', 'for word in "$@"; do', "CMDLINE_ARGS=", "SINGULARITY_OCI_RUN="),
)


class Entrypoint:
    """What is started: `words` (none: nothing, which is well), and variables that go with it."""

    def __init__(self, words: list[str], *, script: str = "") -> None:
        self.words = words
        self.script = script  # the OCI script that words come from, where they are still to be evaluated
        self.variables: dict[str, str] = {}
        self.notes: list[str] = []
        self.warnings: list[str] = []


def choose_entry(options: RunOptions, image: ImageFacts) -> Entrypoint:
    """The program and its arguments for a verb."""
    if options.app and image.view.kind(f"/scif/apps/{options.app}") != "d":
        raise _refuse_app(f"{image.name} has no app {options.app}", image.view)
    if options.verb == "exec":
        return Entrypoint(list(options.arguments))
    if options.verb == "shell":
        return _choose_shell(options, image.view)
    if options.app:
        return _choose_app_script(options, image)
    name = _SCRIPT_NAMES[options.verb]
    path = f"{_FOLDER}/{name}"
    if image.view.is_executable(path):
        script = ""
        if name == "runscript":
            text = (image.view.read(path) or b"").decode(errors="surrogateescape")
            script = text if is_oci_script(text) else ""
        return Entrypoint([path, *options.arguments], script=script)
    return _choose_without_script(options, image)


def is_enroot_image(view: View) -> bool:
    """Whether `enroot import` made the image: two files say how it starts. (RPMs own a symlink /etc/rc.)"""
    is_there = view.kind(_ENROOT_SCRIPT) == "f" and view.kind(ENROOT_ENVIRONMENT) == "f"
    return is_there and view.resolve(_ENROOT_SCRIPT) == _ENROOT_SCRIPT and not view.kind(_FOLDER)


def _choose_without_script(options: RunOptions, image: ImageFacts) -> Entrypoint:
    view = image.view
    if options.verb != "run":
        entry = Entrypoint([])
        entry.notes.append(f"the image has no {_SCRIPT_NAMES[options.verb]} script: nothing to run")
        return entry
    for path in ("/singularity", "/apptainer"):  # images of Singularity 2
        if view.is_executable(path):
            return Entrypoint([path, *options.arguments])
    words = _read_config_words(image.oci_config, options.arguments)
    if words:
        return Entrypoint(words)
    if is_enroot_image(view) and view.is_executable("/bin/sh"):
        return Entrypoint(["/bin/sh", _ENROOT_SCRIPT, *options.arguments])
    if view.is_executable("/bin/sh"):
        entry = Entrypoint(["/bin/sh", *options.arguments])
        entry.notes.append("the image has no default command: kedge starts /bin/sh")
        return entry
    from kedge.errors import CannotStart  # late: only for the message

    raise CannotStart(
        f"{image.name} has no default command and no /bin/sh",
        hint=f"name a program: kedge exec {image.name} PROGRAM",
    )


def _choose_shell(options: RunOptions, view: View) -> Entrypoint:
    if options.shell and view.is_executable(options.shell):
        return Entrypoint([options.shell, *options.arguments])
    for path, flags in (("/bin/bash", ["--norc"]), ("/bin/sh", [])):
        if view.is_executable(path):
            entry = Entrypoint([path, *flags, *options.arguments])
            entry.variables["SHELL"] = path
            if options.shell:
                entry.warnings.append(f"the image has no {options.shell}: kedge starts {path}")
            if options.record:
                from kedge.container.record_commands import add_record  # late: few shells are recorded

                add_record(entry.variables, entry.warnings, path, is_kept=bool(options.overlay))
            return entry
    from kedge.errors import CannotStart  # late: only for the message

    raise CannotStart(
        "this image has no shell",
        hint="start a program: kedge exec IMAGE PROGRAM; or the image's default command: kedge run IMAGE",
    )


def _choose_app_script(options: RunOptions, image: ImageFacts) -> Entrypoint:
    name = _SCRIPT_NAMES[options.verb]
    path = f"/scif/apps/{options.app}/scif/{name}"
    if image.view.is_executable(path):
        return Entrypoint([path, *options.arguments])
    raise _refuse_app(f"the app {options.app} of {image.name} has no {name}", image.view)


def _refuse_app(message: str, view: View) -> Exception:
    from kedge.errors import CannotStart  # late: only for the message

    return CannotStart(message, hint=f"apps in this image: {', '.join(view.names('/scif/apps')) or 'none'}")


def is_oci_script(text: str) -> bool:
    """Whether a runscript was made from ENTRYPOINT and CMD, and nothing was added to it by hand."""
    if _EVAL_LINE not in text or not text.startswith("#!/bin/sh\nOCI_ENTRYPOINT="):
        return False
    try:
        at = _read_assigned(text)[1]
        while at < len(text):
            end = text.find("\n", at) + 1 or len(text)
            line = text[at:end].strip()
            if line.startswith("set -- "):
                end = _skip_words(text, text.index("set -- ", at) + len("set -- "))
            elif line and not line.startswith(("#", *_KNOWN_STARTS)):
                return False
            at = end
    except NotPlain:
        return False
    return True


def _skip_words(text: str, at: int) -> int:
    """Past the quoted words of a `set`, which may go over lines."""
    while at < len(text) and text[at] not in ";\n":
        if text[at] == " ":
            at += 1
        elif text.startswith('"$@"', at):
            at += len('"$@"')
        else:
            at = read_word(text, at, _refuse_name)[1]
    return at + 1


def resolve_oci_words(entry: Entrypoint, lookup: Callable[[str], str | None], *, is_literal: bool) -> list[str]:
    """Entrypoint with the arguments or CMD; unless `is_literal` all of them go through one evaluation, as a shell does.

    Raises NotPlain where that needs a shell.
    """
    (entrypoint, command), _ = _read_assigned(entry.script)
    arguments = entry.words[1:]
    if is_literal:
        parts = [split_words(text, _refuse_name) for text in (entrypoint, command)]
        return [*parts[0], *(arguments or parts[1])]
    given = " ".join(f'"{word}"' for word in arguments)
    return split_words(f"{entrypoint} {given if arguments else command}", lookup)


def _refuse_name(name: str) -> str | None:
    raise NotPlain(name)  # the words were written with every dollar escaped; this one is somebody else's


def _read_assigned(script: str) -> tuple[tuple[str, str], int]:
    """The texts of OCI_ENTRYPOINT and OCI_CMD, and where they end."""
    texts: list[str] = []
    at = len("#!/bin/sh\n")
    for name in ("OCI_ENTRYPOINT=", "OCI_CMD="):
        if not script.startswith(name, at):
            raise NotPlain(script)
        text, at = read_word(script, at + len(name), _refuse_name)
        texts.append(text)
        at += 1
    return (texts[0], texts[1]), at


def _read_config_words(config: bytes, arguments: list[str]) -> list[str]:
    """Entrypoint and CMD from an OCI config, for a root file system that has no scripts; exactly as they are."""
    if b'"Entrypoint"' not in config and b'"Cmd"' not in config:
        return []
    import json  # late: only for images without a runscript

    try:
        section = json.loads(config).get("config") or {}
        entrypoint, command = ([str(word) for word in section.get(key) or ()] for key in ("Entrypoint", "Cmd"))
    except (ValueError, AttributeError, TypeError):
        return []
    return [*entrypoint, *(arguments or command)]


def read_workdir(config: bytes) -> str:
    """WORKDIR of an OCI config, empty when it says nothing; found without a JSON parser where that is safe."""
    key = b'"WorkingDir"'
    if config.count(key) == 0:
        return ""
    rest = config.partition(key)[2].lstrip()
    if config.count(key) == 1 and rest.startswith(b":"):
        rest = rest[1:].lstrip()
        value = rest[1:].partition(b'"')[0]
        if rest.startswith(b'"') and b"\\" not in value:
            return _clean_workdir(value.decode(errors="surrogateescape"))
    import json  # late: only for a config that says it twice or with escapes

    try:
        return _clean_workdir(str((json.loads(config).get("config") or {}).get("WorkingDir") or ""))
    except (ValueError, AttributeError):
        return ""


def _clean_workdir(value: str) -> str:
    """An absolute path; `/`, which is what images without one have too, says nothing."""
    return value if value.startswith("/") and value.strip("/") else ""


# The variables a user asks for: APPTAINERENV_X and its relatives, --env-file, --env; and the host's that pass in.

REQUEST_PREFIXES = ("KEDGEENV_", "APPTAINERENV_", "SINGULARITYENV_")  # the first that has a name wins
_OWN_PREFIXES = (*REQUEST_PREFIXES, "KEDGE_", "APPTAINER_", "SINGULARITY_")
_OF_THE_JOB = frozenset(("KEDGE_JOB_ID", "KEDGE_JOB_NAME", "KEDGE_ARRAY_INDEX"))  # what programs ask for
NEVER_PASSED = frozenset(("HOME", "PATH", "LD_LIBRARY_PATH", "IFS", "OPTIND", "PPID", "PWD"))
_REFUSED = frozenset(("HOME", *(f"{x}_{y}" for x in ("APPTAINER", "SINGULARITY") for y in ("SHELL", "APPNAME"))))
_JOB_HOME = "KEDGEENV_HOME"  # how `kedge submit --env HOME=…` says it; Apptainer's own names for it stay refused
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "ftp_proxy")
_PASSED_CLEAN = frozenset(("TERM", *_PROXIES, *(name.upper() for name in _PROXIES)))
_SHELL_NAMES = ("EUID", "GID", "HOME", "IFS", "OPTIND", "PWD", "UID")  # a file that assigns them means its own shell
# The names that stand for a change of a path, not for a variable; the shell of old images knows the first three so.
PATH_REQUESTS = {
    "PREPEND_PATH": "SING_USER_DEFINED_PREPEND_PATH",
    "APPEND_PATH": "SING_USER_DEFINED_APPEND_PATH",
    "PATH": "SING_USER_DEFINED_PATH",
    "PREPEND_LD_LIBRARY_PATH": "KEDGE_PREPEND_LD_LIBRARY_PATH",
    "APPEND_LD_LIBRARY_PATH": "KEDGE_APPEND_LD_LIBRARY_PATH",
}


def select_host_variables(options: RunOptions, environ: Mapping[str, str]) -> dict[str, str]:
    """The host's variables that pass into the container, before any guard."""
    if options.cleanenv:
        passed = {name: value for name, value in environ.items() if name in _PASSED_CLEAN}
        passed["LANG"] = "C"
    else:
        passed = {
            name: value
            for name, value in environ.items()
            if name not in NEVER_PASSED and (not name.startswith(_OWN_PREFIXES) or name in _OF_THE_JOB)
        }
        path = environ.get("PATH", "")
        passed["USER_PATH"] = f"{path}:/bin:/usr/bin:/sbin:/usr/sbin:/usr/local/bin:/usr/local/sbin"
    for listed in options.no_env:
        for name in listed.split(","):
            passed.pop(name.strip(), None)
    return passed


def collect_requests(options: RunOptions, host: HostFacts, warnings: list[str]) -> dict[str, str]:
    """Name to value of all that the user asks for; --env before --env-file before the variables with a prefix."""
    asked: dict[str, str] = {}
    prefixed = [name for name in host.environ if name.startswith(REQUEST_PREFIXES)]
    for prefix in reversed(REQUEST_PREFIXES):
        for name in prefixed:
            if name.startswith(prefix):
                asked[name[len(prefix) :]] = host.environ[name]
    for path in (part for listed in options.env_file for part in listed.split(",")):
        asked.update(_read_environment_file(path, host))
    for text in options.env:
        asked.update(split_pairs(text))
    accepted: dict[str, str] = {}
    for name, value in asked.items():
        if name in _REFUSED and not (name == "HOME" and host.environ.get(_JOB_HOME) == value):
            hint = "; use --home" if name == "HOME" else ""
            warnings.append(f"--env and APPTAINERENV_{name} cannot set the variable {name}{hint}")
        elif not is_name(name):
            warnings.append(f"'{name}' is not a valid variable name: ignored")
        elif name not in ("UID", "GID"):
            accepted[PATH_REQUESTS.get(name, name)] = value
    return accepted


def split_pairs(text: str) -> dict[str, str]:
    """`A=1,B=2` as a table; commas belong to the value where there is one equals sign or quotes go around a pair."""
    pairs = [text.strip('"')] if text.count("=") == 1 else _split_quoted(text)
    values = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            from kedge.errors import UsageError  # late: only for the message

            raise UsageError(
                f"--env {text}: '{pair}' is not NAME=VALUE",
                hint="write --env NAME=VALUE, or --env 'A=1,B=2' for several",
            )
        if name:
            values[name] = value
    return values


def _split_quoted(text: str) -> list[str]:
    """The fields of one line of comma separated values; a quoted field may hold commas, and quotes written twice."""
    fields: list[str] = []
    at = 0
    while at <= len(text):
        if text.startswith('"', at):
            field, at = _read_field(text, at + 1)
        else:
            end = text.find(",", at)
            end = len(text) if end < 0 else end
            field, at = text[at:end], end
        fields.append(field)
        if at < len(text) and text[at] != ",":
            raise _refuse_quotes(text)
        at += 1
    return fields


def _read_field(text: str, at: int) -> tuple[str, int]:
    pieces: list[str] = []
    while True:
        end = text.find('"', at)
        if end < 0:
            raise _refuse_quotes(text)
        pieces.append(text[at:end])
        if not text.startswith('""', end):
            return '"'.join(pieces), end + 1
        at = end + 2


def _refuse_quotes(text: str) -> Exception:
    from kedge.errors import UsageError  # late: only for the message

    return UsageError(
        f"--env {text}: a quotation mark is missing or misplaced",
        hint="use one --env per variable, or quote whole pairs: '\"A=1,2\",B=3'",
    )


def _read_environment_file(path: str, host: HostFacts) -> dict[str, str]:
    """What a file of `NAME=VALUE` lines sets, evaluated as a shell does; it may use the host's variables."""
    data = _read_file(path, host)
    variables = Variables(dict(host.environ))
    variables.exports_all = True
    try:
        run_script(data.decode(errors="surrogateescape"), variables, None)
    except NotPlain as problem:
        from kedge.errors import UsageError  # late: only for the message

        shown = str(problem).strip().partition("\n")[0][:60]
        raise UsageError(
            f"'{shown}' in the environment file {path} is not NAME=VALUE",
            hint="write one NAME=VALUE per line and quote values with spaces or special characters",
        ) from None
    return {name: value for name, value in variables.exports().items() if name not in _SHELL_NAMES}


def _read_file(path: str, host: HostFacts) -> bytes:
    """The file's contents; `/dev/fd/63` is what the shell's `<(command)` gives."""
    number = path.removeprefix("/dev/fd/").removeprefix("/proc/self/fd/")
    if path == "/dev/stdin":
        number = "0"
    data: bytes | None = None
    if number.isdigit() and number != path:
        try:
            with open(int(number), "rb", closefd=False) as stream:
                data = stream.read()
        except (OSError, OverflowError, TypeError):  # the last two for numbers that no descriptor can have
            from kedge.errors import FileProblem  # late: only for the message

            raise FileProblem(
                f"kedge cannot read the environment file {path}: its file descriptor {number} is not open for reading",
                hint="a program between the shell and kedge, such as sudo, srun or ssh, closes what <(command) opens: "
                "write the variables to a file, and give --env-file that",
            ) from None
    else:
        data = host.view.read(os.path.join(host.cwd, path))
    if data is None:
        from kedge.errors import FileProblem  # late: only for the message

        raise FileProblem(
            f"kedge cannot read the environment file {path}",
            hint="give --env-file an existing file that you may read",
        )
    return data
