# SPDX-License-Identifier: BSD-3-Clause
"""The program of a step and its variables."""

from __future__ import annotations

from kedge.container.environment.step_payload import plan_step_payload
from kedge.container.facts import Additions
from kedge.container.options import RunOptions
from kedge.container.step_options import StepOptions
from kedge.system.views import TableView

IMAGE = TableView({"/etc/passwd": b"app:x:1000:50:App:/srv/app:/bin/sh\n", "/.singularity.d/env/90.sh": b"x"})


def test_step_payload_has_the_recipes_variables_and_home() -> None:
    options = RunOptions(arguments=["sh", "-c", "x"])
    payload = plan_step_payload(options, StepOptions({"environment": {"A": "$B"}, "user": "app"}), IMAGE, Additions())
    assert (payload.argv, set(payload.environ)) == (["sh", "-c", "x"], {"A", "PATH", "HOME"})
    assert (payload.environ["A"], payload.environ["HOME"]) == ("$B", "/srv/app")
    assert payload.user is not None
    assert "/usr/bin" in payload.search
    options = RunOptions(arguments=["/bin/x"])
    given = {"HOME": "/h", "PATH": "/a::/b"}
    payload = plan_step_payload(options, StepOptions({"environment": given}), IMAGE, Additions())
    assert (payload.environ, payload.user, payload.search) == (given, None, [])
    options.arguments = ["x"]
    assert plan_step_payload(options, StepOptions({"environment": given}), IMAGE, Additions()).search == [
        *("/a", ".", "/b"),
    ]


def test_step_payload_has_the_drivers_libraries() -> None:
    additions = Additions()
    additions.libraries = [("/usr/lib/libcuda.so.1", "libcuda.so.1")]
    additions.variables = {"NVIDIA_X": "1", "A": "driver"}

    def environ(**given: str) -> dict[str, str]:
        payload = plan_step_payload(RunOptions(arguments=["/x"]), StepOptions({"environment": given}), IMAGE, additions)
        return payload.environ

    assert environ()["LD_LIBRARY_PATH"] == "/.singularity.d/libs"
    assert environ(LD_LIBRARY_PATH="/a:/b")["LD_LIBRARY_PATH"] == "/a:/b:/.singularity.d/libs"
    assert (environ(A="recipe")["A"], environ()["NVIDIA_X"]) == ("recipe", "1")
    additions.prepend_library_path = ["/compat"]
    assert environ(LD_LIBRARY_PATH="/a")["LD_LIBRARY_PATH"] == "/compat:/a:/.singularity.d/libs"
