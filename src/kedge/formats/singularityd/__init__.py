# SPDX-License-Identifier: BSD-3-Clause
"""The .singularity.d folder inside an image, and what inspect shows of it."""
