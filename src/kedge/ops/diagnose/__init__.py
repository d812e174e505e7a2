# SPDX-License-Identifier: BSD-3-Clause
"""What is wrong here: `kedge doctor`, and the report for who helps."""
