# SPDX-License-Identifier: BSD-3-Clause
"""Whether the nodes of a launch by srun still live: srun alone waits until the controller gives one up, for minutes.

Every node has a connection to srun. Where one goes while others stay, either its ranks have ended or the node is gone:
Slurm is asked to start an empty step on all nodes, and names the one that it cannot reach.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from kedge.base.frozen import frozen
from kedge.cluster.launchers.srun import list_trial_words, read_lost_node
from kedge.errors import ProgramFailed, ProgramMissing
from kedge.system.host.connections import list_peers
from kedge.system.process import run_program

_EVERY = 1.0  # seconds between two looks
_PATIENCE = 3.0  # seconds: ranks that end well end at nearly the same time
_LONGEST = 30.0  # seconds for Slurm's answer


@frozen
class LostNode:
    """A node that Slurm does not reach any more."""

    name: str
    reason: str


class NodeWatch:
    """Looks after the nodes of one srun."""

    def __init__(self, nodes: int, environ: Mapping[str, str]) -> None:
        self._nodes = nodes
        self._environ = environ
        self._peers: frozenset[str] = frozenset()  # that are known to be there
        self._looked_at = 0.0
        self._missed_at = 0.0

    def find_lost(self, pids: tuple[int, ...]) -> LostNode | None:
        """The node that is gone; call it often, it looks now and then."""
        now = time.monotonic()
        if self._nodes < 2 or len(pids) != 1 or now - self._looked_at < _EVERY:
            return None
        self._looked_at = now
        peers = list_peers(pids[0])
        if not self._peers - peers:
            self._peers, self._missed_at = peers, 0.0
            return None
        self._missed_at = self._missed_at or now
        if now - self._missed_at < _PATIENCE:
            return None
        self._peers, self._missed_at = peers, 0.0
        return self._ask()

    def _ask(self) -> LostNode | None:
        try:
            done = run_program(list_trial_words(self._nodes), environment=self._environ, timeout=_LONGEST, check=False)
        except (ProgramFailed, ProgramMissing):
            return None
        found = read_lost_node(done.errors.decode(errors="replace"))
        return LostNode(*found) if found else None
