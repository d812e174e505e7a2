# SPDX-License-Identifier: BSD-3-Clause
"""The example's BERT beside Hugging Face's transformers: the same pieces, the same answers. Needs both, and no GPU.

compare_bert.py: transformers saves a BERT with random weights; examples/bert/pretrained.py reads it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(REPOSITORY / "examples/bert"), str(REPOSITORY)]
import torch  # noqa: E402
from pretrained import load_pretrained  # noqa: E402
from tests.builders.small_datasets import PIECES  # noqa: E402
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer  # noqa: E402

TEXTS = [
    *("Shocking Cafés, the\tNEWS!世界", "", "  the   report's  ", "a" * 101, "naïve façade ÅNGSTRÖM İstanbul"),
    *(
        "x\u0000y\ufffdz\u200b soft\u00adhyphen",
        "$5.00 + 3^2 = `14` ~ ok?",
        "日本語 テスト 한국어",
        "e-mail@example.org",
        "ß ﬁ Ⅳ ½",
    ),
]


def main() -> int:
    """Compare both; 1 where they differ."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pieces = dict.fromkeys(
            [*PIECES, *(chr(code) for code in range(33, 127)), *(f"##{chr(c)}" for c in range(97, 123))]
        )
        (folder / "vocab.txt").write_text("\n".join([*pieces, ""]), encoding="utf-8")
        torch.manual_seed(1)
        config = BertConfig(vocab_size=len(pieces), num_hidden_layers=3, max_position_embeddings=64, num_labels=2)
        theirs = BertForSequenceClassification(config).eval()
        with torch.no_grad():
            for value in theirs.parameters():
                value += 0.05 * torch.randn_like(value)  # also the biases, which begin at zero
        theirs.save_pretrained(folder)
        tokenizer, ours = load_pretrained(str(folder), 64)
        reference = BertTokenizer(str(folder / "vocab.txt"), do_lower_case=True)
        numbers = tokenizer.encode(TEXTS, 64)
        words = reference(TEXTS, padding="max_length", truncation=True, max_length=64, return_tensors="pt")
        wrong = [text for text, a, b in zip(TEXTS, numbers, words["input_ids"], strict=True) if not torch.equal(a, b)]
        with torch.no_grad():
            mask = (numbers != 0).long()
            difference = (
                (ours.eval()(numbers) - theirs(input_ids=numbers, attention_mask=mask).logits).abs().max().item()
            )
    sys.stdout.write(f"texts cut differently: {wrong}\nlargest difference of answers: {difference:.2e}\n")
    return 1 if wrong or difference > 1e-4 else 0


if __name__ == "__main__":
    sys.exit(main())
