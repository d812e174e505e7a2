# SPDX-License-Identifier: BSD-3-Clause
"""The grammars of `--bind` and `--mount`, and the variables that add to them.

`--bind SOURCE[:DESTINATION[:OPTION[,OPTION]]][,...]`, where `\\:` and `\\,` are a plain colon and comma.
`--mount type=bind,source=PATH,destination=PATH[,ro]` is a line of CSV, with its quoting; several lines are several.
"""

from __future__ import annotations

import os

from kedge.runtime.command_line.flags import read_truth, read_variable
from kedge.runtime.facts import LIBRARIES, Bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kedge.errors import KedgeError
    from kedge.runtime.options import RunOptions

BIND_GRAMMAR = (
    "SOURCE[:DESTINATION[:OPTIONS]] with OPTIONS ro, rw, image-src=PATH, id=NUMBER; '\\:' and '\\,' are plain"
)
MOUNT_GRAMMAR = "type=bind,source=PATH,destination=PATH[,ro][,image-src=PATH][,id=NUMBER][,nonested]"

_SWITCHES = ("ro", "rw")
_VALUES = ("image-src", "id", "archive-src")


class _Problem(Exception):
    """What is wrong with one spec; `collect_binds` adds where the spec stood."""


def collect_binds(options: RunOptions, environ: Mapping[str, str], cwd: str) -> list[Bind]:
    """Every bind that was asked for, flags first; of several to one place the first counts, and this is said."""
    binds: list[Bind] = []
    for origin, spec in _list_specs(options.bind, "--bind", environ, ("BIND", "BINDPATH")):
        binds += _read(parse_bind, origin, spec, cwd)
    for origin, spec in _list_specs(options.mount, "--mount", environ, ("MOUNT",)):
        binds += _read(parse_mount, origin, spec, cwd)
    for spec in options.contain_libs:
        binds += _read(_parse_libraries, options.given.get("contain_libs", "--containlibs"), spec, cwd)
    return _drop_repeated(binds, options.warnings)


def parse_bind(spec: str, cwd: str) -> list[Bind]:
    """The binds of one `--bind` value."""
    binds: list[list[str]] = []
    for piece in _split(spec, ","):
        parts = [_unescape(part.strip()) for part in _split(piece, ":")]
        if parts == [""]:
            continue  # `a,,b`, as an empty shell variable leaves it
        if len(parts) > 3:
            raise _Problem(f"'{piece.strip()}' has more than three parts")
        if len(parts) == 1 and binds and "/" not in parts[0].partition("=")[0]:
            _add_option(binds[-1], parts[0])
        else:
            binds.append(parts)
    return [_make_bind(parts, cwd) for parts in binds]


def _add_option(parts: list[str], word: str) -> None:
    """Add `word`, which a comma separates from the bind `parts`, to its options."""
    if _is_option(word) and len(parts) < 3:
        place = ":".join(parts if len(parts) > 1 else parts * 2)
        raise _Problem(f"the option '{word}' needs a destination before it: write {place}:{word}")
    if not _is_option(word):
        raise _Problem(f"'{word}' is neither an option nor a path; write ./{word} for a directory")
    parts.append(word)


def parse_mount(spec: str, cwd: str) -> list[Bind]:
    """The binds of one `--mount` value."""
    return [_make_mount(fields, cwd) for fields in _read_csv(spec)]


def _parse_libraries(spec: str, cwd: str) -> list[Bind]:
    """The binds of one `--containlibs` value."""
    paths = [_make_absolute(path, cwd) for path in map(str.strip, spec.split(",")) if path]
    return [Bind(path, f"{LIBRARIES}/{os.path.basename(path)}", readonly=True) for path in paths]


_GRAMMARS: dict[Callable[[str, str], list[Bind]], str] = {
    parse_bind: BIND_GRAMMAR,
    parse_mount: MOUNT_GRAMMAR,
    _parse_libraries: "PATH[,PATH...]",
}


