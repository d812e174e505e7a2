# SPDX-License-Identifier: BSD-3-Clause
"""Puts `/.singularity.d` and the mount points a container needs into a tree made from OCI layers.

An image may ship anything under these names. Folders are found by following links inside the image's root only, files
are replaced and never written through, and nodes that have other names are not touched.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

from kedge.base.manifest import ImageConfig
from kedge.base.tree import ContentSink, Node, NodeKind
from kedge.image.formats.go_json import encode_json, encode_text
from kedge.image.formats.singularityd import fixed_files
from kedge.image.formats.singularityd.documents import (
    ConversionRecord,
    SourceRecord,
    make_labels,
    render_definition,
    render_labels,
)
from kedge.image.formats.singularityd.inspect_report import BUILD_NOTE, InspectReport, read_build_note
from kedge.image.formats.singularityd.scripts import render_environment, render_runscript
from kedge.system.views import follow_links

_FOLDER = b".singularity.d/"


def describe(config: ImageConfig, record: SourceRecord) -> ConversionRecord:
    """The documents of the SIF, from the config alone: they stand before the partition."""
    section = config.section
    return ConversionRecord(
        definition=encode_text(render_definition(record)),
        inspect_metadata=encode_text(encode_json(report_config(config, record).as_document())),
        oci_config=encode_text(encode_json(_sorted(section))) if section else None,
        warnings=render_environment(config.environment)[1],
    )


def report_config(config: ImageConfig, record: SourceRecord) -> InspectReport:
    """What `inspect` shows of the image this config becomes."""
    prefix = "/.singularity.d/env/"
    environment = {
        fixed_files.OCI_ENVIRONMENT: render_environment(config.environment)[0],
        fixed_files.CUSTOM_ENVIRONMENT: fixed_files.ENVIRONMENT[fixed_files.CUSTOM_ENVIRONMENT],
    }
    return InspectReport(
        environment={prefix + name: text.rstrip("\n") for name, text in environment.items()},
        labels=make_labels(config, record),
        runscript=render_runscript(config.entrypoint, config.command).rstrip("\n"),
        deffile=render_definition(record).rstrip("\n"),
        startscript=fixed_files.STARTSCRIPT.rstrip("\n"),
        build=read_build_note(json.loads(record.build)) if record.build else {},
    )


def decorate(root: Node, sink: ContentSink, config: ImageConfig, record: SourceRecord) -> ConversionRecord:
    """Change the tree in place; returns what `describe` gives, with the warnings of the tree added."""
    documents = describe(config, record)
    editor = TreeEditor(root, sink, record.created)
    for folder in fixed_files.FOLDERS:
        editor.make_folder(folder.encode())
    editor.open_to_all(_FOLDER.rstrip(b"/"))
    for name, text in fixed_files.ACTIONS.items():
        editor.write(_FOLDER + b"actions/" + name.encode(), text.encode(), 0o755)
    for name, text in fixed_files.ENVIRONMENT.items():
        editor.write(_FOLDER + b"env/" + name.encode(), text.encode(), 0o755)
    environment = encode_text(render_environment(config.environment)[0])
    editor.write(_FOLDER + b"env/" + fixed_files.OCI_ENVIRONMENT.encode(), environment, 0o755)
    runscript = encode_text(render_runscript(config.entrypoint, config.command))
    editor.write(_FOLDER + b"runscript", runscript, 0o755)
    editor.write(_FOLDER + b"startscript", fixed_files.STARTSCRIPT.encode(), 0o755)
    editor.write(_FOLDER + b"labels.json", encode_text(render_labels(make_labels(config, record))), 0o644)
    editor.write(_FOLDER + b"Singularity", documents.definition, 0o644)
    note_build(root, sink, record)
    for path in fixed_files.BIND_TARGETS:
        editor.write(path.encode(), b"", 0o644)
    for name, target in fixed_files.LINKS.items():
        editor.link(name.encode(), target.encode())
    return ConversionRecord(
        documents.definition,
        documents.inspect_metadata,
        documents.oci_config,
        (*documents.warnings, *editor.warnings),
    )


def note_build(root: Node, sink: ContentSink, record: SourceRecord) -> None:
    """Put what is known of the image's build into the tree; of an image that was not built here, nothing."""
    if record.build:
        editor = TreeEditor(root, sink, record.created)
        editor.write(_FOLDER + BUILD_NOTE.encode(), encode_text(record.build), 0o644)


