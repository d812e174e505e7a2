# SPDX-License-Identifier: BSD-3-Clause
"""Starts that would begin in a directory of the host, by a name that only /proc gives it: they are refused."""

from __future__ import annotations

from tests.builders.rows import each_row
from tests.hostile.attacks.attack import PROCESSES, REFUSED, WAYS
from tests.hostile.attacks.attack_list import STARTS
from tests.hostile.attacks.conftest import Ground

# The last one is a directory that the caller has open
PLACES = ("/proc/1/cwd", "/proc/1/root", "/proc/self/fd/3", "/proc/self/fd/4", "/proc/self/fd/9")
HARMLESS = ("/proc/self/root/..", "/proc/self/cwd")  # which mean the container's own


FULL = ("no flag", "--fakeroot --containall")  # with the least and the most; between them differs who is process 1


@each_row("way", WAYS)
def test_a_start_in_a_directory_of_the_host_is_refused(ground: Ground, way: str) -> None:
    scene = ground.scene
    start = 'exec 9<"$1"; shift; exec "$@"'
    script = "for up in . .. ../.. ../../..; do cat $up/secret $up/outside/secret; done"
    outcomes = {}
    tried, harmless = (PLACES, HARMLESS) if way in FULL else ((*PLACES[:2], PLACES[-1]), HARMLESS[:1])
    for place in (*tried, *harmless):
        words = (str(ground.kedge), "exec", *WAYS[way], "--pwd", place, str(ground.sandbox), "sh", "-c", script)
        done = scene.run("sh", "-c", start, "sh", scene.base / "outside", *words)
        assert "canary" not in done.stdout, place
        outcomes[place] = REFUSED if done.returncode == 255 and "kedge: cannot change to" in done.stderr else "started"
    if way not in PROCESSES:  # process 1 is the container's own, and may be in its root by then
        outcomes["/proc/1/root"] = REFUSED
    assert outcomes == {**dict.fromkeys(tried, STARTS[-1].expect(way)), **dict.fromkeys(harmless, "started")}
