# SPDX-License-Identifier: BSD-3-Clause
"""What the program in a container gets: its variables, its command line, who it is, and what stays outside."""
