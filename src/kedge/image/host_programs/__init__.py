# SPDX-License-Identifier: BSD-3-Clause
"""Programs of this host with everything they need, as an image."""
