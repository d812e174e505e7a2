# SPDX-License-Identifier: BSD-3-Clause
"""Deflate without a frame around it (RFC 1951): what the head of a bundle inflates."""

from __future__ import annotations

import zlib


def deflate_raw(data: bytes) -> bytes:
    """Deflate data to one stream, as small as zlib makes it: it is written once and copied often."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()
