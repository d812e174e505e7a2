# SPDX-License-Identifier: BSD-3-Clause
"""How long work reports itself: operations call these, `cli/` decides what a terminal or a log shows."""

from __future__ import annotations

from typing import Protocol


class Task(Protocol):
    """One piece of work with a known or unknown total."""

    def advance(self, amount: int) -> None:
        """Add to what is done; cheap enough to call per chunk, from any thread."""
        ...

    def finish(self) -> None:
        """The piece is complete."""
        ...


class Progress(Protocol):
    """Where an operation reports what it is doing."""

    def task(self, label: str, total: int | None, unit: str = "bytes") -> Task:
        """Begin a piece of work; `unit` is 'bytes' or a plural noun such as 'files'."""
        ...

    def note(self, message: str) -> None:
        """Print a line unless --quiet is set."""
        ...

    def detail(self, message: str) -> None:
        """Print a line if --verbose is set."""
        ...

    def warn(self, message: str) -> None:
        """Say something the user should act on; always shown, on standard error."""
        ...


class _SilentTask:
    def advance(self, amount: int) -> None:
        pass

    def finish(self) -> None:
        pass


class Silent:
    """Reports nothing: the default of the Python interface."""

    def task(self, label: str, total: int | None, unit: str = "bytes") -> Task:  # noqa: ARG002 - the protocol's
        """A task that shows nothing."""
        return _SilentTask()

    def note(self, message: str) -> None:
        """Drop a note."""

    def detail(self, message: str) -> None:
        """Drop a detail."""

    def warn(self, message: str) -> None:
        """Drop a warning."""
