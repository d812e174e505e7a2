# SPDX-License-Identifier: BSD-3-Clause
"""What a failure of the command line says, and its exit status."""

from __future__ import annotations

import signal
import time

import pytest

from kedge.cli.options import GlobalOptions
from kedge.cli.report import report_failure
from kedge.cli.signals import Terminated, raised_signals
from tests.builders.rows import each_row


class Interrupting:
    """An attribute that a signal meets while its class is made."""

    def __init__(self, raised: BaseException) -> None:
        self.raised = raised

    def __set_name__(self, owner: type, name: str) -> None:
        raise self.raised


@each_row(("raised", "number"), [(KeyboardInterrupt(), signal.SIGINT), (Terminated(signal.SIGTERM), signal.SIGTERM)])
def test_signal_while_a_class_is_made_is_no_bug(
    raised: BaseException, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - Python 3.11 wraps it in a RuntimeError, 3.12 does not
        type("Made", (), {"attribute": Interrupting(raised)})
    assert report_failure(caught.value, ["pull"], GlobalOptions()) == 128 + number
    assert "bug" not in capsys.readouterr().err


@each_row(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_signal_in_a_callback_of_the_interpreter_is_not_lost(number: int, kind: type[BaseException]) -> None:
    """What is raised while an object dies is swallowed, and printed as ignored."""

    class Dying:
        def __del__(self) -> None:
            signal.raise_signal(number)

    def die_and_wait() -> None:
        with raised_signals():
            Dying()
            time.sleep(5)

    with pytest.raises(kind):
        die_and_wait()
