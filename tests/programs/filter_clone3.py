# SPDX-License-Identifier: BSD-3-Clause
import os
import struct
import sys

from kedge.system import libc

numbers = {"x86_64": {"unshare": 272, "mount": 165}, "aarch64": {"unshare": 97, "mount": 40}}[os.uname().machine]
lines = [(0x20, 0, 0, 0), (0x15, 0, 1, numbers[sys.argv[1]])]
lines += [(6, 0, 0, 0x50000 | int(sys.argv[2])), (6, 0, 0, 0x7FFF0000)]
libc.control_process(38, 1)
libc.filter_calls(b"".join(struct.pack("=HBBI", *line) for line in lines))
os.execv(sys.argv[3], sys.argv[3:])
