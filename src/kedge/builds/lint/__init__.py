# SPDX-License-Identifier: BSD-3-Clause
"""What is wrong or wasteful in a recipe that builds all the same: findings with the reason and the better line."""
