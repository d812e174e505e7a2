# SPDX-License-Identifier: BSD-3-Clause
"""BuildKit's own checks of Dockerfiles, under the names `docker build` prints; `# check=skip=NAME` counts here too."""

from __future__ import annotations

from collections.abc import Iterator

from kedge.builds.dockerfile.checks import check_content, read_content
from kedge.builds.lint.recipe_view import NOTE, LintFinding, LintRecipe

# The reason, and the better line. Secrets have rules of their own.
_RULES = {
    "NoEmptyContinuation": ("docker build will refuse it some day", "remove the empty line"),
    "MaintainerDeprecated": ("MAINTAINER is deprecated", 'LABEL org.opencontainers.image.authors="NAME"'),
    "ConsistentInstructionCasing": ("one case is easier to read", "write all instructions in the same case"),
    "StageNameCasing": ("the names of stages count in lower case", "write the name in lower case"),
    "FromAsCasing": ("one case is easier to read", "FROM IMAGE AS NAME"),
    "ReservedStageName": ("FROM and --from would mean something else", "give the stage another name"),
    "DuplicateStageName": ("--from means the last stage of a name", "give every stage a name of its own"),
    "UndefinedArgInFrom": ("FROM sees only an ARG that stands before the first FROM", "ARG NAME=DEFAULT before FROM"),
    "InvalidDefaultArgInFrom": ("the build fails without --build-arg", "give the ARG a default"),
    "RedundantTargetPlatform": ("the target platform is the default", "leave out --platform"),
    "FromPlatformFlagConstDisallowed": (
        "--platform of the build is ignored there",
        "leave it out and build with --platform, or name the stage after the platform",
    ),
    "MultipleInstructionsDisallowed": ("only the last one of a stage counts", "remove this one"),
    "WorkdirRelativePath": ("the base image may change its directory", "WORKDIR /PATH"),
    "JSONArgsRecommended": (
        "a shell in between does not pass signals on, so the program is not stopped in an orderly way",
        'write an array: ["PROGRAM", "ARGUMENT"]',
    ),
    "LegacyKeyValueFormat": ("all words behind the name are its value", "NAME=VALUE"),
    "ExposeProtoCasing": ("protocols are written in lower case", "EXPOSE 80/tcp"),
    "ExposeInvalidFormat": ("ports of the host are chosen when the image runs", "EXPOSE 80"),
}


def check_dockerfile(recipe: LintRecipe) -> Iterator[LintFinding]:
    """The findings of BuildKit's checks; none for definition files."""
    if recipe.kind != "dockerfile":
        return
    for warning in check_content(read_content(recipe.text, recipe.name)):
        if warning.rule in _RULES:
            reason, better = _RULES[warning.rule]
            yield LintFinding(warning.place, warning.rule, NOTE, warning.message, reason=reason, better=better)
