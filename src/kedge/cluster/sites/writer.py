# SPDX-License-Identifier: BSD-3-Clause
"""A site as the text of a profile; what is neutral is left out, so that the text says what is particular."""

from __future__ import annotations

from collections.abc import Iterator

from kedge.base.duration import shorten_duration
from kedge.base.frozen import list_defaults
from kedge.base.toml_text import write_key, write_list, write_text
from kedge.cluster.memory import shorten_memory
from kedge.cluster.site import Queue, Site
from kedge.cluster.sites.schema import QUEUE_KEYS, SITE_KEYS, Key, parse_size, parse_table, parse_time


def write_profile(site: Site, *, opening: tuple[str, ...] = ()) -> str:
    """The text; `opening` are comments above it."""
    blocks = [[f"# {line}" for line in opening]] if opening else []
    blocks.append(list(_write_keys(site, SITE_KEYS)))
    for key in SITE_KEYS.values():
        table = getattr(site, key.name)
        if key.parse is parse_table and table:
            blocks.append([f"[{key.name}]", *(f"{write_key(name)} = {write_text(value)}" for name, value in table)])
    blocks += [["[[queues]]", *_write_keys(queue, QUEUE_KEYS)] for queue in site.queues]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _write_keys(thing: Site | Queue, keys: dict[str, Key]) -> Iterator[str]:
    defaults = list_defaults(type(thing))
    for key in keys.values():
        value = getattr(thing, key.name)
        if value != defaults.get(key.name) and key.parse is not parse_table:
            yield f"{key.name} = {_write_value(key, value)}"


def _write_value(key: Key, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if key.parse is parse_size:
            return write_text(shorten_memory(value))
        return write_text(shorten_duration(value)) if key.parse is parse_time else str(value)
    if isinstance(value, tuple):
        return write_list(value)
    return write_text(str(value))
