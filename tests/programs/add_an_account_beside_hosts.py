# SPDX-License-Identifier: BSD-3-Clause
"""Changes /etc as packages do that bring an account, beside hosts that stand; prints what those then know.

It is started where /etc is a copy: add_an_account_beside_hosts.py HOMES
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cluster.users import USERS
from tests.cluster.virtual_hosts import VirtualHosts

with VirtualHosts(["one"], Path(sys.argv[1])) as hosts:
    for name in ("passwd", "group", "hosts"):
        new, path = Path("/etc/new"), Path("/etc", name)
        new.write_text(path.read_text() + "fresh:x:977:977::/:/bin/sh\n")
        new.replace(path)  # a new file of the name: what is mounted on the old one goes, in all namespaces
    print(*(hosts.run("one", "id", "-u", user).strip() == str(uid) for user, uid in USERS.items()))
    print(hosts.run("one", "getent", "hosts", "one").split()[-1], "fresh" in hosts.run("one", "cat", "/etc/passwd"))
