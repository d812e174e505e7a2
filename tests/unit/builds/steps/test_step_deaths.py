# SPDX-License-Identifier: BSD-3-Clause
"""A step that died is explained: status, signal, or that memory ran out."""

from __future__ import annotations

from kedge.builds.steps.run_program import describe_death
from kedge.cluster.host_memory import KillWatch
from tests.builders.rows import with_rows


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
    assert death.how.startswith("failed with status 2: memory ran out, and the kernel killed a process of it")
    assert "make -j2" in death.remedy
    death = describe_death(137, [], QUIET)
    assert death.how.startswith("was killed by SIGKILL: memory ran out, or somebody")
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
    assert death.how.startswith("failed with status 1, probably because memory ran out")
    assert death.remedy
