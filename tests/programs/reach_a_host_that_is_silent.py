# SPDX-License-Identifier: BSD-3-Clause
import socket
import sys
import time

from kedge.answers.doctor.run_checks import run_checks
from kedge.answers.doctor.surroundings import Surroundings
from kedge.system.settings import Settings

names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(("127.0.0.1", 53))  # a name server that never answers
full = socket.create_server(("127.0.0.9", 443), backlog=0)
waiting = [socket.socket() for _ in range(4)]
for each in waiting:  # once these wait to be taken, the kernel drops what comes
    each.setblocking(False)
    each.connect_ex(("127.0.0.9", 443))
environ = {"HOME": sys.argv[1], "PATH": "/usr/bin:/bin", "NGC_API_KEY": "nvapi-" + "x1" * 20}
began = time.monotonic()
surroundings = Surroundings(environ, Settings.load(environ=environ), patience=3.0)
diagnosis = run_checks(surroundings, ["proxies", "registries", "logins"])
print(time.monotonic() - began)
for each in diagnosis.findings:
    print(each.level, each.what)
