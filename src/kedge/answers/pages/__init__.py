# SPDX-License-Identifier: BSD-3-Clause
"""Pages for a browser: one self-contained file each, for oneself or for a help desk."""
