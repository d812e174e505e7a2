# SPDX-License-Identifier: BSD-3-Clause
"""What keeps containers and jobs from working here: one file per subject, each finding with its remedy."""
