# SPDX-License-Identifier: BSD-3-Clause
"""Reads the environment scripts of an image without a shell, where they are plain enough.

Plain: assignments, export, unset, `if` with test or [ ], and sourcing of the image's own scripts. That covers what
Apptainer, Singularity and kedge write into every image and most of what people add. All else raises `NotPlain`.
"""

from __future__ import annotations

from kedge.runtime.environment.shell_words import NotPlain, is_name, read_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.posix.views import View

    Step = tuple[str, str]  # what, and the path of a script
    hash_bytes: Callable[[int, bytes], bytes]
else:  # built into every interpreter; its public name imports more
    from _imp import source_hash as hash_bytes

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
        """The same variables, to try something on."""
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
    """Those of the names in a folder of the image that are scripts, in the order they are run."""
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
    """Whether it is known to do nothing, because no app of the image was asked for."""
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
