# SPDX-License-Identifier: BSD-3-Clause
"""What accounting says of jobs, in the words of sacct, qacct and qstat."""

from __future__ import annotations

from kedge.cluster.job_state import JobUsage
from kedge.cluster.schedulers.choose import SCHEDULERS, find_usage_reader
from kedge.cluster.schedulers.gridengine import usage as gridengine
from kedge.cluster.schedulers.pbs import usage as pbs
from kedge.cluster.schedulers.slurm import usage as slurm
from tests.builders.rows import with_rows
from tests.requirements import REPOSITORY

SACCT = """\
12|8|600|01:02:03||2||billing=8,cpu=8,gres/gpu=4,mem=64G,node=2
12.batch|4|600|00:01.500|1048576K|1|1|cpu=4,mem=32G,node=1
12.0|8|590|01:02:01|2G|2|6|cpu=8,mem=64G,node=2
13_4|1|60|00:00:00||1||cpu=1,mem=500M,node=1
garbage
14|x|y|z|a|b|c|d
"""
QSTAT = """\
Job Id: 7.pbs1
    Job_Name = train
    job_state = F
    Exit_status = 0
    resources_used.cput = 00:10:00
    resources_used.mem = 2097152kb
    resources_used.walltime = 00:05:00
    Resource_List.select = 2:ncpus=4:ngpus=1+1:ncpus=2

"""


def test_usage_of_sacct_qacct_and_qstat() -> None:
    found = slurm.parse_usage(SACCT)
    assert found["12"] == JobUsage(600.0, 8, 3723.0, 6 << 30, 32 << 30, 4)  # three tasks of 2 GiB on each node
    assert found["13_4"] == JobUsage(60.0, 1, None, None, 500 << 20, None)  # nobody measured it
    assert (found["14"], len(found)) == (JobUsage(), 3)
    found = gridengine.parse_usage((REPOSITORY / "tests/golden/gridengine/recorded/accounts.txt").read_text())
    assert found["25"] == JobUsage(4.0, 1, 0.007, int(4.156 * (1 << 20)), None, None)
    assert pbs.parse_usage(QSTAT) == {"7.pbs1": JobUsage(300, 10, 600, 2 << 30, None, 2)}
    several = QSTAT + QSTAT.replace("7.pbs1", "8.pbs1")
    assert list(pbs.parse_usage(several)) == ["7.pbs1", "8.pbs1"]
    assert [name for name in SCHEDULERS if find_usage_reader(name) is None] == ["local"]
    assert slurm.parse_usage("") == gridengine.parse_usage("") == pbs.parse_usage("") == {}


def test_usage_is_asked_once_for_all() -> None:
    query = slurm.usage_query(["12", "13"], 1794728736.0)
    assert "--jobs=12,13" in query.argv
    assert query.may_fail
    # Of tasks, too, and although it fails for a job that the server has forgotten.
    query = pbs.usage_query(["7.pbs1", "8[].pbs1"], 0.0)
    assert query.argv == ("qstat", "-x", "-f", "-w", "-t", "7.pbs1", "8[].pbs1")
    assert query.may_fail


@with_rows(
    ("ncpus=4:ngpus=1", 4, 1),  # as qsub got it: a chunk without a number is one
    *(("ncpus=4+2:ncpus=1", 6, None), ("2:ncpus=4:mem=8gb", 8, None), ("1", None, None), ("", None, None)),
)
def test_usage_of_qstat_counts_chunks_as_they_were_asked_for(select: str, cpus: int | None, gpus: int | None) -> None:
    [used] = pbs.parse_usage(QSTAT.replace("2:ncpus=4:ngpus=1+1:ncpus=2", select)).values()
    assert (used.cpus, used.gpus) == (cpus, gpus)
