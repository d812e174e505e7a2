# SPDX-License-Identifier: BSD-3-Clause
"""Content-addressed blobs and images, leases, eviction."""
