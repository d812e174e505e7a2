# SPDX-License-Identifier: BSD-3-Clause
"""The NVIDIA driver that runs here and its cards, read from /proc, /sys and /dev.

No program is started and no card is opened: on a node with a broken driver that hangs.
"""

from __future__ import annotations

from kedge.base.versions import is_driver_version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.facts import HostFacts
    from kedge.system.views import View

_VERSION_FILES = ("/proc/driver/nvidia/version", "/sys/module/nvidia/version")
_CARDS = "/proc/driver/nvidia/gpus"


class Card:
    """One GPU."""

    __slots__ = ("bus", "minor", "model", "uuid")

    def __init__(self, minor: int, *, bus: str = "", uuid: str = "", model: str = "") -> None:
        self.minor = minor  # its node is /dev/nvidia<minor>
        self.bus = bus
        self.uuid = uuid  # empty while the driver does not know it
        self.model = model

    @property
    def node(self) -> str:
        """Return the path of the GPU's device node."""
        return f"/dev/nvidia{self.minor}"


class Driver:
    """The running kernel module and what it drives."""

    def __init__(self, view: View) -> None:
        self.version = _read_version(view)  # empty where the kernel does not say
        self.nodes = [name for name in view.names("/dev") if name.startswith("nvidia")]
        self.cards = _read_cards(view, self.nodes)
        present = [card for card in self.cards if view.kind(card.node)]
        # A job's control group lets it use only its own cards, and numbers count those: the others are not looked at.
        self.usable = [card for card in present if view.can_use(card.node)]
        self.refused = [card for card in present if card not in self.usable]


def find_layout(host: HostFacts) -> str:
    """`wsl` or `jetson` where the driver is laid out in another way than on Linux servers; empty elsewhere."""
    if host.view.kind("/dev/dxg") and not host.view.kind("/dev/nvidiactl"):
        return "wsl"
    return "jetson" if host.machine == "aarch64" and host.view.kind("/etc/nv_tegra_release") else ""


def _read_version(view: View) -> str:
    """The version of the loaded kernel module; empty when there is none or it does not say."""
    for path in _VERSION_FILES:
        line = (view.read(path, 4096) or b"").decode(errors="replace").partition("\n")[0]
        for word in line.split():
            if is_driver_version(word):
                return word
    return ""


def _read_cards(view: View, nodes: list[str]) -> list[Card]:
    """The cards in the order of their numbers: by place on the bus. Where /proc does not tell, by their nodes."""
    cards = []
    for bus in view.names(_CARDS):
        facts = read_pairs(view.read(f"{_CARDS}/{bus}/information", 8192))
        minor = facts.get("device minor", "")
        if minor.isdigit() and facts.get("gpu excluded", "no").lower() != "yes":
            uuid = facts.get("gpu uuid", "")
            known = "" if "?" in uuid else uuid
            cards.append(Card(int(minor), bus=bus, uuid=known, model=facts.get("model", "")))
    if not cards:
        minors = [name[6:] for name in nodes]
        cards = [Card(minor) for minor in sorted(int(text) for text in minors if text.isdigit() and len(text) < 6)]
    return cards


def read_pairs(data: bytes | None) -> dict[str, str]:
    """Lines of `Name: value`."""
    pairs = {}
    for line in (data or b"").decode(errors="replace").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            pairs[name.strip().lower()] = value.strip()
    return pairs
