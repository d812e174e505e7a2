# SPDX-License-Identifier: BSD-3-Clause
"""A real Grid Engine of a test's own: a master and several hosts (virtual ones) of eight slots and four GPUs.

with GridEngineCell(GridEngineOptions(hosts=2)) as cell:
    user = cell.user()                                      # an ordinary user on the login node, see users.py
    job = user.read_program("qsub", "-terse", "-cwd", stdin=SCRIPT).strip()
    cell.wait_for_end(job); user.run("jobs")                # `run` is kedge's

In tests use the fixtures of conftest.py (`gridengine`, `gridengine_abci`). Parallel environments: smp (one host),
mpi (round robin), fill, ppn1, ppn2, ppn4 (so many slots on each host).
"""

from __future__ import annotations

import random
import subprocess
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.cluster.daemons import Daemons, private_folder, wait_until
from tests.cluster.users import USERS, ClusterUser, make_user
from tests.cluster.virtual_hosts import VirtualHosts
from tests.requirements import require_program

GROUP = "proj"  # a project that jobs can be charged to: -P, and ABCI's -g
SLOTS = 8
GPUS = 4
# qrsh tells "could not be scheduled" and ends with 1 when its command was gone at the moment it asked for the job
SEEN_BY_QRSH = "sleep 2"
_SHARE = Path("/usr/share/gridengine")
_PROGRAMS = Path("/usr/lib/gridengine")
_HERE = Path(__file__).parent
_BOOTSTRAP = """\
admin_user none
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params {spooling}
binary_path /usr/sbin
qmaster_spool_dir {folder}/spool/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
"""
_COMPLEXES = """\
gpu gpu INT <= YES YES 0 0
rt_F rt_F INT <= YES NO 0 0
rt_G.large rt_G.large INT <= YES NO 0 0
rt_G.small rt_G.small INT <= YES NO 0 0
rt_C.large rt_C.large INT <= YES NO 0 0
rt_C.small rt_C.small INT <= YES NO 0 0
"""
_HOST = """\
hostname {name}
load_scaling NONE
complex_values slots={slots},gpu={gpus}
user_lists NONE
xuser_lists NONE
projects NONE
xprojects NONE
usage_scaling NONE
report_variables NONE
"""
_PARALLEL = {"smp": "$pe_slots", "mpi": "$round_robin", "fill": "$fill_up", "ppn1": "1", "ppn2": "2", "ppn4": "4"}
_PARALLEL_ENVIRONMENT = """\
pe_name {name}
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule {rule}
control_slaves TRUE
job_is_first_task FALSE
urgency_slots min
accounting_summary TRUE
qsort_args NONE
"""
_PROJECT = "name {name}\noticket 0\nfshare 0\nacl NONE\nxacl NONE\n"
# Every attribute has to be there.
_QUEUE = """\
qname {name}
hostlist @allhosts
seq_no 0
load_thresholds NONE
suspend_thresholds NONE
nsuspend 1
suspend_interval 00:05:00
priority 0
min_cpu_interval 00:05:00
processors UNDEFINED
qtype BATCH INTERACTIVE
ckpt_list NONE
pe_list {parallel}
rerun FALSE
slots {slots}
tmpdir {local}
shell /bin/sh
prolog {prolog}
epilog NONE
shell_start_mode unix_behavior
starter_method NONE
suspend_method NONE
resume_method NONE
terminate_method NONE
notify 00:00:60
owner_list NONE
user_lists NONE
xuser_lists NONE
subordinate_list NONE
complex_values NONE
projects NONE
xprojects NONE
calendar NONE
initial_state default
"""
_LIMITS = [f"{kind}_{what}" for what in ("rt", "cpu", "fsize", "data", "stack", "core", "rss", "vmem") for kind in "sh"]


@dataclass(frozen=True, slots=True)
class GridEngineOptions:
    """What kind of cell."""

    hosts: int = 2
    abci: bool = False  # jobs must name a resource type (rt_F) and -g GROUP, as at ABCI 2.0


