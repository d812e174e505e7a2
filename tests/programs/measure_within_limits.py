# SPDX-License-Identifier: BSD-3-Clause
import os
import resource
import sys

limit = resource.getrlimit(resource.RLIMIT_NPROC)
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ) if limit[0] == -1 or limit[0] > 2 else 0
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
_, status = os.waitpid(child, 0)
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status) % 256)
