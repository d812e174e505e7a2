# SPDX-License-Identifier: BSD-3-Clause
"""Programs of this machine with everything they need, as an image."""
