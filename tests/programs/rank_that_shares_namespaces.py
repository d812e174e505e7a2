# SPDX-License-Identifier: BSD-3-Clause
import os
import sys
import time

from kedge.container.processes.rank_sharing import Sharing
from kedge.container.processes.supervise import run_supervised
from kedge.system import libc
from kedge.system.libc import CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, MS_PRIVATE, MS_REC
from kedge.system.spawn import replace_process

folder, key, built, kind, code = sys.argv[1:]
uid, gid, has_pid = os.getuid(), os.getgid(), kind == "pid"


def program():
    replace_process(sys.executable, [sys.executable, "-c", code, folder], os.environ)


def build():
    if os.path.exists(f"{folder}/slow"):
        os.write(1, b"building\n")
        time.sleep(60)
    libc.mount("shared", folder, "tmpfs", 0)
    if has_pid:
        libc.mount("proc", "/proc", "proc", 0)
    open(f"{folder}/mounted", "w").close()
    sharing.publish("a note")
    os.write(2, f"{built}\n".encode())


sharing = Sharing()
if sharing.enter_or_build(key):
    assert sharing.note == "a note", sharing.note
    if sharing.must_fork:
        run_supervised(program, with_init=False)
    program()
libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | (CLONE_NEWPID if has_pid else 0))
for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
libc.mount("none", "/", "", MS_REC | MS_PRIVATE)
if has_pid:
    run_supervised(lambda: (build(), program()), is_shared=True)
build()
program()
