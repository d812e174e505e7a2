# SPDX-License-Identifier: BSD-3-Clause
"""Scripts that are for no scheduler: they have no directives that others would read."""

from kedge.cluster.schedulers.language import Language
from kedge.cluster.schedulers.local import FACTS

LANGUAGE = Language(FACTS, readers={})
