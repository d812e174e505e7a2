# SPDX-License-Identifier: BSD-3-Clause
"""Programs of this host with everything they need, as an image."""

from __future__ import annotations

from kedge.image.host_programs.packer import PackedHost, describe_host, pack_host

__all__ = ["PackedHost", "describe_host", "pack_host"]
