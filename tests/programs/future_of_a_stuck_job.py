# SPDX-License-Identifier: BSD-3-Clause
import sys

import kedge


def work():
    pass


if __name__ == "__main__":
    with kedge.Executor(site="local", python=sys.executable, after=["1"]) as executor:
        problem = executor.submit(work).exception(60)
        print(type(problem).__name__, problem.context["why"])
        problem.hint and kedge.job(problem.hint.split()[-1], site="local").cancel()
