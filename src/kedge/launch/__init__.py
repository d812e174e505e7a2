# SPDX-License-Identifier: BSD-3-Clause
"""One program on many ranks and nodes: the plan, the ranks, the checks, what programs expect of their launcher."""

# The modules that other rooms import; tests/architecture/test_imports.py holds them to it.
PUBLIC = (
    "ask_library",
    "become_rank",
    "check_world",
    "contracts",
    "describe",
    "follow_output",
    "learning_needs",
    "order",
    "plan",
    "prepare",
    "probe.answers",
    "probe.words",
    "request",
    "run_plan",
    "start_model",
    "start_node",
    "surroundings",
)
