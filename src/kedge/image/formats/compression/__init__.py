# SPDX-License-Identifier: BSD-3-Clause
"""Every codec kedge uses: streams of layers, blocks of images. Only this package imports codec libraries."""

from __future__ import annotations

from kedge.image.formats.compression.blocks import BlockCodec, adler32, checksum, codec_of_image, open_codec
from kedge.image.formats.compression.gzip_layers import GzipLayerCompressor
from kedge.image.formats.compression.streams import StreamCompressor, inflate

__all__ = [
    "BlockCodec",
    "GzipLayerCompressor",
    "StreamCompressor",
    "adler32",
    "checksum",
    "codec_of_image",
    "inflate",
    "open_codec",
]
