# SPDX-License-Identifier: BSD-3-Clause
"""OCI layouts, OCI archives and docker-save archives on disk."""