class GridEngineCell:
    """Use it with `with`: the cell is up inside, and nothing of it is left after. Root makes it."""

    def __init__(self, options: GridEngineOptions | None = None) -> None:
        self.options = options or GridEngineOptions()
        self.nodes = [f"ge{number:02}" for number in range(1, self.options.hosts + 1)]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for name in ("sge_qmaster", "sge_execd", "qsub", "qconf"):
            require_program(name)
        with ExitStack() as stack:
            self.folder = stack.enter_context(private_folder("gridengine"))
            self.environment = self._make_environment()
            # SGE_ND: they stay in the foreground; the master would take 10 s to end
            variables = {name: value for name, value in self.environment.items() if name != "PATH"}
            self.daemons = Daemons(self.folder, {**variables, "SGE_ND": "1"}, patience=1)
            stack.callback(self.daemons.end_all)
            self.hosts = stack.enter_context(VirtualHosts(["head", *self.nodes], self.folder / "users"))
            self._write_files()
            self._start()
            stack.callback(self._delete_all)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    def user(self, name: str = "alice") -> ClusterUser:
        """An ordinary user of the hosts, with the cell in its environment."""
        return make_user(self.folder / "users" / name, USERS[name], self.environment, self.hosts.prefix("head"))

    def read(self, *words: str) -> str:
        """What a program prints that the cell's administrator runs."""
        return self._run(*words, check=True).stdout

    def is_known(self, job: str) -> bool:
        """Whether qstat still knows the job: it is pending or running."""
        return self._run("qstat", "-j", job).returncode == 0

    def wait_until_running(self, job: str, timeout: float = 60) -> None:
        """Wait until qstat says `r`."""
        wait_until(f"job {job} runs", lambda: self._state(job) == "r", timeout=timeout, every=0.2)

    def wait_for_end(self, job: str, timeout: float = 60) -> dict[str, str]:
        """Wait until the job is gone from qstat and in the accounts; what qacct says (of an array: the last task)."""
        wait_until(f"job {job} ends", lambda: not self.is_known(job), timeout=timeout, every=0.2)
        wait_until(f"qacct knows job {job}", lambda: self._run("qacct", "-j", job).returncode == 0, timeout=timeout)
        lines = [line.split(None, 1) for line in self.read("qacct", "-j", job).splitlines()]
        return {line[0]: line[1].strip() for line in lines if len(line) == 2}

    def _state(self, job: str) -> str:
        lines = [line.split() for line in self._run("qstat", "-u", "*").stdout.splitlines()]
        return next((line[4] for line in lines if line[:1] == [job]), "")

    def _run(self, *words: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        argv = [*self.hosts.prefix("head"), str(_PROGRAMS / words[0]), *words[1:]]
        done = subprocess.run(
            argv, env=self.daemons.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0 or not check, f"{words}\n{done.stdout}{done.stderr}"
        return done

    def _make_environment(self) -> dict[str, str]:
        arch = subprocess.run([_SHARE / "util/arch"], capture_output=True, text=True, check=True).stdout.strip()
        return {
            "SGE_ROOT": f"{self.folder}/root",
            "SGE_CELL": "default",
            "SGE_ARCH": arch,
            "SGE_CLUSTER_NAME": "tiny",
            "SGE_QMASTER_PORT": "6444",  # the hosts' network is our own: no port is taken
            "SGE_EXECD_PORT": "6445",
            "PATH": f"{self.folder}/bin:/usr/bin:/bin",
        }

    def _write_files(self) -> None:
        folder, root = self.folder, self.folder / "root"
        common = root / "default/common"
        for place in (
            common,
            folder / "spool/qmaster/job_scripts",
            folder / "spool/execd",
            folder / "conf",
            folder / "bin",
        ):
            place.mkdir(parents=True)
        for name in ("bin", "lib", "utilbin"):
            # of our own: the package has no such link for every architecture
            (root / name).mkdir()
            (root / name / self.environment["SGE_ARCH"]).symlink_to(_PROGRAMS)
        for name in ("util", "mpi"):
            (root / name).symlink_to(_SHARE / name)
        self._spooling = f"{common};{folder}/spool/qmaster"
        (common / "bootstrap").write_text(_BOOTSTRAP.format(spooling=self._spooling, folder=folder))
        (common / "act_qmaster").write_text("head\n")
        (common / "cluster_name").write_text("tiny\n")
        if self.options.abci:
            jsv = (_HERE / "abci_jsv.sh").read_text().replace("# SLOTS:", f"SLOTS={SLOTS} #")
            self._write_script("abci_jsv.sh", jsv)
            self._write_script("abci_prolog.sh", (_HERE / "abci_prolog.sh").read_text())
            for name in ("qsub", "qrsh"):
                self._write_script(name, (_HERE / "abci_shim.sh").read_text())
        for path in _PROGRAMS.glob("q*"):  # not Debian's wrapper, which starts twenty others before each of these
            if not (folder / "bin" / path.name).exists():
                (folder / "bin" / path.name).symlink_to(path)

    def _write_script(self, name: str, text: str) -> None:
        (self.folder / "bin" / name).write_text(text)
        (self.folder / "bin" / name).chmod(0o755)

    def _start(self) -> None:
        spool = {**self.daemons.environment, "LD_LIBRARY_PATH": str(_PROGRAMS)}
        for words in (
            ["spoolinit", "classic", "libspoolc", self._spooling, "init"],
            ["spooldefaults", "configuration", self._write("global", self._global_configuration())],
            ["spooldefaults", "complexes", str(_SHARE / "util/resources/centry")],
            ["spooldefaults", "usersets", str(_SHARE / "util/resources/usersets")],
            ["spooldefaults", "managers", "root"],
        ):
            argv = [*self.hosts.prefix("head"), str(_PROGRAMS / words[0]), *words[1:]]
            subprocess.run(argv, env=spool, check=True, capture_output=True)
        self.daemons.start("qmaster", [require_program("sge_qmaster")], prefix=self.hosts.prefix("head"))
        self.daemons.wait_until("the master answers", lambda: self._run("qconf", "-sh").returncode == 0)
        self._configure()
        for node in self.nodes:
            self.daemons.start(f"execd-{node}", [require_program("sge_execd")], prefix=self.hosts.prefix(node))
        self.daemons.wait_until("all hosts report", self._is_ready)

    def _is_ready(self) -> bool:
        lines = [line.split() for line in self._run("qhost").stdout.splitlines()]
        loads = {line[0]: line[3] for line in lines if len(line) > 3}
        return all(loads.get(node, "-") != "-" for node in self.nodes)

    def _global_configuration(self) -> str:
        changed = {
            "execd_spool_dir": f"{self.folder}/spool/execd",
            "mailer": "/bin/true",  # nobody is to get letters
            "administrator_mail": "none",
            "min_uid": "0",
            "min_gid": "0",
            "load_report_time": "00:00:02",
            "reporting_params": "accounting=true reporting=false flush_time=00:00:01 joblog=false "
            "sharelog=00:00:00 accounting_flush_time=00:00:00",
            "jsv_url": f"script:{self.folder}/bin/abci_jsv.sh" if self.options.abci else "none",
        }
        lines = [line.split(None, 1) for line in (_SHARE / "default-configuration").read_text().splitlines()]
        settings = {line[0]: line[1] for line in lines if len(line) == 2 and not line[0].startswith("#")}
        return "".join(f"{name} {value}\n" for name, value in {**settings, **changed}.items())

    def _write(self, name: str, text: str) -> str:
        path = self.folder / "conf" / name
        path.write_text(text)
        return str(path)

    def _configure(self) -> None:
        self.read("qconf", "-as", "head")
        self.read("qconf", "-Mc", self._write("complexes", self.read("qconf", "-sc") + _COMPLEXES))
        # A host finds a job's processes by a group it gives them. All hosts are one machine here, and so are the hosts
        # of other tests: each has groups of its own, or it would end the others' jobs.
        groups = random.randrange(1_000_000, 1_000_000_000, 100 * len(self.nodes))
        for number, node in enumerate(self.nodes):
            self.read("qconf", "-ah", node)
            self.read("qconf", "-as", node)  # Open MPI on a host starts its parts with qrsh
            self.read("qconf", "-Ae", self._write("host", _HOST.format(name=node, slots=SLOTS, gpus=GPUS)))
            first = groups + 100 * number
            self.read("qconf", "-Aconf", self._write(node, f"gid_range {first}-{first + 99}\n"))
        self.read("qconf", "-Ahgrp", self._write("group", f"group_name @allhosts\nhostlist {' '.join(self.nodes)}\n"))
        self.read("qconf", "-Aprj", self._write("project", _PROJECT.format(name=GROUP)))
        parallel = {**_PARALLEL, "rack": str(SLOTS)} if self.options.abci else _PARALLEL
        for name, rule in parallel.items():
            self.read("qconf", "-Ap", self._write("parallel", _PARALLEL_ENVIRONMENT.format(name=name, rule=rule)))
        prolog = f"root@{self.folder}/bin/abci_prolog.sh" if self.options.abci else "NONE"
        values = {"slots": SLOTS, "parallel": " ".join(parallel), "prolog": prolog, "local": self.hosts.local_disk}
        queue = [_QUEUE.format(name="all.q", **values), *(f"{limit} INFINITY\n" for limit in _LIMITS)]
        self.read("qconf", "-Aq", self._write("queue", "".join(queue)))
        self.read("qconf", "-Msconf", self._write("scheduler", self._quick_scheduler()))

    def _quick_scheduler(self) -> str:
        """Decides at once, where the default waits for 15 s; and says why jobs wait."""
        changed = {
            "schedule_interval": "0:0:1",
            "flush_submit_sec": "1",
            "flush_finish_sec": "1",
            "schedd_job_info": "true",
        }
        lines = [line.split(None, 1) for line in self.read("qconf", "-ssconf").splitlines()]
        return "".join(f"{name} {changed.get(name, value)}\n" for name, value in lines)

    def _delete_all(self) -> None:
        """What containers left of their environment is not found by its name later: jobs end while the cell can."""
        with suppress(OSError, subprocess.SubprocessError):
            self._run("qdel", "-u", "*")
            with suppress(AssertionError):
                wait_until("no job", lambda: not self._run("qstat", "-u", "*").stdout.strip(), timeout=10)
