# SPDX-License-Identifier: BSD-3-Clause
"""OCI distribution, the Library API, credentials; the only code that opens sockets."""
