# SPDX-License-Identifier: BSD-3-Clause
import os
import sys

from kedge.container.processes.join_namespaces import join_namespaces
from kedge.errors import KedgeError

try:
    must_fork = join_namespaces(int(sys.argv[1]), start=int(sys.argv[2]))
except KedgeError as problem:
    sys.exit(f"{problem.exit_code} {problem.message}")
if must_fork and (child := os.fork()):
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.execv("/bin/sh", ["sh", "-c", sys.argv[3]])
