# SPDX-License-Identifier: BSD-3-Clause
"""The lines that carry a kernel's connections through the standard streams of srun or qrsh.

Lines of text arrive whatever is in between: srun passes on whole lines, a site's login files print their own.
"""

from __future__ import annotations

import base64
import binascii

from kedge.base.frozen import frozen

MARK = b"kedge-relay "
PIECE = 48 * 1024  # bytes of a connection in one line
LONGEST = 1 << 20  # bytes of a line

START = "start"  # to the node: the connection file
READY = "ready"  # from the node: the kernel listens
OPEN = "open"  # to the node: a connection to a channel, whose name is the payload
DATA = "data"
CLOSE = "close"
SIGNAL = "signal"  # to the node: its number
_VERBS = (START, READY, OPEN, DATA, CLOSE, SIGNAL)


@frozen
class RelayLine:
    """One line: what, of which connection, with which bytes."""

    verb: str
    number: int = 0
    payload: bytes = b""

    def encode(self) -> bytes:
        """The line with its end."""
        return b"%s%s %d %s\n" % (MARK, self.verb.encode(), self.number, base64.b64encode(self.payload))


def read_line(line: bytes) -> RelayLine | None:
    """A line of the other side; None for what others print."""
    words = line.partition(MARK)[2].rstrip(b"\r\n").split(b" ")
    if MARK not in line or len(words) != 3 or words[0].decode(errors="replace") not in _VERBS or not words[1].isdigit():
        return None
    try:
        return RelayLine(words[0].decode(), int(words[1]), base64.b64decode(words[2], validate=True))
    except binascii.Error:
        return None
