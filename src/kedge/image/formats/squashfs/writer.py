# SPDX-License-Identifier: BSD-3-Clause
"""Writes a SquashFS 4.0 image while its files stream in: contents first, then `finish` writes the tables.

Equal input gives equal bytes, whatever the number of threads.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO, Self

from kedge.base.packed_blocks import Packing
from kedge.base.tree import Node
from kedge.errors import CorruptImage, FaultyImage, HostileImage, InvalidSetting
from kedge.image.formats.compression.blocks import BlockCodec, open_codec
from kedge.image.formats.squashfs import layout
from kedge.image.formats.squashfs.check_image import CheckOptions, check_image
from kedge.image.formats.squashfs.compare_contents import DigestSink, compare_image
from kedge.image.formats.squashfs.compress_pipeline import BlockPipeline
from kedge.image.formats.squashfs.content_writer import ContentStore
from kedge.image.formats.squashfs.image_output import OutputFile
from kedge.image.formats.squashfs.inode_writer import BlockMap, TreeTables
from kedge.image.formats.squashfs.table_writer import pack_table


@dataclass(frozen=True, slots=True)
class SquashOptions:
    """How an image is written. `threads` compress; 0 compresses in the caller's thread. `mtime` is the image's own."""

    codec: str = "zstd"
    block_size: int = 131072
    threads: int = 1
    mtime: int = 0
    verify: bool = False  # take a digest of every content, and read all of the image back at the end


class SquashWriter:
    """A `ContentSink` that writes an image at the file's position, a multiple of 4096; the file must be readable too.

    Call `add` and `add_stream` for the files, then `finish` once; or `abort`, which also leaving a `with` block does.
    After an exception only `abort` is possible. The caller does not touch the file in between.
    """

    def __init__(self, file: BinaryIO, options: SquashOptions) -> None:
        size = options.block_size
        if size & (size - 1) or not layout.MINIMUM_BLOCK <= size <= layout.MAXIMUM_BLOCK:
            raise InvalidSetting(f"SquashFS block size {size}", hint="choose a power of two from 4096 to 1048576")
        self._options = options
        self._codec: BlockCodec = open_codec(options.codec)
        self._codec.compress_block(b"\0")  # refuses codecs that only read before anything is written
        self._output = OutputFile(file)
        self._pipeline = BlockPipeline(
            self._output, self._codec, size, options.threads, start=layout.SUPERBLOCK_SIZE + len(self._options_block())
        )
        self._contents = ContentStore(self._pipeline, size)
        self._digests = DigestSink(self._contents) if options.verify else None
        sink = self._digests or self._contents
        self.add = sink.add  # takes a whole file; returns the token for `Node.content`
        self.add_stream = sink.add_stream  # takes a file of so many bytes in chunks; likewise
        if not options.verify:  # or the digests would be of what came out of a codec
            self.add_packed = self._contents.add_packed  # takes such a file in blocks that were made as `packing` says
            self.packing = Packing(options.codec, size)
        self.compared: int | None = None  # how many files were read back, if that was asked for
        self.skipped_xattrs: dict[bytes, int] = {}  # by name: how many files have attributes SquashFS cannot hold

    def finish(self, root: Node) -> int:
        """Write the tables and the superblock for this tree; returns the image's size, padded to 4096.

        Then the image is read back: one that readers could not make sense of is `FaultyImage`, and with `verify` one
        that does not have what came in.
        """
        try:
            self._contents.close_fragment()
            self._pipeline.finish()
            size = self._write_tables(root)
            self._look_back(root, size)
            return size
        finally:
            self.abort()

    def _look_back(self, root: Node, size: int) -> None:
        try:
            self._output.read_whole(size, lambda file, base: self._check(file, base, root, size))
        except (CorruptImage, HostileImage) as problem:
            raise FaultyImage.of(problem) from problem

    def _check(self, file: BinaryIO, base: int, root: Node, size: int) -> None:
        check_image(file, base, size, CheckOptions(is_own=True))
        if self._digests is not None:
            self.compared = compare_image(file, (base, size), root, self._digests, threads=self._options.threads)

    def abort(self) -> None:
        """End the threads; what was written so far is no image. Harmless after `finish`."""
        self._pipeline.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def _options_block(self) -> bytes:
        options = self._codec.options
        return layout.U16.pack(len(options) | layout.METADATA_STORED) + options if options else b""

    def _write_tables(self, root: Node) -> int:
        pipeline, codec = self._pipeline, self._codec
        threads = self._options.threads
        tables = TreeTables(root, codec, BlockMap(pipeline.positions, pipeline.sizes, pipeline.block_size), threads)
        self.skipped_xattrs = tables.xattrs.skipped
        parts = [tables.inodes.close(), tables.directories.close()]
        inode_table = pipeline.end
        directory_table = inode_table + len(parts[0])
        position = directory_table + len(parts[1])
        indices: list[int] = []
        for entries in (self._pack_fragments(), _little_endian(tables.addresses), tables.ids.pack()):
            part, index = pack_table(codec, entries, position, threads)
            parts.append(part)
            indices.append(index)
            position += len(part)
        part, xattr_table = tables.xattrs.pack(position)
        parts.append(part)
        used = position + len(part)
        superblock = layout.Superblock(
            inodes=len(tables.addresses),
            mtime=min(max(self._options.mtime, 0), 0xFFFFFFFF),
            block_size=pipeline.block_size,
            fragments=len(self._contents.fragments),
            compressor=codec.identifier,
            flags=self._flags(),
            ids=len(tables.ids),
            root=tables.root,
            used=used,
            id_table=indices[2],
            xattr_table=xattr_table,
            inode_table=inode_table,
            directory_table=directory_table,
            fragment_table=indices[0],
            export_table=indices[1],
        )
        return self._write_end(superblock, parts)

    def _write_end(self, superblock: layout.Superblock, parts: list[bytes]) -> int:
        padding = -superblock.used % layout.PADDING
        self._output.write_at(superblock.inode_table, b"".join(parts) + bytes(padding))
        self._output.write_at(0, superblock.pack() + self._options_block())
        return superblock.used + padding

    def _flags(self) -> int:
        flags = layout.FLAG_EXPORT | layout.FLAG_DUPLICATES
        if self._codec.options:
            flags |= layout.FLAG_OPTIONS
        if self._codec.stores_all:
            flags |= layout.FLAGS_ALL_STORED
        return flags

    def _pack_fragments(self) -> bytes:
        pipeline = self._pipeline
        pack = layout.FRAGMENT_ENTRY.pack
        return b"".join(pack(pipeline.positions[n], pipeline.sizes[n], 0) for n in self._contents.fragments)


def _little_endian(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
