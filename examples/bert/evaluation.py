# SPDX-License-Identifier: BSD-3-Clause
"""What a classifier's answers are worth: the classification report, the loss curve and the confusion matrix."""

NAMES = {1: "FAKE", 0: "REAL"}
LABELS = (1, 0)


def count_pairs(truth, answers):
    """How often label `a` was answered for label `t`: {(t, a): count}."""
    counts = {(t, a): 0 for t in LABELS for a in LABELS}
    for pair in zip(truth, answers):
        counts[pair] += 1
    return counts


def score_label(counts, label):
    """Precision, recall, F1 and support of a label."""
    right = counts[label, label]
    answered = sum(counts[t, label] for t in LABELS)
    support = sum(counts[label, a] for a in LABELS)
    precision, recall = right / answered if answered else 0.0, right / support if support else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return precision, recall, f1, support


def accuracy(counts):
    """The share of right answers."""
    return sum(counts[label, label] for label in LABELS) / sum(counts.values())


def write_report(counts):
    """The classification report, in the columns that scikit-learn prints."""
    scores = {label: score_label(counts, label) for label in LABELS}
    total = sum(counts.values())
    lines = [f"{'':12}  {'precision':>9} {'recall':>9} {'f1-score':>9} {'support':>9}", ""]
    lines += [_write_row(str(label), *scores[label]) for label in LABELS]
    lines += ["", f"{'accuracy':>12}  {'':9} {'':9} {accuracy(counts):9.4f} {total:9}"]
    macro = [sum(scores[label][part] for label in LABELS) / len(LABELS) for part in range(3)]
    weighted = [sum(scores[label][part] * scores[label][3] for label in LABELS) / total for part in range(3)]
    lines += [_write_row("macro avg", *macro, total), _write_row("weighted avg", *weighted, total)]
    return "\n".join(lines)


def _write_row(name, precision, recall, f1, support):
    return f"{name:>12}  {precision:9.4f} {recall:9.4f} {f1:9.4f} {support:9}"


def plot_losses(steps, training, validation, path):
    """Loss of training and validation over the steps."""
    axes = _open_plot((7, 4.2))
    axes.plot(steps, training, marker="o", label="training")
    axes.plot(steps, validation, marker="s", label="validation")
    axes.set(xlabel="global step (batches)", ylabel="cross-entropy loss (nats)", title="BERT classifier: loss")
    axes.set_ylim(0, 1.1 * max(*training, *validation))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend()
    _save(axes, path)


def plot_confusion(counts, path):
    """Counts by true and predicted label; the colour is the share of the true label."""
    share = [[counts[t, a] / max(1, sum(counts[t, b] for b in LABELS)) for a in LABELS] for t in LABELS]
    axes = _open_plot((4.8, 4.2))
    picture = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    for row, t in enumerate(LABELS):
        for column, a in enumerate(LABELS):
            colour = "white" if share[row][column] > 0.5 else "black"
            text = f"{counts[t, a]}\n{share[row][column]:.1%}"
            axes.text(column, row, text, ha="center", va="center", color=colour)
    names = [NAMES[label] for label in LABELS]
    axes.set(xticks=(0, 1), yticks=(0, 1), xticklabels=names, yticklabels=names)
    axes.set(xlabel="predicted label", ylabel="true label", title="Confusion matrix (texts)")
    axes.figure.colorbar(picture, label="share of the true label")
    _save(axes, path)


def _open_plot(size):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")[1]


def _save(axes, path):
    axes.figure.savefig(path, dpi=150)
