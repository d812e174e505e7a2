# SPDX-License-Identifier: BSD-3-Clause
"""SIF files as kedge writes them, judged by the real Apptainer, beside those it makes itself from the same OCI image.

Needs root and the Apptainer tree (marker: peer).
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from kedge.base.digest import Digest
from kedge.base.manifest import ImageConfig, parse_config
from kedge.base.platform import Platform
from kedge.base.tree import ContentSink, Node, NodeKind
from kedge.cli.main import main
from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.edit import append_object, delete_object
from kedge.image.formats.sif.layout import FILE_MODE, DataType
from kedge.image.formats.sif.listing import format_header, format_list
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.sif.writer import SifBuilder
from kedge.image.formats.singularityd.decorate_tree import decorate, describe
from kedge.image.formats.singularityd.documents import SourceRecord
from kedge.image.formats.singularityd.inspect_report import (
    ReportSelection,
    parse_metadata,
    render_document,
    render_text,
    select_document,
)
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter
from tests.builders.apptainer import Apptainer
from tests.builders.busybox import read_busybox
from tests.builders.oci_archive import Entry, OciArchive
from tests.builders.sif import fixture_path

pytestmark = [pytest.mark.peer, pytest.mark.root]

NASTY = ["plain", "two words", "do$llar $HOME", "`id`", 'dq"dq', "s'q", "back\\slash", "", "a\nb", "é日本", "*~}{"]
PRINT = ["/app/busybox", "printf", "[%s]\\n"]
ENVIRONMENT = {f"V{number}": value for number, value in enumerate([*NASTY, "a=b=c", "\\\\$", "x\\", "!x"])}
SHAPES: dict[str, dict[str, Any]] = {
    "entrypoint": {"Entrypoint": [*PRINT, *NASTY]},
    "command": {"Cmd": [*PRINT, "cmd", *NASTY]},
    "both": {"Entrypoint": PRINT, "Cmd": NASTY},
    "neither": {},
}


def make_entries(*, shell: bool) -> list[Entry]:
    program = read_busybox()
    entries = [Entry("app"), Entry("app/busybox", program)]
    if shell:
        entries += [Entry("bin"), *(Entry(f"bin/{name}", target="/app/busybox") for name in ("sh", "env", "true"))]
    return entries


def make_tree(entries: list[Entry], sink: ContentSink) -> Node:
    root = Node(NodeKind.DIRECTORY, 0o755, mtime=1_700_000_000)
    for entry in entries:
        *parents, name = entry.name.split("/")
        folder = root
        for parent in parents:
            folder = folder.children[parent.encode()]
        kind = NodeKind.SYMLINK if entry.target else NodeKind.DIRECTORY if entry.data is None else NodeKind.FILE
        node = folder.children[name.encode()] = Node(kind, entry.mode, mtime=1_700_000_000)
        node.target = entry.target.encode()
        if entry.data is not None:
            node.size, node.content = len(entry.data), sink.add(entry.data)
    return root


def write_sif(path: Path, entries: list[Entry], config: ImageConfig, codec: str = "gzip") -> None:
    record = SourceRecord("docker", "docker.io/library/test:1", Digest.of(b"m"), config.platform, 1_709_622_489)
    documents = describe(config, record)
    with path.open("w+b") as file:
        builder = SifBuilder(file, architecture=config.platform.architecture, created=record.created, seed=b"x")
        builder.add_object(DataType.DEFFILE, documents.definition)
        builder.add_object(DataType.GENERIC_JSON, documents.inspect_metadata, "inspect-metadata.json")
        if documents.oci_config:
            builder.add_object(DataType.GENERIC_JSON, documents.oci_config, "oci-config.json")
        builder.begin_partition()
        with SquashWriter(file, SquashOptions(codec=codec, mtime=record.created)) as squashfs:
            root = make_tree(entries, squashfs)
            decorate(root, squashfs, config, record)
            size = squashfs.finish(root)
        builder.end_partition(size)
        builder.finish()
    path.chmod(FILE_MODE)


@pytest.fixture(scope="module")
def images(peer: Apptainer) -> dict[str, Path]:
    """For each shape: ours, with and without a shell; and the archives, of which Apptainer may make its own."""
    found: dict[str, Path] = {}
    for shape, section in SHAPES.items():
        for shell in (True, False):
            name = f"{shape}{'' if shell else '-noshell'}"
            archive = OciArchive(make_entries(shell=shell), section, Platform.host().architecture)
            archive.write(peer.folder / f"{name}.tar")
            found[name] = peer.folder / f"{name}.sif"
            write_sif(found[name], archive.entries, parse_config(archive.config_bytes()))
    return found


def build_theirs(peer: Apptainer, images: dict[str, Path], *names: str) -> list[Path]:
    """What Apptainer makes of the same archives."""
    made = [images[name].with_name(f"theirs-{name}.sif") for name in names]
    missing = [(name, path) for name, path in zip(names, made, strict=True) if not path.exists()]
    ask_all(peer, [("build", path.name, f"oci-archive:{name}.tar") for name, path in missing])
    return made


def ask_all(peer: Apptainer, commands: list[tuple[str | Path, ...]]) -> list[str]:
    """What several commands of Apptainer print, which must all end well; its tree is entered once."""
    answers = peer.answer(*commands)
    assert {status for status, _ in answers} <= {0}, answers
    return [output for _, output in answers]


def as_printed(words: list[str]) -> str:
    return "".join(f"[{word}]\n" for word in words)


CASES = [
    ("entrypoint", [], as_printed(NASTY)),
    ("entrypoint", ["x y", "-z"], as_printed([*NASTY, "x y", "-z"])),
    ("command", [], as_printed(["cmd", *NASTY])),
    ("command", [*PRINT, "a b", "-c"], as_printed(["a b", "-c"])),
    ("both", [], as_printed(NASTY)),
    ("both", ["one", ""], as_printed(["one", ""])),
    ("neither", [*PRINT, "a b"], as_printed(["a b"])),
]
EXPANDED = ["$HOME", "a\\$b", "`echo hi`", "a  b", "*"]
FLAGS: tuple[tuple[str, ...], ...] = ((), ("--no-eval",))


def list_runs(images: dict[str, Path], shell: str) -> list[tuple[tuple[str | Path, ...], str]]:
    """Commands that run images with and without a shell, evaluated and not; and what each must print."""
    runs: list[tuple[tuple[str | Path, ...], str]] = []
    for flags in FLAGS:
        for shape, words, expected in CASES:
            runs.append((("run", *flags, images[shape + shell], *words), expected))
        if not shell:
            printed = as_printed(EXPANDED if flags else ["/home/peer", "a$b", "hi", "a  b", "*"])
            runs.append((("run", *flags, images["both"], *EXPANDED), printed))
    return runs


def compare_runs(peer: Apptainer, runs: list[tuple[tuple[str | Path, ...], str]]) -> None:
    found = ask_all(peer, [words for words, _ in runs])
    wrong = [
        f"{words}: {output!r} instead of {expected!r}"
        for (words, expected), output in zip(runs, found, strict=True)
        if output != expected
    ]
    assert not wrong, "\n".join(wrong)


def test_apptainer_runs_entrypoint_and_command(images: dict[str, Path], peer: Apptainer) -> None:
    compare_runs(peer, [each for shell in ("", "-noshell") for each in list_runs(images, shell)])
    done = peer.run("run", images["neither"], input="echo from the shell\n")
    assert done.stdout == "from the shell\n", "without a command a shell is started"


@pytest.mark.long
@pytest.mark.parametrize("shell", ["", "-noshell"])
def test_apptainer_runs_its_own_images_so(images: dict[str, Path], peer: Apptainer, shell: str) -> None:
    """What the other test expects is what an image of Apptainer's own does."""
    names = [f"{shape}{shell}" for shape in SHAPES]
    theirs = dict(zip(names, build_theirs(peer, images, *names), strict=True))
    compare_runs(peer, list_runs(theirs, shell))


