# SPDX-License-Identifier: BSD-3-Clause
"""Images written down as tables, and the payload that is planned for them."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.container.facts import Additions, HostFacts, ImageFacts, Payload
from kedge.container.flags import collect_binds
from kedge.container.options import RunOptions
from kedge.container.payload import plan_payload
from kedge.image.formats.singularityd import fixed_files
from kedge.image.formats.singularityd.scripts import render_environment, render_runscript
from kedge.system.views import TableView

PROGRAMS = ("/bin/sh", "/bin/bash", "/bin/true", "/bin/busybox")
ENV = "/.singularity.d/env/"


def make_image(
    *variables: str,
    environment: str = "",
    entrypoint: tuple[str, ...] = (),
    command: tuple[str, ...] = ("/bin/sh",),
    shells: tuple[str, ...] = ("/bin/sh", "/bin/bash"),
    more: Mapping[str, bytes | str | None] | None = None,
    config: bytes = b"",
) -> ImageFacts:
    """An image as kedge makes it from an OCI image with these ENV entries, ENTRYPOINT and CMD."""
    entries: dict[str, bytes | str | None] = {ENV + name: text for name, text in fixed_files.ENVIRONMENT.items()}
    entries[ENV + fixed_files.OCI_ENVIRONMENT] = render_environment(list(variables))[0]
    custom = fixed_files.ENVIRONMENT[fixed_files.CUSTOM_ENVIRONMENT]
    entries[ENV + fixed_files.CUSTOM_ENVIRONMENT] = f"{custom}{environment}\n"
    entries["/.singularity.d/runscript"] = render_runscript(entrypoint, command)
    entries["/.singularity.d/startscript"] = fixed_files.STARTSCRIPT
    entries.update({path: b"\x7fELF" for path in shells})
    entries.update(more or {})
    executables = tuple(path for path in PROGRAMS if path in entries)
    return ImageFacts(view=TableView(entries, executables), path="/images/thing.sif", oci_config=config)


def make_plain_image(
    entries: Mapping[str, bytes | str | None], *, executables: tuple[str, ...] = PROGRAMS, config: bytes = b""
) -> ImageFacts:
    """A directory that no container tool made."""
    return ImageFacts(view=TableView(entries, executables), path="/images/plain", oci_config=config)


def make_host(environ: Mapping[str, str] | None = None, **facts: object) -> HostFacts:
    """A host with these variables; its files are a table too."""
    facts.setdefault("view", TableView({"/home/user": None}))
    return HostFacts(environ={"PATH": "/usr/bin", **(environ or {})}, **facts)  # type: ignore[arg-type]


def plan(
    image: ImageFacts,
    environ: Mapping[str, str] | None = None,
    *words: str,
    additions: Additions | None = None,
    host: HostFacts | None = None,
    **options: object,
) -> Payload:
    """The payload for `exec` of these words, or for another verb."""
    values = {"verb": "exec", "image": "thing.sif", "arguments": list(words) or ["env"], **options}
    asked, host = RunOptions(**values), host or make_host(environ)
    return plan_payload(asked, host, image, additions or Additions(), collect_binds(asked, host.environ, host.cwd))
