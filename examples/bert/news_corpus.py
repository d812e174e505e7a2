#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes a corpus of short invented news: train.csv, valid.csv and test.csv with label, title, text and titletext.

Label 1 is FAKE, 0 is REAL. The words of both kinds overlap, so that no single word decides. Sizes are those of the
tutorial's data: 502, 127 and 5670 rows. The same seed gives the same files.
"""

import argparse
import csv
import pathlib
import random

SIZES = {"train": 502, "valid": 127, "test": 5670}
PEOPLE = ("the mayor", "a senator", "the minister", "a doctor", "an engineer", "the council", "a farmer", "the bank")
PLACES = ("harbour", "capital", "valley", "university", "hospital", "village", "factory", "parliament", "border")
TOPICS = ("budget", "election", "vaccine", "bridge", "climate", "school", "trade", "energy", "water", "housing")
SOBER = (
    *("said", "reported", "according", "published", "measured", "agreed", "estimated", "confirmed", "per cent"),
    *("committee", "statement", "figures", "spokesperson", "quarter", "survey", "revised", "report", "officials"),
)
LOUD = (
    *("shocking", "secret", "exposed", "they", "never", "truth", "hidden", "unbelievable", "everyone", "destroyed"),
    *("miracle", "hoax", "wake", "elite", "banned", "share", "proof", "insane", "cover-up", "admits"),
)
COMMON = (
    *("on", "about", "the", "after", "before", "new", "plan", "during", "with", "for", "people", "year", "city"),
    *("week", "in", "over", "more", "against", "between", "next", "day", "work", "group", "home", "money"),
)
_OWN, _OTHER = 0.30, 0.12  # shares of words of the row's own kind and of the other kind


def write_text(rng, label, words):
    """Words of one row: most belong to both kinds."""
    own, other = (LOUD, SOBER) if label else (SOBER, LOUD)
    text = [rng.choice(PEOPLE), rng.choice(TOPICS)]
    while len(text) < words:
        draw = rng.random()
        kind = own if draw < _OWN else other if draw < _OWN + _OTHER else COMMON if draw < 0.8 else TOPICS + PLACES
        text.append(rng.choice(kind))
    return " ".join(text)


def make_rows(rng, count, longest):
    """Rows of both labels, half each."""
    rows = []
    for number in range(count):
        label = number % 2
        title = write_text(rng, label, rng.randint(6, 10))
        text = write_text(rng, label, rng.randint(longest // 2, longest))
        rows.append((label, title, text, f"{title} . {text}"))
    rng.shuffle(rows)
    return rows


def write_corpus(folder, longest=80, seed=7, **sizes):
    """The three files in `folder`; sizes by name replace the tutorial's."""
    rng = random.Random(seed)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in {**SIZES, **sizes}.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("label", "title", "text", "titletext"))
            writer.writerows(make_rows(rng, count, longest))


def read_corpus(path):
    """Labels and texts of one file with the columns label (1 or 0) and titletext."""
    csv.field_size_limit(1 << 24)  # articles are longer than Python expects of a field
    labels, texts = [], []
    try:
        with pathlib.Path(path).open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                label, text = {"0": 0, "1": 1}[row["label"].strip()], row["titletext"] or ""
                labels.append(label)
                texts.append(text)
    except FileNotFoundError:
        raise SystemExit(
            f"bert_classifier.py: {path} does not exist: -s names the directory of the CSV files"
        ) from None
    except (KeyError, AttributeError):
        raise SystemExit(
            f"bert_classifier.py: {path}, row {len(labels) + 1}: needs the columns label (1 or 0) and titletext"
        ) from None
    if not labels:
        raise SystemExit(f"bert_classifier.py: {path} has no rows")
    return labels, texts


def main():
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=".", help="directory (default: the current one)")
    parser.add_argument("--longest", type=int, default=80, help="most words of a text (default: 80)")
    for name, count in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=count, help=f"rows of {name}.csv (default: {count})")
    write_corpus(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
