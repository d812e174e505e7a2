# SPDX-License-Identifier: BSD-3-Clause
"""The image as its program will see it where a bind changes what kedge itself reads: scripts in /.singularity.d, apps.

The plan is made before anything is bound, so that a bound environment file or runscript is looked up on the host.
"""

from __future__ import annotations

from kedge.system.views import DirectoryView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kedge.container.facts import Bind
    from kedge.system.views import View


class BoundView:
    """The tree `image` with binds over it; `host` is where they come from."""

    def __init__(self, image: View, binds: Sequence[Bind], host: View) -> None:
        self._image = image
        self._places: list[tuple[str, View, str]] = []  # destination, where it is, and its path there
        for bind in binds:
            shape = host.kind(bind.source)
            if shape == "d" and isinstance(host, DirectoryView):
                # links in a bound directory lead nowhere on the host: in the container they do not either
                self._places.append((image.resolve(bind.destination), DirectoryView(host.locate(bind.source)), ""))
            elif shape:
                self._places.append((image.resolve(bind.destination), host, bind.source))
        self._places.sort(
            key=lambda place: place[0].count("/")
        )  # a directory before what lies in it, as they are mounted

    def _find(self, path: str) -> tuple[View, str]:
        """The tree that shows at a path, and the path in it."""
        path = self._image.resolve(path)
        for destination, view, source in reversed(self._places):
            if path == destination or path.startswith(f"{destination}/"):
                return view, source + path[len(destination) :] or "/"
        return self._image, path

    def kind(self, path: str) -> str:
        """`d`, `f`, `c`, or the empty string when there is nothing."""
        view, where = self._find(path)
        return view.kind(where)

    def read(self, path: str, limit: int = 1 << 20, offset: int = 0) -> bytes | None:
        """At most `limit` bytes of a regular file."""
        view, where = self._find(path)
        return view.read(where, limit, offset)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, with the mount points that are made in it."""
        view, where = self._find(path)
        start = self._image.resolve(path).rstrip("/") + "/"
        made = [place[0][len(start) :] for place in self._places if place[0].startswith(start)]
        return sorted({*view.names(where), *(name.partition("/")[0] for name in made)})

    def resolve(self, path: str) -> str:
        """The path with the image's links followed."""
        return self._image.resolve(path)

    def is_executable(self, path: str) -> bool:
        """Whether a path is a file with an execute bit."""
        view, where = self._find(path)
        return view.is_executable(where)

    def read_link(self, path: str) -> str:
        """What the link says."""
        view, where = self._find(path)
        return view.read_link(where)

    def can_use(self, path: str) -> bool:
        """Whether we may read and write it."""
        view, where = self._find(path)
        return view.can_use(where)
