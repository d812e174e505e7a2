# SPDX-License-Identifier: BSD-3-Clause
"""One rule a file, pure; and the words that a user reads about what it says."""
