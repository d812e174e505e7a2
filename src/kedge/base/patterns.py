# SPDX-License-Identifier: BSD-3-Clause
"""Regular expressions that are compiled when they are first used: a verb has two hundred, and uses twenty."""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    import re
    from typing import Any, AnyStr


def late_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What `re.compile` gives, compiled later; to be called at the top of a module, and used by its methods alone."""
    pattern: Any = _LatePattern(text, flags)
    made: re.Pattern[AnyStr] = pattern
    return made


class _LatePattern:
    """Becomes its pattern: what was asked for once is an attribute from then on."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> object:
        import re  # late: it costs a rank more than its start of a container

        found: object = getattr(re.compile(self._text, self._flags), name)  # re remembers those it has compiled
        setattr(self, name, found)
        return found
