# SPDX-License-Identifier: BSD-3-Clause
"""Bad layers: each gives a named error (or, where a bit does not matter, a tree), quickly and without leftovers."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.errors import CorruptImage, HostileImage, KedgeError, UnsupportedFormat
from kedge.image.layers import assemble
from kedge.image.layers.apply_layer import apply_layer
from kedge.image.layers.flatten import flatten
from kedge.image.layers.limits import FlattenOptions
from kedge.image.layers.overlay_directory import NoOverlayForm, unpack_overlay
from kedge.image.layers.sandbox import SandboxSink
from tests.builders import layers as build
from tests.builders.layers import MemorySink, file, folder, hard_link, layer, names_in, pax, sources, symlink
from tests.builders.matrices import EVERY
from tests.builders.rows import each_row

Blocks = Callable[[], bytes]

KINDS: dict[str, Blocks] = {
    "file": lambda: file("victim", b"content " * 100),
    "empty-file": lambda: file("victim"),
    "folder": lambda: folder("victim"),
    "symlink": lambda: symlink("victim", "target"),
    "hard-link": lambda: file("a", b"1") + hard_link("victim", "a"),
    "device": lambda: build.device("victim", 1, 3),
    "fifo": lambda: build.fifo("victim"),
    "pax-path": lambda: pax({b"path": b"victim", b"mtime": b"1.5"}) + file("x", b"content"),
    "pax-global": lambda: pax({b"mtime": b"1"}, b"g") + file("victim", b"content"),
    "pax-xattr": lambda: file("victim", b"content", xattrs={b"user.a": b"b" * 600}),
    "long-name": lambda: build.long_name(b"victim/" * 90) + folder("x"),
    "long-link": lambda: build.long_name(b"target/" * 90, b"K") + symlink("victim", "x"),
    "pax-sparse-0": lambda: pax({b"GNU.sparse.size": b"9000", b"GNU.sparse.map": b"10,5"}) + file("victim", b"12345"),
    "pax-sparse-1": lambda: (
        pax({b"GNU.sparse.major": b"1", b"GNU.sparse.minor": b"0", b"GNU.sparse.realsize": b"9000"})
        + file("victim", build.padded(b"1\n10\n5\n") + b"12345")
    ),
    "gnu-sparse": lambda: (
        build.header(
            b"victim",
            b"S",
            size=5,
            fields={257: b"ustar  \0", 386: b"%011o\0%011o\0" % (10, 5), 483: b"%011o\0" % 9000},
        )
        + build.padded(b"12345")
    ),
    "whiteout": lambda: build.whiteout("victim"),
    "opaque": lambda: build.opaque("victim"),
}


def judge(tar: bytes, *, compressed: bool = False) -> str:
    """Flatten with limits for tests; returns the error's reference, or "accepted"."""
    options = FlattenOptions(free_expansion=64 << 20, maximum_entries=10_000, threaded=compressed)
    start = time.process_time()
    problem: KedgeError | None = None
    try:
        flatten(sources(layer(file("below", b"b")), tar, compressed=compressed), MemorySink(), options)
    except KedgeError as caught:
        problem = caught
    assert time.process_time() - start < 20
    if problem is None:
        return "accepted"
    assert "layer" in problem.message
    assert len(problem.message) < 1000
    assert all(character.isprintable() for character in problem.message)
    return problem.reference


@each_row("kind", KINDS)
def test_whole_members_of_every_kind_are_accepted(kind: str) -> None:
    assert judge(layer(KINDS[kind]())) == "accepted"


@each_row("kind", KINDS)
def test_truncation_is_reported_at_every_kind_of_block(kind: str) -> None:
    tar = KINDS[kind]()
    for cut in {1, 100, 156, 257, 511, *range(513, len(tar), 61), len(tar) - 1}:
        if cut < len(tar) and cut % 512:
            assert judge(tar[:cut]) == "corrupt-image", cut
    for cut in range(512, len(tar), 512):  # at a block boundary it may be a whole, smaller archive
        assert judge(tar[:cut]) in ("corrupt-image", "accepted"), cut


@each_row("kind", KINDS)
def test_flipped_bits_in_headers_are_noticed(kind: str) -> None:
    tar = KINDS[kind]()
    for place in range(0, 512, 7):
        flipped = bytearray(tar)
        flipped[place] ^= 1 << (place % 8)
        assert judge(layer(bytes(flipped))) in ("corrupt-image", "hostile-image", "unsupported-format"), place


