# SPDX-License-Identifier: BSD-3-Clause
"""Flattening: one test per rule. No services, no root."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kedge.base.frozen import replace
from kedge.base.tree import Node, find
from kedge.errors import CorruptImage, DigestMismatch, HostileImage
from kedge.image.layers.flatten import flatten
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.limits import FlattenOptions
from kedge.image.layers.piece_feed import PieceFeed
from tests.builders.layers import (
    MemorySink,
    contents,
    describe,
    device,
    entry,
    fifo,
    file,
    folder,
    hard_link,
    layer,
    opaque,
    sources,
    symlink,
    whiteout,
)
from tests.builders.rows import each_row


def merge(*tars: bytes, compressed: bool = False) -> Node:
    return flatten(sources(*tars, compressed=compressed), MemorySink())


def names(*tars: bytes) -> dict[str, bytes | str]:
    return contents(merge(*tars))


def at(root: Node, path: str) -> Node:
    node = find(root, path.encode())
    assert node is not None, path
    return node


MERGED_USR = layer(folder("usr"), folder("usr/lib"), file("usr/lib/old", b"old"), symlink("lib", "usr/lib"))
DIRECTORY = "directory"
KEPT = ".wh..wh.plnk/12.5"  # by aufs, for itself
RULES: dict[str, tuple[list[bytes], dict[str, bytes | str]]] = {
    "a layer above fills what was whited out": (
        [layer(file("a/f", b"1")), layer(whiteout("a")), layer(file("a/g", b"3"))],
        {"a": DIRECTORY, "a/g": b"3"},
    ),
    "a folder that is whited out and made again hides lower children": (
        [layer(folder("d"), file("d/old", b"o")), layer(whiteout("d"), folder("d"), file("d/new", b"n"))],
        {"d": DIRECTORY, "d/new": b"n"},
    ),
    "a whiteout brings nothing back from two layers down": (
        [layer(file("x", b"0")), layer(file("x", b"1")), layer(whiteout("x"))],
        {},
    ),
    "the root may be opaque": ([layer(file("x"), file("d/y")), layer(opaque(""), file("z"))], {"z": b""}),
    "hard links lead into the folder that aufs kept, which is dropped": (
        [
            layer(folder(".wh..wh.plnk"), file(KEPT, b"one"), hard_link("a", KEPT), hard_link("d/b", KEPT)),
            layer(file("c")),
        ],
        {"a": b"one", "c": b"", "d": DIRECTORY, "d/b": b"one"},
    ),
    "whiteouts of nothing are ignored": (
        [layer(file("x")), layer(whiteout("no/such"), opaque("x/y"), opaque("none"))],
        {"x": b""},
    ),
    "a file over a folder": ([layer(folder("d"), file("d/x")), layer(file("d", b"file"))], {"d": b"file"}),
    "a folder over a file, which had hidden what was below it": (
        [layer(folder("d"), file("d/lowest")), layer(file("d", b"file")), layer(folder("d"), file("d/top", b"t"))],
        {"d": DIRECTORY, "d/top": b"t"},
    ),
    "an implied folder over a file": (
        [layer(file("d", b"file")), layer(file("d/x", b"1"))],
        {"d": DIRECTORY, "d/x": b"1"},
    ),
    "a symlink over a folder": (
        [layer(file("d/x"), file("e/y", b"y")), layer(symlink("d", "e"))],
        {"d": "-> e", "e": DIRECTORY, "e/y": b"y"},
    ),
    "the last of equal names wins": ([layer(file("x", b"1"), file("x", b"2"), file("x", b"3"))], {"x": b"3"}),
    "the last kind wins, a folder": (
        [layer(file("x", b"1"), folder("x"), file("x/y"))],
        {"x": DIRECTORY, "x/y": b""},
    ),
    "the last kind wins, a file": ([layer(folder("x"), file("x/y"), file("x", b"2"))], {"x": b"2"}),
    "the last kind wins, a link": ([layer(folder("x"), file("x/y"), symlink("x", "z"))], {"x": "-> z"}),
    "a name that was a file first hides a lower folder": (
        [layer(file("d/low")), layer(file("d"), folder("d"))],
        {"d": DIRECTORY},
    ),
    "a name that was a file meanwhile hides a lower folder": (
        [layer(file("d/low")), layer(folder("d"), file("d"), folder("d"))],
        {"d": DIRECTORY},
    ),
    "a link from above keeps a file that is whited out": (
        [layer(file("a", b"old")), layer(hard_link("b", "a")), layer(whiteout("a"))],
        {"b": b"old"},
    ),
    "a link from above keeps a file that is replaced": (
        [layer(file("a", b"old")), layer(hard_link("b", "a")), layer(file("a", b"new"))],
        {"a": b"new", "b": b"old"},
    ),
    "a link leads to the new file where its layer hides the old one": (
        [layer(file("a", b"old")), layer(whiteout("a"), file("a", b"new"), hard_link("b", "a"))],
        {"a": b"new", "b": b"new"},
    ),
    "a folder that is named replaces a link, below another": (
        [layer(file("e/old", b"o"), symlink("d/l", "/e")), layer(folder("d/l"), whiteout("d/l/old"))],
        {"d": DIRECTORY, "d/l": DIRECTORY, "e": DIRECTORY, "e/old": b"o"},
    ),
    "a folder that is named replaces a link": (
        [MERGED_USR, layer(folder("lib"), file("lib/new", b"n"), whiteout("lib/old"))],
        {"lib": DIRECTORY, "lib/new": b"n", "usr": DIRECTORY, "usr/lib": DIRECTORY, "usr/lib/old": b"old"},
    ),
    "children are grafted onto what a lower link leads to": (
        [MERGED_USR, layer(file("lib/new", b"new"), file("lib/old", b"newer"), file("lib/sub/x", b"s"))],
        {
            **{"lib": "-> usr/lib", "usr": DIRECTORY, "usr/lib": DIRECTORY, "usr/lib/new": b"new"},
            **{"usr/lib/old": b"newer", "usr/lib/sub": DIRECTORY, "usr/lib/sub/x": b"s"},
        },
    ),
    "absolute links are taken from the root, however deep they are": (
        [layer(folder("d/deep"), folder("e"), symlink("d/deep/l", "/e"), file("d/deep/l/x", b"1"))],
        {"d": DIRECTORY, "d/deep": DIRECTORY, "d/deep/l": "-> /e", "e": DIRECTORY, "e/x": b"1"},
    ),
}


@each_row("name", RULES)
def test_flatten_follows_the_rule(name: str) -> None:
    layers, expected = RULES[name]
    assert names(*layers) == expected


# -- rules 1 and 2: names, directories, metadata -----------------------------------------------------------------------


def test_flatten_gives_an_empty_root_for_no_layers() -> None:
    assert describe(merge()) == {"": ("DIRECTORY", "0o755", 0, 0, 0, (), 0, "")}


def test_flatten_lets_the_higher_layer_win_and_stores_each_content_once() -> None:
    sink = MemorySink()
    layers = sources(layer(file("a", b"low"), file("b", b"kept")), layer(file("a", b"high")), compressed=True)
    assert contents(flatten(layers, sink)) == {"a": b"high", "b": b"kept"}
    assert sink.stored == [b"high", b"kept"]


def test_flatten_stores_no_content_that_a_higher_layer_hides_in_any_directory() -> None:
    sink = MemorySink()
    files = [file(f"{name}/{number}", f"{name}{number}".encode()) for name in "def" for number in range(3)]
    low = layer(folder("d"), folder("e"), folder("f"), *files)
    top = layer(whiteout("d/1"), file("e/0", b"new"), opaque("f"), file("f/2", b"own"))
    assert {path: text for path, text in contents(flatten(sources(low, top), sink)).items() if text != "directory"} == {
        **{"d/0": b"d0", "d/2": b"d2", "e/0": b"new", "e/1": b"e1", "e/2": b"e2", "f/2": b"own"}
    }
    assert sorted(sink.stored) == [b"d0", b"d2", b"e1", b"e2", b"new", b"own"]


@each_row("hiding", [whiteout("d"), opaque("d"), file("d")])
def test_flatten_stores_nothing_of_a_directory_that_was_made_anew(hiding: bytes) -> None:
    sink = MemorySink()
    low = layer(folder("d"), file("d/a", b"gone"), file("d/b", b"gone too"))
    root = flatten(sources(low, layer(hiding), layer(folder("d"), file("d/own", b"own"))), sink)
    assert contents(root) == {"d": "directory", "d/own": b"own"}
    assert [data for data in sink.stored if data] == [b"own"]


def test_flatten_merges_folders_and_takes_metadata_from_the_highest_that_names_them() -> None:
    root = merge(
        layer(folder("d", mode=0o700, owner=(1, 1), mtime=1, xattrs={b"user.x": b"1"}), file("d/low")),
        layer(folder("d", mode=0o750, owner=(2, 3), mtime=2), file("d/high")),
        layer(file("d/top")),
    )
    node = at(root, "d")
    assert (node.mode, node.uid, node.gid, node.mtime, node.xattrs, node.layer) == (0o750, 2, 3, 2, (), 1)
    assert sorted(node.children) == [b"high", b"low", b"top"]


def test_flatten_gives_implied_parents_plain_metadata() -> None:
    node = at(merge(layer(file("a/b/c", mtime=5))), "a/b")
    assert (node.mode, node.uid, node.gid, node.mtime, node.layer) == (0o755, 0, 0, 0, -1)


def test_flatten_keeps_the_order_of_layers_in_node_layer() -> None:
    root = merge(layer(file("a")), layer(file("b")))
    assert (at(root, "a").layer, at(root, "b").layer) == (0, 1)


def test_flatten_sets_the_roots_metadata_from_its_entry() -> None:
    root = merge(layer(folder(".", mode=0o555, owner=(9, 9), mtime=3)), layer(file("x")))
    assert (root.mode, root.uid, root.gid, root.mtime) == (0o555, 9, 9, 3)


def test_flatten_refuses_a_root_that_is_no_folder() -> None:
    with pytest.raises(HostileImage, match="root of the image"):
        merge(layer(file("./")))


def test_flatten_keeps_modes_owners_devices_and_capabilities() -> None:
    capability = b"\x01\0\0\x02\0\x04\0\0" + bytes(12)
    root = merge(
        layer(
            file("su", b"x", mode=0o6755, owner=(0, 42), xattrs={b"security.capability": capability}),
            device("null", 1, 3, mode=0o666),
            device("disk", 8, 0, b"4"),
            fifo("pipe"),
        )
    )
    node = at(root, "su")
    assert (node.mode, node.gid, node.xattrs) == (0o6755, 42, ((b"security.capability", capability),))
    assert contents(root) == {"disk": "block_device", "null": "character_device", "pipe": "fifo", "su": b"x"}
    assert at(root, "null").rdev == 0x103


# -- rule 3: whiteouts ---------------------------------------------------------------------------------------------


def test_flatten_hides_what_a_whiteout_names() -> None:
    low = layer(folder("d"), file("d/gone", b"1"), file("d/kept", b"2"), folder("d/tree"), file("d/tree/x", b"3"))
    sink = MemorySink()
    root = flatten(sources(low, layer(whiteout("d/gone"), whiteout("d/tree"))), sink)
    assert contents(root) == {"d": "directory", "d/kept": b"2"}
    assert sink.stored == [b"2"]


@each_row("first", [True, False])
def test_flatten_applies_whiteouts_to_lower_layers_only_whatever_their_order(first: bool) -> None:
    own = [whiteout("d/x"), opaque("d")]
    entries = [folder("d"), file("d/x", b"new"), file("d/y", b"own")]
    top = layer(*(own + entries if first else entries + own))
    assert names(layer(file("d/x", b"old"), file("d/z", b"old")), top) == {
        "d": "directory",
        "d/x": b"new",
        "d/y": b"own",
    }


@each_row("name", [".wh..wh.plnk", ".wh..wh.aufs", ".wh.", "d/.wh..wh.orph", ".wh..", ".wh..."])
def test_flatten_drops_the_names_aufs_kept_for_itself(name: str) -> None:
    assert names(layer(file("x", b"1")), layer(file(name))) == {"x": b"1"}


def test_flatten_gives_symbolic_links_the_only_mode_linux_knows() -> None:
    root = merge(layer(entry("l", b"2", link="t", mode=0)))
    assert root.children[b"l"].mode == 0o777


# -- rule 5: duplicates in one layer -------------------------------------------------------------------------------


def test_flatten_keeps_the_old_file_for_links_made_before_a_duplicate() -> None:
    root = merge(layer(file("x", b"old"), hard_link("link", "x"), file("x", b"new"), hard_link("later", "x")))
    assert contents(root) == {"later": b"new", "link": b"old", "x": b"new"}
    assert at(root, "later") is at(root, "x")


# -- rule 6: hard links --------------------------------------------------------------------------------------------


def test_flatten_makes_hard_links_one_node() -> None:
    root = merge(layer(file("a", b"x"), hard_link("b", "./a"), hard_link("c", "/b")))
    assert at(root, "a") is at(root, "b") is at(root, "c")


def test_flatten_finds_targets_in_lower_layers() -> None:
    root = merge(layer(file("d/a", b"x")), layer(file("other")), layer(hard_link("b", "d/a")))
    assert at(root, "b") is at(root, "d/a")


def test_flatten_reads_a_layer_again_when_a_link_keeps_a_hidden_file_alive() -> None:
    sink = MemorySink()
    low = layer(file("first", b"1"), file("a", b"old"), hard_link("b", "a"), file("z", b"z"))
    root = flatten(sources(low, layer(file("a", b"new")), compressed=True), sink)
    assert contents(root) == {"a": b"new", "b": b"old", "first": b"1", "z": b"z"}
    assert sorted(sink.stored) == [b"1", b"new", b"old", b"z"]


def test_flatten_resolves_links_as_seen_from_their_layer() -> None:
    with pytest.raises(CorruptImage, match="'b' is a hard link to 'a', which is in no layer up to this one"):
        merge(layer(file("a", b"x")), layer(whiteout("a")), layer(hard_link("b", "a")))
    with pytest.raises(CorruptImage, match="hard link to 'a'"):
        merge(layer(hard_link("b", "a")), layer(file("a")))
    with pytest.raises(CorruptImage, match="hard link to 'later'"):
        merge(layer(hard_link("b", "later"), file("later")))


@each_row("hiding", [whiteout("d/a"), opaque("d"), whiteout("d")])
@each_row("is_first", [True, False])
def test_flatten_links_to_what_the_same_layer_hides(hiding: bytes, is_first: bool) -> None:
    entries = [hiding, hard_link("b", "d/a")] if is_first else [hard_link("b", "d/a"), hiding]
    found = names(layer(file("d/a", b"old")), layer(*entries))
    assert {name: found[name] for name in found if name != "d"} == {"b": b"old"}


def test_flatten_forgets_what_a_layer_hides_when_the_next_one_begins() -> None:
    hiding = layer(whiteout("a"), hard_link("b", "a"))
    with pytest.raises(CorruptImage, match="layer layer2: 'c' is a hard link to 'a'"):
        merge(layer(file("a", b"old")), hiding, layer(hard_link("c", "a")))


def test_flatten_does_not_link_to_what_the_same_layer_replaces() -> None:
    """It hides something else, and the target goes when a file takes the place of its directory."""
    low = layer(file("d/a", b"old"), file("other"))
    with pytest.raises(CorruptImage, match="'b' is a hard link to 'd/a'"):
        merge(low, layer(whiteout("other"), file("d"), hard_link("b", "d/a")))


def test_flatten_links_to_symlinks_and_devices() -> None:
    root = merge(layer(symlink("s", "x"), hard_link("t", "s"), device("n", 1, 3), hard_link("m", "n")))
    assert at(root, "s") is at(root, "t")
    assert at(root, "m") is at(root, "n")


@each_row("target", ["d", "/", "."])
def test_flatten_refuses_links_to_folders(target: str) -> None:
    with pytest.raises(CorruptImage, match="hard link"):
        merge(layer(folder("d"), hard_link("b", target)))


def test_flatten_follows_symlinked_parents_of_targets() -> None:
    root = merge(layer(file("usr/lib/a", b"x"), symlink("lib", "usr/lib")), layer(hard_link("b", "lib/a")))
    assert at(root, "b") is at(root, "usr/lib/a")


# -- rule 7: symbolic links as parents -----------------------------------------------------------------------------


def test_flatten_grafts_by_layer_so_that_the_highest_still_wins() -> None:
    found = names(MERGED_USR, layer(file("lib/x", b"middle")), layer(file("usr/lib/x", b"top")))
    assert found["usr/lib/x"] == b"top"
    found = names(MERGED_USR, layer(file("usr/lib/x", b"middle")), layer(file("lib/x", b"top")))
    assert found["usr/lib/x"] == b"top"


def test_flatten_applies_whiteouts_through_lower_links() -> None:
    assert "usr/lib/old" not in names(MERGED_USR, layer(whiteout("lib/old")))
    assert "usr/lib/old" not in names(MERGED_USR, layer(opaque("lib"), file("lib/x")))
    found = names(MERGED_USR, layer(whiteout("lib/old")), layer(file("usr/lib/old", b"back")))
    assert found["usr/lib/old"] == b"back"


@each_row("target", ["usr/lib", "/usr/lib", "./usr/../usr/lib", "/usr/./lib/", "alias"])
def test_flatten_resolves_links_inside_the_root(target: str) -> None:
    low = layer(folder("usr/lib"), symlink("alias", "/usr/lib"), symlink("lib", target))
    assert names(low, layer(file("lib/x", b"1")))["usr/lib/x"] == b"1"


def test_flatten_resolves_dots_of_a_link_from_where_the_link_leads() -> None:
    low = layer(folder("a/b/c"), folder("a/x"), symlink("deep", "a/b"), symlink("way", "deep/../x"))
    assert names(low, layer(file("way/f", b"1")))["a/x/f"] == b"1"


@each_row(("links", "is_followed"), [(40, True), (41, False)])
def test_flatten_follows_as_many_links_as_the_kernel(links: int, is_followed: bool) -> None:
    chain = [folder("d"), symlink("l0", "d"), *(symlink(f"l{index + 1}", f"l{index}") for index in range(links - 1))]
    image = layer(*chain, file(f"l{links - 1}/x", b"1"))
    if is_followed:
        assert names(image)["d/x"] == b"1"
        return
    with pytest.raises(HostileImage, match="through a symbolic link to 'd'") as caught:
        merge(image)
    assert caught.value.context == {"layer": "layer layer0", "path": "l40/x", "link": "d"}


@pytest.mark.parametrize(("most", "is_refused"), [(6, False), (5, True)])
def test_flatten_refuses_links_walked_for_hours(most: int, is_refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All components of the links' targets count, in all directories that are looked for."""
    monkeypatch.setattr("kedge.image.layers.assemble._MAXIMUM_FOLLOWED", most)
    image = layer(folder("a/b/c"), symlink("l", "a/b/c"), file("l/x"), file("l/d/y"))
    if not is_refused:
        assert at(merge(image), "a/b/c/d/y").size == 0
        return
    with pytest.raises(HostileImage, match="its names lead through too many symbolic links") as caught:
        merge(image)
    assert caught.value.context == {"layer": "layer layer0", "link": "a/b/c"}


