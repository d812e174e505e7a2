# SPDX-License-Identifier: BSD-3-Clause
"""A Dockerfile as a definition file.

Definition files have no stage on top of a stage: what such a stage is based on is written into it again. Files of
other images come from a stage of their own. All files are copied before %post, wherever COPY stands.
"""

from __future__ import annotations

import re
from copy import deepcopy

from kedge.builds.convert.notes import ConvertedRecipe, NoteTaker
from kedge.builds.convert.quoting import join_literal, read_dockerfile_value
from kedge.builds.convert.stage_to_definition import DefinitionDraft, DraftWriter
from kedge.builds.definition.arguments import list_arguments
from kedge.builds.dockerfile.expand import ExpansionBudget
from kedge.builds.dockerfile.instructions import (
    ArgInstruction,
    CopyInstruction,
    FromInstruction,
    Instruction,
    read_instruction,
)
from kedge.builds.dockerfile.syntax import read_syntax
from kedge.builds.step_values import RecipePlace, refuse_recipe


def convert_to_definition(text: str, name: str) -> ConvertedRecipe:
    """Print a Dockerfile as a definition file."""
    syntax = read_syntax(text, name)
    converter = _Converter(name, text, syntax.escape)
    for node in syntax.nodes:
        converter.add(read_instruction(node))
    return converter.finish()


class _Converter:
    """Goes through the instructions of a file."""

    def __init__(self, name: str, text: str, escape: str) -> None:
        self.lines = text.removeprefix("\ufeff").split("\n")
        self.escape = escape
        self.notes = NoteTaker(name)
        self.globals: dict[str, str] = {}
        self.budget = ExpansionBudget()
        self.writers: list[DraftWriter] = []
        self.names: dict[str, int] = {}
        self.images: dict[str, str] = {}  # images that files are copied from, and the names of their stages
        self.wanted: set[int] = set()  # stages that files are copied from
        self.parents: dict[int, int] = {}  # stages that are based on others
        self.comments: list[str] = []  # before the next FROM

    def add(self, instruction: Instruction) -> None:
        """Take one instruction."""
        if isinstance(instruction, FromInstruction):
            self._begin(instruction)
        elif not self.writers:
            if not isinstance(instruction, ArgInstruction):
                place = instruction.node.place
                raise refuse_recipe(place, f"{instruction.node.keyword} stands before the first FROM")
            self.comments += [f"# {comment}".rstrip() for comment in instruction.node.line.comments]
            for key, value in instruction.arguments:
                self.globals[key] = join_literal(read_dockerfile_value(value or "", self.escape))
        else:
            if isinstance(instruction, CopyInstruction) and instruction.origin:
                self.writers[-1].origin = self._find_origin(instruction.origin)
            self.writers[-1].add(instruction)

    def _begin(self, instruction: FromInstruction) -> None:
        """A stage: on a base, or on a copy of what an earlier one has collected."""
        parent = self.names.get(instruction.image.lower())
        draft = deepcopy(self.writers[parent].draft) if parent is not None else DefinitionDraft()
        writer = DraftWriter(draft, self.notes, self.lines, self.escape)
        if parent is not None:
            self.parents[len(self.writers)] = parent
            writer.inherit(self.writers[parent])
            draft.header = [line for line in draft.header if not line.startswith("Stage: ")]
        writer.globals = self.globals
        writer.budget = self.budget
        writer.line = instruction.node.place.line
        draft.comments += [*self.comments, *(f"# {comment}".rstrip() for comment in instruction.node.line.comments)]
        self.comments = []
        if parent is None:
            writer.set_base(instruction)
        if instruction.name:
            draft.header.append(f"Stage: {instruction.name}")
            self.names[instruction.name] = len(self.writers)
        self.writers.append(writer)

    def _find_origin(self, name: str) -> str:
        """The name of the stage that `--from` means."""
        index = int(name) if re.fullmatch("[0-9]{1,4}", name) else self.names.get(name.lower(), -1)
        if 0 <= index < len(self.writers) - 1:
            self.wanted.add(index)
            return self._name_stage(index)
        return self.images.setdefault(name, f"image-{len(self.images)}")

    def _name_stage(self, index: int) -> str:
        """The name of a stage; one that had none gets its number."""
        header = self.writers[index].draft.header
        for line in header:
            if line.startswith("Stage: "):
                return line.removeprefix("Stage: ")
        header.append(f"Stage: stage-{index}")
        return f"stage-{index}"

    def _list_parents(self) -> set[int]:
        """The stages that are written into another one which is printed."""
        parents: set[int] = set()
        for index in (*self.wanted, len(self.writers) - 1):
            while index in self.parents:
                index = self.parents[index]
                parents.add(index)
        return parents

    def finish(self) -> ConvertedRecipe:
        """The whole text."""
        if not self.writers:
            place = self.notes.file
            raise refuse_recipe(RecipePlace(place, 1), "no FROM in this file")
        stages = [f"Bootstrap: docker\nFrom: {image}\nStage: {name}\n" for image, name in self.images.items()]
        last = len(self.writers) - 1
        for index, writer in enumerate(self.writers):
            if index == last or index in self.wanted:
                writer.close(is_last=index == last)
                stages.append(_print(writer.draft, is_last=index == last))
            elif index not in self._list_parents():
                self.notes.add(writer.line, "this stage is left out: the last one does not need it")
        return ConvertedRecipe("definition", "\n".join(stages), tuple(self.notes.notes))


def _print(draft: DefinitionDraft, *, is_last: bool) -> str:
    """The text of a stage; braces of other programs become arguments that stand for themselves."""
    text = draft.print(is_last=is_last)
    others = [name for name in list_arguments(text) if name not in draft.arguments]
    if not others:
        return text
    draft.arguments |= {name: f"{{{{ {name} }}}}" for name in others}
    return draft.print(is_last=is_last)
