# SPDX-License-Identifier: BSD-3-Clause
"""The program of a build's step, and its variables: exactly those that the recipe gives it.

Nothing of the host's environment, and none of the image's scripts for `exec` and `run`. Two are added where the recipe
does not set them: HOME, which only the image knows, and PATH, without which no shell finds anything. With --nv and its
kin the driver's libraries are in LD_LIBRARY_PATH, too: the scripts that would put them there do not run.
"""

from __future__ import annotations

from kedge.container.facts import LIBRARIES, Payload
from kedge.container.image_users import find_image_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.facts import Additions
    from kedge.container.options import RunOptions
    from kedge.container.step_options import StepOptions
    from kedge.system.views import View

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # as Docker has it


def plan_step_payload(options: RunOptions, step: StepOptions, view: View, additions: Additions) -> Payload:
    """The program's words and variables; `additions` are what devices bring along."""
    environ = {**additions.variables, **step.environment}
    if additions.libraries or additions.prepend_library_path:
        environ["LD_LIBRARY_PATH"] = _add_libraries(environ.get("LD_LIBRARY_PATH", ""), view, additions)
    environ.setdefault("PATH", _PATH)
    user = find_image_user(step.user, view)
    environ.setdefault("HOME", user.home)
    payload = Payload(list(options.arguments), environ)
    payload.user = user if step.user else None
    if "/" not in payload.argv[0]:
        payload.search = [folder or "." for folder in environ["PATH"].split(":")]
    return payload


def _add_libraries(given: str, view: View, additions: Additions) -> str:
    """The recipe's directories before those of the host, and before both what devices want first."""
    from kedge.container.environment.library_path import plan_library_path  # late: only with devices

    names = {name for _, name in additions.libraries}
    behind = given.split(":") if given else []
    behind += [LIBRARIES] if behind and names else plan_library_path(view, names).split(":") if names else []
    return ":".join(dict.fromkeys([*additions.prepend_library_path, *behind]))
