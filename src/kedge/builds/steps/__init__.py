# SPDX-License-Identifier: BSD-3-Clause
"""The stages of a recipe, step by step: what is cached, what runs, and what it left."""
