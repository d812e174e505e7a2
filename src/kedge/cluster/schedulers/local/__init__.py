# SPDX-License-Identifier: BSD-3-Clause
"""The queue of this host, for laptops and single servers."""

from kedge.cluster.schedulers.facts import SchedulerFacts

FACTS = SchedulerFacts(name="local", title="no scheduler", job_scope=("KEDGE_LOCAL_JOB_ID",))
