# SPDX-License-Identifier: BSD-3-Clause
"""The one reader of YAML: the part that programs write files for programs in; what it does not know is an error.

Block mappings and sequences, plain and quoted scalars, and flow [] {} on one line. Not: anchors, tags, block scalars,
scalars over several lines, several documents. Every scalar is text; `null`, `~` and nothing are None. Device
specifications (CDI) and Apptainer's remote.yaml are read by it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    Value = None | str | list["Value"] | dict[str, "Value"]

_MAXIMUM_DEPTH = 32
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "0": "\0",
    "\\": "\\",
    '"': '"',
    "/": "/",
    " ": " ",
    "a": "\a",
    "e": "\x1b",
}
_FORBIDDEN = "&*!|>%@`"  # anchors, aliases, tags, block scalars, directives, reserved


class YamlError(Exception):
    """Text that is not of the part of YAML that is read here."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")


def parse_yaml(text: str) -> Value:
    """The document as lists, dictionaries and text; raises YamlError that names the line."""
    reader = _Reader(text)
    if not reader.lines:
        return None
    value = reader.read_block(reader.lines[0][1], 0)
    if reader.at < len(reader.lines):
        raise YamlError(reader.lines[reader.at][0], "it is indented less than what it belongs to")
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.lines: list[tuple[int, int, str]] = []  # number, indentation, text without comment
        self.at = 0
        is_started = False
        for number, raw in enumerate(text.splitlines(), 1):
            content = raw.strip(" ")
            if content in ("---", "...") and raw == content:
                if is_started or self.lines:
                    if content == "...":
                        break
                    raise YamlError(number, "a second document")
                is_started = True
                continue
            content = _strip_comment(content, number)
            if not content:
                continue
            if "\t" in raw[: len(raw) - len(raw.lstrip())]:
                raise YamlError(number, "a tab in the indentation")
            self.lines.append((number, len(raw) - len(raw.lstrip(" ")), content))

    def read_block(self, indentation: int, depth: int) -> Value:
        """The value that begins at the current line."""
        number, _, content = self.lines[self.at]
        if depth > _MAXIMUM_DEPTH:
            raise YamlError(number, f"nested more than {_MAXIMUM_DEPTH} deep")
        if content == "-" or content.startswith("- "):
            return self._read_sequence(indentation, depth)
        if _find_colon(content, number) >= 0:
            return self._read_mapping(indentation, depth)
        self.at += 1
        return _read_scalar(content, number)

    def _read_sequence(self, indentation: int, depth: int) -> list[Value]:
        items: list[Value] = []
        while self.at < len(self.lines):
            number, here, content = self.lines[self.at]
            if here != indentation or not (content == "-" or content.startswith("- ")):
                if here > indentation:
                    raise YamlError(number, "the indentation does not fit the list above")
                break
            rest = content[1:].lstrip(" ")
            if rest:
                # what follows the dash is a block of its own, indented by where it begins
                self.lines[self.at] = (number, here + len(content) - len(rest), rest)
                items.append(self.read_block(here + len(content) - len(rest), depth + 1))
            else:
                self.at += 1
                items.append(self._read_nested(indentation + 1, depth))
        return items

    def _read_mapping(self, indentation: int, depth: int) -> dict[str, Value]:
        pairs: dict[str, Value] = {}
        while self.at < len(self.lines):
            number, here, content = self.lines[self.at]
            if here != indentation:
                if here > indentation:
                    raise YamlError(number, "the indentation does not fit the lines above")
                break
            colon = _find_colon(content, number)
            if colon < 0:
                raise YamlError(number, f"'name: value' is expected, not '{content[:40]}'")
            key = _read_scalar(content[:colon].rstrip(), number)
            if not isinstance(key, str) or key in pairs:
                raise YamlError(number, f"the name {key!r} is there twice" if key in pairs else "no name")
            rest = content[colon + 1 :].strip()
            self.at += 1
            # a list may stand at the indentation of its name
            pairs[key] = _read_scalar(rest, number) if rest else self._read_nested(indentation + 1, depth, indentation)
        return pairs

    def _read_nested(self, least: int, depth: int, list_at: int = -1) -> Value:
        """The block below a name or a dash; None when there is none."""
        if self.at >= len(self.lines):
            return None
        _, here, content = self.lines[self.at]
        if here >= least or (here == list_at and (content == "-" or content.startswith("- "))):
            return self.read_block(here, depth + 1)
        return None


