# SPDX-License-Identifier: BSD-3-Clause
"""The ports of EXPOSE, as the config of an image has them: `8000-8001` is `8000/tcp` and `8001/tcp`."""

from __future__ import annotations

import re

_PROTOCOLS = ("tcp", "udp", "sctp")


class PortError(ValueError):
    """A word is no port; the message says why."""


def read_ports(word: str) -> list[str]:
    """The ports of `[[IP:]HOST:]PORT[-PORT][/PROTOCOL]`; what stands before the last colon is checked and dropped."""
    *before, last = word.rsplit(":", 2)
    ports, _, protocol = last.partition("/")
    if not ports:
        raise PortError(f"'{word}' has no port")
    if protocol.lower() not in ("", *_PROTOCOLS):
        raise PortError(f"'{protocol}' in '{word}' is not a protocol: use {', '.join(_PROTOCOLS)}")
    first, end = _read_range(ports)
    if before:
        _check_host(before[-1], word, end - first)
    if len(before) == 2 and before[0]:
        _check_address(before[0], word)
    return [f"{port}/{protocol.lower() or 'tcp'}" for port in range(first, end + 1)]


def _check_host(text: str, word: str, span: int) -> None:
    if not text:
        return
    first, end = _read_range(text)
    if span and end - first != span:
        raise PortError(f"the ranges in '{word}' have different lengths")


def _check_address(text: str, word: str) -> None:
    import ipaddress  # late: hardly a file has an address here

    try:
        ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        raise PortError(f"'{text}' in '{word}' is not an IP address") from None


def _read_range(text: str) -> tuple[int, int]:
    first, sign, last = text.partition("-")
    begin = _read_number(first, text)
    end = _read_number(last, text) if sign and first != last else begin
    if end < begin:
        raise PortError(f"'{text}' ends before it begins")
    return begin, end


def _read_number(text: str, whole: str) -> int:
    if not re.fullmatch(r"\+?[0-9]{1,20}|-0+", text) or int(text) > 65535:
        raise PortError(f"'{whole}' is not a port from 0 to 65535")
    return int(text)
