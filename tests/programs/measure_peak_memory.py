# SPDX-License-Identifier: BSD-3-Clause
import os
import resource
import sys

child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status = os.waitpid(child, 0)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status) % 256)
