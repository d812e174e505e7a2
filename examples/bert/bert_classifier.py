#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains BERT to tell FAKE from REAL news, and judges it: report, loss curve and confusion matrix.

Needs PyTorch alone; matplotlib for the plots. Without data files it writes an invented corpus. Weights begin at
random; `--pretrained` begins with BERT's own.
"""

import argparse
import contextlib
import importlib.util
import json
import pathlib
import sys
import time

import evaluation
import torch
from bert_model import SIZES, BertClassifier, WordTokenizer
from news_corpus import read_corpus, write_corpus
from pretrained import load_pretrained
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
BATCH = 16


def parse_arguments():
    """The tutorial's three options, and ours."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-d", "--device", default="cuda", help="cpu or cuda (default: cuda)")
    parser.add_argument("-o", "--output", default=".", help="output directory (default: the current one)")
    parser.add_argument(
        "-s", "--source", help="directory of the CSV files (default: that of this program, else invented)"
    )
    parser.add_argument("--size", choices=SIZES, default="small", help="of the model (default: small)")
    parser.add_argument(
        "--pretrained",
        metavar="MODEL",
        help="directory with config.json, vocab.txt and model.safetensors; or a name to download, bert-base-uncased",
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=BATCH, help=f"texts a step (default: {BATCH})")
    parser.add_argument("--length", type=int, default=128, help="tokens of a text (default: 128)")
    parser.add_argument("--rate", type=float, help="learning rate (default: 2e-4, with --pretrained 2e-5)")
    parser.add_argument("--bf16", action="store_true", help="multiply in bfloat16")
    parser.add_argument("--report", metavar="FILE", help="write times and accuracy there, as JSON")
    return parser.parse_args()


def find_source(arguments):
    """The directory of the data; writes the invented corpus to the output directory if there is none."""
    if arguments.source:
        return pathlib.Path(arguments.source)
    if (HERE / "train.csv").exists():
        return HERE
    folder = pathlib.Path(arguments.output) / "corpus"
    if not (folder / "test.csv").exists():
        write_corpus(folder)
    return folder


def choose_device(name):
    """The device, or an end that says what is missing."""
    if name.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("bert_classifier.py: no GPU is visible. Use kedge exec --nv on a node with a GPU, or -d cpu")
    return torch.device(name)


