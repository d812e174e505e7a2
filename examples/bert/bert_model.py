# SPDX-License-Identifier: BSD-3-Clause
"""BERT as a classifier, in plain PyTorch: its encoder, its pooler and two classes; and a tokenizer of whole words."""

import collections
import re

import torch
from torch import nn

PAD, UNKNOWN, FIRST, LAST = range(4)  # [PAD] [UNK] [CLS] [SEP]
# layers, width and heads; base is BERT-base
SIZES = {"tiny": (2, 64, 2), "small": (4, 256, 4), "base": (12, 768, 12)}


class WordTokenizer:
    """Numbers for the words of the training texts; all others are one unknown word."""

    def __init__(self, texts, most=30522):
        counts = collections.Counter(word for text in texts for word in self._split(text))
        words = [word for word, _ in counts.most_common(most - 4)]
        self.numbers = {word: number for number, word in enumerate(words, start=4)}

    def __len__(self):
        return len(self.numbers) + 4

    def encode(self, texts, length):
        """A tensor of `length` numbers a text, padded or cut."""
        rows = torch.full((len(texts), length), PAD)
        for row, text in zip(rows, texts):
            words = [self.numbers.get(word, UNKNOWN) for word in self._split(text)[: length - 2]]
            row[: len(words) + 2] = torch.tensor([FIRST, *words, LAST])
        return rows

    @staticmethod
    def _split(text):
        return re.findall(r"[\w'-]+|[^\w\s]", text.lower())


class BertClassifier(nn.Module):
    """Embeddings, encoder layers with the norm after each part and GELU, a pooler over [CLS], two classes."""

    def __init__(self, words, length, shape=SIZES["small"], dropout=0.1):
        super().__init__()
        layers, width, heads = shape
        self.word = nn.Embedding(words, width, padding_idx=PAD)
        self.place = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.drop = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout, "gelu", layer_norm_eps=1e-12, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.pooler = nn.Linear(width, width)
        self.classes = nn.Linear(width, 2)
        self.apply(self._begin)

    @staticmethod
    def _begin(part):
        """BERT's first weights: normal, 0.02 wide."""
        if isinstance(part, (nn.Linear, nn.Embedding)):
            nn.init.normal_(part.weight, std=0.02)
        if isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)

    def forward(self, words):
        """Scores of both classes."""
        places = torch.arange(words.shape[1], device=words.device)
        state = self.drop(self.norm(self.word(words) + self.place(places)))
        state = self.encoder(state, src_key_padding_mask=words == PAD)
        return self.classes(self.drop(torch.tanh(self.pooler(state[:, 0]))))
