# SPDX-License-Identifier: BSD-3-Clause
"""The rest of an environment, from the first script that needs a real shell on, as a script for the image's shell.

It travels in environment variables, never in argv, which every user of the machine can read.
"""

from __future__ import annotations

from kedge.container.env_scripts import DEFAULT_PATH, PATH_REQUESTS, PROMPT, is_name, quote, read_script
from kedge.container.facts import LIBRARIES, Payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.env_scripts import Entrypoint, EnvironmentInputs
    from kedge.system.views import View

ACTION = "KEDGE_ACTION_"  # with a number behind it: the variables
_PIECE = 24_000  # characters, of at most 4 bytes; the kernel takes 128 KiB for one variable
_BASH_WORDS = ("[[", "source ", "function ", "declare ", "shopt ", "+=", "=(", "<(", "&>", "<<<", "$'")
# Shells set these by themselves, or let nobody set them.
_SHELL_OWN = "PS1 PS2 PS4 SHLVL OLDPWD HOSTNAME HOSTTYPE MACHTYPE OSTYPE COLUMNS LINES PATH SHELL TERM"
_UNSETTABLE = frozenset(
    ("UID", "GID", "EUID", "PPID", "LINENO", "IFS", "OPTIND", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO", "GROUPS", "_")
)

_START = f"""unset {_SHELL_OWN}
command -v source >/dev/null 2>&1 || eval 'source() {{ command . "$@"; }}'
kedge_here=$PWD
export PWD
kedge_repair_path() {{
    for kedge_folder in {DEFAULT_PATH.replace(":", " ")}; do
        case ":${{PATH-}}:" in
        *":$kedge_folder:"*) ;;
        *) PATH="${{PATH:+$PATH:}}$kedge_folder" ;;
        esac
    done
    export PATH
}}
kedge_default_path() {{
    [ -n "${{PATH+x}}" ] || export PATH={DEFAULT_PATH}
}}
kedge_fail() {{
    printf 'FATAL:   %s\\n' "$1" >&2
    exit 255
}}
"""

_FINISH_PATH = """PATH="${SING_USER_DEFINED_PREPEND_PATH:+$SING_USER_DEFINED_PREPEND_PATH:}${PATH-}"
PATH="$PATH${SING_USER_DEFINED_APPEND_PATH:+:$SING_USER_DEFINED_APPEND_PATH}"
export PATH="${SING_USER_DEFINED_PATH:-$PATH}"
"""

_FINISH_LIBRARIES = """kedge_libraries=${LD_LIBRARY_PATH-}
"""

_PROMPT = f"""[ -n "${{PS1:-}}" ] || export PS1={quote(PROMPT)}
if [ -z "${{PROMPT_COMMAND:-}}" ]; then
    export PROMPT_COMMAND="PS1=\\"$PS1\\"; unset PROMPT_COMMAND"
else
    kedge_forget='PROMPT_COMMAND="${{PROMPT_COMMAND%%; PROMPT_COMMAND=*}}"'
    export PROMPT_COMMAND="$PROMPT_COMMAND; $kedge_forget; PS1=\\"$PS1\\""
fi
export APPTAINER_ENVIRONMENT="${{APPTAINER_ENVIRONMENT:-/.singularity.d/env/91-environment.sh}}"
export SINGULARITY_ENVIRONMENT="$APPTAINER_ENVIRONMENT"
"""

_EXEC = """[ "$PWD" = "$kedge_here" ] || cd "$kedge_here" || :
kedge_program=${1-}
[ $# -eq 0 ] || shift
case $kedge_program in
*/*)
    [ -e "$kedge_program" ] || kedge_fail "stat $kedge_program: no such file or directory"
    [ ! -d "$kedge_program" ] || kedge_fail "$kedge_program: is a directory"
    [ -x "$kedge_program" ] || kedge_fail "$kedge_program: permission denied"
    ;;
*)
    set -f
    kedge_found=
    IFS=:
    for kedge_folder in $PATH; do
        kedge_folder=${kedge_folder:-.}
        kedge_file=$kedge_folder/$kedge_program
        if [ -n "$kedge_program" ] && [ -f "$kedge_file" ] && [ -x "$kedge_file" ]; then
            kedge_found=$kedge_file
            break
        fi
    done
    unset IFS
    set +f
    [ -n "$kedge_found" ] || kedge_fail "\\"$kedge_program\\": executable file not found in \\$PATH"
    kedge_program=$kedge_found
    ;;
esac
exec "$kedge_program" "$@"
"""


def make_shell_payload(settings: EnvironmentInputs, done: int, entry: Entrypoint, view: View, verb: str) -> Payload:
    """A payload whose shell takes the steps after the first `done` and then becomes the program."""
    shell = _choose_shell(settings, done, view)
    script = _render_script(settings, done, entry)
    pieces = [script[at : at + _PIECE] for at in range(0, len(script), _PIECE)]
    names = [f"{ACTION}{number}" for number in range(len(pieces))]
    evaluate = "".join(f"${name}" for name in names)
    values = settings.variables.values
    environ: dict[str, str] = {"HOME": values.get("HOME", "/"), "PWD": values.get("PWD", "/")}
    # names that no shell can assign; bash hands them on, others drop them
    environ.update((name, value) for name, value in settings.restored.items() if not is_name(name))
    environ.update(zip(names, pieces, strict=True))
    code = f'kedge_action="{evaluate}"; unset {" ".join(names)}; eval "$kedge_action"'
    payload = Payload([shell, "-c", code, f"/.singularity.d/actions/{verb}", *entry.words], environ)
    payload.notes.append(f"{settings.steps[done][1] or 'a variable'} needs a shell: {shell} sets the environment")
    return payload


def _choose_shell(settings: EnvironmentInputs, done: int, view: View) -> str:
    """bash where a script uses its words and the image has it; else what the image calls sh."""
    paths = [path for kind, path in settings.steps[done:] if kind == "script"]
    wants_bash = any([uses_bash(read_script(view, path)) for path in paths])  # all of them are read: none is too large
    order = ("/bin/bash", "/bin/sh") if wants_bash else ("/bin/sh", "/bin/bash")
    return order[0] if view.is_executable(order[0]) else order[1]


def uses_bash(text: str) -> bool:
    """Whether a line of code has words that only bash and its relatives know."""
    for line in text.splitlines():
        line = line.strip()
        if line and line[0] != "#" and any(word in line for word in _BASH_WORDS):
            return True
    return False


def _render_script(settings: EnvironmentInputs, done: int, entry: Entrypoint) -> str:
    """The whole script; every value in it is quoted."""
    lines = ["unset kedge_action\n", _START, _render_variables(settings)]
    for kind, path in settings.steps[done:]:
        if kind == "script":
            lines.append(f"command . {quote(path)}\n")  # command: a syntax error in it is not the end
        elif kind == "default-path":
            lines.append("kedge_default_path\n")
        elif kind == "repair-path":
            lines.append("kedge_repair_path\n")
        elif kind == "requests":
            lines.append(_render_requests(settings))
        else:
            lines += [_FINISH_PATH, _render_libraries(settings), _render_restore(settings), _PROMPT]
    for name, value in entry.variables.items():
        lines.append(f"export {name}={quote(value)}\n")
    return "".join([*lines, _EXEC])


def _render_variables(settings: EnvironmentInputs) -> str:
    """The variables as our own reader left them."""
    variables = settings.variables
    lines = []
    for name, value in variables.values.items():
        if name == "PWD":
            continue  # the shell knows better
        if name in ("UID", "GID", "EUID"):
            lines.append(f'[ -n "${{{name}+x}}" ] || {name}={quote(value)}\n')  # bash has its own, read-only
        elif name in variables.exported:
            lines.append(f"export {name}={quote(value)}\n")
        else:
            lines.append(f"{name}={quote(value)}\n")
    lines += [f"export {name}\n" for name in sorted(variables.exported) if name not in variables.values]
    return "".join(lines)


def _render_requests(settings: EnvironmentInputs) -> str:
    lines = ["kedge_default_path\n"]
    lines += [f"export {name}={quote(value)}\n" for name, value in settings.additions.items() if is_name(name)]
    own = PATH_REQUESTS.values()
    for name, value in settings.requests.items():
        if name in _UNSETTABLE:
            continue
        if settings.is_literal:
            shown = quote(value)
        else:
            # evaluated on its own, so that a value with a lone quote or bracket spoils nothing else
            evaluated = 'kedge_value="' + value.replace('"', '\\"') + '"'
            lines.append(f"kedge_value={quote(value)}\ncommand eval {quote(evaluated)} || :\n")
            shown = '"$kedge_value"'
        assignment = f"{name}={shown}" if name in own else f"export {name}={shown}"
        lines.append(f"{assignment}\n")
        if name == "LD_LIBRARY_PATH":
            lines.append(f'LD_LIBRARY_PATH="$LD_LIBRARY_PATH${{LD_LIBRARY_PATH:+:{LIBRARIES}}}"\n')
    return "".join(lines)


def _render_libraries(settings: EnvironmentInputs) -> str:
    lines = [_FINISH_LIBRARIES]
    if settings.library_path:
        path = quote(settings.library_path)
        lines.append(f'case $kedge_libraries in "" | {LIBRARIES}) kedge_libraries={path} ;; esac\n')
    first: list[str] = []
    if settings.first_libraries and "LD_LIBRARY_PATH" not in settings.requests:
        first.append(quote(settings.first_libraries))
    first.append('"${KEDGE_PREPEND_LD_LIBRARY_PATH-}"')
    for value in first:
        lines.append(f"kedge_value={value}\n")
        joined = '"$kedge_value${kedge_libraries:+:$kedge_libraries}"'
        lines.append(f'[ -z "$kedge_value" ] || kedge_libraries={joined}\n')
    joined = '"${kedge_libraries:+$kedge_libraries:}$KEDGE_APPEND_LD_LIBRARY_PATH"'
    lines.append(f'[ -z "${{KEDGE_APPEND_LD_LIBRARY_PATH-}}" ] || kedge_libraries={joined}\n')
    lines.append('[ "$kedge_libraries" = "${LD_LIBRARY_PATH-}" ] || export LD_LIBRARY_PATH="$kedge_libraries"\n')
    lines.append(f"unset {' '.join(PATH_REQUESTS.values())}\n")
    return "".join(lines)


def _render_restore(settings: EnvironmentInputs) -> str:
    """The host's variables where no script set them; what a script set to nothing is unset."""
    lines = []
    for name, value in settings.restored.items():
        if name in _UNSETTABLE or not is_name(name):
            continue
        if name == "SHLVL" and value.isdigit():
            # bash counts down when it becomes another program
            lines.append(f'[ -z "${{BASH_VERSION-}}" ] && SHLVL={value} || SHLVL={int(value) + 1}\nexport SHLVL\n')
            continue
        quietly = " 2>/dev/null" if name.startswith(("LANG", "LC_")) else ""  # bash complains of unknown locales
        lines.append(
            f'if [ -z "${{{name}+x}}" ]; then export {name}={quote(value)}{quietly}; '
            f'elif [ -z "${{{name}}}" ]; then unset {name}; fi\n'
        )
    guarded = ("APPTAINER_NAME", "APPTAINER_CONTAINER")
    return "".join([*lines, *(f"export {name}={quote(settings.restored[name])}\n" for name in guarded)])
