# SPDX-License-Identifier: BSD-3-Clause
import os
import sys

import kedge
import kedge.api
import kedge.tools.executor
from kedge.tools.executor import Executor


def add(x, y):
    return x + y


if __name__ == "__main__":
    if sys.argv[2]:
        os.environ["PYTHONPATH"] = sys.argv[2]
    assert kedge.run(sys.argv[1], ["true"]).status == 0
    with Executor(site="local", python=sys.executable) as executor:
        assert executor.submit(add, 1, 2).result(100) == 3
    print("done")
