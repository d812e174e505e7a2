# SPDX-License-Identifier: BSD-3-Clause
"""What stands on top and could be left out: measuring, notebooks, kedge in one file, Python functions as jobs."""

# The modules that other rooms import; tests/architecture/test_imports.py holds them to it.
PUBLIC = (
    "bench.compare",
    "bench.computing",
    "bench.containers",
    "bench.machine",
    "bench.programs",
    "bench.record",
    "bench.run_ranks",
    "bench.sweep",
    "bundle.make",
    "executor",
    "jupyter.image_python",
    "jupyter.install",
    "jupyter.kernel_in_job",
    "jupyter.kernel_on_node",
    "jupyter.kernel_specs",
    "jupyter.lab",
)
