# SPDX-License-Identifier: BSD-3-Clause
"""NVIDIA_REQUIRE_*, evaluated as nvidia-container-cli does, which docker, podman and enroot start containers through.

It is a gate of theirs, not of `--nv`, and says little about whether programs run: images of frameworks ask for
`cuda>=9.0` whatever they need, and minor-version compatibility is not in it. So it never makes a verdict better.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen
from kedge.base.versions import major_minor, order
from kedge.compat.rules.driver_lookup import find_offered_cuda
from kedge.compat.target import Gpu
from kedge.compat.verdict import NO, NOTE, WARNING, Judgement

if TYPE_CHECKING:
    from kedge.compat.tables.load import Tables
    from kedge.compat.target import Target
    from kedge.compat.traits import ImageTraits

_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
_VERSIONS = ("cuda", "driver", "arch")
_ADVICE = ", please update your driver to a newer version, or use an earlier cuda container"
_DISABLE = "With docker, podman or enroot, set NVIDIA_DISABLE_REQUIRE=1."
_DIGITS = frozenset("0123456789.")
_LONGEST_TERM = 127  # NVIDIA's program refuses longer ones when they do not hold


@frozen
class ExpressionValues:
    """What the names of an expression mean on one host, for one GPU; unknown values are empty."""

    cuda: str = ""
    driver: str = ""
    arch: str = ""
    brand: str = ""
    has_gpu: bool = True  # without one, conditions on arch and brand hold


@frozen
class Evaluation:
    """Whether an expression holds; None: something that it asks for is unknown."""

    holds: bool | None
    problem: str = ""  # as nvidia-container-cli puts it
    part: str = ""  # the one that holds


class _InvalidError(Exception):
    """A term that NVIDIA's program refuses."""


def evaluate(expression: str, there: ExpressionValues) -> Evaluation:
    """Spaces mean or, commas and. What follows a part that holds is not looked at, as NVIDIA's program does not."""
    last: bool | None = True
    is_open = False
    for part in filter(None, expression.split(" ")):
        terms = [term for term in part.split(",") if term]
        if not terms:
            break  # commas alone end the search there, too
        try:
            last = _evaluate_terms(terms, there)
        except _InvalidError:
            return Evaluation(None if is_open else False, "invalid expression")
        if last:
            return Evaluation(True, part=part)
        is_open = is_open or last is None
    if is_open or last:
        return Evaluation(None if is_open else True)
    first = expression.split(" ", maxsplit=1)[0]
    return Evaluation(False, f"unsatisfied condition: {first}{_ADVICE if first.startswith('cuda>=') else ''}")


def judge_requirements(traits: ImageTraits, target: Target, tables: Tables, *, outcome: str) -> list[Judgement]:
    """Judge the gate of docker and enroot, beside a verdict of `outcome`."""
    if traits.disables_requires or not target.driver or any(gpu.brand == "amd" for gpu in target.gpus):
        return []
    judgements: list[Judgement] = []
    for name, expression in list_requirements(traits):
        for gpu in target.gpus or (Gpu(""),):
            answer = evaluate(expression, _find_surroundings(target, gpu, tables))
            judgement = _make_judgement(name, expression, answer, target, gpu, outcome=outcome)
            if judgement is not None and judgement not in judgements:
                judgements.append(judgement)
    return judgements


def list_requirements(traits: ImageTraits) -> list[tuple[str, str]]:
    """The variables that count, and the one that NVIDIA's toolkit adds for old images, which have CUDA_VERSION only."""
    conditions = [
        (name, value) for name, value in traits.requires if value and not name.startswith("NVIDIA_REQUIRE_JETPACK")
    ]
    is_told = traits.cuda.source == "image config, CUDA_VERSION"
    if is_told and not any(name == "NVIDIA_REQUIRE_CUDA" for name, _ in traits.requires):
        conditions.append(("CUDA_VERSION", f"cuda>={major_minor(traits.cuda.value)}"))
    return conditions


