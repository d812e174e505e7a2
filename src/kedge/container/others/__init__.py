# SPDX-License-Identifier: BSD-3-Clause
"""Other runtimes that kedge can drive: which there are, and the command line that does the same there."""

from __future__ import annotations

from kedge.container.facts import Additions, Bind, HostFacts
from kedge.container.options import RunOptions
from kedge.container.others import apptainer, charliecloud, enroot, podman
from kedge.container.others.request import Adapter, ForeignImage, ForeignPlan, RuntimeCall
from kedge.container.others.rules import HONOURED, IGNORED, OWN, REFUSED, flag_name, is_given, option_names, show_option
from kedge.errors import UsageError

__all__ = [
    "RUNTIMES",
    "Adapter",
    "ForeignImage",
    "ForeignPlan",
    "RuntimeCall",
    "apply_rules",
    "find_adapter",
    "plan_foreign",
    "render_table",
]

RUNTIMES: dict[str, Adapter] = {
    adapter.name: adapter
    for adapter in (
        apptainer.Apptainer(),
        apptainer.Singularity(),
        enroot.Enroot(),
        charliecloud.Charliecloud(),
        podman.Podman(),
        podman.PodmanHpc(),
    )
}
_VERBS = ("exec", "run", "shell", "test")


def find_adapter(runtime: str) -> Adapter:
    """The runtime that users call so."""
    adapter = RUNTIMES.get(runtime)
    if adapter is None:
        raise UsageError(f"unknown runtime '{runtime}'", hint=f"use kedge, {', '.join(RUNTIMES)}")
    return adapter


def plan_foreign(
    runtime: str,
    options: RunOptions,
    binds: list[Bind],
    image: ForeignImage,
    *,
    host: HostFacts,
    additions: Additions | None = None,
    has_terminal: bool = False,
) -> ForeignPlan:
    """The command line that asks `runtime` for the same; `require_suited` of the result says whether it can."""
    plan = ForeignPlan(runtime)
    words = apply_rules(runtime, options, plan)
    find_adapter(runtime).fill(
        RuntimeCall(
            options=options,
            binds=binds,
            image=image,
            host=host,
            additions=additions or Additions(),
            has_terminal=has_terminal,
        ),
        words,
        plan,
    )
    return plan


def apply_rules(runtime: str, options: RunOptions, plan: ForeignPlan) -> list[str]:
    """What the rules alone say, before an image is at hand: words of the command line; notes and refusals."""
    rules, words = find_adapter(runtime).rules, []
    for name in option_names():
        if not is_given(options, name) or (name in ("net", "network") and options.network == "host"):
            continue  # the host's network is what all of them have unasked
        rule, shown = rules[name], show_option(options, name)
        if rule.how == REFUSED:
            plan.refused.append((shown, rule.text))
        elif rule.how == IGNORED:
            plan.notes.append(f"{runtime} ignores {shown}: {rule.text}")
        elif rule.words is not None:
            words += rule.words(getattr(options, name))
    if options.verb not in _VERBS:
        plan.refused.append((f"'{options.verb}'", "other runtimes can do exec, run, shell and test only"))
    return words


def render_table() -> str:
    """What becomes of each option with each runtime, in Markdown."""
    shown_as = {"podman": "podman, podman-hpc"}  # the two take the same
    columns = [adapter for adapter in RUNTIMES.values() if adapter.name != "podman-hpc"]
    heads = [shown_as.get(adapter.name, adapter.name) for adapter in columns]
    lines = ["| option | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for name in option_names():
        rules = [adapter.rules[name] for adapter in columns]
        if all(rule.how == OWN for rule in rules):
            continue
        shown = [rule.text if rule.how == HONOURED else f"*{rule.how}*: {rule.text}" for rule in rules]
        label = {"verb": "verbs", "passed_on": "options that kedge refuses", "limits": "`--memory`, `--cpus` …"}.get(
            name, f"`{flag_name(name)}`"
        )
        lines.append(f"| {label} | " + " | ".join(text.replace("|", "\\|") for text in shown) + " |")
    return "\n".join(lines) + "\n"
