# SPDX-License-Identifier: BSD-3-Clause
"""What users say: flags, variables, binds and the lines of a configuration file that a start needs."""
