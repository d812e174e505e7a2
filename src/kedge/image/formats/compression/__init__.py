# SPDX-License-Identifier: BSD-3-Clause
"""Every codec kedge uses: streams of layers, blocks of images. Only this package imports codec libraries."""
