# SPDX-License-Identifier: BSD-3-Clause
"""`python -m kedge`."""

from __future__ import annotations

import sys

from kedge.cli.entry import main

sys.exit(main())
