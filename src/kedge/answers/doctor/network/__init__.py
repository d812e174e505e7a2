# SPDX-License-Identifier: BSD-3-Clause
"""Registries, proxies, certificates and logins."""
