# SPDX-License-Identifier: BSD-3-Clause
"""A Dockerfile read as far as it can be without any value: its instructions, stage by stage."""

from __future__ import annotations

from kedge.base.frozen import frozen
from kedge.builds.dockerfile.instructions import ArgInstruction, FromInstruction, Instruction, read_instruction
from kedge.builds.dockerfile.syntax import DockerfileSyntax, read_syntax
from kedge.builds.step_values import refuse_recipe

_BEGIN = "begin with FROM and the base image"


@frozen
class StageContent:
    """A FROM and the instructions behind it."""

    beginning: FromInstruction
    instructions: tuple[Instruction, ...]


@frozen
class DockerfileContent:
    """A whole file: the ARGs before the first FROM, then the stages."""

    syntax: DockerfileSyntax
    arguments: tuple[ArgInstruction, ...]
    stages: tuple[StageContent, ...]


def read_content(text: str, file: str = "Dockerfile") -> DockerfileContent:
    """The instructions of a Dockerfile; raises InvalidRecipe with the place of the first mistake."""
    syntax = read_syntax(text, file)
    arguments: list[ArgInstruction] = []
    groups: list[tuple[FromInstruction, list[Instruction]]] = []
    for instruction in map(read_instruction, syntax.nodes):
        if isinstance(instruction, FromInstruction):
            groups.append((instruction, []))
        elif groups:
            groups[-1][1].append(instruction)
        elif isinstance(instruction, ArgInstruction):
            arguments.append(instruction)
        else:
            message = f"{instruction.node.keyword} stands before the first FROM"
            raise refuse_recipe(instruction.node.place, message, _BEGIN)
    if not groups:
        raise refuse_recipe(syntax.nodes[-1].place, "no FROM in this file", _BEGIN)
    stages = tuple(StageContent(beginning, tuple(others)) for beginning, others in groups)
    return DockerfileContent(syntax, tuple(arguments), stages)
