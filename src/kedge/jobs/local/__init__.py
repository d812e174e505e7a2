# SPDX-License-Identifier: BSD-3-Clause
"""The queue of this machine: plain files, a lock, and one process per running job. No daemon.

`folder` keeps jobs, `planning` says who may begin, `turn` lets them, `runner` sees to each until its end.
"""
