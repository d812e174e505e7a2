# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import time

import kedge


def place(word):
    return [word, os.path.exists("/.singularity.d"), os.environ.get("KEDGE_JOB_ID", "") != ""]


def fail(word):
    raise ValueError(f"no {word}")


def square(number):
    return number * number


def vanish():
    os._exit(7)


if __name__ == "__main__":
    with kedge.Executor("py.sif", time="5m") as executor:
        one, two = executor.submit(place, "it's $(id)\né"), executor.submit(fail, "way")
        gone, slow = executor.submit(vanish), executor.submit(time.sleep, 300)
        squares = list(executor.map(square, range(5), chunksize=2))
        was_cancelled = slow.cancel()
        problem = two.exception(60)
        lost = gone.exception(60)
        print(
            json.dumps(
                [one.result(60), type(problem).__name__, str(problem), squares, was_cancelled, type(lost).__name__]
            )
        )
