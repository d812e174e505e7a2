# SPDX-License-Identifier: BSD-3-Clause
"""What steps print: whole in the log, last lines for errors, secrets nowhere; and why a step died."""

from __future__ import annotations

from kedge.builds.request import StepLabel
from kedge.builds.steps.build_log import BuildLog, StepOutput
from kedge.builds.steps.run_program import describe_death
from kedge.cluster.host_memory import KillWatch
from tests.builders.rows import each_row, with_rows
from tests.wording import assert_begins

LABEL = StepLabel("builder", 3, 7, "RUN make")


def write(log: BuildLog, pieces: list[bytes], secrets: list[bytes] | None = None) -> tuple[bytes, list[str]]:
    shown: list[bytes] = []
    output = StepOutput(LABEL, log, lambda _label, data: shown.append(data), secrets or [])
    for piece in pieces:
        output.write(piece)
    output.finish()
    log.close()
    return b"".join(shown), list(output.last)


def test_log_has_all_lines_with_their_step(tmp_path) -> None:
    log = BuildLog(None, tmp_path / "logs")
    assert log.path is None
    assert not (tmp_path / "logs").exists()
    shown, last = write(log, [b"one\ntw", b"o\n10%\r50%\r100%\nend"])
    assert shown == b"one\ntwo\n10%\r50%\r100%\nend"
    assert last == ["one", "two", "100%", "end"]
    assert log.path.read_text() == "".join(f"[builder 3/7] {line}\n" for line in last)
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_only_the_newest_logs_are_kept(tmp_path) -> None:
    for number in range(60):
        (tmp_path / f"20200101-{number:06}-1.log").touch()
    write(BuildLog(None, tmp_path), [b"x\n"])
    assert len(list(tmp_path.glob("*.log"))) == 50
    assert not (tmp_path / "20200101-000000-1.log").exists()


def test_log_of_the_users_choice(tmp_path) -> None:
    log = BuildLog(tmp_path / "mine", tmp_path / "logs")
    write(log, [b"x"])
    assert (tmp_path / "mine").read_text() == "[builder 3/7] x\n"
    assert not (tmp_path / "logs").exists()


@each_row("size", [1, 2, 3, 5, 100])
def test_secrets_are_masked_wherever_pieces_end(tmp_path, size: int) -> None:
    text = b"a secret: hunter22hunter2 and hunter2\nhunt hunte\nhunter23\nabcdef\nhunter2"
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    shown, last = write(BuildLog(None, tmp_path), pieces, [b"hunter2", b"hunter22\n", b"abc", b"abcd", b"cdef"])
    assert b"hunter2" not in shown
    assert shown == b"a secret: ****** and ***\nhunt hunte\n***3\n***ef\n***"
    assert last[-1] == "***"


class FakeWatch(KillWatch):
    def __init__(self, *, kills: bool) -> None:
        self.kills = kills

    def has_seen_kills(self) -> bool:
        return self.kills


QUIET = FakeWatch(kills=False)


@with_rows(
    *((1, "failed with status 1"), (127, "failed with status 127"), (128 + 11, "was killed by SIGSEGV")),
    *((128 + 4, "was killed by SIGILL"), (255, "failed with status 255")),
)
def test_status_and_signal_are_named(status: int, how: str) -> None:
    death = describe_death(status, ["cat: /x: No such file or directory", "5 processes killed by the user"], QUIET)
    assert (death.how, death.remedy) == (how, "")


def test_a_kill_is_certain_where_the_kernel_counted_it() -> None:
    death = describe_death(2, [], FakeWatch(kills=True))
    assert_begins(death.how, "build/failed-status-memory-ran-out", 2)
    assert "make -j2" in death.remedy
    death = describe_death(137, [], QUIET)
    assert_begins(death.how, "schedulers/killed-sigkill-memory-ran-out")
    assert "more memory" in death.remedy


@with_rows(
    "c++: fatal error: Killed signal terminated program cc1plus",
    "cc1plus: out of memory allocating 65536 bytes after a total of 1000 bytes",
    "virtual memory exhausted: Cannot allocate memory",
    "MemoryError",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    *("error: command '/usr/bin/gcc' died with 9", "Killed", "make: *** [Makefile:2: all] Killed"),
    "subprocess.CalledProcessError: Command died with <Signals.SIGKILL: 9>.",
)
def test_compilers_that_ran_out_of_memory_are_recognised(line: str) -> None:
    death = describe_death(1, ["building", line, "error: subprocess-exited-with-error"], QUIET)
    assert_begins(death.how, "build/failed-status-probably-because-memory")
    assert death.remedy