@pytest.fixture(scope="module")
def full(peer: Apptainer) -> Path:
    """An image with a nasty environment and labels."""
    section = {
        "Env": ["PATH=/bin:/app", *(f"{name}={value}" for name, value in ENVIRONMENT.items()), "1BAD=x", "NOVALUE"],
        "Entrypoint": ["/app/busybox"],
        "Labels": {"maintainer": "a <b@c> & d", "multi": "x\ny"},
        "WorkingDir": "/w",
    }
    archive = OciArchive(make_entries(shell=True), section, Platform.host().architecture)
    write_sif(peer.folder / "full.sif", archive.entries, parse_config(archive.config_bytes()))
    return peer.folder / "full.sif"


def test_apptainer_gives_the_environment_unchanged(full: Path, peer: Apptainer) -> None:
    names = " ".join(f'"${{{name}-UNSET}}"' for name in ENVIRONMENT)
    show = f"/app/busybox printf '%s\\001' {names}; echo $PATH; /app/busybox env"
    *values, rest = peer.run("exec", full, "/bin/sh", "-c", show).stdout.split("\x01")
    assert values == list(ENVIRONMENT.values())
    assert rest.startswith("/bin:/app")
    assert "1BAD" not in rest


def test_apptainer_inspect_agrees_with_ours(full: Path, peer: Apptainer) -> None:
    with full.open("rb") as file:
        reader = SifReader(file)
        metadata = reader.find_named(DataType.GENERIC_JSON, "inspect-metadata.json")
        assert metadata is not None
        report = parse_metadata(reader.read_object(metadata), "full")
    parts = ("labels", "deffile", "runscript", "startscript", "environment", "test", "helpfile")
    questions: list[tuple[str | Path, ...]] = [("inspect", "--all", full)]
    ours = [render_document(select_document(report, ReportSelection(everything=True))) + "\n"]
    for chosen in [(), *((part,) for part in parts), parts]:
        flags, selection = [f"--{part}" for part in chosen], ReportSelection(frozenset(chosen))
        questions += [("inspect", *flags, full), ("inspect", "--json", *flags, full)]
        ours += [render_text(report, selection), render_document(select_document(report, selection)) + "\n"]
    for words, theirs, text in zip(questions, ask_all(peer, questions), ours, strict=True):
        assert text == theirs, words


