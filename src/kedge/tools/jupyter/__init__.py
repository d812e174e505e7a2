# SPDX-License-Identifier: BSD-3-Clause
"""Notebooks: Jupyter kernels that run in containers, here or in a job, and JupyterLab from an image."""