def test_flatten_counts_the_directories_that_links_lead_to() -> None:
    image = sources(layer(symlink("l", "a/b/c/d/e/f/g/h")), layer(file("l/x")))
    flatten(image, MemorySink(), FlattenOptions(maximum_entries=11))
    with pytest.raises(HostileImage, match="more than 10 entries"):
        flatten(image, MemorySink(), FlattenOptions(maximum_entries=10))


@each_row(("most", "is_refused"), [(6, False), (5, True)])
def test_flatten_counts_the_levels_that_links_lead_to(most: int, is_refused: bool) -> None:
    image = layer(symlink("l", "a/b/c/d"), file("l/e/x"))
    options = FlattenOptions(maximum_depth=most)
    if not is_refused:
        assert at(flatten(sources(image), MemorySink(), options), "a/b/c/d/e/x").size == 0
        return
    with pytest.raises(HostileImage, match="directories are more than 5 levels deep"):
        flatten(sources(image), MemorySink(), options)


@each_row("target", ["../../../etc", "nowhere/../../x", "/etc/../../x", "evil", "file", "file/x", "../etc", "/etc/.."])
def test_flatten_refuses_to_write_through_links_that_leave_the_image(target: str) -> None:
    if target == "/etc/..":  # leads to the root itself: inside
        assert names(layer(folder("etc"), symlink("evil", target), file("evil/x", b"1")))["x"] == b"1"
        return
    entries = [folder("etc"), file("file"), symlink("evil", target), file("evil/passwd", b"root::0:0")]
    with pytest.raises(HostileImage, match=r"layer layer0: 'evil/passwd' would be written through a symbolic link"):
        merge(layer(*entries))


