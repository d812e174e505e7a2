# SPDX-License-Identifier: BSD-3-Clause
"""What an image is judged against: a GPU that somebody names, a queue of a site, or this host.

Nothing is guessed: what is unknown stays empty, and a note says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from kedge.base.frozen import replace
from kedge.base.patterns import late_pattern
from kedge.base.platform import Platform
from kedge.compat.tables.gpu_names import AMD, find_gpu
from kedge.compat.tables.load import Tables
from kedge.compat.target import BUILT_IN, NAMED, THIS_MACHINE, Gpu, Target, join_names
from kedge.errors import UsageError
from kedge.system.settings import Settings

_DRIVER = late_pattern(r"[Rr]?(\d{3}(?:\.\d{1,4}){0,3})")
_SAID = "as you name it"


def find_target(
    *,
    gpu: str | None = None,
    driver: str | None = None,
    site: str | None = None,
    architecture: str = "",
    environ: Mapping[str, str],
    settings: Settings,
    tables: Tables,
) -> Target:
    """The target that was asked for: `site` is SITE or SITE:QUEUE; what `gpu` and `driver` name holds over it.

    Without a site and a GPU it is this host. `architecture` is of its CPUs; the settings may name it, too.
    Raises UnknownGpu, SiteProblem or UsageError for what is unknown.
    """
    version = parse_driver(driver) if driver else ""
    named = tuple(find_gpu(word, tables) for word in gpu.split(",") if word.strip()) if gpu else ()
    if gpu and not named:
        raise UsageError("--gpu names no GPU", hint="write it as in '--gpu H200'")
    if site:
        from kedge.jobs.queue_target import find_queue_target  # late, as below: a named GPU needs neither

        target = _put_over(find_queue_target(site, environ, settings, tables), named, version)
    elif named:
        target = _describe_named(named, version)
    else:
        from kedge.answers.host_target import describe_host
        from kedge.container.facts import gather_host

        target = describe_host(gather_host(environ), tables)
        if target.has_gpus or not version:
            return _put_over(target, (), version)
        target = _describe_named((), version)  # the driver of another host: there is none on this one
    return _settle_architecture(target, architecture, settings)


def keep_judged(target: Target, *, is_named: bool, is_needed: bool) -> Target | None:
    """The target, if it was named or has GPUs to judge by; where one is needed, none is a UsageError."""
    if is_needed:
        require_gpus(target)
    return target if is_named or target.has_gpus else None


def require_gpus(target: Target) -> None:
    """Raise UsageError where no GPU of the target is known: without one nobody can say which tags run there."""
    if target.gpus:
        return
    why = "has no NVIDIA GPU" if target.has_gpus is False else "has a GPU of an unknown model"
    raise UsageError(
        f"{target.title} {why}, so kedge cannot tell which tags run there",
        hint="name the GPU: --gpu A100 --driver 535.104.05; or the queue: --on SITE:QUEUE",
    )


def parse_driver(text: str) -> str:
    """A driver's version as somebody writes it: 535.104.05, 535.104, 535 or R535."""
    match = _DRIVER.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"'{text[:80]}' is not a version of an NVIDIA driver",
            hint="write it as nvidia-smi shows it, as in '--driver 535.104.05'; '--driver 535' names a branch",
        )
    return match[1]


def _describe_named(gpus: tuple[Gpu, ...], driver: str) -> Target:
    names = join_names(gpu.name for gpu in gpus) or "a machine"
    return Target(
        title=f"{names} with driver {driver}" if driver else names,
        origin="named",
        gpus=gpus,
        has_gpus=True,
        driver=driver,
        driver_source=_SAID if driver else "",
    )


def _put_over(target: Target, gpus: tuple[Gpu, ...], driver: str) -> Target:
    """Return the place with other GPUs, another driver: what was known of the one that is there does not hold then."""
    title = target.title
    if gpus:
        title += f" with {join_names(gpu.name for gpu in gpus)}"
        target = replace(target, gpus=gpus, has_gpus=True)
    if driver:
        title += f" {'and' if gpus else 'with'} driver {driver}"
        target = replace(target, driver=driver, driver_source=_SAID, cuda="")
    if not gpus and not driver:
        return target
    notes = tuple(note for note in target.notes if not (driver and "driver" in note))
    return replace(target, title=title, notes=notes, origin="named" if target.origin == "host" else target.origin)


def _settle_architecture(target: Target, wanted: str, settings: Settings) -> Target:
    """The architecture it is judged for: that named with --arch, its own, that of hosts with its GPU, or this host's.

    Images of one tag have other kernels for other architectures, so there must be one answer for all who ask.
    """
    own = target.architecture
    if not wanted and (not own or settings.sources["architecture"].kind == "flag"):
        wanted = settings.architecture or ""
    named = Platform.parse(wanted).architecture if wanted else ""
    if named and named != own:
        notes = (f"judged for {named} (--arch), although {target.title} has {own}",) if own else ()
        return _set_architecture(target, named, NAMED, notes)
    if own:
        return target
    built = {gpu.processor for gpu in target.gpus}
    if len(built) == 1 and built != {""}:
        architecture = built.pop()
        why = f"judged for {architecture}: hosts with {target.gpus[0].name} have such CPUs"
        return _set_architecture(target, architecture, BUILT_IN, (why,))
    here = Platform.host().architecture
    if target.gpus and all(gpu.brand == AMD for gpu in target.gpus):
        return _set_architecture(target, here, THIS_MACHINE, ())  # what is to be said of them is another matter
    other = "arm64" if here == "amd64" else "amd64"
    notes = (f"judged for {here}, the architecture of this host; --arch {other} judges for {other}",)
    return _set_architecture(target, here, THIS_MACHINE, notes)


def _set_architecture(target: Target, architecture: str, source: str, notes: tuple[str, ...]) -> Target:
    return replace(
        target,
        architecture=architecture,
        architecture_source=source,
        cpu_features=None,
        cpu="",
        notes=(*target.notes, *notes),
    )
