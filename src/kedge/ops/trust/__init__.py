# SPDX-License-Identifier: BSD-3-Clause
"""Keys, signatures, and the passphrases of encrypted images."""
