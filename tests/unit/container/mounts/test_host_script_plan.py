# SPDX-License-Identifier: BSD-3-Clause
"""The plan of %setup: which directories of the host it has, in which order, and what is hidden."""

from __future__ import annotations

from kedge.container.mount_operations import describe
from kedge.container.mounts.host_script_plan import HostScriptRequest, plan_host_script
from kedge.container.step_options import StepOptions
from kedge.system.views import TableView


def plan(**step: object) -> list[str]:
    host = TableView({"/usr/people/me/project": None, "/usr/people/me/project/.kube": b"key", "/etc": None})
    request = HostScriptRequest(StepOptions({"context": "/", **step}), host, TableView({}), [], 1 << 20)
    return [describe(operation) for operation in plan_host_script(request).rest]


def test_nothing_of_the_host_but_its_programs() -> None:
    bound = [line for line in plan() if line.startswith("bind host:") and "/dev/" not in line]
    assert [line.split()[1] for line in bound] == ["host:/usr", "host:/etc"]


def test_what_is_hidden_goes_before_what_is_shown_in_it_and_after_what_it_is_in() -> None:
    project = "/usr/people/me/project"
    lines = plan(shown=[[project, 1, 2]], hidden=[f"{project}/.kube", "/usr/people/me"])
    texts = (
        *("bind host:/usr to", "tmpfs on session:/script/usr/people/me ", f"bind host:{project} to"),
        f"{project}/.kube",
    )
    places = [next(index for index, line in enumerate(lines) if text in line) for text in texts]
    assert places == sorted(places), "\n".join(lines)
    assert lines[places[2] + 1].startswith(f"show session:/script{project}, which is not")
