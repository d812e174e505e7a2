# SPDX-License-Identifier: BSD-3-Clause
"""OpenPGP as far as signing needs it (RFC 4880 and 9580, version 4 keys): packets, armor, keys, signatures."""
