# SPDX-License-Identifier: BSD-3-Clause
"""`kedge doctor`: the diagnosis of this host, and the report for a help desk."""
