# SPDX-License-Identifier: BSD-3-Clause
"""Threads that cannot be had, and signals while one is started."""

from __future__ import annotations

import threading

import pytest

from kedge.system.threads import start_thread


class _Asked(BaseException):
    pass


class _Thread(threading.Thread):
    def start(self) -> None:
        try:
            raise _Asked
        finally:
            raise RuntimeError("release unlocked lock")


def test_a_thread_is_started() -> None:
    done = threading.Event()
    assert start_thread(threading.Thread(target=done.set))
    assert done.wait(10)


def test_no_thread_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert not start_thread(threading.Thread())
    try:
        raise BlockingIOError  # no child could be had: the work is done while that is handled
    except BlockingIOError:
        assert not start_thread(threading.Thread())


def test_what_a_handler_raises_is_not_taken_for_a_limit() -> None:
    with pytest.raises(_Asked):
        start_thread(_Thread())
