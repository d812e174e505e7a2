# SPDX-License-Identifier: BSD-3-Clause
"""Files that a recipe may copy: the build context, the files of a stage or of another image.

All of them are a `FileOrigin`: a tree whose links are followed inside it only, with patterns that leave files out. What
is copied is identified by names, kinds, modes and contents, never by times or owners of this host.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import posixpath
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kedge.base.tree import Node, NodeKind, copy_node, walk
from kedge.builds.host_reach import HostReach
from kedge.builds.patterns import (
    BadPattern,
    IgnorePattern,
    IgnorePatterns,
    MatchState,
    compile_wildcard,
    escape,
    has_wildcard,
    parse_ignore_file,
    unescape,
)
from kedge.builds.states.merged_view import MergedView, ViewEntry, ViewLevel
from kedge.builds.step_values import RecipePlace
from kedge.errors import FileProblem, InvalidRecipe
from kedge.image.layers.directory_tree import FolderSource, identify_content
from kedge.image.store.file_digests import FileDigests, now
from kedge.system.files import explained
from kedge.system.host.limits import read_limits
from kedge.system.host.private_places import Standing

IGNORE_FILE = ".dockerignore"
_MAXIMUM_IGNORE = 1 << 20  # bytes
_HASHING_THREADS = 8
_WORTH_A_THREAD = 64 << 20  # bytes
_BATCH = 200  # files
_NOTHING = IgnorePatterns()
_UNKNOWN = Standing()


@dataclass(slots=True)
class FileOrigin:
    """A tree that files are copied from.

    `key` says what is in it where that is known (a stage, an image); without one contents are hashed. `name` is what
    messages call it, `ignore_file` where its patterns come from.
    """

    view: MergedView
    key: str = ""
    name: str = "the build context"
    folder: str = "/"  # what relative sources begin at
    ignore: IgnorePatterns = _NOTHING
    ignore_file: str = ""
    known: FileDigests | None = None  # from earlier builds
    reach: HostReach | None = None  # of files of this host: what the recipe may take of them
    root: str = ""  # the directory of this host that the tree begins at
    is_open: bool = False  # whether links lead anywhere on this host, so that what lies outside is named
    _digests: dict[object, str] = field(default_factory=dict)  # of contents
    _last: tuple[object, Node] | None = None  # the tree that was looked at last, and what it is

    def locate(self, path: str) -> str:
        """A source as an absolute path in the tree; `..` stays inside."""
        return posixpath.normpath("/" + posixpath.join(self.folder, path).lstrip("/"))

    def expand(self, pattern: str) -> list[str]:
        """The paths that a source names, in order: itself, or what its wildcards match. Raises BadPattern."""
        path = self.locate(pattern)
        if not has_wildcard(path):
            return [unescape(path)]
        parts = path.strip("/").split("/")
        first = next(index for index, part in enumerate(parts) if has_wildcard(part))
        matches = [self._resolve("/" + "/".join(map(unescape, parts[:first])))]
        for part in parts[first:]:
            expression = compile_wildcard(part)
            matches = [path for folder in matches for path in self._match_names(folder, expression.fullmatch)]
        return [path for path in matches if not self.leaves_out(path) and not self._is_hidden(path)]

    def _match_names(self, folder: str, matches: Callable[[str], object]) -> Iterator[str]:
        entry = self.view.find(folder)
        if entry is None or not entry.is_directory:
            return
        for name, _ in self._list(folder):
            text = os.fsdecode(name)
            if matches(text):
                yield f"{folder.rstrip('/')}/{text}"

    def _resolve(self, path: str) -> str:
        try:
            return self.view.resolve(path)
        except OSError:
            return path

    def leaves_out(self, path: str) -> bool:
        """Whether the patterns leave a path out, and all that may be below it."""
        if not self.ignore or path == "/":
            return False
        relative = path.strip("/")
        return self.ignore.leaves_out(relative) and not self.ignore.may_take_back_below(relative)

    def _is_hidden(self, path: str) -> bool:
        """Whether what a wildcard matched is a place of secrets, which is left out."""
        if self.reach is None:
            return False
        real = self.root + self._resolve(path)
        if self.reach.admits(real, self.reach.places.judge(real)):
            return False
        self.reach.leave_out(real)
        return True

    def read_tree(
        self,
        path: str,
        excluded: IgnorePatterns = _NOTHING,
        *,
        follows: bool = False,
        source: str = "",
        at: RecipePlace | None = None,
        is_look: bool = False,
    ) -> Node | None:
        """What stands at a path, itself with links followed, as nodes with all below; None where nothing is.

        `excluded` are patterns from that path on. With `follows` links below are replaced by what they lead to.
        `source` and `at` are the words of the recipe and their place, for what is said of files of this host. With
        `is_look` the caller changes nothing, and the tree is kept for this thread's next question.
        """
        try:
            place = self.view.resolve(path)
        except OSError:  # links in a circle
            return None
        key, known = (threading.get_ident(), place, excluded.patterns, follows), self._last
        self._last = None
        if known is not None and known[0] == key:
            self._last = known if is_look else None
            return known[1]
        entry = self.view.find(place)
        if entry is None or self.leaves_out(place):
            return None
        standing = self._admit(place, source or path, at)
        with self._hinting():
            tree = _TreeReading(self, excluded, follows, at).run(place, entry, standing)
        if is_look and tree is not None:
            self._last = key, tree
        return tree

    def _admit(self, place: str, source: str, at: RecipePlace | None = None) -> Standing:
        """Return what is known of a place that the recipe names; raises InvalidRecipe if it may not have it."""
        if self.reach is None:
            return _UNKNOWN
        standing = self.reach.require_admitted(self.root + place, source)
        if self.is_open:
            self.reach.take(place, source, at)
        return standing

    def read_sent(self, path: str) -> tuple[Node | None, bool]:
        """Return the tree at a path, and whether the patterns leave something out of it."""
        place = self._resolve(path)
        entry = self.view.find(place)
        if entry is None or self.leaves_out(place):
            return None, True
        standing = self._admit(place, path)
        reading = _TreeReading(self, _NOTHING, follows=False)
        with self._hinting():
            return reading.run(place, entry, standing), reading.has_left_out

    def read_ahead(self, pattern: str, at: RecipePlace) -> None:
        """Look at what a source of %files names, before any step; what is missing or wrong is left to its step."""
        with contextlib.suppress(BadPattern, FileProblem, OSError):
            for path in self.expand(pattern):
                self.read_tree(path, follows=True, source=pattern, at=at)

    def digest_tree(self, root: Node) -> str:
        """What a tree from `read_tree` holds, as hexadecimal text."""
        hashed = hashlib.sha256()
        firsts: dict[int, bytes] = {}
        entries = [(b"", root), *walk(root)]
        contents = self._hash_contents(node for _, node in entries if node.kind is NodeKind.FILE)
        for path, node in entries:
            first = firsts.setdefault(id(node), path)
            content = contents.get(node.content, "") if first == path else f"as {first!r}"
            line = (path, node.kind.name, node.mode, node.target, node.rdev, node.size, content)
            hashed.update(repr(line).encode())
        return hashed.hexdigest()

    def _hash_contents(self, files: Iterable[Node]) -> dict[object, str]:
        """The digest of each content, several at once; a file is read once in a build."""
        contents = {node.content: node for node in files if node.content is not None}
        self._recall({content: node for content, node in contents.items() if content not in self._digests})
        missing = {content: node for content, node in contents.items() if content not in self._digests}
        nodes = list(missing.values())
        began = now()
        size = sum(node.size for node in nodes)
        threads = min(_HASHING_THREADS, read_limits().cpus, size // _WORTH_A_THREAD + 1)
        batches = [nodes[start : start + _BATCH] for start in range(0, len(nodes), _BATCH)]
        with self._hinting():
            if threads < 2:
                results = [_hash_contents(batch) for batch in batches]
            else:
                from concurrent.futures import ThreadPoolExecutor  # late: few files need no threads

                with ThreadPoolExecutor(threads) as pool:
                    results = list(pool.map(_hash_contents, batches))
        self._digests.update(zip(missing, itertools.chain(*results), strict=True))
        self._remember(missing, began)
        return self._digests

    def _recall(self, contents: Mapping[object, Node]) -> None:
        """Take over what an earlier build knows of files that have not changed since."""
        if self.known is not None:
            identities = {content: identify_content(node) for content, node in contents.items()}
            known = self.known.find(identity for identity in identities.values() if identity)
            self._digests |= {content: known[identity] for content, identity in identities.items() if identity in known}

    def _remember(self, contents: Mapping[object, Node], began: int) -> None:
        if self.known is not None:
            identities = {content: identify_content(node) for content, node in contents.items()}
            new = {identity: self._digests[content] for content, identity in identities.items() if identity}
            self.known.add(new, began)

    def _list(self, path: str) -> list[tuple[bytes, ViewEntry]]:
        with self._hinting():
            return self.view.entries(path)

    @contextlib.contextmanager
    def _hinting(self) -> Iterator[None]:
        """Name `.dockerignore` where a file of the context cannot be read."""
        try:
            yield
        except FileProblem as problem:
            if self.ignore_file and "changed while" not in problem.message:
                problem.hint = f"make it readable, or leave it out of the context with a line in {self.ignore_file}"
            raise


@dataclass(frozen=True, slots=True)
class _Pending:
    """A directory whose files are still to be read."""

    path: str
    relative: str
    node: Node
    ignored: MatchState
    excluded: MatchState
    ancestors: frozenset[tuple[int, int]]
    standing: Standing


class _TreeReading:
    """Reads one tree, without recursion: directories may be deeper than Python's stack."""

    def __init__(
        self, origin: FileOrigin, excluded: IgnorePatterns, follows: bool, at: RecipePlace | None = None
    ) -> None:
        self._origin = origin
        self._reach = origin.reach
        self._at = at
        self._view = origin.view
        self._excluded = excluded
        self._follows = follows
        self._copies: dict[tuple[int, int], Node] = {}  # by device and inode
        self._doubtful: list[tuple[Node, bytes, Node]] = []  # directories left out, but for what is taken back below
        self.has_left_out = False

    def run(self, path: str, entry: ViewEntry, standing: Standing) -> Node | None:
        root = self._view.make_node(path, entry)
        if root is None or root.kind is not NodeKind.DIRECTORY:
            return self._separate(root, entry)
        ignored = self._origin.ignore.top
        parts = path.strip("/").split("/") if path != "/" else []
        for count in range(1, len(parts) + 1):
            ignored = self._origin.ignore.match("/".join(parts[:count]), ignored)
        pending = [
            _Pending(
                path=path,
                relative="",
                node=root,
                ignored=ignored,
                excluded=self._excluded.top,
                ancestors=frozenset((_identify(entry),)),
                standing=standing,
            )
        ]
        while pending:
            pending.extend(self._fill(pending.pop()))
        for parent, name, node in reversed(self._doubtful):
            if not node.children:
                del parent.children[name]
        return root

    def _fill(self, place: _Pending) -> Iterator[_Pending]:
        for name, entry in self._view.entries(place.path):
            text = os.fsdecode(name)
            path = f"{place.path.rstrip('/')}/{text}"
            relative = f"{place.relative}/{text}" if place.relative else text
            ignored = self._origin.ignore.match(path[1:], place.ignored)
            excluded = self._excluded.match(relative, place.excluded)
            is_left_out = ignored.is_left_out or excluded.is_left_out
            self.has_left_out |= is_left_out
            if is_left_out and not (entry.is_directory and self._may_hold(path, relative, ignored, excluded)):
                continue
            standing = self._judge(path, entry, place.standing)
            if standing is None:
                continue
            real = path
            if self._follows and stat.S_ISLNK(entry.status.st_mode):
                real, entry = self._follow(path)
                standing = self._judge_target(real, path)
                if standing is None:
                    continue
            node = self._separate(self._view.make_node(real, entry), entry)
            if node is None:
                continue
            place.node.children[name] = node
            if is_left_out:
                self._doubtful.append((place.node, name, node))
            if node.kind is NodeKind.DIRECTORY:
                below = self._enter(real, entry, place)
                yield _Pending(
                    path=real,
                    relative=relative,
                    node=node,
                    ignored=ignored,
                    excluded=excluded,
                    ancestors=below,
                    standing=standing,
                )

    def _judge(self, path: str, entry: ViewEntry, above: Standing) -> Standing | None:
        """Return what is known of an entry; None: a place of secrets, which is left out."""
        if self._reach is None:
            return above
        place = self._origin.root + path
        standing = self._reach.places.enter(above, place, entry.status)
        if not standing.secret or self._reach.admits(place, standing):
            return standing
        self._leave_out(place)
        return None

    def _judge_target(self, real: str, link: str) -> Standing | None:
        """Return what is known of a link's target, which is named if it lies outside."""
        if self._reach is None:
            return _UNKNOWN
        standing = self._reach.places.judge(real)
        if not self._reach.admits(real, standing):
            self._leave_out(real)
            return None
        self._reach.take(real, link, self._at)
        return standing

    def _leave_out(self, path: str) -> None:
        assert self._reach is not None
        self.has_left_out = True
        self._reach.leave_out(path, self._at)

    def _may_hold(self, path: str, relative: str, ignored: MatchState, excluded: MatchState) -> bool:
        """Whether both lists may let something below a directory in that one of them leaves out."""
        passes_ignore = not ignored.is_left_out or self._origin.ignore.may_take_back_below(path[1:])
        return passes_ignore and (not excluded.is_left_out or self._excluded.may_take_back_below(relative))

    def _follow(self, path: str) -> tuple[str, ViewEntry]:
        """Where a link leads, as `cp -L` goes."""
        with explained(path):
            real = self._view.resolve(path)
        followed = self._view.find(real)
        if followed is None:
            raise FileProblem(
                f"{path} is a link to a file that does not exist",
                context={"path": path},
                hint="remove the link, or copy the files around it one by one: %files follows links",
            )
        return real, followed

    def _separate(self, node: Node | None, entry: ViewEntry) -> Node | None:
        """A node that may be changed: of a file with several names the view has one for all, and for all who ask.

        Names of one file stay one, unless links are followed: `cp -L` knows no hard links.
        """
        if node is None or node.kind is NodeKind.DIRECTORY or entry.status.st_nlink < 2:
            return node
        identity = _identify(entry)
        copy = None if self._follows else self._copies.get(identity)
        if copy is None:
            copy = self._copies[identity] = copy_node(node)
            copy.content = node.content
        return copy

    def _enter(self, path: str, entry: ViewEntry, place: _Pending) -> frozenset[tuple[int, int]]:
        if not self._follows:
            return place.ancestors
        identity = _identify(entry)
        if identity in place.ancestors:
            raise FileProblem(
                f"{path} leads back to a directory above it", context={"path": path}, hint="remove the link"
            )
        return place.ancestors | {identity}


