# SPDX-License-Identifier: BSD-3-Clause
"""The program of a build's step, and its variables: exactly those that the recipe gives it.

Nothing of the host's environment, and none of the image's scripts for `exec` and `run`. Two are added where the recipe
does not set them: HOME, which only the image knows, and PATH, without which no shell finds anything.
"""

from __future__ import annotations

from kedge.runtime.environment.image_users import find_image_user
from kedge.runtime.facts import Payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.posix.views import View
    from kedge.runtime.options import RunOptions
    from kedge.runtime.step_options import StepOptions

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # as Docker has it


def plan_step_payload(options: RunOptions, step: StepOptions, view: View) -> Payload:
    """The program's words and variables."""
    environ = dict(step.environment)
    environ.setdefault("PATH", _PATH)
    user = find_image_user(step.user, view)
    environ.setdefault("HOME", user.home)
    payload = Payload(list(options.arguments), environ)
    payload.user = user if step.user else None
    if "/" not in payload.argv[0]:
        payload.search = [folder or "." for folder in environ["PATH"].split(":")]
    return payload
