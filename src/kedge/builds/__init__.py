# SPDX-License-Identifier: BSD-3-Clause
"""Definition files and Dockerfiles: parsers, stages and steps as values, cache keys. Nothing here touches a disk."""