def open_context(
    folder: Path,
    recipe: Path | None = None,
    output: Path | None = None,
    *,
    ignores: bool = True,
    reach: HostReach | None = None,
) -> FileOrigin:
    """The build context in a directory; `RECIPE.dockerignore` counts before `.dockerignore`.

    What the build before left at `output` is no part of it. Without `ignores` no patterns are read. `reach` leaves
    places of secrets out.
    """
    with explained(folder):
        if not folder.is_dir():
            raise FileProblem(f"the build context {folder} is not a directory", context={"path": str(folder)})
        root = folder.resolve()
    ignore_file, text = _read_ignore_file(root, recipe) if ignores else (root / IGNORE_FILE, "")
    try:
        ignore = _leave_out(parse_ignore_file(text), root, output)
    except BadPattern as problem:
        raise InvalidRecipe(f"{ignore_file}: {problem}", context={"file": str(ignore_file)}) from problem
    view = MergedView((ViewLevel(root),), is_own=False)
    return FileOrigin(
        view,
        name="the build context",
        ignore=ignore,
        ignore_file=str(ignore_file),
        reach=reach,
        root=str(root).rstrip("/"),
    )


def _leave_out(ignore: IgnorePatterns, root: Path, output: Path | None) -> IgnorePatterns:
    """The patterns, and one for a path if it is below the root."""
    place = Path(os.path.abspath(output)).parent.resolve() / output.name if output is not None else root  # noqa: PTH100
    if place == root or not place.is_relative_to(root):
        return ignore
    return IgnorePatterns((*ignore.patterns, IgnorePattern(escape(str(place.relative_to(root))))))


