# SPDX-License-Identifier: BSD-3-Clause
"""The variables of a build: those before the first FROM, the platforms, and what a stage sees of them.

A stage sees its base's environment, its own ENV and ARG, and those of the stage it is based on. Of two with one name
the later counts, as for BuildKit. A value given with --build-arg replaces the default of every ARG of its name.
"""

from __future__ import annotations

from collections.abc import Mapping

from kedge.base.frozen import frozen
from kedge.builds.dockerfile.expand import (
    Expansion,
    ExpansionBudget,
    ExpansionError,
    ExpansionLimitError,
    ExpansionRules,
    expand,
)
from kedge.builds.dockerfile.instructions import ArgInstruction
from kedge.builds.dockerfile.syntax import DockerfileNode
from kedge.builds.step_values import BuildArguments, ValuesTooLong, refuse_recipe

PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
_HIDDEN = ("BUILDKIT_SBOM_SCAN_CONTEXT", "BUILDKIT_SBOM_SCAN_STAGE")  # arguments that no command sees
_PLATFORM_PARTS = ("PLATFORM", "OS", "OSVERSION", "ARCH", "VARIANT")


@frozen
class GlobalScope:
    """What all stages share."""

    given: BuildArguments
    values: Mapping[str, str]  # platforms and the ARGs before the first FROM
    rules: ExpansionRules = ExpansionRules()  # how words of instructions are expanded

    @property
    def proxies(self) -> dict[str, str]:
        """Proxies that every command gets, in both spellings: of the host, or given as build arguments."""
        proxies: dict[str, str] = {}
        for name, value in [*self.given.environment.items(), *sorted(self.given.values.items())]:
            if name.upper() in PROXY_NAMES and value:
                proxies |= {name.upper(): value, name.lower(): value}
        return proxies

    def take_argument(self, name: str, default: str | None) -> str | None:
        """The value that an ARG has: given, or its default, or that of an ARG before the first FROM."""
        if name in self.given.values:
            return self.given.values[name]
        return self.values.get(name) if default is None else default


def make_globals(
    instructions: tuple[ArgInstruction, ...], given: BuildArguments, escape: str, target: str
) -> GlobalScope:
    """The scope before the first FROM."""
    values = list_platform_values(given) | {"TARGETSTAGE": target or "default"}
    values |= {} if given.epoch is None else {"SOURCE_DATE_EPOCH": str(given.epoch)}
    values |= {name: value for name, value in given.values.items() if name in values}
    rules = ExpansionRules(escape=escape, budget=ExpansionBudget())
    for instruction in instructions:
        for name, default in instruction.arguments:
            value = given.values.get(name)
            if value is None and default is not None:
                value = expand_in(instruction.node, default, values, rules).text
            if value is not None:
                values[name] = value
    return GlobalScope(given, values, rules)


def list_platform_values(given: BuildArguments) -> dict[str, str]:
    """TARGETPLATFORM, TARGETOS, TARGETARCH and the like, and the same for BUILD."""
    values: dict[str, str] = {}
    for prefix, platform in (("BUILD", given.build_platform), ("TARGET", given.target_platform)):
        system, architecture, variant = (*platform.split("/"), "", "", "")[:3]
        if (architecture, variant) == ("arm64", "v8"):  # which Docker does not write
            platform, variant = f"{system}/arm64", ""
        parts = (platform, system, "", architecture, variant)
        values |= {f"{prefix}{name}": part for name, part in zip(_PLATFORM_PARTS, parts, strict=True)}
    return values


def is_command_variable(name: str) -> bool:
    """Whether commands see an argument of this name."""
    return name not in _HIDDEN


def is_known_without_arg(name: str) -> bool:
    """Whether a build argument of this name means something though no ARG asks for it."""
    return name.upper() in PROXY_NAMES or name.startswith("BUILDKIT_") or name == "SOURCE_DATE_EPOCH"


def expand_in(node: DockerfileNode, text: str, values: Mapping[str, str], rules: ExpansionRules) -> Expansion:
    """The text with variables replaced; a mistake in it is one of the instruction."""
    try:
        return expand(text, values, rules)
    except ExpansionError as error:
        place = node.find("$") if "$" in node.text else node.find(text)
        problem = f"{node.keyword}: {error}"
        if isinstance(error, ExpansionLimitError):
            raise ValuesTooLong(place, problem) from None
        raise refuse_recipe(place, problem, "a dollar sign itself is written \\$") from None
