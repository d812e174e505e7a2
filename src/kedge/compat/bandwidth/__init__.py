# SPDX-License-Identifier: BSD-3-Clause
"""How fast ranks exchange data: what was measured, what the links between them can carry, and whether it fits."""
