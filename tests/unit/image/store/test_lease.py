# SPDX-License-Identifier: BSD-3-Clause
"""Leases: exclusive, taken over when stale, never taken from the living; process identities; marks of use."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kedge.base.frozen import replace
from kedge.errors import StoreBusy
from kedge.image.store import lease as lease_module
from kedge.image.store.layout import Layout
from kedge.image.store.lease import PULSE, Lease, Patience, acquire, break_lease, drop_dead_leases, read_lease
from kedge.image.store.use_marks import Use, find_used
from kedge.system.files import remove_abandoned
from kedge.system.lease_holders import Holder, claim_name
from kedge.system.owned_names import is_running, machine_name, own_name, owner_is_gone
from tests.builders.rows import each_row
from tests.wording import assert_reads


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    return tmp_path


def take(place: Path, patience: Patience | None = None) -> Lease | None:
    return acquire(place / "lease", place / "tmp", lambda: False, patience or Patience(limit=60))


def dead_holder() -> Holder:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return replace(Holder.of_this_process(), pid=process.pid)


def foreign_holder() -> Holder:
    return replace(Holder.of_this_process(), machine="0123456789ab", host="node7", user="ada", pid=4242)


def test_holder_survives_encoding() -> None:
    holder = Holder.of_this_process()
    assert Holder.parse(holder.encode()) == holder


WITHOUT_BOUNDS = b'{"machine": "m", "start": 1, "host": "h", "user": "u", "token": "t", "pid": Infinity}'


@each_row("data", [b"", b"{}", b"[1]", b"\xff", b'{"machine": 1', b'{"pid": "x"}', b"[" * 100_000, WITHOUT_BOUNDS])
def test_holder_parse_takes_anything(data: bytes) -> None:
    assert Holder.parse(data) is None
    assert Holder.parse(WITHOUT_BOUNDS.replace(b"Infinity", b"7")) is not None


def test_process_is_running_knows_the_living_the_dead_and_the_reused() -> None:
    me = Holder.of_this_process()
    assert is_running(me.machine, me.pid, me.start) is True
    assert is_running(me.machine, me.pid, me.start + 1) is False
    assert is_running("elsewhere", me.pid, me.start) is None
    dead = dead_holder()
    assert is_running(dead.machine, dead.pid, dead.start) is False


def test_process_not_yet_waited_for_counts_as_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    deadline = time.monotonic() + 10
    while "Z" not in Path(f"/proc/{process.pid}/stat").read_text().split(")")[1][:3] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert is_running(machine_name(), process.pid, 12345) is False
    process.wait()


def test_own_name_tells_its_owner() -> None:
    assert owner_is_gone(own_name("some.label")) is False
    dead = dead_holder()
    assert owner_is_gone(f"label.{machine_name()}.{dead.pid}.77.abcdef") is True
    assert owner_is_gone("label.0123456789ab.1.1.abcdef") is None
    assert owner_is_gone("anything") is None


def test_claim_is_exclusive_without_hard_links_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    assert claim_name(place / "name", b"one", place / "tmp") is True
    assert claim_name(place / "name", b"two", place / "tmp") is False
    assert (place / "name").read_bytes() == b"one"


def test_claim_believes_the_link_count_when_the_answer_got_lost(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def link_and_complain(source: Path, target: Path) -> None:
        link(source, target)
        raise FileExistsError(17, "File exists")

    monkeypatch.setattr(os, "link", link_and_complain)
    assert claim_name(place / "name", b"one", place / "tmp") is True


def test_lease_is_held_and_released(place: Path) -> None:
    first = take(place)
    with pytest.raises(StoreBusy, match=rf"process {os.getpid()} of .* on {os.uname().nodename}"):
        take(place, Patience(limit=0.1))
    first.release()
    take(place).release()
    assert [path.name for path in place.iterdir()] == ["tmp"]


def test_lease_of_a_dead_process_is_taken_over_at_once(place: Path) -> None:
    (place / "lease").write_bytes(dead_holder().encode())
    began = time.monotonic()
    lease = take(place)
    assert time.monotonic() - began < lease_module.WATCH_AT_LEAST / 2  # not even watched, however busy the machine is
    lease.release()


def test_lease_of_the_stopped_is_taken_over_late_and_the_loser_knows(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = take(place)
    lease_module.PULSE.remove(stopped._pulse)
    monkeypatch.setattr(lease_module, "SILENT_AFTER", 0.4)
    began = time.monotonic()
    lease = take(place)
    assert lease is not None
    assert time.monotonic() - began > 0.4
    stopped.beat()
    assert not stopped.confirm()
    stopped.release()
    assert lease.confirm()
    assert lease.path.exists()
    lease.release()


def test_lease_of_another_host_is_respected_while_it_is_touched(place: Path) -> None:
    (place / "lease").write_bytes(foreign_holder().encode())
    with pytest.raises(StoreBusy) as caught:
        take(place, Patience(limit=0.2))
    assert caught.value.context["host"] == "node7"
    assert caught.value.context["pid"] == "4242"
    assert caught.value.context["user"] == "ada"


def test_lease_of_another_host_is_taken_over_when_it_is_silent(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "WATCH_AT_LEAST", 0.2)
    (place / "lease").write_bytes(foreign_holder().encode())
    old = time.time() - 100
    os.utime(place / "lease", (old, old))
    take(place).release()


def test_lease_with_a_clock_in_the_past_is_safe_while_it_beats(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "WATCH_AT_LEAST", 0.5)
    path = place / "lease"
    path.write_bytes(foreign_holder().encode())
    ended = threading.Event()

    def beat() -> None:
        when = time.time() - 1000  # the host's clock is wrong by a quarter of an hour
        while not ended.wait(0.05):
            when += 1
            os.utime(path, (when, when))

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(StoreBusy):
            take(place, Patience(limit=1.2))
    finally:
        ended.set()
        thread.join()


def test_lease_with_a_clock_in_the_future_is_taken_over_late(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "STALE_AFTER", 0.5)
    (place / "lease").write_bytes(foreign_holder().encode())
    os.utime(place / "lease", (time.time() + 9999,) * 2)
    take(place).release()


@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_lease_of_nonsense_counts_by_its_time(place: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "WATCH_AT_LEAST", 0.1)
    (place / "lease").write_bytes(content)
    with pytest.raises(StoreBusy, match="an unknown process"):
        take(place, Patience(limit=0.3))
    os.utime(place / "lease", (1, 1))
    take(place).release()


def test_lease_break_spares_a_newer_lease(place: Path) -> None:
    path = place / "lease"
    path.write_bytes(dead_holder().encode())
    stale = read_lease(path)
    assert stale is not None
    path.unlink()
    living = take(place)
    break_lease(path, stale, place / "tmp")
    assert living.confirm()
    living.beat()
    assert not living.is_lost
    living.release()


@each_row("turn", range(3))
def test_lease_break_by_many_threads_has_one_winner_at_a_time(place: Path, turn: int) -> None:
    (place / "lease").write_bytes(dead_holder().encode())
    holding, most = 0, 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal holding, most
        lease = take(place, Patience(limit=30))
        assert lease is not None
        with lock:
            holding += 1
            most = max(most, holding)
        time.sleep(0.001)
        with lock:
            holding -= 1
        lease.release()

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert [path.name for path in place.iterdir()] == ["tmp"]
    assert list((place / "tmp").iterdir()) == []


def test_lease_guard_of_a_dead_breaker_is_removed(place: Path) -> None:
    path = place / "lease"
    path.write_bytes(dead_holder().encode())
    stale = read_lease(path)
    (place / f"lease.break-{stale.identity}").write_bytes(dead_holder().encode())
    take(place).release()
    assert [each.name for each in place.iterdir()] == ["tmp"]


def test_lease_beats_by_itself_and_notices_its_loss(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "BEAT", 0.05)
    lease = take(place)
    os.utime(lease.path, (1, 1))
    deadline = time.monotonic() + 60
    while lease.path.stat().st_mtime < 100 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert time.time() - lease.path.stat().st_mtime < 5
    lease.path.write_bytes(foreign_holder().encode())
    while not lease.is_lost and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not lease.confirm()
    lease.release()
    assert lease.path.exists(), "somebody else's lease stays"


def test_acquire_ends_when_the_work_is_done_elsewhere(place: Path) -> None:
    (place / "lease").write_bytes(foreign_holder().encode())
    looks = iter([False, False, True])
    assert acquire(place / "lease", place / "tmp", lambda: next(looks), Patience()) is None


def test_acquire_can_be_cancelled_and_tells_whom_it_waits_for(place: Path) -> None:
    (place / "lease").write_bytes(foreign_holder().encode())
    cancelled, told = threading.Event(), list[str]()

    def tell(sentence: str) -> None:
        told.append(sentence)
        cancelled.set()

    assert take(place, Patience(None, cancelled, tell)) is None
    assert_reads(told, "pull/waiting-process-ada-works-same")


def test_abandoned_temporaries_beside_a_target_are_removed(tmp_path: Path) -> None:
    dead = dead_holder()
    left = f"{dead.machine}.{dead.pid}.{dead.start}.abc"
    file, folder = tmp_path / f".kedge-tmp-out.sif.{left}", tmp_path / f".kedge-tmp-out.sif.{left}2"
    mine = tmp_path / own_name(".kedge-tmp-out.sif")
    foreign = tmp_path / f".kedge-tmp-out.sif.elsewhere.{dead.pid}.{dead.start}.abc"
    other = tmp_path / f".kedge-tmp-other.sif.{left}"
    (folder / "read-only").mkdir(parents=True)
    (folder / "read-only").chmod(0o500)
    for path in (file, mine, foreign, other):
        path.write_bytes(b"x")
    assert sorted(remove_abandoned(tmp_path / "out.sif")) == [file, folder]
    assert sorted(tmp_path.iterdir()) == sorted([mine, foreign, other])


class Ended(BaseException):
    """As a signal raises it."""


def test_a_signal_while_the_lease_is_claimed_leaves_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the name and the value that would let go of it."""

    def claim(path: Path, content: bytes, scratch: Path) -> bool:
        assert claim_name(path, content, scratch)
        raise Ended

    monkeypatch.setattr(lease_module, "claim_name", claim)
    with pytest.raises(Ended):
        acquire(place / "lease", place, lambda: False, Patience())
    assert sorted(p.name for p in place.iterdir()) == ["tmp"]


