# SPDX-License-Identifier: BSD-3-Clause
import sys
import time

import kedge


def work():
    time.sleep(20)
    return 1


if __name__ == "__main__":
    executor = kedge.Executor(site="local", python=sys.executable)
    future = executor.submit(work)
    print(type(future.exception(60)).__name__, future.exception(), flush=True)
    executor.shutdown(wait=False, cancel_futures=True)
    future.job.cancel()
