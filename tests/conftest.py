# SPDX-License-Identifier: BSD-3-Clause
"""For all tests: a home of their own, no network beyond this machine, and no group of tests that skips unnoticed.

And an ordinary user who starts containers, for those that want one.
"""

from __future__ import annotations

import collections
import ipaddress
import os
import signal
import socket
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import times_of_a_run
from tests.builders.once import close_store, open_store
from tests.leftovers_of_a_run import list_names
from tests.requirements import REPOSITORY, SHARED_REASON, must_run

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

    from tests.builders.builds import Workshop
    from tests.builders.containers import Runner
    from tests.live.openpbs import OpenPbs

_KEPT = ("KEDGE_SHARED", "KEDGE_PEERS")
_FOREIGN = ("KEDGE_", "APPTAINER_", "SINGULARITY_", "DOCKER_", "XDG_", "SLURM_")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "NO_COLOR", "SOURCE_DATE_EPOCH")
_EXCUSES = (
    SHARED_REASON,
    "root may",  # one of two roles: the test runs as an ordinary user, too
    "as its own user",  # the same, the other way round
    "torch for this CPU comes with CUDA",
    "OpenPBS is not installed",  # Debian has no package of it
    "no bullseye from the mirror",  # it leaves mirrors one day
    "the memory controller of version 1 is not here",  # nor to be had where the kernel has version 2 alone
)
# The longest files, one of which mostly waits
_FIRST = ("test_conformance.py", "test_slurm_states.py", "test_run_hostile.py", "test_local_queue.py",
          "test_foreign_sifs.py", "test_convert.py")  # fmt: skip
# They use the one OpenPBS of the machine: two workers would start and end it under each other
_ONE_WORKER = ("tests/live/", "tests/tutorials/test_page_abci.py")
_TESTS = REPOSITORY / "tests"
_GROUP_SKIPPED = 6  # a status of its own: scripts/run-tests tries some failures again, and no skip
_SOMETHING_LEFT = 7  # likewise
_skipped: collections.Counter[str] = collections.Counter()
_before = pytest.StashKey[set[str]]()
_used = pytest.StashKey[float]()


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither read nor write the settings, credentials and caches of whoever runs the tests."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if (name.startswith(_FOREIGN) and name not in _KEPT) or name.lower() in [each.lower() for each in _PROXIES]:
                patch.delenv(name)
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):  # of all authorities, which each kedge that asks would read
            if Path(os.environ.get(name, "/none")).is_relative_to("/etc/ssl"):
                patch.delenv(name)
        patch.setenv("UV_SYSTEM_CERTS", "1")  # uv finds the same without them
        patch.setenv("UV_NATIVE_TLS", "1")  # as its versions before 0.11 call it
        patch.setenv("HOME", str(home))
        patch.setenv("PYTHONPATH", str(REPOSITORY / "src"))  # for the programs that tests start
        patch.setenv("KEDGE_SITE_CONFIG", str(home / "no-site-config.toml"))
        yield


@pytest.fixture(scope="session", autouse=True)
def plain_process() -> Iterator[None]:
    """Undo what nohup, background jobs of shells and runners do: programs that tests start would inherit it."""
    own = (signal.SIGPIPE, getattr(signal, "SIGXFSZ", None))  # these Python ignores, and restores for programs
    ignored = [number for number in signal.valid_signals() if number not in own and is_ignored(number)]
    for number in ignored:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    blocked = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    umask = os.umask(0o022)
    yield
    os.umask(umask)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


def is_ignored(number: int) -> bool:
    return signal.getsignal(number) == signal.SIG_IGN


