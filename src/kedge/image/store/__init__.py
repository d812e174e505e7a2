# SPDX-License-Identifier: BSD-3-Clause
"""Content-addressed blobs, names, converted images, leases, eviction."""