class Trainer:
    """Model, data and device of a run."""

    def __init__(self, arguments, device, data, model):
        self.arguments, self.device, self.model = arguments, device, model.to(device)
        self.data = {name: (labels.to(device), words.to(device)) for name, (labels, words) in data.items()}
        rate = arguments.rate or (2e-5 if arguments.pretrained else 2e-4)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate)
        self.per_epoch = -(-len(data["train"][0]) // arguments.batch)
        self.steps = self.per_epoch * arguments.epochs
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, rate, self.steps, pct_start=0.2)
        self.curve = {"steps": [], "training": [], "validation": []}
        self.epoch_seconds = []  # without validation

    def autocast(self):
        """bfloat16 where it is asked for."""
        if self.arguments.bf16:
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def batches(self, name, shuffle=False):
        """Labels and words, a batch at a time."""
        labels, words = self.data[name]
        order = torch.randperm(len(labels), device=self.device) if shuffle else torch.arange(len(labels))
        for part in order.to(self.device).split(self.arguments.batch):
            yield labels[part], words[part]

    def train(self):
        """All epochs; validates twice an epoch and keeps the best model."""
        every, step, losses, best = max(1, self.per_epoch // 2), 0, [], float("inf")
        for epoch in range(1, self.arguments.epochs + 1):
            started, spent = self.now(), 0.0
            for labels, words in self.batches("train", shuffle=True):
                losses.append(self.take_step(labels, words))
                step += 1
                if step % every == 0:
                    spent += self.now() - started
                    best = self.validate(epoch, step, losses, best)
                    losses, started = [], self.now()
            self.epoch_seconds.append(spent + self.now() - started)

    def take_step(self, labels, words):
        """One batch; returns its loss, still on the device."""
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            loss = nn.functional.cross_entropy(self.model(words), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()

    def validate(self, epoch, step, losses, best):
        """Print and keep both losses; save the model if it is the best so far."""
        training = torch.stack(losses).mean().item()
        scores, labels = self.answer("valid")
        validation = nn.functional.cross_entropy(scores, labels).item()
        for name, value in (("steps", step), ("training", training), ("validation", validation)):
            self.curve[name].append(value)
        place = f"Epoch [{epoch}/{self.arguments.epochs}], Step [{step}/{self.steps}]"
        print(f"{place}, Train Loss: {training:.4f}, Valid Loss: {validation:.4f}", flush=True)
        if validation < best:
            self.save("model.pt", self.model.state_dict())
            self.save("metrics.pt", self.curve)
        return min(best, validation)

    def save(self, name, content):
        """A file in the output directory."""
        path = pathlib.Path(self.arguments.output) / name
        torch.save(content, path)
        print(f"Model saved to ==> {path}", flush=True)

    @torch.no_grad()
    def answer(self, name):
        """Scores of a set of texts, and the truth."""
        self.model.eval()
        scores = []
        for _, words in self.batches(name):
            with self.autocast():
                scores.append(self.model(words).float())
        return torch.cat(scores), self.data[name][0]

    def now(self):
        """Seconds, when the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def prepare(arguments):
    """Texts as numbers, and the model."""
    source = find_source(arguments)
    texts = {name: read_corpus(source / f"{name}.csv") for name in ("train", "valid", "test")}
    print(f"Building tokenizer from '{arguments.pretrained or source / 'train.csv'}'", flush=True)
    torch.manual_seed(0)
    if arguments.pretrained:
        tokenizer, model = load_pretrained(arguments.pretrained, arguments.length)
    else:
        tokenizer = WordTokenizer(texts["train"][1])
        model = BertClassifier(len(tokenizer), arguments.length, SIZES[arguments.size])
    print("Creating tabular datasets", flush=True)
    data = {
        name: (torch.tensor(labels), tokenizer.encode(rows, arguments.length)) for name, (labels, rows) in texts.items()
    }
    return data, model


def draw(trainer, counts):
    """Both plots, if matplotlib is there."""
    if importlib.util.find_spec("matplotlib") is None:
        print("matplotlib is not installed: no plots")
        return
    folder, curve = pathlib.Path(trainer.arguments.output), trainer.curve
    path = folder / "loss_v_global_steps.png"
    evaluation.plot_losses(curve["steps"], curve["training"], curve["validation"], path)
    print(f"Plot of loss vs. global steps saved as {path}")
    evaluation.plot_confusion(counts, folder / "confusion_matrix.png")
    print(f"Confusion matrix saved as {folder / 'confusion_matrix.png'}")


def main():
    """Train, judge, draw."""
    arguments = parse_arguments()
    device = choose_device(arguments.device)
    pathlib.Path(arguments.output).mkdir(parents=True, exist_ok=True)
    data, model = prepare(arguments)
    print(f"Creating BERT model: {sum(part.numel() for part in model.parameters()) / 1e6:.1f} M parameters", flush=True)
    trainer = Trainer(arguments, device, data, model)
    print("Start Training...", flush=True)
    trainer.train()
    print("Finished Training!", flush=True)
    best = pathlib.Path(arguments.output) / "model.pt"
    print(f"Evaluating the model\nModel loaded from <== {best}", flush=True)
    trainer.model.load_state_dict(torch.load(best, map_location=device, weights_only=True))
    scores, labels = trainer.answer("test")
    counts = evaluation.count_pairs(labels.tolist(), scores.argmax(1).tolist())
    print(f"Classification Report:\n{evaluation.write_report(counts)}\n", flush=True)
    draw(trainer, counts)
    seconds = sum(trainer.epoch_seconds)
    rate = len(data["train"][0]) * arguments.epochs / seconds
    print(f"Training: {rate:.1f} texts/s, {1000 * seconds / trainer.steps:.2f} ms a step")
    if arguments.report:
        facts = {"steps": trainer.steps, "epoch_seconds": trainer.epoch_seconds, "texts_per_second": rate}
        facts |= {"accuracy": evaluation.accuracy(counts), "curve": trainer.curve}
        pathlib.Path(arguments.report).write_text(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
