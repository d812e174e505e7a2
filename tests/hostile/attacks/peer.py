# SPDX-License-Identifier: BSD-3-Clause
"""The same attacks against the real Apptainer, which runs in a tree of its own as an ordinary user."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.builders.apptainer import PEER_USER
from tests.hostile.attacks.scene import FLAG, Scene
from tests.requirements import require_peer


@dataclass
class PeerScene(Scene):
    """A scene whose caller lives in Apptainer's tree; its user database names the scene's home."""

    def as_caller(self, words: list[str]) -> list[str]:
        """Root of the tree lets the home be the user's, and becomes the user."""
        known = self.base / "passwd"
        known.write_text(f"root:x:0:0::/root:/bin/sh\npeer:x:{PEER_USER}:{PEER_USER}::{self.home}:/bin/sh\n")
        user = str(PEER_USER)
        become = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "env", f"HOME={self.home}", *words]
        script = f"mount --bind {known} /etc/passwd; exec {shlex.join(become)}"
        shared = [word for path in (self.base, self.temporary) for word in ("-d", str(path))]
        return [str(require_peer()), "root", *shared, "--", "sh", "-ec", script]


def make_command(scene: Scene, flags: tuple[str, ...], image: Path) -> list[str]:
    """Apptainer's command line, up to the attacking program."""
    binds = ["--bind", f"{scene.base}/readonly:/data:ro", "--bind", f"{scene.base}/mountpoint:/mountpoint"]
    words = ["apptainer", "-s", "exec", *flags, *binds, "--env", f"ATTACK_FLAG={FLAG}", str(image)]
    return [*words, "/bin/attack", "attack"]
