# SPDX-License-Identifier: BSD-3-Clause
"""Which cards a container gets: what the scheduler or the user chose outside decides inside too.

Without --contain the whole /dev is there and CUDA_VISIBLE_DEVICES is the limit, in the host's numbers. With --contain
only the chosen nodes are there, and numbers count those: they are rewritten, or the cards would be hidden twice.
"""

from __future__ import annotations

from kedge.container.devices.image_variables import read_user_variable
from kedge.container.devices.nvidia.driver import read_pairs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.devices.nvidia.driver import Card, Driver
    from kedge.container.facts import HostFacts
    from kedge.container.options import RunOptions

VARIABLE = "CUDA_VISIBLE_DEVICES"
_CAPABILITIES = "/proc/driver/nvidia/capabilities"
_CAPABILITY_NODES = "/dev/nvidia-caps"
_HIDING = ("", "-1", "nodevfiles", "none")


class CardSelection:
    """The chosen cards."""

    def __init__(self, cards: list[Card]) -> None:
        self.cards = cards
        self.capabilities: list[str] = []  # nodes or the directory of MIG's parts
        self.variable: str | None = None  # the value of CUDA_VISIBLE_DEVICES inside; None: not ours to set
        self.notes: list[str] = []
        self.warnings: list[str] = []


class _Wish:
    """A list of devices as a variable names them, translated as far as that can be done."""

    def __init__(self, text: str, driver: Driver) -> None:
        self.driver = driver
        self.words = [_strip_kind(word.strip()) for word in text.split(",") if word.strip()]
        self.cards: list[Card] = []  # in the order of the words
        self.parts: list[tuple[Card | None, str, str]] = []  # MIG: parent, GPU instance, compute instance
        self.unknown: list[str] = []
        self.is_all = "all" in (word.lower() for word in self.words)
        for word in self.words:
            self._read(word)

    def _read(self, word: str) -> None:
        usable = self.driver.usable
        if word.isascii() and word.isdigit():
            if int(word) < len(usable):
                self._take(usable[int(word)])
            else:
                self.unknown.append(word)
        elif word.startswith("MIG-GPU-"):
            parent, _, rest = word[4:].partition("/")
            self.parts.append((self._find(parent), *_split_pair(rest, "/")))
        elif word.startswith("MIG-"):
            self.parts.append((None, "", ""))
        elif word.startswith("GPU-"):
            card = self._find(word)
            self._take(card) if card else self.unknown.append(word)
        elif ":" in word and word.replace(":", "").isdigit():
            number = int(word.partition(":")[0])
            self.parts.append((usable[number] if number < len(usable) else None, "", ""))
        elif word.lower() != "all":
            self.unknown.append(word)

    def _find(self, uuid: str) -> Card | None:
        return next((card for card in self.driver.usable if card.uuid and card.uuid.startswith(uuid)), None)

    def _take(self, card: Card) -> None:
        if card not in self.cards:
            self.cards.append(card)

    @property
    def has_numbers(self) -> bool:
        return any(word.isascii() and word.isdigit() for word in self.words)


def select_cards(options: RunOptions, host: HostFacts, driver: Driver) -> CardSelection:
    """The cards for this container, by CUDA_VISIBLE_DEVICES, else NVIDIA_VISIBLE_DEVICES, else all."""
    selection = CardSelection(driver.usable or driver.cards)
    selection.capabilities = [_CAPABILITY_NODES] if host.view.kind(_CAPABILITY_NODES) else []
    cuda, asked = host.environ.get(VARIABLE), host.environ.get("NVIDIA_VISIBLE_DEVICES", "").strip()
    own = read_user_variable(options, host.environ, VARIABLE)
    if own is not None:
        # its numbers are the host's, so every card must stay where it is
        selection.notes.append(f"all GPUs are added: {VARIABLE}={own}, which you set, selects among them")
        return selection
    if cuda is not None:
        _follow_scheduler(selection, options, host, driver, cuda)
    elif asked and asked.lower() not in ("all", "void"):
        _follow_injector(selection, options, host, driver, asked)
    elif asked.lower() == "void":
        selection.notes.append("NVIDIA_VISIBLE_DEVICES is 'void': the GPUs were already selected")
    return selection


def _follow_scheduler(
    selection: CardSelection, options: RunOptions, host: HostFacts, driver: Driver, value: str
) -> None:
    selection.variable = value
    if value.strip().lower() in _HIDING:
        shown = f"is '{value}'" if value else "is empty"
        selection.warnings.append(
            f"{VARIABLE} {shown}: programs in the container will see no GPU. "
            "Request GPUs from the scheduler, or unset the variable."
        )
        return
    wish = _Wish(value, driver)
    if wish.unknown and driver.usable:
        count = len(driver.usable)
        selection.warnings.append(
            f"{VARIABLE}={value} names GPU {wish.unknown[0]}, which is not one of the {count} that this process "
            "may use: programs in the container will not see it."
        )
    elif options.contain:
        _narrow(selection, host, wish)
    elif (
        0 < len(wish.cards) < len(driver.usable) and options.verb == "exec" and options.arguments[:1] == ["nvidia-smi"]
    ):
        selection.warnings.append(
            f"nvidia-smi ignores {VARIABLE}={value} and shows all {len(driver.usable)} GPUs; CUDA programs see "
            f"{len(wish.cards)} of them. With --contain, nvidia-smi shows only those."
        )
    selection.notes.append(f"{VARIABLE}={selection.variable} is set in the container, also with --cleanenv")


