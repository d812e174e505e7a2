# SPDX-License-Identifier: BSD-3-Clause
"""A program whose output is handed over while it runs, and which ends with whoever listens."""

from __future__ import annotations

import os
import time

import pytest

from kedge.errors import ProgramFailed, ProgramMissing
from kedge.system.process import relay_program


def test_relay_hands_over_all_output_and_the_status() -> None:
    pieces: list[bytes] = []
    assert relay_program(["sh", "-c", "echo out; echo err >&2; exit 3"], pieces.append) == 3
    assert b"".join(pieces) == b"out\nerr\n"
    assert relay_program(["sh", "-c", "kill -9 $$"], pieces.append) == 137


def test_relay_gives_input_and_open_files() -> None:
    pieces: list[bytes] = []
    reading, writing = os.pipe()
    os.write(writing, b"given")
    os.close(writing)
    data = b"x" * 300_000
    relay_program(["sh", "-c", f"wc -c; cat /dev/fd/{reading}"], pieces.append, stdin=data, descriptors=[reading])
    os.close(reading)
    assert b"".join(pieces).split() == [b"300000", b"given"]
    pieces.clear()
    assert relay_program(["cat"], pieces.append) == 0  # no input: at its end at once


def test_relay_waits_for_a_program_that_closes_its_output() -> None:
    began = time.monotonic()
    assert relay_program(["sh", "-c", "exec >&- 2>&-; sleep 0.5; exit 4"], print) == 4
    assert time.monotonic() - began >= 0.5


def test_relay_ends_the_program_when_asked_to() -> None:
    began = time.monotonic()
    with pytest.raises(ProgramFailed, match=r"'sleeper' did not end within 0\.3 s"):
        relay_program(["sleep", "60"], print, timeout=0.3, name="sleeper")
    with pytest.raises(ProgramFailed, match="'sleep' was cancelled"):
        relay_program(["sleep", "60"], print, is_cancelled=lambda: True)

    def refuse(_: bytes) -> None:
        raise KeyError("nobody listens")

    with pytest.raises(KeyError):
        relay_program(["sh", "-c", "echo x; exec sleep 60"], refuse)
    assert time.monotonic() - began < 20


def test_relay_waits_a_moment_for_what_an_ended_program_leaves() -> None:
    began = time.monotonic()
    with pytest.raises(ProgramFailed, match="did not end"):
        relay_program(["sh", "-c", "(trap '' TERM; sleep 1.5) & exec sleep 60"], print, timeout=0.1)
    assert time.monotonic() - began >= 1.4
    with pytest.raises(ProgramFailed, match="did not end"):  # and no longer
        relay_program(["sh", "-c", "(trap '' TERM; sleep 20) & exec sleep 60"], print, timeout=0.1)
    assert time.monotonic() - began < 15


def test_relay_of_a_program_that_is_missing() -> None:
    with pytest.raises(ProgramMissing):
        relay_program(["no-such-program-anywhere"], print)
