# SPDX-License-Identifier: BSD-3-Clause
"""`host:` references as an image: programs of this host, packed when they are written."""

from __future__ import annotations

from kedge.errors import NoMatchingPlatform
from kedge.formats.singularityd import SourceRecord
from kedge.hostpack import describe_host, pack_host
from kedge.model.platform import Platform
from kedge.model.reference import Reference
from kedge.model.tree import ContentSink, Node
from kedge.ops.setup.workplace import Workplace


class HostImage:
    """Programs of this host with everything they need."""

    is_decorated = False

    def __init__(self, reference: Reference, workplace: Workplace) -> None:
        self._programs = reference.programs
        self._progress = workplace.progress
        self.config = describe_host(reference.programs)
        _refuse_other_machine(self.config.platform, workplace)
        # no time of packing: the same programs give the same image
        self.record = SourceRecord("host", ",".join(reference.programs), None, self.config.platform, 0)

    def fill(self, sink: ContentSink) -> Node:
        """Pack them now."""
        packed = pack_host(self._programs, sink)
        for name in packed.missing:
            self._progress.detail(f"left out: {name}")
        self._progress.detail(f"packed {packed.files} files of this host")
        return packed.root

    def close(self) -> None:
        """Nothing is held open."""


def _refuse_other_machine(platform: Platform, workplace: Workplace) -> None:
    if workplace.platform.architecture != platform.architecture:
        raise NoMatchingPlatform(
            f"'host:' packs programs of this host, which are for {platform.architecture}, "
            f"not for {workplace.platform.architecture}",
            hint="leave --arch out",
        )