@EVERY
@each_row("kind", KINDS)
def test_flipped_bits_with_the_checksum_made_right_give_no_traceback(kind: str, is_every: bool) -> None:
    tar = KINDS[kind]()
    for place in range(500) if is_every else [*range(len(kind) % 9, 500, 9), 156]:
        for bit in (0x01, 0x80):
            flipped = bytearray(tar)
            flipped[place] ^= bit
            judge(layer(build.seal(bytes(flipped[:512])) + bytes(flipped[512:])))


@each_row("cut", [0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_gzip_stream_is_reported(cut: float) -> None:
    blob = build.compress(layer(file("x", bytes(range(256)) * 400)))
    part = blob[: max(1, int(len(blob) * cut))]
    assert judge(part if len(part) > 20 else blob[:-9]) == "corrupt-image"


# What is refused, as what: words of the message, and the blocks
ESCAPES_AND_BOMBS: dict[str, tuple[str, Blocks]] = {
    "dot-dot": ("../evil", lambda: file("../evil", b"x")),
    "dot-dot-inside": ("a/../../evil", lambda: file("a/../../evil", b"x")),
    "dot-dot-folder": ("..", lambda: folder("..")),
    "dot-dot-end": ("a/../..", lambda: folder("a/../..")),
    "dot-dot-absolute": ("/../evil", lambda: file("/../evil", b"x")),
    "dot-dot-by-pax": ("../evil", lambda: pax({b"path": b"../evil"}) + file("x")),
    "dot-dot-by-long-name": ("../evil", lambda: build.long_name(b"../evil") + file("x")),
    "dot-dot-by-prefix": ("../evil", lambda: build.header(b"evil", fields={345: b".."})),
    "dot-dot-by-global": ("../evil", lambda: pax({b"path": b"../evil"}, b"g") + file("x")),
    "dot-dot-by-sparse-name": (
        "../evil",
        lambda: pax({b"GNU.sparse.name": b"../evil", b"GNU.sparse.size": b"0"}) + file("x"),
    ),
    "dot-dot-whiteout": ("../.wh.evil", lambda: file("../.wh.evil")),
    "hard-link-out": ("../../etc/shadow", lambda: hard_link("x", "../../etc/shadow")),
    "hard-link-out-by-pax": ("../x", lambda: pax({b"linkpath": b"../x"}) + hard_link("x", "y")),
    "through-link-up": ("l/x", lambda: symlink("l", "..") + file("l/x")),
    "through-link-far-up": ("d/l/x", lambda: symlink("d/l", "../../../tmp") + file("d/l/x")),
    "through-absolute-link": ("l/x", lambda: symlink("l", "/tmp/../..") + file("l/x")),
    "through-nowhere-up": ("l/x", lambda: symlink("l", "no/../../tmp") + file("l/x")),
    "through-two-links": ("m/x", lambda: symlink("l", "..") + symlink("m", "l") + file("m/x")),
    "through-circle": ("l/x", lambda: symlink("l", "m") + symlink("m", "l") + file("l/x")),
    "through-itself": ("l/x", lambda: symlink("l", "l") + file("l/x")),
    "through-growing-link": ("l/x", lambda: symlink("l", "l/" * 1000) + file("l/x")),
    "through-link-to-file": ("l/x", lambda: symlink("l", "below") + file("l/x")),
    "long-name": ("10000 bytes", lambda: file("n" * 10_000)),
    "long-path": ("longer than 4096", lambda: file("n/" * 5000 + "x")),
    "long-component": ("more than 255", lambda: file("n" * 256)),
    "long-symlink": ("9000 bytes", lambda: symlink("x", "t" * 9000)),
    "long-hard-link": ("longer than 4096", lambda: hard_link("x", "t" * 9000)),
    "deep-by-links": ("levels deep", lambda: symlink("l", "d/" * 1100) + symlink("l/m", "d/" * 1100) + file("l/m/x")),
    "many-folders-by-links": (
        "entries",
        lambda: b"".join(symlink(f"l{n}", f"{n}/" + "d/" * 1000) + file(f"l{n}/x") for n in range(20)),
    ),
    "huge-pax": ("extended header of", lambda: build.header(b"h", b"x", size=1 << 30)),
    "huge-long-name": ("extended header of", lambda: build.header(b"h", b"L", size=1 << 30)),
    "sparse-bomb": (
        "expand",
        lambda: pax({b"GNU.sparse.size": b"4611686018427387904", b"GNU.sparse.map": b"0,0"}) + file("x"),
    ),
    "sparse-bombs": (
        "expand",
        lambda: b"".join(
            pax({b"GNU.sparse.size": b"9000000", b"GNU.sparse.map": b"0,0"}) + file(f"x{index}") for index in range(99)
        ),
    ),
    "old-sparse-bomb": (
        "expand",
        lambda: build.header(b"x", b"S", fields={257: b"ustar  \0", 483: b"\x80" + bytes(4) + b"\x10" + bytes(6)}),
    ),
    "many-entries": ("entries", lambda: b"".join(file(f"{index}") for index in range(10_001))),
    "many-implied-folders": ("entries", lambda: b"".join(file(f"{index}/" + "d/" * 200 + "x") for index in range(60))),
    "many-headers": ("entries", lambda: pax({b"path": b"x"}) * 10_001 + file("x")),
    "root-file": ("root of the image", lambda: file("./")),
    "root-symlink": ("root of the image", lambda: symlink("./", "/etc")),
    "terminal-escape": (r"\\x1b", lambda: file("../\x1b[31mred\n")),
}
BROKEN: dict[str, tuple[str, Blocks]] = {
    "hard-link-to-host": ("etc/shadow", lambda: hard_link("x", "/etc/shadow")),
    "hard-link-to-itself": ("x", lambda: hard_link("x", "x")),
    "hard-link-circle": ("b", lambda: hard_link("a", "b") + hard_link("b", "a")),
    "hard-link-to-folder": ("d", lambda: folder("d") + hard_link("x", "d")),
    "hard-link-through-link": ("l/x", lambda: symlink("l", "..") + hard_link("y", "l/x")),
    "nul-in-name": ("NUL", lambda: pax({b"path": b"a\0b"}) + file("x")),
    "huge-size": ("too early", lambda: build.header(b"x", size=0o77777777777)),
    "huge-size-base-256": ("bytes", lambda: build.header(b"x", fields={124: b"\x80" + b"\xff" * 11})),
    "negative-size": ("a file of -1 bytes", lambda: build.header(b"x", fields={124: b"\xff" * 12})),
    "negative-owner": ("user or group", lambda: build.header(b"x", fields={108: b"\xff" * 8})),
    "sparse-overlap": (
        "does not fit",
        lambda: pax({b"GNU.sparse.size": b"20", b"GNU.sparse.map": b"0,5,3,5"}) + file("x", b"0" * 10),
    ),
    "sparse-map-without-end": (
        "sparse map",
        lambda: pax({b"GNU.sparse.major": b"1", b"GNU.sparse.realsize": b"9"}) + file("x", b"9" * 2_000_000),
    ),
    "sparse-many-pieces": (
        "sparse map",
        lambda: pax({b"GNU.sparse.major": b"1", b"GNU.sparse.realsize": b"9"}) + file("x", b"99999999\n" * 1000),
    ),
    "many-globals": (
        "global PAX",
        lambda: b"".join(pax({b"SCHILY.xattr.user.%d" % n: bytes(60_000)}, b"g") for n in range(20)) + file("x"),
    ),
    "garbage": ("checksum", lambda: b"\x7fELF" + bytes(range(256)) * 4),
    "zip-archive": ("checksum", lambda: (b"PK\x03\x04" + b"zip" * 200)[:512]),
    "bad-octal": ("octal", lambda: build.header(b"x", fields={124: b"0000000009x\0"})),
    "python-number": ("octal", lambda: build.header(b"x", fields={124: b"0_0_0_0_0_0\0"})),
}
UNKNOWN: dict[str, tuple[str, Blocks]] = {
    "dump-folder": ("'D'", lambda: build.entry("x", b"D")),
    "volume-label": ("'V'", lambda: build.entry("x", b"V")),
    "multi-volume": ("'M'", lambda: build.entry("x", b"M")),
    "unknown-type": ("'?'", lambda: build.entry("x", b"?")),
}
ATTACKS: dict[str, tuple[type[KedgeError], str, Blocks]] = {
    **{name: (HostileImage, *row) for name, row in ESCAPES_AND_BOMBS.items()},
    **{name: (CorruptImage, *row) for name, row in BROKEN.items()},
    **{name: (UnsupportedFormat, *row) for name, row in UNKNOWN.items()},
}


LIMITS = FlattenOptions(free_expansion=64 << 20, maximum_entries=10_000)


@each_row("attack", ATTACKS)
def test_attacks_are_refused_by_name_and_leave_nothing_on_disk(tmp_path: Path, attack: str) -> None:
    kind, text, blocks = ATTACKS[attack]
    place = tmp_path / "inner"
    place.mkdir(exist_ok=True)
    tar, lower = layer(blocks()), layer(file("below", b"b"))
    with pytest.raises(kind) as caught, SandboxSink(place / "box") as sink:
        sink.finish(flatten(sources(lower, tar), sink, LIMITS))
    assert text.replace("\\\\", "\\") in caught.value.message
    assert "layer1" in caught.value.message
    assert (names_in(place), names_in(tmp_path)) == ([], ["inner"])
    with pytest.raises(kind, match=re.escape(text.replace("\\\\", "\\"))):
        flatten(sources(lower, tar, compressed=True), MemorySink(), LIMITS)
    assert not [thread for thread in threading.enumerate() if thread.name == "kedge-inflate"]


@each_row("attack", ATTACKS)
def test_attacks_leave_nothing_in_an_overlay_or_a_plain_directory(tmp_path: Path, attack: str) -> None:
    """Below a step of a build there is an image; its layer is trusted as little as the image's."""
    root = tmp_path / "inner" / "root"
    root.mkdir(parents=True, exist_ok=True)
    (root / "below").write_text("b")
    (low,) = sources(layer(ATTACKS[attack][2]()))
    with pytest.raises((KedgeError, NoOverlayForm)):
        unpack_overlay(low, tmp_path / "inner" / "layer", LIMITS)
    with pytest.raises(KedgeError):
        apply_layer(root, low, LIMITS)
    assert (names_in(tmp_path), names_in(tmp_path / "inner"), names_in(root)) == (["inner"], ["root"], ["below"])


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=3000))
def test_random_bytes_give_an_error_or_an_empty_tree(data: bytes) -> None:
    assert judge(data) in ("corrupt-image", "hostile-image", "unsupported-format", "accepted")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_damage_gives_an_error_or_a_tree(data: st.DataObject) -> None:
    tar = bytearray(layer(*(KINDS[kind]() for kind in data.draw(st.lists(st.sampled_from(list(KINDS)), min_size=1)))))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(tar) - 1))
        tar[place] = data.draw(st.integers(0, 255))
        block = place - place % 512
        tar[block : block + 512] = build.seal(bytes(tar[block : block + 512]))
    judge(bytes(tar))


