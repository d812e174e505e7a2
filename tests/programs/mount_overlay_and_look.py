# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import sys

from kedge.container.mount_operations import mount_overlay
from kedge.container.mounts.ext3 import ExtImage, ExtServers, mount_ext
from kedge.errors import KedgeError
from kedge.system import libc
from kedge.system.libc import CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, MS_BIND, MS_REC, MS_SLAVE

base, image = sys.argv[1:3]
uid, gid = os.getuid(), os.getgid()
libc.unshare(CLONE_NEWUSER)
for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
    with open("/proc/self/" + name, "w") as file:
        file.write(text)


def enter_mounts(flags=0):
    libc.unshare(CLONE_NEWNS | flags)
    libc.mount("none", "/", "", MS_REC | MS_SLAVE)


def enter_beside(image, offset=0, size=0, *, writable):
    servers = ExtServers([ExtImage(image, offset, size, writable=writable)], base)
    enter_mounts()
    servers.adopt()
    return servers


def prepare(*folders):
    libc.mount("kedge", base, "tmpfs", 0, "mode=755")
    for folder in folders:
        os.makedirs(f"{base}/{folder}")


def write(path, text="x"):
    with open(path, "w") as file:
        file.write(text)


def read(path):
    with open(path) as file:
        return file.read()


def answer(**values):
    print(json.dumps(values), flush=True)
