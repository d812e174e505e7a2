# SPDX-License-Identifier: BSD-3-Clause
"""kedge: from the name of a GPU container image to a running job on a cluster."""

from __future__ import annotations

from kedge.release import VERSION

__version__ = VERSION
__all__ = ["__version__"]
