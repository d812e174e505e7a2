# SPDX-License-Identifier: BSD-3-Clause
"""`kedge help [TOPIC [SECTION]]`: lists the guides, and shows one of them or a verb's options in the terminal."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from kedge.base.nearest import propose
from kedge.cli.options import find_subcommands
from kedge.cli.topics import GUIDES, TASKS, TOPICS, list_sections, read_topic
from kedge.cli.verbs import VERBS
from kedge.errors import UsageError

if TYPE_CHECKING:
    from kedge.cli.console import Console

_WIDEST = 100  # columns; longer lines are hard to read
_UNSEEN = re.compile(r"<!--.*?-->\n?|^!\[[^]]*\]\([^)]*\)\n\n?", re.DOTALL | re.MULTILINE)  # comments, pictures
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def configure(parser: argparse.ArgumentParser) -> None:
    """The topic."""
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="a guide or a verb; without it: list all guides")
    parser.add_argument("section", metavar="SECTION", nargs="*", help="a section of the guide, or a subcommand")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show the list, a guide, a section of it, or the options of a verb."""
    if arguments.topic is None:
        return _list_topics(console)
    if arguments.topic in TOPICS and not console.options.shim:
        return _show_guide(arguments.topic, arguments.section, console)
    if arguments.topic in VERBS:
        return _show_options([*(["--shim"] if console.options.shim else []), arguments.topic, *arguments.section])
    hint = propose(arguments.topic, [*TOPICS, *VERBS]) or "to list the topics: kedge help"
    raise UsageError(f"kedge has no help on '{arguments.topic}'", hint=hint)


def _list_topics(console: Console) -> int:
    if console.json:
        console.print_json({"topics": [{"topic": topic, "about": line} for topic, (_, line) in TOPICS.items()]})
        return 0
    for title, topics in (("Tasks, shown by 'kedge help TOPIC':", TASKS), ("\nGuides and reference:", GUIDES)):
        console.print(f"{title}\n")
        for topic, (_, line) in topics.items():
            console.print(f"  {topic:<17} {line}")
    console.print("\nOptions of a verb: kedge VERB --help. All verbs: kedge --help")
    return 0


def _list_subcommands(verb: str) -> list[str]:
    from kedge.cli.main import make_parser  # late: few words behind a topic are no section

    return list(find_subcommands(make_parser(verb)))


def _show_options(words: list[str]) -> int:
    from kedge.cli.entry import main  # late: a verb of its own

    return main([*words, "--help"])


def _show_guide(topic: str, words: list[str], console: Console) -> int:
    text = read_topic(topic)
    if words:
        section = "-".join(words).lstrip("#").lower()
        sections = list_sections(text)
        if section not in sections and topic in VERBS and words[0] in _list_subcommands(topic):
            return _show_options([topic, *words])
        if section not in sections:
            hint = propose(section, sections) or f"to read the whole guide: kedge help {topic}"
            raise UsageError(f"the guide '{topic}' has no section '{' '.join(words)}'", hint=hint)
        text = sections[section]
    if console.json:
        console.print_json({"topic": topic, "text": text})
        return 0
    console.page_markdown(resolve_links(text, topic), widest=_WIDEST)
    return 0


def resolve_links(text: str, topic: str) -> str:
    """The text without pictures, and with commands instead of links, which a terminal cannot follow."""
    pages = {page.rpartition("/")[2]: name for name, (page, _) in TOPICS.items()}

    def replace(link: re.Match[str]) -> str:
        label, target = link[1], link[2]
        if "://" in target:
            return link[0]
        page, _, anchor = target.rpartition("/")[2].partition("#")
        name = pages.get(page) if page else topic
        command = f"`kedge help {name}{' ' if anchor else ''}{anchor}`"
        return label if name is None else f"{label} ({command})"

    return _LINK.sub(replace, _UNSEEN.sub("", text))
