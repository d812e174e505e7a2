# SPDX-License-Identifier: BSD-3-Clause
"""A real Slurm of a test's own: several nodes on this machine with four (pretended) A100 GPUs each; up in a second.

with SlurmCluster(SlurmOptions(nodes=2)) as slurm:
    user = slurm.user()                                     # an ordinary user on the login node, see users.py
    job = user.read_program("sbatch", "--parsable", stdin=SCRIPT).strip()
    slurm.wait_for_state(job, "COMPLETED"); user.run("jobs")  # `run` is kedge's

In tests use the fixtures of conftest.py (`slurm`, `slurm_accounting`, `slurm_tacc`, `slurm_forgetful`, `slurm_memory`,
`slurm_hosts`).
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from tests.builders.own_etc import make_etc
from tests.cluster.daemons import Daemons, free_ports, private_folder, wait_until
from tests.cluster.users import USERS, ClusterUser, list_accounts, make_user
from tests.cluster.virtual_hosts import VirtualHosts
from tests.requirements import require_program

ACCOUNT = "proj"  # the users' account, where there is accounting
TACC = Path(__file__).with_name("tacc.lua").read_text()
_FINAL = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "DEADLINE")

_CONFIG = """\
ClusterName=tiny
SlurmctldHost={control}
SlurmctldPort={port}
SlurmUser={me}
SlurmdUser={me}
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool/%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
# several nodes on one machine must not meet in one directory, or PMIx fails
TmpFS={folder}/tmp/%n
ProctrackType=proctrack/linuxproc
TaskPlugin={task}
MpiDefault={mpi}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
# nodes may have more processors than the machine
SlurmdParameters=config_overrides
ReturnToService=2
GresTypes=gpu
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/log/jobcomp.txt
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
MinJobAge={age}
MaxJobCount=20000
MaxArraySize=10001
KillWait=4
# at once, where real sites wait for seconds
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
PartitionName=gpu Nodes=ALL Default=YES MaxTime=08:00:00 DefaultTime=00:10:00 DefMemPerCPU=500 State=UP
PartitionName=dev Nodes={first} MaxTime=00:20:00 MaxNodes=1 DefMemPerCPU=500 State=UP
"""
_SIZE = (
    "CPUs={cpus} Boards=1 SocketsPerBoard=2 CoresPerSocket={cores} ThreadsPerCore=1 RealMemory={memory} State=UNKNOWN"
)
_CONTROL_GROUPS = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint={folder}/cgroup
ConstrainRAMSpace=yes
"""
_DATABASE_CONFIG = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost=localhost
DbdPort={port}
SlurmUser=root
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
"""
_DATABASE_START = """\
CREATE DATABASE slurm_acct_db;
CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';
"""
_HOLD = """\
mount --bind "$1" /etc
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
touch "$2"
exec sleep infinity
"""
_IMPATIENT = "MessageTimeout=1\n"
_GROUPS = Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """What kind of cluster."""

    nodes: int = 2
    gpus: int = 4  # of each node
    gpu_type: str = "a100"
    cpus: int = 8  # of each node; an even number
    memory: int = 8000  # of each node, in megabytes
    partitions: tuple[str, ...] = ()  # besides gpu and dev: without limits, on all nodes
    lua: str = ""  # the text of a job_submit.lua; TACC is one
    accounting: bool = False  # sacct works; an account that a user does not have is refused (root only)
    mpi: str = "none"  # what srun without --mpi uses
    min_job_age: int = 3600  # seconds for which squeue and scontrol remember a job that has ended
    enforce_memory: bool = False  # a job that uses more memory than it asked for is ended by Slurm: FAILED
    kernel_memory: bool = False  # ... by the kernel: OUT_OF_MEMORY (root, control groups of version 1)
    virtual_hosts: bool = False  # each node is a host of its own, and so is the login node (root only)


class SlurmCluster:
    """Use it with `with`: the cluster is up inside, and nothing of it is left after."""

    def __init__(self, options: SlurmOptions | None = None) -> None:
        self.options = options or SlurmOptions()
        self.nodes: list[str] = []
        self._is_root = os.getuid() == 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for name in ("slurmctld", "slurmd", "sinfo", *(["munged"] if self._is_root else [])):
            require_program(name)
        with ExitStack() as stack:
            self.folder = stack.enter_context(private_folder("slurm"))
            self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
            if self.options.kernel_memory:
                self._group = stack.enter_context(private_group(self.folder.name))
            self.daemons = Daemons(self.folder, self.environment)
            stack.callback(self.daemons.end_all)
            prefix = "gpu" if self.options.virtual_hosts else "n"
            digits = 2 if self.options.virtual_hosts else 1
            self.nodes = [f"{prefix}{number:0{digits}}" for number in range(1, self.options.nodes + 1)]
            self.hosts: VirtualHosts | None = None
            if self.options.virtual_hosts:
                self.hosts = stack.enter_context(VirtualHosts(["head", *self.nodes], self.folder / "users"))
            self._at_home = self._hold_accounts()
            self._write_files()
            self._start()
            stack.callback(self._cancel_all)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    def user(self, name: str = "alice") -> ClusterUser:
        """An ordinary user, with the cluster in its environment."""
        return make_user(self.folder / "users" / name, USERS[name], self.environment, self._place("head"))

    def read(self, *words: str) -> str:
        """What a program prints that the cluster's administrator runs."""
        return self._run(*words, check=True).stdout

    def describe_job(self, job: str) -> dict[str, str]:
        """What scontrol knows about a job, or a task of an array (7_1); empty when it knows nothing."""
        done = self._run("scontrol", "--oneliner", "show", "job", job)
        words = [word for word in done.stdout.partition("\n")[0].split(" ") if "=" in word]
        return {key: value for key, _, value in (word.partition("=") for word in words)}

    def wait_for_state(self, job: str, *states: str, timeout: float = 60) -> dict[str, str]:
        """Wait until a job is in one of the states (any final one when none is named); what scontrol then says."""
        wanted, found = states or _FINAL, self.describe_job(job)

        def is_there() -> bool:
            nonlocal found
            found = self.describe_job(job)
            return found.get("JobState") in wanted

        try:
            wait_until(f"job {job} is {' or '.join(wanted)}", is_there, timeout=timeout, every=0.15)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{found}\n{self.daemons.read_logs('slurm')}") from None
        return found

    def wait_until_forgotten(self, job: str, timeout: float = 60) -> None:
        """Wait until neither squeue nor scontrol know the job; needs a short `min_job_age`."""
        wait_until(f"job {job} is forgotten", lambda: not self.describe_job(job), timeout=timeout, every=0.2)

    def expire(self, job: str) -> None:
        """Let a job reach its time limit now, not after the minutes that a limit has at least; takes up to 30 s."""
        self.read("scontrol", "update", f"JobId={job}", "EndTime=now")

    def stop_control(self) -> None:
        """End slurmctld, as when the scheduler cannot be reached; `start_control` brings it back with its jobs.

        Meanwhile programs that ask give up after a second, not after ten: nobody can answer.
        """
        self.daemons.end("slurmctld")
        self._write_config(self._read_config() + _IMPATIENT)

    def start_control(self, *, forget: bool = False) -> None:
        """Start slurmctld; with `forget` without what it knew."""
        self._write_config(self._read_config().removesuffix(_IMPATIENT))
        words = [require_program("slurmctld"), "-D", *(["-c"] if forget else [])]
        self.daemons.start("slurmctld", words, prefix=self._place("head"))
        self.daemons.wait_until("slurmctld answers", lambda: "is UP" in self._run("scontrol", "ping").stdout)

    def _place(self, host: str) -> tuple[str, ...]:
        return self.hosts.prefix(host) if self.hosts else self._at_home

    def _hold_accounts(self) -> tuple[str, ...]:
        """The words that bring a command line to where /etc knows our users."""
        if self.hosts or not self._is_root:
            return ()
        etc, ready = make_etc(self.folder / "etc", list_accounts(self.folder / "users")), self.folder / "known"
        hold = ["unshare", "--mount", "sh", "-ec", _HOLD, "hold", str(etc), str(ready)]
        pid = self.daemons.start("accounts", hold).pid
        self.daemons.wait_until("the users are known", ready.exists)
        return (require_program("nsenter"), f"--target={pid}", "--mount", "--wd=.", "--")

    def _run(self, *words: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        argv = [*self._place("head"), require_program(words[0]), *words[1:]]
        done = subprocess.run(
            argv, env=self.daemons.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0 or not check, f"{words}\n{done.stdout}{done.stderr}"
        return done

    def _write_files(self) -> None:
        folder, options = self.folder, self.options
        of_nodes = [f"{kind}/{node}" for kind in ("spool", "tmp") for node in self.nodes]
        for name in ("run", "state", "log", "munge", *of_nodes):
            (folder / name).mkdir(parents=True)
        for node in self.nodes:
            (folder / "tmp" / node).chmod(0o1777)
        groups = _CONTROL_GROUPS.format(folder=folder) if options.kernel_memory else "CgroupPlugin=cgroup/v1\n"
        (folder / "cgroup.conf").write_text(groups)
        nodes = ",".join(self.nodes)
        if options.gpus:
            (folder / "gres.conf").write_text(
                f"NodeName={nodes} Name=gpu Type={options.gpu_type} File={self._make_gpus()}\n"
            )
        self._ports = free_ports(options.nodes + 3)
        self._write_config("".join([self._common_lines(), *self._node_lines()]))
        if options.lua:
            (folder / "job_submit.lua").write_text(options.lua)

    def _read_config(self) -> str:
        return (self.folder / "slurm.conf").read_text()

    def _write_config(self, text: str) -> None:
        new = self.folder / "slurm.conf.new"
        new.write_text(text)
        new.replace(self.folder / "slurm.conf")  # never half of it: programs of users may be reading

    def _common_lines(self) -> str:
        options = self.options
        more = [f"PartitionName={name} Nodes=ALL DefMemPerCPU=500 State=UP" for name in options.partitions]
        if self._is_root:
            more += ["AuthType=auth/munge", "CredType=cred/munge", f"AuthInfo=socket={self.folder}/munge/socket"]
        else:
            more += ["AuthType=auth/none", "CredType=cred/none"]
        if options.lua:
            more += ["JobSubmitPlugins=lua"]
        if options.enforce_memory:
            more += ["JobAcctGatherParams=OverMemoryKill"]
        if options.accounting:
            more += [
                "AccountingStorageType=accounting_storage/slurmdbd",
                f"AccountingStorageHost=localhost\nAccountingStoragePort={self._ports[-2]}",
                # with a munge socket of one's own this is the socket, or no client can speak
                f"AccountingStoragePass={self.folder}/munge/socket",
                "AccountingStorageTRES=gres/gpu\nAccountingStorageEnforce=associations",
            ]
        lines = _CONFIG.format(
            folder=self.folder,
            control="head" if options.virtual_hosts else "localhost",
            port=self._ports[0],
            me=pwd.getpwuid(os.getuid()).pw_name,
            age=options.min_job_age,
            first=self.nodes[0],
            mpi=options.mpi,
            task="task/cgroup" if options.kernel_memory else "task/none",
        )
        return lines + "".join(f"{line}\n" for line in more)

    def _node_lines(self) -> list[str]:
        options = self.options
        gpus = f"Gres=gpu:{options.gpu_type}:{options.gpus}" if options.gpus else ""
        size = _SIZE.format(cpus=options.cpus, cores=options.cpus // 2, memory=options.memory)
        if self.options.virtual_hosts:
            return [f"NodeName={node} Port={self._ports[1]} {gpus} {size}\n" for node in self.nodes]
        places = zip(self.nodes, self._ports[1:], strict=False)
        here = "NodeHostname=localhost NodeAddr=127.0.0.1"
        return [f"NodeName={node} {here} Port={port} {gpus} {size}\n" for node, port in places]

    def _make_gpus(self) -> str:
        """Character devices, whose names end in the numbers: only for those Slurm sets CUDA_VISIBLE_DEVICES."""
        last = self.options.gpus - 1
        if not self._is_root:
            return f"/dev/tty[0-{last}]"
        folder = self.folder / "dev"
        folder.mkdir()
        for number in range(self.options.gpus):
            os.mknod(folder / f"nvidia{number}", stat.S_IFCHR | 0o666, os.makedev(195, number))
        return f"{folder}/nvidia[0-{last}]"

    def _start(self) -> None:
        if self._is_root:
            self._start_munge()
        if self.options.accounting:
            self._start_accounting()
        self.start_control(forget=True)
        if self.options.accounting:
            self._add_users()
        for node in self.nodes:
            words = [require_program("slurmd"), "-D", "-N", node]
            self.daemons.start(f"slurmd-{node}", words, prefix=[*self._place(node), *self._enter_group()])
        self.daemons.wait_until("all nodes are idle", self._is_ready)

    def _enter_group(self) -> list[str]:
        """Words that let a slurmd see our group as the machine's: groups of nodes of other clusters have its names."""
        if not self.options.kernel_memory:
            return []
        place = self.folder / "cgroup/memory"
        place.mkdir(parents=True, exist_ok=True)
        script = 'mount --bind "$0" "$1" && shift && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, str(self._group), str(place)]

    def _is_ready(self) -> bool:
        states = self._run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%T").stdout.split()
        return states == ["idle"] * len(self.nodes)

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o600)
        places = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        words = [f"--{option}={folder / name}" for option, name in places.items()]
        self.daemons.start("munged", [require_program("munged"), "--foreground", "--num-threads=2", *words])
        self.daemons.wait_until("munged listens", (folder / "socket").exists)

    def _start_accounting(self) -> None:
        database, port, database_port = self.folder / "database", self._ports[-2], self._ports[-1]
        database.mkdir()
        install = [require_program("mariadb-install-db"), "--no-defaults", "--user=mysql", "--skip-test-db"]
        subprocess.run(
            [*install, f"--datadir={database}/data"], env=self.daemons.environment, capture_output=True, check=True
        )
        (database / "start.sql").write_text(_DATABASE_START)
        self.daemons.start(
            "mariadbd",
            [
                *(require_program("mariadbd"), "--no-defaults", "--user=mysql", "--bind-address=127.0.0.1"),
                *(f"--datadir={database}/data", f"--socket={database}/data/socket", f"--pid-file={database}/data/pid"),
                *(f"--port={database_port}", f"--init-file={database}/start.sql", "--innodb-buffer-pool-size=64M"),
                *("--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=0"),
            ],
            prefix=self._place("head"),
        )
        self.daemons.wait_until("the database listens", lambda: self._is_listening(database_port))
        config = self.folder / "slurmdbd.conf"
        config.touch(0o600)
        config.write_text(_DATABASE_CONFIG.format(folder=self.folder, port=port, database_port=database_port))
        self.daemons.start("slurmdbd", [require_program("slurmdbd"), "-D"], prefix=self._place("head"))
        self.daemons.wait_until("slurmdbd listens", lambda: self._is_listening(port))

    def _is_listening(self, port: int) -> bool:
        return self._run("bash", "-c", f"</dev/tcp/127.0.0.1/{port}").returncode == 0

    def _add_users(self) -> None:
        self.read("sacctmgr", "-i", "add", "account", ACCOUNT, "Cluster=tiny")
        self.read("sacctmgr", "-i", "add", "user", ",".join(["root", *USERS]), f"Account={ACCOUNT}")

    def _cancel_all(self) -> None:
        """What containers left of their environment is not found by its name later: the jobs end while Slurm can."""
        with suppress(OSError, subprocess.SubprocessError):
            for name in ("gpu", "dev", *self.options.partitions):
                self._run("scancel", f"--partition={name}")
            with suppress(AssertionError):
                wait_until("no job", lambda: not self._run("squeue", "-h").stdout.strip(), timeout=5)


@contextmanager
def private_group(name: str) -> Iterator[Path]:
    """A control group for memory, version 1; it and all below it are gone after."""
    group = _GROUPS / name
    if not (_GROUPS / "memory.limit_in_bytes").exists():
        pytest.skip("the memory controller of version 1 is not here")
    group.mkdir()
    try:
        yield group
    finally:
        with suppress(AssertionError):  # the last process is not quite gone
            wait_until("the group is gone", lambda: _remove_group(group), timeout=5)


def _remove_group(group: Path) -> bool:
    for place, _, _ in os.walk(group, topdown=False):
        with suppress(OSError):
            Path(place).rmdir()
    return not group.exists()
