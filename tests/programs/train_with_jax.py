# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of JAX on CPUs: `initialize` without arguments finds all of them, and every rank adds up what all have."""

import os

import jax
from jax.experimental import multihost_utils

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize()
rank, size = jax.process_index(), jax.process_count()
total = multihost_utils.process_allgather(jax.numpy.array(rank)).sum()
where = f"node {rank * 2 // size}, local {os.environ['SLURM_LOCALID']}"
os.write(1, f"rank {rank} of {size} on {os.uname().nodename}, {where}: {total} steps\n".encode())
jax.distributed.shutdown()
