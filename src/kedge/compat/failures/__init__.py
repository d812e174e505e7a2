# SPDX-License-Identifier: BSD-3-Clause
"""Messages of programs that fail on clusters: what each means, and what to do. One file per subject."""
