# SPDX-License-Identifier: BSD-3-Clause
"""Names of signals that STOPSIGNAL takes: those of Linux, whatever this host knows."""

from __future__ import annotations

import re

_NAME = re.compile(
    "ABRT|ALRM|BUS|CHLD|CLD|CONT|FPE|HUP|ILL|INT|IO|IOT|KILL|PIPE|POLL|PROF|PWR|QUIT|SEGV|STKFLT|STOP|SYS|TERM|TRAP"
    "|TSTP|TTIN|TTOU|URG|USR1|USR2|VTALRM|WINCH|XCPU|XFSZ|RTMIN|RTMAX|RTMIN\\+(?:[1-9]|1[0-5])|RTMAX-(?:[1-9]|1[0-4])"
)


def is_signal(text: str) -> bool:
    """Whether the text is the number or the name of a signal, with or without SIG."""
    if re.fullmatch(r"[-+]?[0-9]{1,18}", text):
        return int(text) != 0
    return bool(_NAME.fullmatch(text.upper().removeprefix("SIG")))
