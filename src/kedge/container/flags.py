# SPDX-License-Identifier: BSD-3-Clause
"""Words of the four verbs, and their variables, turned into options; the grammar of binds."""

from __future__ import annotations

import os

from kedge.container.facts import LIBRARIES, Bind
from kedge.container.options import FLAGS, REFUSALS, Flag, RunOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kedge.container.options import RunOptions
    from kedge.errors import KedgeError


# From the words of a command line, and the variables that stand for flags, to RunOptions.
#
# Options end at the image, as everywhere with Apptainer: what follows belongs to the program.

PREFIXES = ("KEDGE_", "APPTAINER_", "SINGULARITY_")
USAGES = {
    "exec": "kedge exec [options] IMAGE COMMAND [ARGUMENT ...]",
    "run": "kedge run [options] IMAGE [ARGUMENT ...]",
    "shell": "kedge shell [options] IMAGE",
    "test": "kedge test [options] IMAGE [ARGUMENT ...]",
    "start": "kedge instance start [options] IMAGE NAME [ARGUMENT ...]",
}
_TRUE = ("1", "t", "true", "y", "yes", "on")
_FALSE = ("0", "f", "false", "n", "no", "off")
_DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2015\u2212"  # what word processors and web pages make of a dash
# the same dashes in UTF-8, read as Mac Roman or Windows-1252
_GARBLED = ("\u201a\u00c4\u00ee", "\u201a\u00c4\u00ec", "\u00e2\u20ac\u201d", "\u00e2\u20ac\u201c")
_FETCHING = ("login", "docker-host")  # refusals about the image, which kedge fetches for every runtime
_MESSAGES = ("silent", "quiet", "verbose", "debug")
_SHARED = ("pull_words", "limits")  # attributes that several flags add to
_SPLIT_ELSEWHERE = ("bind", "mount")  # `binds` merges their variables with the flags


MOUNTS = ("proc", "sys", "dev", "devpts", "home", "tmp", "hostfs", "cwd", "bind-paths")  # what --no-mount knows


def list_names(texts: Sequence[str]) -> list[str]:
    """The names of a flag that takes lists of them, separated by commas."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


class HelpWanted(Exception):
    """`--help` stood among the options, or `--help-all`."""

    def __init__(self, *, is_whole: bool) -> None:
        super().__init__()
        self.is_whole = is_whole


def parse_words(
    verb: str, words: Sequence[str], environ: Mapping[str, str], *, into: RunOptions | None = None
) -> RunOptions:
    """The request that the words behind `kedge VERB` make; `into` holds what was read up to a mistake."""
    options = into or RunOptions()
    options.verb = options.command_name = verb
    position = _take_flags(options, words)
    _take_variables(options, environ)
    options.image, options.arguments = "".join(words[position : position + 1]), list(words[position + 1 :])
    _check_words(options)
    if not _is_foreign(options, environ):
        _refuse_foreign(options)
    _check_values(options)
    options.settle()
    return options


def find_flag(verb: str, name: str) -> Flag | None:
    """The flag with this long name (without dashes) or letter."""
    for flag in FLAGS:
        if (name == flag.short or name in flag.names) and verb in flag.verbs:
            return flag
    return None


def read_variable(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """The variable that stands for `name` and its value: KEDGE_ before APPTAINER_ before SINGULARITY_."""
    for prefix in PREFIXES if not name.startswith("KEDGE_") else ("",):
        value = environ.get(prefix + name, "").strip()
        if value:
            return prefix + name, value
    return "", ""


def read_truth(text: str) -> bool | None:
    """What a switch's value says; None when it says nothing."""
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _take_flags(options: RunOptions, words: Sequence[str]) -> int:
    """Read the options; returns where the first word stands that is none."""
    position = 0
    while position < len(words):
        word = _straighten(options, words[position])
        position += 1
        if word == "--":
            return position
        if word.startswith("--"):
            position += _take_long(options, word, words[position : position + 1])
        elif word.startswith("-") and word != "-":
            position += _take_letters(options, word, words[position : position + 1])
        else:
            return position - 1
    return position


