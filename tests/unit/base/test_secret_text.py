# SPDX-License-Identifier: BSD-3-Clause
"""Secrets in commands: found, and never shown."""

from __future__ import annotations

from kedge.base.secret_text import mask_words


def test_mask_words_hides_values_of_secret_options_and_keeps_others() -> None:
    words = ["train.py", "--lr=0.1", "--api-token", "abc", "--password=x", "-p", "8080", "HF_TOKEN=geheim123"]
    words += ["https://ada:pw@host/x", "Authorization: Bearer abcdefgh12345"]
    assert mask_words(words) == [
        *("train.py", "--lr=0.1", "--api-token", "***", "--password=***", "-p", "8080", "HF_TOKEN=***"),
        *("https://ada:***@host/x", "Authorization: Bearer ***"),
    ]
