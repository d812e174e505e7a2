# SPDX-License-Identifier: BSD-3-Clause
"""Where images are kept and unpacked."""