@each_row(
    ("target", "place"), [("nowhere", "nowhere"), ("/no/where", "no/where"), ("no/../where", "where"), ("m", "n")]
)
def test_flatten_implies_the_folders_that_a_dangling_parent_leads_to(target: str, place: str) -> None:
    low = layer(symlink("m", "n"), symlink("l", target), folder("q"))
    found = names(low, layer(file("l/s/x", b"1"), whiteout("l/s/y")))
    folders = {"/".join(f"{place}/s".split("/")[:count]): "directory" for count in range(1, place.count("/") + 3)}
    assert found == {"l": f"-> {target}", "m": "-> n", "q": "directory", f"{place}/s/x": b"1", **folders}
    assert names(low, layer(file("l/x", b"1")), layer(whiteout("l/x"))).keys() & {f"{place}/x"} == set()


def test_flatten_refuses_hard_links_through_links_that_leave_the_image() -> None:
    with pytest.raises(CorruptImage, match="hard link"):
        merge(layer(file("shadow"), symlink("out", "../.."), hard_link("x", "out/shadow")))


# -- streams, digests, limits, threads -----------------------------------------------------------------------------


def test_flatten_verifies_diff_ids_unless_told_not_to() -> None:
    good = sources(layer(file("x")), compressed=True)
    flatten(good, MemorySink())
    bad = [replace(good[0], diff_id=sources(layer(file("y")))[0].diff_id)]
    flatten(bad, MemorySink(), FlattenOptions(verify_diff_ids=False))
    with pytest.raises(DigestMismatch, match="layer layer0 does not match the image config"):
        flatten(bad, MemorySink())


