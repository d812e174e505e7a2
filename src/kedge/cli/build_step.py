# SPDX-License-Identifier: BSD-3-Clause
"""`kedge build-step REQUEST REPORT`: one step of a build in its container. Builds call it; no user does.

`kedge build-step --remove DIRECTORY` removes what a step left that was killed, with the files of subordinate ids.

REQUEST is the number of an open file with the request (`container/start/build_step.py` writes it), so that variables
with secrets are in no command line. What kedge itself cannot do is written to the open file
REPORT, as `--json` prints it.
"""

from __future__ import annotations

import json
import os

from kedge.cli.container import OWN_FAILURE, Speaker, find_services, open_standard_streams, report
from kedge.container.flags import parse_words
from kedge.container.options import RunOptions
from kedge.container.start_container import run_container
from kedge.container.step_options import StepOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def run_request(words: Sequence[str]) -> int:
    """Become the step's program; returns only where that fails."""
    open_standard_streams()
    if words[0] == "--remove":
        return _remove(words[1])
    request_file, report_file = (int(word) for word in words)
    os.set_inheritable(report_file, False)
    options = RunOptions()
    try:
        options = _read_options(request_file)
        return run_container(options, Speaker(options).say, find_services)
    except BaseException as problem:
        from kedge.errors import KedgeError  # late: success needs no errors

        if not isinstance(problem, KedgeError):
            return report(problem, list(words), options)
        os.write(report_file, json.dumps(problem.as_dict()).encode())
        return OWN_FAILURE


def _read_options(file: int) -> RunOptions:
    with open(file, "rb") as stream:
        request = json.load(stream)
    options = RunOptions(runtime="kedge")
    parse_words("exec", [*request["options"], request["base"], *request["argv"]], {}, into=options)
    options.step = StepOptions(request["step"])
    options.writable = not options.step.changes
    options.settle()
    return options


def _remove(folder: str) -> int:
    """Delete a directory as root of a namespace with the subordinate ids of a step."""
    from pathlib import Path  # late, all: few steps are killed

    from kedge.container.facts import gather_host
    from kedge.container.mounting import enter_user_namespace
    from kedge.system.confined_paths import remove_tree

    try:
        enter_user_namespace(gather_host(os.environ), as_root=True, has_many=True, is_step=True)
        remove_tree(Path(folder))
    except OSError:
        return OWN_FAILURE
    return 0
