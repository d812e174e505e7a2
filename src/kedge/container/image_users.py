# SPDX-License-Identifier: BSD-3-Clause
"""Users and groups as an image's own files name them: who `USER app:staff` of a recipe is.

Numbers need no entry. The rules are Docker's: a number without an entry has group 0; a name needs one.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.system.views import View


class ImageUser:
    """Who a program of the image runs as."""

    __slots__ = ("gid", "groups", "home", "name", "uid")

    def __init__(self, uid: int, gid: int, *, name: str = "", home: str = "/", groups: tuple[int, ...] = ()) -> None:
        self.uid = uid
        self.gid = gid
        self.name = name  # empty where the image has no entry for the number
        self.home = home
        self.groups = groups  # the supplementary ones

    def __repr__(self) -> str:
        return f"ImageUser({self.uid}:{self.gid} {self.name} {self.home} {self.groups})"


def find_image_user(text: str, view: View) -> ImageUser:
    """The user that USER[:GROUP] means in this image; raises CannotStart for a name that it does not know."""
    user, _, group = text.partition(":")
    found = _find_user(user or "0", _read_fields(view, "/etc/passwd", 7))
    groups = _read_fields(view, "/etc/group", 3)
    if group:
        found.gid = _find_group(group, groups)
        found.groups = ()
    elif found.name:
        found.groups = tuple(
            int(fields[2])
            for fields in groups
            if fields[2].isdigit() and len(fields) > 3 and found.name in fields[3].split(",")
        )
    return found


def _find_user(user: str, entries: list[list[str]]) -> ImageUser:
    number = str(int(user)) if user.isdigit() else ""
    for fields in entries:
        if (fields[0] == user or fields[2] == number) and fields[2].isdigit() and fields[3].isdigit():
            return ImageUser(int(fields[2]), int(fields[3]), name=fields[0], home=fields[5] or "/")
    if user.isdigit():
        return ImageUser(int(user), 0, home="/root" if int(user) == 0 else "/")
    if user == "root":
        return ImageUser(0, 0, name="root", home="/root")
    raise _refuse("user", user, "/etc/passwd")


def _find_group(group: str, entries: list[list[str]]) -> int:
    for fields in entries:
        if fields[0] == group and fields[2].isdigit():
            return int(fields[2])
    if group.isdigit():
        return int(group)
    if group == "root":
        return 0
    raise _refuse("group", group, "/etc/group")


def _read_fields(view: View, path: str, fewest: int) -> list[list[str]]:
    text = (view.read(path) or b"").decode(errors="surrogateescape")
    lines = [line.split(":") for line in text.splitlines()]
    return [fields for fields in lines if len(fields) >= fewest]


def _refuse(kind: str, name: str, path: str) -> Exception:
    from kedge.errors import CannotStart  # late: only for an error

    return CannotStart(
        f"the image has no {kind} '{name}'", hint=f"add it to {path} of the image first, or use a number"
    )