def _find_surroundings(target: Target, gpu: Gpu, tables: Tables) -> ExpressionValues:
    """What an expression's names mean for one GPU of a target."""
    return ExpressionValues(
        cuda=major_minor(target.cuda) or find_offered_cuda(target.driver, tables),
        driver=target.driver,
        arch=gpu.capability,
        brand=gpu.brand,
        has_gpu=target.has_gpus is not False,
    )


def _make_judgement(
    name: str, expression: str, answer: Evaluation, target: Target, gpu: Gpu, *, outcome: str
) -> Judgement | None:
    if answer.holds is None:
        return None
    where = gpu.name or target.title
    if answer.holds:
        if outcome != NO:
            return None
        sentence = (
            f"docker, podman and enroot start the image on {where} nevertheless, because its {name} "
            f"{_tell_holding(answer)}. That does not mean that its programs run."
        )
        return Judgement("requirement", NOTE, sentence)
    if answer.problem == "invalid expression":
        sentence = f"docker, podman and enroot refuse the image: its {name} is malformed ('invalid expression')."
        return Judgement(
            "requirement", WARNING, sentence, "With docker, podman or enroot, set NVIDIA_DISABLE_REQUIRE=1."
        )
    asks = expression.split(" ", maxsplit=1)[0].replace(",", " and ")
    others = " or one of the drivers it lists" if " " in expression.strip() else ""
    refuses = f"docker, podman and enroot refuse the image on {where} with driver {target.driver}: its {name} requires"
    if outcome == NO:
        return Judgement("requirement", NOTE, f"{refuses} {asks}{others}.")
    sentence = f"{refuses} {asks}{others}. kedge and 'apptainer --nv' do not check that, and start it."
    return Judgement("requirement", WARNING, sentence, _DISABLE)


def _tell_holding(answer: Evaluation) -> str:
    """What of an expression holds: a CUDA that is asked for, or one of the drivers that are listed beside it."""
    if answer.part.lower().startswith("cuda"):
        return f"requires {answer.part} only"
    return f"accepts it ({answer.part.replace(',', ' and ')})"


def _evaluate_terms(terms: Sequence[str], there: ExpressionValues) -> bool | None:
    """Whether all of them hold."""
    holds: bool | None = True
    for term in terms:
        try:
            term_holds = _evaluate_term(term, there)
        except _InvalidError:
            if holds is None:
                return None  # were the open one false, this would not be looked at
            raise
        if term_holds is False:
            return False
        holds = None if term_holds is None else holds
    return holds


def _evaluate_term(term: str, there: ExpressionValues) -> bool | None:
    at = next((index for index, character in enumerate(term) if character in "<>=!"), 0)
    signs = term[at:][: len(term[at:]) - len(term[at:].lstrip("<>=!"))]
    name, value = term[:at].lower(), term[at + len(signs) :]
    # a lone `!` counts as `!=`, as the first characters are all that NVIDIA's program compares
    operator = next((known for known in _OPERATORS if known.startswith(signs)), "")
    if not name or not operator or not value:
        raise _InvalidError
    if name in ("arch", "brand") and not there.has_gpu:
        return True
    if name == "brand":
        holds = _compare_brand(there.brand, operator, value)
    elif name in _VERSIONS:
        holds = _compare_version(getattr(there, name), operator, value, may_be_short=name == "driver")
    else:
        raise _InvalidError
    if holds is False and len(f"{name} {operator} {value}") > _LONGEST_TERM:
        raise _InvalidError
    return holds


def _compare_brand(ours: str, operator: str, value: str) -> bool | None:
    if operator not in ("=", "!="):
        raise _InvalidError
    return (ours.lower() == value.lower()) is (operator == "=") if ours else None


def _compare_version(ours: str, operator: str, value: str, *, may_be_short: bool) -> bool | None:
    if not _DIGITS.issuperset(value) or value.startswith("."):
        raise _InvalidError
    left = order(ours)
    right = tuple(int(field[:18]) for field in value.split(".") if field)
    if not left:
        return None
    if may_be_short and len(left) < len(right) and left == right[: len(left)] and any(right[len(left) :]):
        return None
    length = max(len(left), len(right))
    left, right = left + (0,) * (length - len(left)), right + (0,) * (length - len(right))
    return {
        "=": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[operator]