def _take_long(options: RunOptions, word: str, following: Sequence[str]) -> int:
    """Read `--flag`, `--flag=value` or `--flag value`; returns how many further words it took."""
    name, has_value, value = word[2:].partition("=")
    flag = find_flag(options.verb, name) if len(name) > 1 else None
    if flag is None:
        raise _explain_unknown(options.verb, "--" + name)
    if not flag.takes_value:
        _apply(options, flag, value if has_value else "true", "--" + name)
        return 0
    if not has_value and not following:
        raise _explain_missing(options.verb, flag, "--" + name)
    _apply(options, flag, value if has_value else following[0], "--" + name)
    return 0 if has_value else 1


def _take_letters(options: RunOptions, word: str, following: Sequence[str]) -> int:
    """Read `-B value`, `-Bvalue`, `-B=value`, `-ec` or `-e=false`; returns how many further words it took."""
    for index, letter in enumerate(word[1:], 2):
        flag = find_flag(options.verb, letter)
        origin, rest = "-" + letter, word[index:]
        if flag is None:
            raise _explain_unknown(options.verb, origin, word)
        if flag.takes_value:
            if not rest and not following:
                raise _explain_missing(options.verb, flag, origin)
            _apply(options, flag, rest.removeprefix("=") if rest else following[0], origin)
            return 0 if rest else 1
        if rest.startswith("="):
            _apply(options, flag, rest[1:], origin)
            return 0
        _apply(options, flag, "true", origin)
    return 0


def _straighten(options: RunOptions, word: str) -> str:
    """A flag copied from a page that turned its dashes into typographic ones is that flag, and this is said."""
    if word[:2].isascii():
        return word
    name = word[3:] if word.startswith(_GARBLED) else word
    if name == word and word[0] not in _DASHES:
        return word
    name = name.lstrip(_DASHES)
    flag = find_flag(options.verb, name.partition("=")[0])
    if flag is None:
        return word
    meant = ("-" if name.partition("=")[0] == flag.short else "--") + name
    options.warnings.append(f"'{word}' has a typographic dash; read as '{meant}'")
    return meant


def _take_variables(options: RunOptions, environ: Mapping[str, str]) -> None:
    """Let variables speak for the flags that were not given."""
    # a plain dictionary of the few that count: asking os.environ costs more, and there are hundreds of questions
    environ = {name: environ[name] for name in environ if name.startswith(PREFIXES)}
    if not environ:
        return
    given = dict(options.given)
    _take_level(options, environ)
    named = {*environ, *(name[len(prefix) :] for name in environ for prefix in PREFIXES if name.startswith(prefix))}
    for flag in FLAGS:
        if named.isdisjoint(flag.variables):
            continue
        if options.verb not in flag.verbs or _key(flag) in given or flag.attribute in _SPLIT_ELSEWHERE:
            continue
        for variable in flag.variables:
            origin, value = read_variable(environ, variable)
            if origin:
                _warn_of_twins(options, environ, variable)
                is_list = flag.kind == "list"
                _apply(options, flag, ",".join(map(str.strip, value.split(","))) if is_list else value, origin)
                break


def _take_level(options: RunOptions, environ: Mapping[str, str]) -> None:
    """What APPTAINER_MESSAGELEVEL says about messages, where no flag does: -3 and less silent … 5 debug."""
    text = read_variable(environ, "MESSAGELEVEL")[1]
    if not text.removeprefix("-").isdecimal() or any(name in options.given for name in _MESSAGES):
        return
    level = int(text)
    options.silent, options.quiet = level <= -3, level <= -1
    options.verbose, options.debug = int(level >= 2), level >= 5


def _warn_of_twins(options: RunOptions, environ: Mapping[str, str], variable: str) -> None:
    old, new = environ.get("SINGULARITY_" + variable, ""), environ.get("APPTAINER_" + variable, "")
    if old and new and old != new:
        options.warnings.append(f"SINGULARITY_{variable} and APPTAINER_{variable} differ; APPTAINER_{variable} is used")


