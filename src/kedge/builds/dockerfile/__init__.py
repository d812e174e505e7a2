# SPDX-License-Identifier: BSD-3-Clause
"""Dockerfiles as BuildKit reads them: lines, syntax, instructions, variables, and the steps of every stage.

`make_recipe` is the way in. What is read and refused follows BuildKit's own parser, so that a file means the same here
as for `docker build`.
"""
