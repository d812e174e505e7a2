# SPDX-License-Identifier: BSD-3-Clause
import json

import kedge

job = kedge.submit(command=["sh", "-c", "echo hello; exit 3"], time="5m", name="from python")
state = job.wait(60)
again = kedge.job(job.id)
try:
    again.wait(check=True)
    problem = ""
except kedge.errors.JobFailed as found:
    problem = found.message
array = kedge.submit("py.sif", ["sh", "-c", "echo $KEDGE_ARRAY_INDEX"], array="0-1")
array.wait(60, check=True)
long = kedge.submit(command=["sleep", "300"])
long.cancel()
print(json.dumps([state, again.name, again.logs(), again.reason, problem, array.logs(1), long.wait(60), job.state]))
