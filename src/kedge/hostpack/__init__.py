# SPDX-License-Identifier: BSD-3-Clause
"""Programs of this machine with everything they need, as an image."""

from __future__ import annotations

from kedge.hostpack.packer import PackedHost, pack_host

__all__ = ["PackedHost", "pack_host"]
