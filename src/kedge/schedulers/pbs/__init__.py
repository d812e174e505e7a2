# SPDX-License-Identifier: BSD-3-Clause
"""PBS Professional 19 and later, and OpenPBS. Made after their documents and programs; not seen at work.

A site's `options`: cpu_resource (ncpus; empty: processors are not asked for), and reservation_variable, a variable
that gets the queue's name when a job runs in a reservation. `gpu_directive` and `memory_directive` are parts of a
chunk (`ngpus={count}`, `mem={size}`), or directives of their own when they begin with `-`.
"""

from kedge.schedulers.pbs.server import PBS

__all__ = ["PBS"]