def test_flatten_reads_every_stream_to_its_end_so_that_digests_are_checked() -> None:
    tar = layer(file("x"), end=bytes(4096)) + b"after the end"

    def open_blob() -> Iterator[bytes]:
        yield tar
        raise DigestMismatch("the blob is not what was promised")

    for threaded in (True, False):
        with pytest.raises(DigestMismatch, match="promised"):
            flatten([LayerSource("l", None, None, open_blob)], MemorySink(), FlattenOptions(threaded=threaded))


def test_flatten_refuses_bombs_by_ratio_above_the_free_amount() -> None:
    tar = layer(file("zeros", bytes(8 << 20)))
    options = FlattenOptions(free_expansion=4 << 20)
    with pytest.raises(HostileImage, match="compressed bytes expand to"):
        flatten(sources(tar, compressed=True), MemorySink(), options)
    flatten(sources(tar, compressed=False), MemorySink(), options)
    flatten(sources(tar, compressed=True), MemorySink())


@each_row("threaded", [True, False])
def test_flatten_leaves_no_thread_and_no_open_layer_behind(threaded: bool) -> None:
    closed = []

    def open_blob() -> Iterator[bytes]:
        try:
            yield layer(file("../x"), end=b"")
            while True:
                yield bytes(1 << 20)
        finally:
            closed.append(threading.current_thread())

    with pytest.raises(HostileImage):
        flatten([LayerSource("l", None, None, open_blob)], MemorySink(), FlattenOptions(threaded=threaded))
    assert len(closed) == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "kedge-inflate"]


