# SPDX-License-Identifier: BSD-3-Clause
"""`--chown` and `--chmod` of COPY and ADD: names looked up in the image, modes as chmod takes them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen
from kedge.base.tree import Node, NodeKind
from kedge.builds.step_values import RecipePlace, refuse_recipe

if TYPE_CHECKING:
    from kedge.system.views import View

_MAXIMUM_TABLE = 4 << 20  # bytes of /etc/passwd that are read
_CLAUSE = re.compile(r"([ugoa]*)((?:[-+=](?:[ugo]|[rwxXst]*))+)\Z")
_ACTION = re.compile(r"([-+=])([ugo]|[rwxXst]*)")
_WHO_BITS = {"u": 0o4700, "g": 0o2070, "o": 0o1007}
_SHIFTS = {"u": 6, "g": 3, "o": 0}


@frozen
class Owner:
    """Numbers of a user and a group."""

    uid: int = 0
    gid: int = 0


ROOT = Owner()


def find_owner(text: str, view: View, place: RecipePlace) -> Owner:
    """`USER[:GROUP]`, names or numbers; names must be in the image. A number alone is the group as well."""
    user, colon, group = text.partition(":")
    if user.isascii() and user.isdigit():
        uid, gid = int(user), int(user)
    else:
        uid, gid = _find_user(user, view, place) if user else (0, 0)
    if colon and group:
        gid = int(group) if group.isascii() and group.isdigit() else _find_group(group, view, place)
    return Owner(uid, gid)


def _find_user(name: str, view: View, place: RecipePlace) -> tuple[int, int]:
    for fields in _read_table(view, "/etc/passwd"):
        if fields[0] == name and len(fields) > 3 and fields[2].isdigit() and fields[3].isdigit():
            return int(fields[2]), int(fields[3])
    raise refuse_recipe(
        place,
        f"the image has no user '{name}' in /etc/passwd",
        "use a number: --chown=1000:1000, or add the user first",
    )


def _find_group(name: str, view: View, place: RecipePlace) -> int:
    for fields in _read_table(view, "/etc/group"):
        if fields[0] == name and len(fields) > 2 and fields[2].isdigit():
            return int(fields[2])
    raise refuse_recipe(
        place,
        f"the image has no group '{name}' in /etc/group",
        "use a number: --chown=1000:1000, or add the group first",
    )


def _read_table(view: View, path: str) -> list[list[str]]:
    data = view.read(path, _MAXIMUM_TABLE) or b""
    return [line.split(":") for line in data.decode(errors="surrogateescape").splitlines()]


def check_mode(text: str, place: RecipePlace) -> None:
    """Refuse a mode that cannot be read."""
    if re.fullmatch(r"[0-7]{1,5}", text) and int(text, 8) <= 0o7777:
        return
    if not text or not all(_CLAUSE.match(clause) for clause in text.split(",")):
        raise refuse_recipe(place, f"--chmod={text} is not a mode", "write it as 755, or as u=rwX,go=rX")


def change_mode(node: Node, text: str) -> int:
    """The mode that `chmod TEXT` gives to a file or directory."""
    if text.isdigit():
        return int(text, 8)
    mode = node.mode
    is_directory = node.kind is NodeKind.DIRECTORY
    for clause in text.split(","):
        match = _CLAUSE.match(clause)
        assert match is not None
        who = set(match[1].replace("a", "ugo") or "ugo")
        for sign, rights in _ACTION.findall(match[2]):
            mode = _apply(mode, who, sign, _list_rights(mode, who, rights, is_directory=is_directory))
    return mode


def _apply(mode: int, who: set[str], sign: str, bits: int) -> int:
    if sign == "+":
        return mode | bits
    if sign == "-":
        return mode & ~bits
    return mode & ~sum(_WHO_BITS[one] for one in who) | bits


def _list_rights(mode: int, who: set[str], rights: str, *, is_directory: bool) -> int:
    """The bits that letters stand for, or those that another of user, group and others has."""
    if rights in ("u", "g", "o") and rights:
        low = mode >> _SHIFTS[rights] & 7
    else:
        low = sum({"r": 4, "w": 2, "x": 1}.get(letter, 0) for letter in set(rights))
        if "X" in rights and (is_directory or mode & 0o111):
            low |= 1
    bits = 0
    for one in who:
        bits |= low << _SHIFTS[one]
    if "s" in rights:
        bits |= (0o4000 if "u" in who else 0) | (0o2000 if "g" in who else 0)
    return bits | (0o1000 if "t" in rights else 0)
