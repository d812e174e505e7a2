# SPDX-License-Identifier: BSD-3-Clause
"""Before --nv starts a program: whether the image can work on this driver and these GPUs, by the rules of `explain`.

Only what is certain to fail is refused. A look at the node is let through: a shell, nvidia-smi; and so is --force.
"""

from __future__ import annotations

from kedge.compat.rules.compute_capability_rule import NO as NO_KERNELS
from kedge.compat.rules.compute_capability_rule import judge_kernels
from kedge.compat.rules.driver_rule import NO, DriverAnswer, DriverNeed, HostDriver, judge_driver
from kedge.container.devices.image_variables import read_image_variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.devices.nvidia.driver import Card
    from kedge.container.devices.nvidia.libcuda import Decision
    from kedge.container.facts import Additions, ImageFacts
    from kedge.container.options import RunOptions

_LISTS = ("TORCH_CUDA_ARCH_LIST", "CUDA_ARCH_LIST")
_LOOKERS = ("nvidia-smi", "nvidia-debugdump")


def check_start(
    options: RunOptions, image: ImageFacts, additions: Additions, decision: Decision, found: tuple[str, list[Card]]
) -> None:
    """Refuse with WillNotRun what cannot work on the driver and the cards that were found; or warn, as said above."""
    problem = find_obstacle(image, decision, *found)
    if problem is None:
        return
    sentence, remedy = problem
    if options.force or options.dry_run or _is_look(options):
        additions.warnings.append(f"GPU programs of this image will fail on this node. {sentence} {remedy}".rstrip())
        return
    from kedge.errors import WillNotRun  # late: only for an error

    raise WillNotRun(
        f"this image cannot work on this node: {sentence}",
        context={"image": image.path},
        hint=f"{remedy} --force starts it anyway; 'kedge recommend' lists images that work".lstrip(),
    )


def _is_look(options: RunOptions) -> bool:
    """Whether somebody only looks: CUDA is not needed for it."""
    program = options.arguments[0] if options.verb == "exec" and options.arguments else ""
    return options.verb == "shell" or program.rpartition("/")[2] in _LOOKERS


def find_obstacle(image: ImageFacts, decision: Decision, driver: str, cards: list[Card]) -> tuple[str, str] | None:
    """What keeps GPU programs of the image from working, and the remedy; None where nothing is certain to."""
    if decision.obstacle:
        return decision.obstacle, decision.remedy
    cuda = read_image_variable(image, "CUDA_VERSION")
    need, machine = DriverNeed(cuda, carries_compat=decision.uses_image), HostDriver(driver)
    answer: DriverAnswer | None = None
    if driver and not decision.uses_image:
        answer = judge_driver(need, machine)
        if answer.mode == NO:
            from kedge.compat.rules.driver_text import tell_driver  # late, as are all words: only for a refusal

            return tell_driver(need, machine, answer)
    listed = next((text for text in (read_image_variable(image, name) for name in _LISTS) if text), "")
    accepts_ptx = True if answer is None else answer.accepts_ptx
    return _judge_cards(listed, cuda, cards, driver, accepts_ptx=accepts_ptx) if listed and cards else None


def _judge_cards(
    listed: str, cuda: str, cards: list[Card], driver: str, *, accepts_ptx: bool | None
) -> tuple[str, str] | None:
    """The obstacle of the first card whose kernels the image does not have; one that has them makes a start useful."""
    from kedge.compat.tables.gpu_index import find_capability  # late: most images have no list

    refused: tuple[str, str] | None = None
    for model in {card.model: None for card in cards}:
        known = find_capability(model)
        if known is None:
            return None
        judged = judge_kernels(listed, known[0], cuda=cuda, accepts_ptx=accepts_ptx, is_jetson=known[1] == "embedded")
        if judged.mode != NO_KERNELS:
            return None
        if refused is None:
            from kedge.compat.rules.compute_capability_text import Subject, tell_kernels  # late: as above

            refused = tell_kernels(judged, Subject(model, known[0], cuda=cuda, driver=driver))
    return refused
