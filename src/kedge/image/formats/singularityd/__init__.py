# SPDX-License-Identifier: BSD-3-Clause
"""The `/.singularity.d` directory: what turns the files of an OCI image into something Apptainer runs."""