def test_a_signal_while_the_claimed_work_is_looked_at_leaves_no_lease(place: Path) -> None:
    looks = iter([False])

    def is_done() -> bool:
        for answer in looks:
            return answer
        assert (place / "lease").exists()
        raise Ended

    with pytest.raises(Ended):
        acquire(place / "lease", place, is_done, Patience())
    assert sorted(p.name for p in place.iterdir()) == ["tmp"]


def test_a_signal_while_the_lease_is_let_go_leaves_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = acquire(place / "lease", place, lambda: False, Patience())
    assert lease is not None
    looks = 0

    def read(path: Path) -> object:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise Ended
        return read_lease(path)

    monkeypatch.setattr(lease_module, "read_lease", read)
    with pytest.raises(Ended):
        lease.release()
    assert sorted(p.name for p in place.iterdir()) == ["tmp"]


def test_a_signal_while_a_claim_is_written_leaves_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    def end(*_: object) -> None:
        raise Ended

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "fdopen", end)
    with pytest.raises(Ended):
        claim_name(place / "lease", b"{}", place)
    assert sorted(p.name for p in place.iterdir()) == ["tmp"]


def test_leases_of_killed_processes_are_dropped_and_others_stay(place: Path) -> None:
    leases, scratch = place / "leases", place / "tmp"
    leases.mkdir()
    ended = subprocess.Popen(["true"])
    ended.wait()
    here = Holder.of_this_process()
    dead = replace(here, pid=ended.pid, start=1)
    written = {
        "dead": dead.encode(),
        "dead.break-0123": dead.encode(),
        "living": here.encode(),
        "elsewhere": replace(dead, machine="another").encode(),
        "odd": b"what is this",
    }
    for name, content in written.items():
        (leases / name).write_bytes(content)
        os.utime(leases / name, (time.time() - 60, time.time() - 60))
    (leases / "fresh").write_bytes(dead.encode())
    drop_dead_leases(leases, scratch)
    assert sorted(path.name for path in leases.iterdir()) == ["elsewhere", "fresh", "living", "odd"]
    assert list(scratch.iterdir()) == []


def end(*_: object) -> int:
    raise Ended


def test_a_mark_is_there_while_it_is_used(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with Use(layout, "abc"):
        assert find_used(layout) == {"abc"}
    assert find_used(layout) == set()


def test_a_signal_while_a_mark_is_made_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PULSE, "add", end)
    with pytest.raises(Ended):
        Use(Layout(tmp_path), "abc")
    assert list((tmp_path / "using").iterdir()) == []


def test_a_signal_while_a_mark_is_taken_away_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use = Use(Layout(tmp_path), "abc")
    monkeypatch.setattr(PULSE, "remove", end)
    with pytest.raises(Ended):
        use.end()
    assert list((tmp_path / "using").iterdir()) == []