def _sorted(value: object) -> object:
    """The value with the keys of every object sorted, as Go writes maps."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


@dataclass(slots=True)
class TreeEditor:
    """Changes to one tree; every new node carries the same time."""

    root: Node
    sink: ContentSink
    mtime: int
    warnings: list[str] = field(default_factory=list)

    def make_folder(self, path: bytes) -> Node | None:
        """The folder at `path`, made with its parents where missing; a link that leads nowhere is left alone (None)."""
        parent_path, _, name = path.rpartition(b"/")
        parent = self.need_folder(parent_path) if parent_path else self.root
        node = parent.children.get(name)
        if node is not None and node.kind is NodeKind.SYMLINK and not path.startswith(_FOLDER):
            return self._follow(path)  # var/tmp -> /nowhere is the image's own business
        return self.need_folder(path)

    def open_to_all(self, name: bytes) -> None:
        """Let everybody read a folder of the root and the folders in it: an image may have kept them for root."""
        top = self.root.children[name]
        for node in (top, *top.children.values()):
            if node.kind is NodeKind.DIRECTORY:
                node.mode |= 0o555

    def need_folder(self, path: bytes) -> Node:
        """The directory at `path`, whatever it takes: what is in the way is replaced, and that is recorded."""
        existing = self._follow(path, create=True)
        if existing is not None:
            return existing
        folder = self.root
        for part in path.split(b"/"):
            child = folder.children.get(part)
            if child is None or child.kind is not NodeKind.DIRECTORY:
                if child is not None:
                    shown = path.decode(errors="replace")
                    self.warnings.append(f"/{shown} was not a directory in the image; kedge replaced it with one")
                child = folder.children[part] = Node(NodeKind.DIRECTORY, 0o755, mtime=self.mtime)
            folder = child
        return folder

    def write(self, path: bytes, data: bytes, mode: int) -> None:
        """A file of root's at `path`, in place of whatever had that name."""
        parent, _, name = path.rpartition(b"/")
        node = Node(NodeKind.FILE, mode, mtime=self.mtime)
        node.size = len(data)
        node.content = self.sink.add(data) if data else None
        self.need_folder(parent).children[name] = node

    def link(self, name: bytes, target: bytes) -> None:
        """A symbolic link in the root; another link of that name is replaced, anything else is left alone."""
        known = self.root.children.get(name)
        if known is not None and (known.kind is not NodeKind.SYMLINK or known.target == target):
            return
        node = Node(NodeKind.SYMLINK, 0o777, mtime=self.mtime)
        node.target = target
        self.root.children[name] = node

    def _follow(self, path: bytes, *, create: bool = False) -> Node | None:
        """The directory at `path`, links followed inside the root; missing ones are made with `create`."""
        nodes = {"/": self.root}

        def read_link(place: str) -> str | None:
            parent, _, name = place.rpartition("/")
            children = nodes[parent or "/"].children
            child = children.get(os.fsencode(name))
            if child is None and create:
                child = children[os.fsencode(name)] = Node(NodeKind.DIRECTORY, 0o755, mtime=self.mtime)
            if child is None or child.kind not in (NodeKind.DIRECTORY, NodeKind.SYMLINK):
                raise NotADirectoryError(place)
            nodes[place] = child
            return os.fsdecode(child.target) if child.kind is NodeKind.SYMLINK else None

        try:
            return nodes[follow_links(os.fsdecode(path), read_link)]
        except OSError:  # not there, a file on the way, or links in a circle
            return None