def _apply(options: RunOptions, flag: Flag, value: str, origin: str) -> None:
    """Note what a flag or a variable says."""
    is_on = True
    if not flag.takes_value:
        truth = read_truth(value)
        if truth is None:
            raise _explain_value(options.verb, origin, value, "a switch takes true or false")
        is_on = truth
    elif "|" in flag.metavar and value not in flag.metavar.split("|") and flag.attribute != "network":
        raise _explain_value(options.verb, origin, value, f"it takes {flag.metavar.replace('|', ', ')}")
    if flag.kind == "help":
        raise HelpWanted(is_whole=flag.names[0] == "help-all")
    if flag.group == "refused":
        if is_on and flag.help in _FETCHING:
            raise refuse(flag, origin)
        if is_on:
            options.given.setdefault("passed_on", origin)
            options.passed_on += ["--" + flag.names[0], *([value] if flag.takes_value else [])]
    elif flag.group == "idle":
        options.notes.append(f"{origin} has no effect: {flag.help}")
    else:
        options.given[_key(flag)] = origin
        _store(options, flag, value, is_on)


def _key(flag: Flag) -> str:
    """Under what name `given` remembers a flag: its attribute, but those for a pull share one, and limits too."""
    return flag.attribute if flag.attribute not in _SHARED else flag.names[0].replace("-", "_")


def _store(options: RunOptions, flag: Flag, value: str, is_on: bool) -> None:
    if flag.attribute == "pull_words":
        if is_on:
            options.pull_words += ["--" + flag.names[0], value] if flag.takes_value else ["--" + flag.names[0]]
    elif flag.attribute == "limits":
        options.limits += [f"{flag.names[0]}={value}"] if is_on else []
    elif flag.kind == "list":
        getattr(options, flag.attribute).append(value)
    elif flag.kind == "count":
        setattr(options, flag.attribute, getattr(options, flag.attribute) + 1 if is_on else 0)
    elif flag.kind == "text":
        setattr(options, flag.attribute, value)
    elif flag.value:
        setattr(options, flag.attribute, flag.value if is_on else getattr(RunOptions, flag.attribute))
    else:
        setattr(options, flag.attribute, is_on)


def refuse(flag: Flag, origin: str) -> KedgeError:
    """The error of a flag of Apptainer that is not supported: why not, and what to do instead."""
    from kedge.errors import UsageError  # late: only for an error

    reason, remedy = REFUSALS[flag.help]
    other = "" if flag.help in _FETCHING else "; --runtime apptainer passes it to an installed Apptainer"
    return UsageError(f"{origin} is not supported: {reason}", hint=remedy + other)


def _check_words(options: RunOptions) -> None:
    """Say which word is missing, or stands in another's place."""
    first = options.arguments[0] if options.arguments else ""
    problem = ""
    is_port = options.image.replace(":", "").isdecimal()
    if is_port or "=" in options.image or ":/" in options.image or not all("=" in text for text in options.env):
        _refuse_misread(options)
    if not options.image:
        problem = "needs an image"
    elif options.verb == "exec" and not first:
        problem = "needs a command to run"
    elif options.verb == "start" and not first:
        problem = "needs a name for the instance"
    elif options.verb == "exec" and first.startswith("-"):
        problem = f"got '{first}' as command; options must stand before the image"
    if problem:
        from kedge.errors import UsageError  # late: only for an error

        raise UsageError(f"'{_show(options.verb)}' {problem}", hint=f"usage: {USAGES[options.verb]}")


def _refuse_misread(options: RunOptions) -> None:
    """Raise where the image is what an option of another tool would have taken."""
    if "://" in options.image:
        return
    from kedge.container.misplaced_words import explain_misread  # late: few images look so

    misread = explain_misread(options.image, options.env, list(options.given.values()))
    if misread is not None:
        raise misread


