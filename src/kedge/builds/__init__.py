# SPDX-License-Identifier: BSD-3-Clause
"""A recipe becomes an image: Dockerfiles and definition files, their steps, bases, copies, cache, and commits."""

# The modules that other rooms import; tests/architecture/test_imports.py holds them to it.
PUBLIC = (
    "build",
    "commit",
    "lint.recipe_view",
    "preview",
    "recipe_files",
    "request",
    "step_values",
)
