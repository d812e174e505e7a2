# SPDX-License-Identifier: BSD-3-Clause
"""What a build gives: the image, its formats, its note, and the lock file."""
