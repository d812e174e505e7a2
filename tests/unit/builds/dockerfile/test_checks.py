# SPDX-License-Identifier: BSD-3-Clause
"""BuildKit's checks find what they are for, and can be skipped as BuildKit lets one skip them."""

from __future__ import annotations

from kedge.builds.dockerfile.checks import check_content, is_secret_name, read_content
from tests.builders.rows import each_row, with_rows
from tests.wording import assert_reads

FOUND = {
    # text: line and rule of every finding
    "FROM a\nRUN b": [],
    "FROM a AS Build": [(1, "StageNameCasing")],
    "FROM a as b": [(1, "FromAsCasing")],
    "from a AS b": [(1, "FromAsCasing")],
    "from a as b\nrun c": [],
    "FROM a\nrun b\nRUN c": [(2, "ConsistentInstructionCasing")],
    "FROM a\nRun b": [(2, "ConsistentInstructionCasing")],
    "from a\nrun b\nRUN c": [(3, "ConsistentInstructionCasing")],
    "FROM a AS x\nFROM b AS X": [(2, "DuplicateStageName"), (2, "StageNameCasing")],
    "FROM a AS scratch": [(1, "ReservedStageName")],
    "FROM a\nRUN b \\\n\n c": [(2, "NoEmptyContinuation")],
    "FROM a\nMAINTAINER b": [(2, "MaintainerDeprecated")],
    "FROM a\nCMD b": [(2, "JSONArgsRecommended")],
    'FROM a\nCMD ["b"]\nENTRYPOINT c': [(3, "JSONArgsRecommended")],
    'FROM a AS x\nSHELL ["s"]\nCMD b\nFROM x\nCMD c': [],
    "FROM a\nENV b c": [(2, "LegacyKeyValueFormat")],
    "FROM a\nLABEL b c": [(2, "LegacyKeyValueFormat")],
    "FROM a\nWORKDIR b\nWORKDIR c": [(2, "WorkdirRelativePath")],
    "FROM a AS x\nWORKDIR /b\nFROM x\nWORKDIR c": [],
    'FROM a\nCMD ["b"]\nCMD ["c"]': [(2, "MultipleInstructionsDisallowed")],
    "FROM a\nARG DB_PASSWORD\nENV api_key=1 public_key=2 KEYBOARD=3": [
        (2, "SecretsUsedInArgOrEnv"),
        (3, "SecretsUsedInArgOrEnv"),
    ],
    "FROM a\nLABEL token=1": [],
    "FROM $b": [(1, "InvalidDefaultArgInFrom"), (1, "UndefinedArgInFrom")],
    "ARG b\nFROM $b": [(2, "InvalidDefaultArgInFrom")],
    "ARG b=1\nFROM a:$b": [],
    "FROM /home/me/base.sif": [],
    "ARG b\nFROM a:$b": [(2, "InvalidDefaultArgInFrom")],
    "FROM --platform=$TARGETPLATFORM a": [(1, "RedundantTargetPlatform")],
    "FROM --platform=$BUILDPLATFORM a": [],
    "FROM --platform=linux/amd64 a": [(1, "FromPlatformFlagConstDisallowed")],
    "FROM --platform=linux/amd64 a AS for-amd64": [],
    "FROM a\nEXPOSE 80/TCP": [(2, "ExposeProtoCasing")],
    "FROM a\nEXPOSE 80:80": [(2, "ExposeInvalidFormat")],
    "FROM ${a": [],
    "# check=skip=JSONArgsRecommended, StageNameCasing\nFROM a AS B\nCMD c": [(2, "StageNameCasing")],
    "# check=skip=JSONArgsRecommended,StageNameCasing;error=true\nFROM a AS B\nCMD c": [],
    "# check=skip=all\nFROM a AS B\nCMD c": [],
    "FROM a\n# check=skip=JSONArgsRecommended\nCMD c\nENTRYPOINT d": [(4, "JSONArgsRecommended")],
}


@each_row("text", FOUND)
def test_checks_find(text: str) -> None:
    warnings = check_content(read_content(text))
    assert [(warning.place.line, warning.rule) for warning in warnings] == FOUND[text]


def test_checks_are_shown_with_place_and_rule() -> None:
    (warning,) = check_content(read_content("FROM a\nENV b c", "D"))
    assert_reads(str(warning), "build/d-write-env-b-value")


@with_rows(
    ("TOKEN", 1), ("github_token", 1), ("AUTH", 1), ("key_file", 0), ("TOKEN_VERSION", 0), ("tokens", 0), ("PATH", 0)
)
def test_checks_names_of_secrets(name: str, is_one: int) -> None:
    assert is_secret_name(name) == bool(is_one)
