# SPDX-License-Identifier: BSD-3-Clause
"""One file per use case: where the parts meet."""
