# SPDX-License-Identifier: BSD-3-Clause
"""Jobs on a cluster or in the local queue: submit, alloc, status, logs, wait, cancel; batch scripts."""
