# SPDX-License-Identifier: BSD-3-Clause
"""What commands work with: settings, the store, registries, the site."""
