# SPDX-License-Identifier: BSD-3-Clause
"""The command line of containers: flags and their variables, binds, the configuration files, shims."""
