# SPDX-License-Identifier: BSD-3-Clause
"""Values: references, digests, sizes, times, names. No input or output."""

# The modules that other rooms import; tests/architecture/test_imports.py holds them to it.
PUBLIC = (
    "counting",
    "digest",
    "duration",
    "frozen",
    "image_argument",
    "image_format",
    "image_name",
    "login_sources",
    "manifest",
    "nearest",
    "owner_records",
    "packed_blocks",
    "patterns",
    "plain_enum",
    "platform",
    "progress",
    "rank_variables",
    "reference",
    "release",
    "secret_text",
    "setting_values",
    "shell_text",
    "size",
    "toml_text",
    "tree",
    "versions",
    "words_of_other_tools",
    "yaml_text",
)
