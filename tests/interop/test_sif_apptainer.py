# SPDX-License-Identifier: BSD-3-Clause
"""SIF files as kedge writes them, judged by the real Apptainer, beside those it makes itself from the same OCI image.

Needs root and the Apptainer tree (marker: peer).
"""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
from collections.abc import Callable
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
from tests.builders.busybox import read_busybox
from tests.builders.oci_archive import Entry, OciArchive
from tests.builders.sif import fixture_path
from tests.requirements import require_peer

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


Peer = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images")
    path.chmod(0o777)
    return path


@pytest.fixture(scope="module")
def peer(folder: Path) -> Peer:
    script = require_peer()

    def run(*argv: str, check: bool = True, input: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [
            str(script),
            "run",
            "-d",
            str(folder),
            "--",
            "env",
            "APPTAINER_CACHEDIR=/tmp/kedge-test-cache",
            *argv,
        ]
        environment = {"PATH": os.environ["PATH"], "KEDGE_PEERS": os.environ.get("KEDGE_PEERS", "")}
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, check=False, input=input, timeout=120, env=environment
        )
        if check and done.returncode:
            raise AssertionError(f"{shlex.join(argv)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    return run


@pytest.fixture(scope="module")
def images(folder: Path) -> dict[str, Path]:
    """For each shape: ours, with and without a shell; and the archives, of which Apptainer may make its own."""
    found: dict[str, Path] = {}
    for shape, section in SHAPES.items():
        for shell in (True, False):
            name = f"{shape}{'' if shell else '-noshell'}"
            archive = OciArchive(make_entries(shell=shell), section, Platform.host().architecture)
            archive.write(folder / f"{name}.tar")
            found[name] = folder / f"{name}.sif"
            write_sif(found[name], archive.entries, parse_config(archive.config_bytes()))
    return found


def build_theirs(peer: Peer, images: dict[str, Path], *names: str) -> list[Path]:
    """What Apptainer makes of the same archives."""
    made = [images[name].with_name(f"theirs-{name}.sif") for name in names]
    missing = [(name, path) for name, path in zip(names, made, strict=True) if not path.exists()]
    ask_all(peer, [("-s", "build", path.name, f"oci-archive:{name}.tar") for name, path in missing])
    return made


def ask_all(peer: Peer, commands: list[tuple[str | Path, ...]]) -> list[str]:
    """What several commands of Apptainer print, which must all end well; its tree is entered once."""
    lines = [f"apptainer {shlex.join(map(str, words))} </dev/null && printf '\\0' || exit 1" for words in commands]
    return peer("sh", "-c", "\n".join(lines)).stdout.split("\0")[:-1]


def run_words(peer: Peer, image: Path, *words: str) -> str:
    return peer("apptainer", "-s", "run", str(image), *words).stdout


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
            runs.append((("-s", "run", *flags, images[shape + shell], *words), expected))
        if not shell:
            printed = as_printed(EXPANDED if flags else ["/home/peer", "a$b", "hi", "a  b", "*"])
            runs.append((("-s", "run", *flags, images["both"], *EXPANDED), printed))
    return runs


def compare_runs(peer: Peer, runs: list[tuple[tuple[str | Path, ...], str]]) -> None:
    found = ask_all(peer, [words for words, _ in runs])
    wrong = [
        f"{words}: {output!r} instead of {expected!r}"
        for (words, expected), output in zip(runs, found, strict=True)
        if output != expected
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("shell", ["", "-noshell"])
def test_apptainer_runs_entrypoint_and_command(images: dict[str, Path], peer: Peer, shell: str) -> None:
    compare_runs(peer, list_runs(images, shell))


@pytest.mark.long
@pytest.mark.parametrize("shell", ["", "-noshell"])
def test_apptainer_runs_its_own_images_so(images: dict[str, Path], peer: Peer, shell: str) -> None:
    """What the other test expects is what an image of Apptainer's own does."""
    names = [f"{shape}{shell}" for shape in SHAPES]
    theirs = dict(zip(names, build_theirs(peer, images, *names), strict=True))
    compare_runs(peer, list_runs(theirs, shell))


def test_apptainer_run_without_command_starts_a_shell(images: dict[str, Path], peer: Peer) -> None:
    done = peer("apptainer", "-s", "run", str(images["neither"]), input="echo from the shell\n")
    assert done.stdout == "from the shell\n"


@pytest.fixture(scope="module")
def full(folder: Path) -> Path:
    """An image with a nasty environment and labels."""
    section = {
        "Env": ["PATH=/bin:/app", *(f"{name}={value}" for name, value in ENVIRONMENT.items()), "1BAD=x", "NOVALUE"],
        "Entrypoint": ["/app/busybox"],
        "Labels": {"maintainer": "a <b@c> & d", "multi": "x\ny"},
        "WorkingDir": "/w",
    }
    archive = OciArchive(make_entries(shell=True), section, Platform.host().architecture)
    write_sif(folder / "full.sif", archive.entries, parse_config(archive.config_bytes()))
    return folder / "full.sif"


def test_apptainer_gives_the_environment_unchanged(full: Path, peer: Peer) -> None:
    names = " ".join(f'"${{{name}-UNSET}}"' for name in ENVIRONMENT)
    done = peer("apptainer", "-s", "exec", str(full), "/bin/sh", "-c", f"/app/busybox printf '%s\\001' {names}")
    assert done.stdout.split("\x01")[:-1] == list(ENVIRONMENT.values())
    path = peer("apptainer", "-s", "exec", str(full), "/bin/sh", "-c", "echo $PATH").stdout
    assert path.startswith("/bin:/app")
    assert "1BAD" not in peer("apptainer", "-s", "exec", str(full), "/app/busybox", "env").stdout


def test_apptainer_exec_works_without_a_shell(images: dict[str, Path], peer: Peer) -> None:
    done = peer("apptainer", "-s", "exec", str(images["entrypoint-noshell"]), "/app/busybox", "echo", "fine")
    assert done.stdout == "fine\n"


@pytest.mark.parametrize("codec", ["zstd", "gzip", "lz4"])
def test_apptainer_runs_every_compression(folder: Path, peer: Peer, codec: str) -> None:
    config = ImageConfig(Platform.host(), entrypoint=("/app/busybox", "echo", "hello"))
    write_sif(folder / f"{codec}.sif", make_entries(shell=False), config, codec)
    assert run_words(peer, folder / f"{codec}.sif", "you") == "hello you\n"


def test_apptainer_inspect_agrees_with_ours(full: Path, peer: Peer) -> None:
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
    images: dict[str, Path], folder: Path, peer: Peer, capfd: pytest.CaptureFixture[str]
) -> None:
    build_theirs(peer, images, "neither")
    (folder / "apps.def").write_text(APPS)
    peer("apptainer", "-s", "build", "apps.sif", "apps.def")
    data = bytearray((folder / "apps.sif").read_bytes())
    data[4096 + 585 + 4] = 0  # without its metadata object: the files inside must say the same
    (folder / "bare.sif").write_bytes(bytes(data))
    every = ["-d", "-e", "-H", "-l", "-r", "-s", "-t"]
    choices = [[], *([flag] for flag in every), every, ["--list-apps"], ["--app", "foo"], ["--app", "foo", *every]]
    choices += [
        ["--app", "bar"],
        ["--all"],
        ["--all", "--app", "foo"],
        ["-j"],
        ["-j", "-l", "-r"],
        ["-j", "--list-apps"],
    ]
    choices += [["-j", "--app", "foo", "-r"], ["-j", "--app", "bar", "-r"]]
    answers = ask_all(peer, [("inspect", *flags, "apps.sif") for flags in choices])
    for flags, theirs in zip(choices, answers, strict=True):
        for name in ("apps.sif", "bare.sif"):
            assert main(["inspect", *flags, str(folder / name)]) == 0
            assert capfd.readouterr().out == theirs, (name, flags)


def test_apptainer_made_documents_read_as_it_shows_them(images: dict[str, Path], peer: Peer) -> None:
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
        expected = peer("apptainer", "inspect", *flags, str(theirs)).stdout
        assert render_text(report, ReportSelection(frozenset(chosen))) == expected


def test_apptainer_lists_our_files_as_we_do(full: Path, images: dict[str, Path], peer: Peer) -> None:
    paths = (full, *images.values())
    answers = iter(ask_all(peer, [("sif", verb, path) for path in paths for verb in ("list", "header")]))
    for path in paths:
        with path.open("rb") as file:
            reader = SifReader(file)
            assert (format_list(reader.descriptors), format_header(reader.header)) == (next(answers), next(answers))


def test_apptainer_accepts_our_edits(full: Path, folder: Path, peer: Peer) -> None:
    edited = folder / "edited.sif"
    edited.write_bytes(full.read_bytes())
    edited.chmod(0o777)
    added = append_object(edited, DataObject(DataType.GENERIC, b"payload", "note", group=0))
    assert peer("apptainer", "sif", "dump", str(added.id), str(edited)).stdout == "payload"
    assert run_words(peer, edited, "echo", "still runs") == "still runs\n"
    delete_object(edited, added.id)
    assert peer("apptainer", "sif", "info", str(added.id), str(edited), check=False).returncode != 0
    assert run_words(peer, edited, "echo", "still runs") == "still runs\n"


def test_apptainer_edits_of_our_files_are_read_back(full: Path, folder: Path, peer: Peer) -> None:
    edited = folder / "edited-by-them.sif"
    edited.write_bytes(full.read_bytes())
    edited.chmod(0o777)
    (folder / "note.txt").write_text("from them")
    peer(
        "apptainer",
        "sif",
        "add",
        "--datatype",
        "7",
        "--groupid",
        "1",
        "--filename",
        "n",
        "edited-by-them.sif",
        "note.txt",
    )
    reader = SifReader(io.BytesIO(edited.read_bytes()), "edited")
    added = reader.descriptors[-1]
    assert (added.name, reader.read_object(added)) == ("n", b"from them")


@pytest.mark.parametrize("name", ["empty.sif", "one-group.sif"])
def test_a_file_without_times_gets_none(name: str, folder: Path, peer: Peer) -> None:
    words = ["--datatype", "7", "--groupid", "1", "--filename", "n"]
    (folder / "note.txt").write_text("a note")
    for who in ("ours", "theirs"):
        (folder / f"{who}-{name}").write_bytes(fixture_path(name).read_bytes())
        (folder / f"{who}-{name}").chmod(0o777)
    peer("apptainer", "sif", "add", *words, f"theirs-{name}", "note.txt")
    assert main(["sif", "add", *words, str(folder / f"ours-{name}"), str(folder / "note.txt")]) == 0
    assert (folder / f"ours-{name}").read_bytes() == (folder / f"theirs-{name}").read_bytes()


def test_apptainer_builds_a_sandbox_from_ours(full: Path, folder: Path, peer: Peer) -> None:
    peer("sh", "-c", f"rm -rf /tmp/kedge-sandbox; apptainer -s build --sandbox /tmp/kedge-sandbox {full}")
    listing = peer("sh", "-c", "cd /tmp/kedge-sandbox && find . | sort").stdout.split()
    assert "./.singularity.d/runscript" in listing
    assert json.loads(peer("cat", "/tmp/kedge-sandbox/.singularity.d/labels.json").stdout)["multi"] == "x\ny"
    assert folder.exists()
