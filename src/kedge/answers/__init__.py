# SPDX-License-Identifier: BSD-3-Clause
"""What is in an image, and whether it runs on a GPU, a queue or this host."""
