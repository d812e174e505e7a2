# SPDX-License-Identifier: BSD-3-Clause
"""What is in an image: read from its config, joined with the tables; and what its tags mean."""
