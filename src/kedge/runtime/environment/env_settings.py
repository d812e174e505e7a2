# SPDX-License-Identifier: BSD-3-Clause
"""What both evaluators of an environment, our own reader and the image's shell, work from."""

from __future__ import annotations

from kedge.runtime.environment.env_scripts import Variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    Step = tuple[str, str]  # what, and the path of a script

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROMPT = "Apptainer> "


class EnvironmentInputs:
    """Everything that both evaluators work from."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.requests: dict[str, str] = {}  # what the user asks for
        self.additions: dict[str, str] = {}  # what devices ask for; taken as it is
        self.is_literal = False  # --no-eval
        self.library_path = ""  # LD_LIBRARY_PATH where it would be empty or LIBRARIES alone
        self.first_libraries = ""  # go before everything but the user's
        self.restored: dict[str, str] = {}  # host variables and our own, for what no script set
        self.variables = Variables()  # what scripts see at their start
        self.warnings: list[str] = []
        self.notes: list[str] = []