def open_host_files(folder: Path, reach: HostReach | None = None) -> FileOrigin:
    """The files of this host for `%files`; relative sources begin at `folder`. `reach` hears what lies outside."""
    view = MergedView((ViewLevel(Path("/")),), is_own=False)
    with explained(folder):
        start = str(folder.resolve())
    return FileOrigin(view, name="the files of this host", folder=start, reach=reach, is_open=True)


def _read_ignore_file(folder: Path, recipe: Path | None) -> tuple[Path, str]:
    beside = [] if recipe is None else [recipe.with_name(f"{recipe.name}{IGNORE_FILE}")]
    for path in (*beside, folder / IGNORE_FILE):
        with explained(path):
            if path.is_file():
                with path.open("rb") as file:
                    data = file.read(_MAXIMUM_IGNORE + 1)
                if len(data) > _MAXIMUM_IGNORE:
                    raise InvalidRecipe(f"{path} is larger than 1 MiB", context={"file": str(path)})
                return path, data.decode(errors="surrogateescape")
    return folder / IGNORE_FILE, ""


def _hash_contents(nodes: list[Node]) -> list[str]:
    return [_hash_content(node) for node in nodes]


def _hash_content(node: Node) -> str:
    hashed = hashlib.sha256()
    for piece in FolderSource().chunks(node):
        hashed.update(piece)
    return hashed.hexdigest()


def _identify(entry: ViewEntry) -> tuple[int, int]:
    return entry.status.st_dev, entry.status.st_ino
