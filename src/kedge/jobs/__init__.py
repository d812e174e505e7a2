# SPDX-License-Identifier: BSD-3-Clause
"""Descriptions of jobs in kedge.toml, and the records of those that were submitted: plain files."""
