# SPDX-License-Identifier: BSD-3-Clause
"""Images built from definition files and Dockerfiles, without root."""