def _follow_injector(
    selection: CardSelection, options: RunOptions, host: HostFacts, driver: Driver, asked: str
) -> None:
    if asked.lower() == "none":
        selection.cards, selection.capabilities, selection.variable = [], [], "-1"
        selection.notes.append("NVIDIA_VISIBLE_DEVICES=none: the driver's files are added, but no GPU")
        return
    wish = _Wish(asked, driver)
    if wish.is_all:
        return
    if wish.unknown:
        known = ", ".join(card.uuid for card in driver.usable if card.uuid)
        text = f"NVIDIA_VISIBLE_DEVICES={asked} names GPU {wish.unknown[0]}, which this host does not have"
        if known or wish.unknown[0].isdigit():
            remedy = "All GPUs that this process may use are added; 'nvidia-smi -L' lists them."
            selection.warnings.append(f"{text}. {remedy}")
        else:
            selection.notes.append(f"{text}: the GPUs were already selected")
        return
    if wish.parts:
        selection.variable = ",".join(wish.words) if all(word.startswith("MIG-") for word in wish.words) else None
    elif _is_uniform(driver, host):
        selection.variable = ",".join(str(driver.usable.index(card)) for card in wish.cards)
    else:
        selection.variable = ",".join(card.uuid for card in wish.cards)
    if options.contain:
        _narrow(selection, host, wish)
    selection.notes.append(f"NVIDIA_VISIBLE_DEVICES={asked} selects the GPUs ({VARIABLE}={selection.variable})")


def _narrow(selection: CardSelection, host: HostFacts, wish: _Wish) -> None:
    """Keep only the chosen nodes, and count anew where the choice was by number."""
    driver = wish.driver
    if any(parent is None for parent, _, _ in wish.parts) or not (wish.cards or wish.parts):
        selection.notes.append("all GPUs are in the private /dev: unknown which one the MIG instance belongs to")
        return
    if wish.has_numbers and not _is_uniform(driver, host):
        selection.notes.append("all GPUs are in the private /dev: they differ, and CUDA_DEVICE_ORDER is not PCI_BUS_ID")
        return
    parents = [parent for parent, _, _ in wish.parts if parent is not None]
    chosen = [card for card in driver.usable if card in wish.cards or card in parents]
    selection.cards = chosen
    selection.capabilities = [node for part in wish.parts for node in _list_capabilities(host, part)]
    if wish.has_numbers and not wish.parts:
        selection.variable = ",".join(str(chosen.index(card)) for card in wish.cards)


def _list_capabilities(host: HostFacts, part: tuple[Card | None, str, str]) -> list[str]:
    """The nodes that open one part of a card, or those of all its parts where only the card is known."""
    card, instance, compute = part
    folder = f"{_CAPABILITIES}/gpu{card.minor if card else ''}/mig"
    nodes = []
    for outer in host.view.names(folder):
        if not outer.startswith("gi") or (instance and outer != f"gi{instance}"):
            continue
        inner = [name for name in host.view.names(f"{folder}/{outer}") if name.startswith("ci")]
        wanted = [name for name in inner if not compute or name == f"ci{compute}"]
        for access in (f"{folder}/{outer}/access", *(f"{folder}/{outer}/{name}/access" for name in wanted)):
            minor = read_pairs(host.view.read(access, 4096)).get("devicefileminor", "")
            if minor.isdigit():
                nodes.append(f"{_CAPABILITY_NODES}/nvidia-cap{minor}")
    return nodes


def _is_uniform(driver: Driver, host: HostFacts) -> bool:
    """Whether CUDA counts the cards as the bus does: it puts the fastest first where they differ."""
    if host.environ.get("CUDA_DEVICE_ORDER", "").upper() == "PCI_BUS_ID":
        return True
    return len({card.model for card in driver.usable}) <= 1


def _strip_kind(word: str) -> str:
    """`0` of `nvidia.com/gpu=0` and of `gpu0`; `0:1` of `mig0:1`."""
    kind, equals, name = word.partition("=")
    word = name if equals and "/" in kind else word
    for prefix in ("gpu", "mig"):
        if word.startswith(prefix) and word[len(prefix) :].replace(":", "").isdigit():
            return word[len(prefix) :]
    return word


def _split_pair(text: str, separator: str) -> tuple[str, str]:
    first, _, second = text.partition(separator)
    return first, second