APPS = """\
Bootstrap: localimage
From: theirs-neither.sif

%help
    some help
%test
    true
%environment
    export FOO=bar
%labels
    mine yes
%apprun foo
    echo app foo
%apphelp foo
    help of foo
%applabels foo
    color red
%appenv foo
    export FOOENV=1
%apptest foo
    true
%appstart foo
    echo foo start
%appinstall bar
    true
"""


def test_apptainer_image_with_apps_is_shown_as_it_shows_it(
    images: dict[str, Path], peer: Apptainer, capfd: pytest.CaptureFixture[str]
) -> None:
    build_theirs(peer, images, "neither")
    (peer.folder / "apps.def").write_text(APPS)
    peer.run("build", "apps.sif", "apps.def")
    data = bytearray((peer.folder / "apps.sif").read_bytes())
    data[4096 + 585 + 4] = 0  # without its metadata object: the files inside must say the same
    (peer.folder / "bare.sif").write_bytes(bytes(data))
    every = "-d -e -H -l -r -s -t"
    choices = ["", *every.split(), every, "--list-apps", "--app foo", f"--app foo {every}", "--app bar", "--all"]
    choices += ["--all --app foo", "-j", "-j -l -r", "-j --list-apps", "-j --app foo -r", "-j --app bar -r"]
    answers = ask_all(peer, [("inspect", *flags.split(), "apps.sif") for flags in choices])
    for flags, theirs in zip(choices, answers, strict=True):
        for name in ("apps.sif", "bare.sif"):
            assert main(["inspect", *flags.split(), str(peer.folder / name)]) == 0
            assert capfd.readouterr().out == theirs, (name, flags)