@pytest.fixture(scope="session", autouse=True)
def only_loopback() -> Iterator[None]:
    """Refuse connections that would leave this machine."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_loopback(address[0]):
            raise AssertionError(f"a test tried to reach {address[0]}, which is not this machine")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    """Runs kedge as an ordinary user; files of tests that need root, too, or a user of each test, have their own."""
    from tests.builders.containers import each_role  # late: most tests start no containers

    yield from each_role("user")


@pytest.fixture(scope="module")
def image(runner: Runner) -> str:
    """A directory with busybox that the user of `runner` owns; files of tests that need more in it have their own."""
    from tests.builders.containers import give_to, make_sandbox  # late: as above

    return str(give_to(runner, make_sandbox(runner.folder / "image")))


@pytest.fixture
def shop() -> Iterator[Workshop]:
    """Where an ordinary user builds, empty for each test; files of tests that need something there have their own."""
    from tests.builders.builds import Workshop  # late: as above
    from tests.builders.containers import each_role

    for user in each_role("user"):
        yield Workshop.open(user)


@pytest.fixture(scope="session")
def pbs() -> Iterator[OpenPbs]:
    """One OpenPBS for all tests that use a real one."""
    from tests.live.openpbs import open_pbs  # late: as above

    with tempfile.TemporaryDirectory(prefix="kedge-openpbs-") as name:
        Path(name).chmod(0o755)
        with open_pbs(Path(name)) as started:
            yield started


def is_loopback(host: str) -> bool:
    """Whether a connection to `host` stays on this machine."""
    if host in ("localhost", "0.0.0.0", "::"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where workers share the files: the longest first, the short ones last, so that none works alone at the end.

    Between them the directories take turns: tests of clusters mostly wait, beside others that compute.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    groups: dict[str, list[Path]] = collections.defaultdict(list)
    for path in dict.fromkeys(item.path for item in items):
        groups[path.relative_to(_TESTS).parts[0] if path.is_relative_to(_TESTS) else ""].append(path)
    turns = {path: number / len(paths) for paths in groups.values() for number, path in enumerate(paths)}
    first = {name: number for number, name in enumerate(_FIRST)}
    units = set(groups["unit"])
    items.sort(key=lambda item: (first.get(item.path.name, len(first)), item.path in units, turns[item.path]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Files of tests are dealt out to workers, some of them together."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # late: a run without workers needs none

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "OpenPBS" if nodeid.startswith(_ONE_WORKER) else super()._split_scope(nodeid)

    return Together(config, log)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What collecting costs is no test's."""
    session.stash[_used] = times_of_a_run.read_cpu()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Note the CPU seconds of each test, from the end of the one before."""
    if call.when == "teardown":
        used = times_of_a_run.read_cpu()
        item.user_properties.append((times_of_a_run.CPU, used - item.session.stash[_used]))
        item.session.stash[_used] = used
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count the skips by reason, and the seconds."""
    times_of_a_run.note(report)
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skipped[reason.removeprefix("Skipped: ")] += 1


def pytest_configure(config: pytest.Config) -> None:
    """Look what the machine has, where one process speaks for all."""
    if not hasattr(config, "workerinput"):
        config.stash[_before] = list_names()
        open_store()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say where the time went, what was left, and which groups were skipped, and why."""
    if terminalreporter.config.getoption("numprocesses", None):  # a run of many files
        terminalreporter.section("minutes of all workers")
        for line in times_of_a_run.render():
            terminalreporter.write_line(line)
        times_of_a_run.write(REPOSITORY / "build" / "test-times.tsv")
    for path in sorted(list_names() - terminalreporter.config.stash[_before]):
        terminalreporter.write_line(f"left on the machine, or put there by others meanwhile: {path}")
    if not _skipped:
        return
    terminalreporter.section("groups of tests that were skipped")
    for reason, count in sorted(_skipped.items()):
        excuse = "" if is_excused(reason) or not must_run() else "  <- not allowed in CI"
        terminalreporter.write_line(f"{count:5} × {reason}{excuse}")


@pytest.hookimpl(trylast=True)  # when the workers have ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in CI where a group that can run was skipped, or where something was left on the machine."""
    if hasattr(session.config, "workerinput"):
        return
    close_store()
    if not must_run():
        return
    if session.exitstatus in (0, 1) and not all(map(is_excused, _skipped)):
        session.exitstatus = _GROUP_SKIPPED
    elif session.exitstatus == 0 and list_names() - session.config.stash[_before]:
        session.exitstatus = _SOMETHING_LEFT


def is_excused(reason: str) -> bool:
    """Whether a skip is all right even where everything can be installed."""
    return any(excuse in reason for excuse in _EXCUSES)
