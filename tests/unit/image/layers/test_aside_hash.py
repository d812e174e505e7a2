# SPDX-License-Identifier: BSD-3-Clause
"""A digest on a thread of its own is the digest."""

from __future__ import annotations

import hashlib
import threading

import pytest

from kedge.image.layers.layer_source import AsideHash
from tests.builders.rows import each_row

_PIECES = [bytes([number]) * 5000 for number in range(100)]


@pytest.mark.timeout(60)
@each_row("threaded", [True, False])
def test_digest_is_that_of_all_pieces(threaded: bool) -> None:
    hasher = AsideHash("sha256", threaded=threaded)
    for piece in _PIECES:
        hasher.update(piece)
    assert hasher.hexdigest() == hashlib.sha256(b"".join(_PIECES)).hexdigest()
    hasher.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "kedge-hash"]


def test_digest_without_a_thread_where_none_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    hasher = AsideHash("sha512", threaded=True)
    hasher.update(b"piece")
    assert hasher.hexdigest() == hashlib.sha512(b"piece").hexdigest()
