# SPDX-License-Identifier: BSD-3-Clause
"""Scripts that are for no scheduler: they have no directives that others would read."""

from kedge.schedulers.language import Language
from kedge.schedulers.local import FACTS

LANGUAGE = Language(FACTS, readers={})