def test_feed_runs_here_when_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    feed = PieceFeed(iter([b"a", b"b"]), threaded=True)
    assert list(feed) == [b"a", b"b"]
    feed.close()


def test_flatten_counts_its_members() -> None:
    class Counter:
        total = 0
        done = False

        def task(self, label: str, total: int | None, unit: str = "bytes") -> Counter:
            assert unit == "files"
            return self

        def advance(self, amount: int) -> None:
            self.total += amount

        def finish(self) -> None:
            self.done = True

        def note(self, message: str) -> None: ...

        detail = warn = note

    counter = Counter()
    tars = [layer(*(file(f"{index}-{number}") for number in range(index))) for index in (0, 1, 256, 600)]
    flatten(sources(*tars), MemorySink(), FlattenOptions(progress=counter))
    assert (counter.total, counter.done) == (857, True)


def test_flatten_names_the_layer_in_errors_of_any_depth() -> None:
    with pytest.raises(CorruptImage, match="layer layer1"):
        merge(layer(file("x")), layer(file("y", b"data"))[:700])


def test_flatten_reports_a_layer_that_differs_the_second_time() -> None:
    tars = [layer(file("a", b"old"), hard_link("b", "a")), layer(file("a", b"different"))]

    def open_blob() -> Iterator[bytes]:
        yield tars.pop(0)

    top = sources(layer(file("a", b"new")))[0]
    with pytest.raises(CorruptImage, match="changed between two reads"):
        flatten([LayerSource("l", None, None, open_blob), top], MemorySink())
