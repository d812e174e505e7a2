# SPDX-License-Identifier: BSD-3-Clause
"""As an ordinary user: changes a tree in the ways a build can, makes layers of it, and describes all that they give.

make_layers_of_changes.py FOLDER SEED      two steps, one above the other
"""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from kedge.image.layers.apply_layer import apply_layer
from kedge.image.layers.directory_changes import read_changes, take_snapshot
from kedge.image.layers.directory_tree import FolderOptions, read_folder
from kedge.image.layers.flatten import flatten
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.overlay_directory import unpack_overlay
from kedge.image.layers.sandbox import SandboxSink
from kedge.image.layers.tar_writer import write_layer
from kedge.image.layers.upper_directory import UpperOptions, read_upper

CHANGES = [sys.executable, str(Path(__file__).with_name("change_a_tree.py"))]
FUSE = "fuse-overlayfs"


def inside(script, *words):
    """Run as root of a user namespace with mounts of its own."""
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-ec", script, "sh", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def work(word, folder, seed=0):
    """Fill, change or describe a plain directory."""
    return inside('exec "$@"', *CHANGES, word, str(folder), str(seed))


class Stage:
    """An overlay: directories below, lowest first, and one for what is changed."""

    def __init__(self, place, lowers, kind):
        self.upper, self.work, self.merged = place / "upper", place / "work", place / "merged"
        for folder in (self.upper, self.work, self.merged):
            folder.mkdir(parents=True)
        names = ":".join(str(path) for path in reversed(lowers))
        self.options = f"lowerdir={names},upperdir={self.upper},workdir={self.work}"
        self.kind = kind

    def do(self, word, seed=0):
        mount = f"mount -t overlay overlay -o {self.options},userxattr {self.merged}"
        if self.kind == FUSE:
            mount = f"{FUSE} -o {self.options} {self.merged}"
        return inside(f'{mount}; "$@"; umount {self.merged}', *CHANGES, word, str(self.merged), str(seed))


def pack(tree, source):
    out = io.BytesIO()
    write_layer(tree, source, out, "none", holds_whiteouts=True)
    with contextlib.suppress(AttributeError):
        source.close()
    return out.getvalue()


def as_source(data, name="layer"):
    return LayerSource(name, None, None, lambda: iter([data]))


def apply_all(place, base, layers):
    target = place / "plain"
    shutil.copytree(base, target, symlinks=True, copy_function=copy_file)
    for data in layers:
        apply_layer(target, as_source(data))
    return work("describe", target)


def copy_file(source, target):
    if os.path.isfile(source):
        shutil.copy2(source, target)
    else:
        os.mkfifo(target)


def follow_overlay(place, base, seeds, kind):
    """Two steps in overlays: what the programs saw at the end, and the layers."""
    lowers, layers, seen = [base], [], []
    for number, seed in enumerate(seeds):
        stage = Stage(place / f"step{number}", lowers, kind)
        seen.append(stage.do("change", seed))
        layers.append(pack(*read_upper(stage.upper, UpperOptions(has_whiteout_files=kind == FUSE))))
        layer = place / f"layer{number}"
        unpack_overlay(as_source(layers[-1]), layer)
        assert pack(*read_upper(layer)) == layers[-1], "a layer changed on its way to a directory and back"
        lowers.append(layer)
    again = Stage(place / "look", lowers, "kernel").do("describe")
    return {"seen": seen, "overlay": again, "plain": apply_all(place, base, layers)}, layers


def follow_plain(place, base, seeds):
    """The same without an overlay."""
    target = place / "changed"
    shutil.copytree(base, target, symlinks=True)
    layers, seen = [], []
    for seed in seeds:
        before = take_snapshot(target)
        seen.append(work("change", target, seed))
        layers.append(pack(*read_changes(before, target)))
        assert pack(*read_changes(take_snapshot(target), target)) == bytes(1024), "changes where nothing changed"
    return {"seen": seen, "plain": apply_all(place, base, layers)}, layers


def unpack_all(place, base, layers):
    """What the flattener makes of base and layers."""
    bottom = pack(*read_folder(base, FolderOptions(all_root=True)))
    with SandboxSink(place / "flat") as sink:
        sink.finish(flatten([as_source(data, f"layer{n}") for n, data in enumerate((bottom, *layers))], sink))
    for number, data in enumerate((bottom, *layers)):
        (place / f"layer{number}.tar").write_bytes(data)
    return work("describe", place / "flat")


if __name__ == "__main__":
    os.umask(0o022)
    place, seed = Path(sys.argv[1]), sys.argv[2]
    base = place / "base"
    base.mkdir()
    work("fill", base, seed)
    seeds = (f"{seed}-1", f"{seed}-2")
    answer = {}
    ways = ["kernel", "plain", *([FUSE] if shutil.which(FUSE) else [])]
    for way in ways:
        own = place / way
        own.mkdir()
        result, layers = follow_plain(own, base, seeds) if way == "plain" else follow_overlay(own, base, seeds, way)
        answer[way] = {**result, "flat": unpack_all(own, base, layers)}
    print(json.dumps(answer))
