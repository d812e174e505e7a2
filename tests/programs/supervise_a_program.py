# SPDX-License-Identifier: BSD-3-Clause
import os
import sys

from kedge.container.processes.supervise import run_supervised
from kedge.system import libc
from kedge.system.libc import CLONE_NEWPID, CLONE_NEWUSER
from kedge.system.spawn import replace_process


def start():
    replace_process(sys.argv[2], sys.argv[2:], os.environ)


libc.unshare(CLONE_NEWUSER | CLONE_NEWPID)
run_supervised(start, with_init=sys.argv[1] == "init")
