# SPDX-License-Identifier: BSD-3-Clause
"""Why `kedge rank` cannot read its order: mostly, its node has another version of kedge than the launch.

What the order has too much or too little tells which of the two is older, also where both say the same version.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from kedge.base.frozen import list_defaults, list_names
from kedge.base.release import VERSION
from kedge.errors import LaunchRefused
from kedge.launch.contracts import Contract

_LONGEST = 60  # characters of a foreign word that a message shows


def explain_order(read: object, kind: type) -> LaunchRefused:
    """The error for an order that is no `kind`; `read` is its JSON value, None where it is no JSON."""
    if not isinstance(read, dict) or "contract" not in read:
        return LaunchRefused(
            "kedge rank was given an order that it cannot read", hint="use 'kedge launch', which starts it"
        )
    host = os.uname().nodename
    writer = read.get("kedge")
    theirs = _shorten(writer) if isinstance(writer, str) and writer else "unknown"
    what, is_older = _compare(read, kind)
    hint = f"install the same version of kedge on {host} and where 'kedge launch' runs"
    if is_older:
        hint = f"update kedge on {host} to the version that runs 'kedge launch' ({theirs})"
    elif is_older is not None:
        hint = f"update the kedge that runs 'kedge launch' to the version on {host} ({VERSION})"
    return LaunchRefused(
        f"kedge on {host} is another version than the kedge that started the launch: {what}",
        context={"kedge launch": theirs, f"kedge on {host}": VERSION},
        hint=hint,
    )


def _compare(read: Mapping[str, object], kind: type) -> tuple[str, bool | None]:
    """Return what is wrong, and whether the kedge of this node is the older one; None: unknown."""
    names = list_names(kind)
    unknown = [name for name in read if name not in names and name != "kedge"]
    if unknown:
        return f"this node's does not know '{_shorten(unknown[0])}'", True
    contract = read["contract"]
    if isinstance(contract, str) and contract not in set(Contract):
        return f"this node's does not know the contract '{_shorten(contract)}'", True
    missing = [name for name in names if name not in read and name not in list_defaults(kind)]
    if missing:
        return f"the order lacks '{missing[0]}'", False
    return "the values of the order do not fit its names", None


def _shorten(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"