def _is_foreign(options: RunOptions, environ: Mapping[str, str]) -> bool:
    """Whether another runtime gets the flags, which may be able to do what kedge cannot."""
    if options.runtime or not (options.passed_on or options.net or options.network):
        return options.is_foreign
    from kedge.system.settings_lines import read_configured  # late: few ask for what kedge refuses

    return RunOptions(runtime=read_configured("runtime", environ)).is_foreign


def _refuse_foreign(options: RunOptions) -> None:
    """Raise for flags that only another runtime could honour."""
    name, origin = "".join(options.passed_on[:1])[2:], options.given.get("passed_on", "")
    if options.network not in ("", "none", "host") or (options.net and not options.network):
        name, origin = "network-args", options.given.get("network") or options.given.get("net") or "--net"
    flag = find_flag(options.verb, name) if name else None
    if flag is not None:
        raise refuse(flag, origin)


def _show(verb: str) -> str:
    return "kedge instance start" if verb == "start" else f"kedge {verb}"


def _check_values(options: RunOptions) -> None:
    """What depends on more than one flag, or on who asks."""
    unknown = [name for name in list_names(options.no_mount) if name[0] != "/" and name not in MOUNTS]
    if unknown:
        options.warnings.append(f"--no-mount {','.join(unknown)} has no effect: use {', '.join(MOUNTS)}, or a path")
    if options.network == "host":
        options.network, options.net = "", False
    if options.writable and options.writable_tmpfs:
        options.writable_tmpfs = False
        options.warnings.append("--writable-tmpfs is ignored: --writable writes to the image itself")
    if options.keep_privs and os.geteuid() != 0:
        from kedge.errors import UsageError  # late: only for an error

        raise UsageError(f"{options.given['keep_privs']} is for root only", hint="use --fakeroot to appear as root")


def _explain_unknown(verb: str, name: str, word: str = "") -> KedgeError:
    """`word` is the cluster of letters that an unknown letter stands in: `-it`."""
    # late, all of it: only for a mistake
    from kedge.base.nearest import propose
    from kedge.base.words_of_other_tools import explain_option
    from kedge.errors import UsageError

    others = [flag.verbs[0] for flag in FLAGS if name.lstrip("-") in (*flag.names, flag.short)]
    hint = explain_option(verb, word) or explain_option(verb, name)
    if hint:
        name = word if explain_option(verb, word) else name
    elif others:
        hint = f"'{_show(others[0])}' has it"
    else:
        known = [
            f"--{spelling}"
            for flag in FLAGS
            if verb in flag.verbs and flag.group != "refused"
            for spelling in flag.names
        ]
        hint = propose(name, known) if name.startswith("--") else None
    return UsageError(
        f"'{_show(verb)}' has no option {name}", hint=hint or f"to list all options: {_show(verb)} --help-all"
    )


def _explain_missing(verb: str, flag: Flag, origin: str) -> KedgeError:
    from kedge.errors import UsageError  # late: only for an error

    return UsageError(f"{origin} needs a value: {origin} {flag.metavar}", hint=f"usage: {USAGES[verb]}")


def _explain_value(verb: str, origin: str, value: str, rule: str) -> KedgeError:
    from kedge.errors import InvalidSetting, UsageError  # late: only for an error

    if origin.startswith("-"):
        return UsageError(f"'{value}' is not a valid value of {origin}: {rule}", hint=f"usage: {USAGES[verb]}")
    return InvalidSetting(f"the variable {origin} is '{value}': {rule}", hint=f"unset {origin}")


# The grammars of `--bind` and `--mount`, and the variables that add to them.
#
# `--bind SOURCE[:DESTINATION[:OPTION[,OPTION]]][,...]`, where `\:` and `\,` are a plain colon and comma.
# `--mount type=bind,source=PATH,destination=PATH[,ro]` is a line of CSV, with its quoting; several lines are several.

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
        from kedge.base.image_argument import is_address  # late: hardly any path has that

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
    """Return a path without doubled, trailing and single-dot parts; `..` is taken by its text where asked."""
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