@each_row("through", ["hard link", "parent", "whiteout"])
def test_names_through_endless_links_stop_in_bounded_time(through: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "_MAXIMUM_FOLLOWED", 100_000)  # the real limit takes ten seconds
    links = [symlink(f"l{number}", "a/../" * 800 + f"l{number + 1}") for number in range(39)]
    low = layer(folder("a"), folder("l39"), file("l39/f"), *links)
    make = {
        "hard link": lambda number: hard_link(f"h{number}", "l1/f"),
        "parent": lambda number: file(f"l1/{number}/x"),
        "whiteout": lambda number: build.whiteout(f"l1/{number}"),
    }[through]
    with pytest.raises(HostileImage, match="too many symbolic links"):
        flatten(sources(low, layer(*map(make, range(1000)))), MemorySink())


def test_a_bomb_of_zeros_stops_in_bounded_time_and_memory() -> None:
    blob = build.compress(layer(file("zeros", bytes(80 << 20))))
    start = time.process_time()
    with pytest.raises(HostileImage, match="compressed bytes expand"):
        flatten(sources(blob), _Discard(), FlattenOptions(free_expansion=8 << 20))
    assert time.process_time() - start < 10


class _Discard:
    def add(self, data: object) -> object:
        return 0

    def add_stream(self, size: int, chunks: object) -> object:
        for _ in chunks:  # type: ignore[attr-defined]
            pass
        return 0
