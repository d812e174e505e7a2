# SPDX-License-Identifier: BSD-3-Clause
"""Where an image comes from: references resolved, layers and files fetched or opened."""