def test_apptainer_made_documents_read_as_it_shows_them(images: dict[str, Path], peer: Apptainer) -> None:
    (theirs,) = build_theirs(peer, images, "both")
    with theirs.open("rb") as file:
        reader = SifReader(file)
        metadata = reader.find_named(DataType.GENERIC_JSON, "inspect-metadata.json")
        oci = reader.find_named(DataType.GENERIC_JSON, "oci-config.json")
        assert metadata is not None
        assert oci is not None
        report = parse_metadata(reader.read_object(metadata), "theirs")
        config = OciArchive([], SHAPES["both"], "arm64").config_bytes()
        ours = describe(parse_config(config), SourceRecord("docker", "x", None, Platform("arm64"), 0))
        assert reader.read_object(oci) == ours.oci_config
    for chosen in ((), ("labels", "runscript", "deffile"), ("environment",)):
        flags = [f"--{part}" for part in chosen]
        expected = peer.run("inspect", *flags, theirs).stdout
        assert render_text(report, ReportSelection(frozenset(chosen))) == expected


def test_apptainer_lists_our_files_as_we_do(full: Path, images: dict[str, Path], peer: Apptainer) -> None:
    paths = (full, *images.values())
    answers = iter(ask_all(peer, [("sif", verb, path) for path in paths for verb in ("list", "header")]))
    for path in paths:
        with path.open("rb") as file:
            reader = SifReader(file)
            assert (format_list(reader.descriptors), format_header(reader.header)) == (next(answers), next(answers))


def test_edits_of_both_are_accepted(full: Path, peer: Apptainer) -> None:
    edited = peer.folder / "edited.sif"
    edited.write_bytes(full.read_bytes())
    edited.chmod(0o777)
    added = append_object(edited, DataObject(DataType.GENERIC, b"payload", "note", group=0))
    run = ("run", edited, "echo", "still runs")
    assert peer.answer(("sif", "dump", str(added.id), edited), run) == [(0, "payload"), (0, "still runs\n")]
    delete_object(edited, added.id)
    gone, runs = peer.answer(("sif", "info", str(added.id), edited), run)
    assert (gone[0] != 0, runs) == (True, (0, "still runs\n"))
    (peer.folder / "note.txt").write_text("from them")
    peer.run("sif", "add", "--datatype", "7", "--groupid", "1", "--filename", "n", "edited.sif", "note.txt")
    reader = SifReader(io.BytesIO(edited.read_bytes()), "edited")
    theirs = reader.descriptors[-1]
    assert (theirs.name, reader.read_object(theirs)) == ("n", b"from them")


def test_a_file_without_times_gets_none(peer: Apptainer) -> None:
    words = ["--datatype", "7", "--groupid", "1", "--filename", "n"]
    (peer.folder / "note.txt").write_text("a note")
    for name in ("empty.sif", "one-group.sif"):
        for who in ("ours", "theirs"):
            (peer.folder / f"{who}-{name}").write_bytes(fixture_path(name).read_bytes())
            (peer.folder / f"{who}-{name}").chmod(0o777)
        peer.run("sif", "add", *words, f"theirs-{name}", "note.txt")
        assert main(["sif", "add", *words, str(peer.folder / f"ours-{name}"), str(peer.folder / "note.txt")]) == 0
        assert (peer.folder / f"ours-{name}").read_bytes() == (peer.folder / f"theirs-{name}").read_bytes()


def test_apptainer_builds_a_sandbox_from_ours(full: Path, peer: Apptainer) -> None:
    peer.run("build", "--sandbox", "box", full)
    assert (peer.folder / "box/.singularity.d/runscript").exists()
    assert json.loads((peer.folder / "box/.singularity.d/labels.json").read_text())["multi"] == "x\ny"
