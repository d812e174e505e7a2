# SPDX-License-Identifier: BSD-3-Clause
"""`kedge shell --record`: bash writes every command with its exit status into a file of the overlay.

bash runs PROMPT_COMMAND before every prompt; nothing else is between the user and the shell. The file is part of the
overlay, so that several sessions add to it, and `kedge commit` reads it and leaves it out of the image.
"""

from __future__ import annotations

COMMANDS_FILE = ".kedge-commands"  # in the root of the overlay
# one record ends with a NUL byte: status, a tab, directory, a tab, the command; the first prompt has no command yet
_PROMPT_COMMAND = (
    '{ _kedge_s=$?; _kedge_h=$(HISTTIMEFORMAT= history 1); [ "$_kedge_h" = "$_kedge_l" ] || '
    rf'printf "%s\t%s\t%s\0" "$_kedge_s" "$PWD" "${{_kedge_h#*[0-9]  }}" >> /{COMMANDS_FILE}; '
    "_kedge_l=$_kedge_h; } 2>/dev/null"
)


def add_record(variables: dict[str, str], warnings: list[str], shell: str, *, is_kept: bool) -> None:
    """Let the shell record its commands, if it is bash and an overlay keeps them; else a warning says why not."""
    if not is_kept:
        warnings.append("--record has no effect without --overlay DIRECTORY, which keeps the commands")
    elif not shell.endswith("bash"):
        warnings.append(f"--record has no effect: the image has no bash, and {shell} cannot record")
    else:
        variables["PROMPT_COMMAND"] = _PROMPT_COMMAND
        variables["HISTFILE"] = ""  # commands of other sessions are not this one's