def _strip_comment(text: str, number: int) -> str:
    """Return a line without its comment: `#` at the start or after a space, outside quotes."""
    quote = ""
    at = 0
    while at < len(text):
        letter = text[at]
        if quote:
            if letter == "\\" and quote == '"':
                at += 1
            elif letter == quote:
                quote = ""
        elif letter in "\"'" and (at == 0 or text[at - 1] in " [{,:"):
            quote = letter
        elif letter == "#" and (at == 0 or text[at - 1] in " \t"):
            return text[:at].rstrip()
        at += 1
    if quote:
        raise YamlError(number, "a quote is not closed on its line")
    return text.rstrip()


def _find_colon(text: str, number: int) -> int:
    """Where the name of `name: value` ends; -1 when the text is no pair."""
    if text[0] in "[{":
        return -1
    start = 0
    if text[0] in "\"'":
        start = _read_quoted(text, 0, number)[1]
        return start if text[start : start + 1] == ":" and text[start + 1 : start + 2] in ("", " ") else -1
    at = text.find(": ", start)
    return at if at >= 0 else (len(text) - 1 if text.endswith(":") else -1)


def _read_scalar(text: str, number: int) -> Value:
    """A whole value on one line: quoted, flow or plain."""
    if not text:
        return None
    if text[0] in "[{\"'":
        value, end = _read_flow(text, 0, number, 0)
        if text[end:].strip():
            raise YamlError(number, f"'{text[end:].strip()[:40]}' follows a complete value")
        return value
    if text[0] in _FORBIDDEN or ": " in text or text.startswith(("? ", "- ")):
        raise YamlError(number, f"'{text[:40]}' is YAML that kedge does not read")
    return None if text in ("null", "~", "Null", "NULL") else text


def _read_flow(text: str, at: int, number: int, depth: int) -> tuple[Value, int]:
    """A value inside [] or {} and where it ends."""
    if depth > _MAXIMUM_DEPTH:
        raise YamlError(number, f"nested more than {_MAXIMUM_DEPTH} deep")
    if text[at] in "\"'":
        return _read_quoted(text, at, number)
    if text[at] == "[":
        return _read_flow_list(text, at + 1, number, depth)
    if text[at] == "{":
        return _read_flow_mapping(text, at + 1, number, depth)
    end = at
    while end < len(text) and text[end] not in ",]}" and text[end : end + 2] != ": ":
        end += 1
    return _read_scalar(text[at:end].strip(), number), end


def _read_flow_list(text: str, at: int, number: int, depth: int) -> tuple[Value, int]:
    items: list[Value] = []
    while True:
        at = _skip_spaces(text, at, number)
        if text[at] == "]":
            return items, at + 1
        value, at = _read_flow(text, at, number, depth + 1)
        items.append(value)
        at = _skip_separator(text, at, number, "]")


def _read_flow_mapping(text: str, at: int, number: int, depth: int) -> tuple[Value, int]:
    pairs: dict[str, Value] = {}
    while True:
        at = _skip_spaces(text, at, number)
        if text[at] == "}":
            return pairs, at + 1
        key, at = _read_flow(text, at, number, depth + 1)
        at = _skip_spaces(text, at, number)
        if text[at] != ":" or not isinstance(key, str) or key in pairs:
            raise YamlError(number, "a name, a colon and a value are expected in {}")
        value, at = _read_flow(text, _skip_spaces(text, at + 1, number), number, depth + 1)
        pairs[key] = value
        at = _skip_separator(text, at, number, "}")


def _skip_spaces(text: str, at: int, number: int) -> int:
    while at < len(text) and text[at] == " ":
        at += 1
    if at >= len(text):
        raise YamlError(number, "[] or {} is not closed on its line")
    return at


def _skip_separator(text: str, at: int, number: int, end: str) -> int:
    at = _skip_spaces(text, at, number)
    if text[at] == ",":
        return at + 1
    if text[at] != end:
        raise YamlError(number, f"',' or '{end}' is expected, not '{text[at]}'")
    return at


def _read_quoted(text: str, at: int, number: int) -> tuple[str, int]:
    """Text in quotes and where it ends."""
    quote = text[at]
    pieces: list[str] = []
    at += 1
    while at < len(text):
        letter = text[at]
        if letter == quote:
            if quote == "'" and text[at + 1 : at + 2] == "'":
                at += 1
            else:
                return "".join(pieces), at + 1
        elif letter == "\\" and quote == '"':
            at += 1
            letter = _ESCAPES.get(text[at : at + 1], "")
            if not letter:
                raise YamlError(number, f"the escape '\\{text[at : at + 1]}' is unknown")
        pieces.append(letter)
        at += 1
    raise YamlError(number, "a quote is not closed on its line")