def _list_specs(
    given: list[str], flag: str, environ: Mapping[str, str], variables: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    for spec in given:
        yield flag, spec
    for variable in variables:
        origin, value = read_variable(environ, variable)
        if origin:
            yield origin, value


def _read(parse: Callable[[str, str], list[Bind]], origin: str, spec: str, cwd: str) -> list[Bind]:
    try:
        binds = parse(spec, cwd)
    except _Problem as problem:
        raise _explain(origin, spec, str(problem), _GRAMMARS[parse]) from None
    for bind in binds:
        bind.origin = origin
    return binds


def _explain(origin: str, spec: str, problem: str, grammar: str) -> KedgeError:
    from kedge.errors import UsageError  # late: only for an error

    return UsageError(f"{origin} '{spec}': {problem}", hint=grammar)


def _split(text: str, separator: str) -> list[str]:
    """Split at each separator that no backslash stands before; the escapes stay."""
    parts, start = [], 0
    for index, character in enumerate(text):
        if character == separator and text[index - 1 : index] != "\\":
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _unescape(text: str) -> str:
    return text.replace("\\:", ":").replace("\\,", ",")


def _is_option(word: str) -> bool:
    return word in _SWITCHES or ("=" in word and word.partition("=")[0] in _VALUES)


def _make_bind(parts: list[str], cwd: str) -> Bind:
    source = _make_absolute(parts[0], cwd) if parts[0] else ""
    if not source:
        raise _Problem("the source is empty; check whether a shell variable is unset")
    destination = source
    if len(parts) > 1:
        destination = _check_destination(parts[1], parts[0])
    bind = Bind(source, _clean(destination, follow_up=True))
    for option in parts[2:]:
        name, _, value = option.partition("=")
        if not _is_option(option):
            raise _Problem(f"unknown option '{option}'" if option else "an option is missing after the last ':'")
        _set_option(bind, name, value or "/" if name == "image-src" else value)
    return _finish(bind)


def _make_mount(fields: list[str], cwd: str) -> Bind:
    bind = Bind("", "")
    for field in fields:
        key, has_value, value = field.partition("=")
        if key == "type":
            if value != "bind":
                hint = "; --scratch makes an empty directory" if value == "tmpfs" else ""
                raise _Problem(f"the type '{value}' is not supported, only 'bind'{hint}")
        elif key in ("source", "src"):
            bind.source = _make_absolute(value, cwd) if value else ""
        elif key in ("destination", "dst", "target"):
            bind.destination = _clean(_check_destination(value, ""), follow_up=True) if value else ""
        else:
            _set_mount_option(bind, key, value, bool(has_value))
    if not bind.source or not bind.destination:
        raise _Problem(f"the {'source' if not bind.source else 'destination'} is missing")
    return _finish(bind)


def _set_mount_option(bind: Bind, key: str, value: str, has_value: bool) -> None:
    if key in ("ro", "readonly", "rw", "nonested"):
        truth = read_truth(value) if has_value else True
        if truth is None:
            raise _Problem(f"'{value}' is not a valid value of '{key}': use true or false")
        if key == "nonested":
            bind.outermost = truth
        elif key != "rw":
            bind.readonly = truth
    elif key == "bind-propagation":
        raise _Problem("kedge cannot set the propagation of a mount; mounts follow the host")
    elif key in _VALUES:
        if not value:
            raise _Problem(f"'{key}' is empty")
        _set_option(bind, key, value)
    else:
        raise _Problem(f"unknown key '{key}'")


def _set_option(bind: Bind, name: str, value: str) -> None:
    if name == "ro":
        bind.readonly = True
    elif name == "image-src":
        bind.image_source = value
    elif name == "id":
        if not (value.isascii() and value.isdecimal()):
            raise _Problem(f"'{value}' is not the number of a SIF object")
        bind.partition = value
    elif name == "archive-src":
        raise _Problem("kedge cannot bind an archive; unpack it and bind the directory")


def _finish(bind: Bind) -> Bind:
    if bind.partition and not bind.image_source:
        bind.image_source = "/"
    if bind.destination == "/":
        raise _Problem("kedge cannot bind over the root of the container")
    return bind


def _check_destination(destination: str, source: str) -> str:
    if not destination:
        raise _Problem("the destination is empty; leave out the ':' to use the source's path")
    if not destination.startswith("/"):
        better = f"{source}:/{destination}" if source else f"/{destination}"
        raise _Problem(f"the destination '{destination}' is not an absolute path; write {better}")
    return destination


def _make_absolute(path: str, cwd: str) -> str:
    if "://" in path:
        from kedge.model.image_argument import is_address  # late: hardly any path has that

        if is_address(path):
            raise _Problem(f"'{path}' is not a path; pull the image first and bind the file")
    if path.startswith("~") and not os.path.lexists(os.path.join(cwd, path)):
        raise _Problem(f"'{path}' was not expanded; write $HOME{path[1:] if path[1:2] in ('', '/') else '/...'}")
    if path.startswith("/"):
        return _clean(path)
    joined = os.path.join(cwd, path)
    # `..` behind a link leads elsewhere than in the text: the kernel follows it
    return joined if ".." in path.split("/") else os.path.normpath(joined)


def _clean(path: str, *, follow_up: bool = False) -> str:
    """Without doubled, trailing and single-dot parts; `..` is taken by its text where asked, as in a new tree."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and follow_up:
            parts[-1:] = []
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def _read_csv(text: str) -> list[list[str]]:
    """Lines of fields, as encoding/csv of Go reads them; empty lines are none."""
    lines: list[list[str]] = []
    position, fields = 0, [""]
    while position < len(text):
        if text[position] == '"':
            field, position = _read_quoted(text, position + 1)
        else:
            end = min(index for index in (text.find(",", position), text.find("\n", position), len(text)) if index >= 0)
            field, position = text[position:end], end
            if '"' in field:
                raise _Problem('quote the whole field: "source=/a,b"')
        fields[-1] = field.rstrip("\r") if text[position : position + 1] in ("\n", "") else field
        if text[position : position + 1] == ",":
            fields.append("")
        else:
            lines.append(fields)
            fields = [""]
        position += 1
    if fields != [""]:
        lines.append(fields)
    return [line for line in lines if line != [""]]


def _read_quoted(text: str, position: int) -> tuple[str, int]:
    """A quoted field from behind its first mark; returns it and where it ends."""
    field = ""
    while True:
        end = text.find('"', position)
        if end < 0:
            raise _Problem("a quotation mark is not closed")
        field += text[position:end]
        if text[end + 1 : end + 2] != '"':
            break
        field += '"'
        position = end + 2
    if text[end + 1 : end + 2] not in ("", ",", "\n", "\r"):
        raise _Problem("a quotation mark closes before the end of its field")
    return field, end + 1 + (text[end + 1 : end + 2] == "\r")


def _drop_repeated(binds: list[Bind], warnings: list[str]) -> list[Bind]:
    kept: dict[str, Bind] = {}
    for bind in binds:
        first = kept.setdefault(bind.destination, bind)
        if first is not bind and (first.source, first.readonly) != (bind.source, bind.readonly):
            warnings.append(
                f"two binds have the destination {bind.destination}: kedge uses {first.source} ({first.origin}) "
                f"and ignores {bind.source} ({bind.origin})"
            )
    return list(kept.values())
