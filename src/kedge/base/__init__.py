# SPDX-License-Identifier: BSD-3-Clause
"""Values: reference, digest, platform, manifest, file tree."""
