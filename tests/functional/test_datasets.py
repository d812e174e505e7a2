# SPDX-License-Identifier: BSD-3-Clause
"""The page about data, and the examples on real data: ImageNet's pictures and archives, MNIST's files, BERT's weights.

Small sets in the true formats; as an ordinary user, in containers, with the tutorials' own options.
"""

from __future__ import annotations

import functools
import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import small_datasets as small
from tests.builders.containers import give_to
from tests.builders.documents import read_tool_files, read_tool_steps
from tests.builders.pypi_tools import require_tool
from tests.builders.pytorch_standin import ExampleUser, open_user
from tests.builders.rows import each_row
from tests.functional.test_docs import is_shown
from tests.requirements import REPOSITORY

PAGE = REPOSITORY / "docs/guides/datasets.md"
# ZIH's own, but for the size of batch and picture, the rate, and the epochs
OPTIONS = (
    "--data-backend dali-cpu --raport-file raport.json -j1 -p 1 --lr 0.01 --optimizer-batch-size 8 --warmup 0 "
    "--arch resnet50 -c fanin --label-smoothing 0.1 --lr-schedule cosine --mom 0.875 --wd 3.0517578125e-05 -b 4 "
    "--image-size 32"
)
MULTIPROC = "python /opt/resnet50/multiproc.py --nnodes=1 --node_rank=0"
MAIN = "/opt/resnet50/main.py"
# prints the strongest colour and the label of every picture that two processes get
SHARES = """
import argparse, json, sys
sys.path.insert(0, sys.argv[1])
import torch
from pictures import PyTorchLoader, list_classes, list_pictures
def look(rank, part, epoch):
    options = argparse.Namespace(image_size=32, batch_size=4, workers=0)
    found = list_pictures(f"{sys.argv[2]}/{part}", list_classes(sys.argv[2]))
    is_training = part == "train"
    loader = PyTorchLoader(options, torch.device("cpu"), (rank, 2), found=found, is_training=is_training)
    return [pair for pictures, labels in loader.batches(epoch)
            for pair in zip(pictures.mean((2, 3)).argmax(1).tolist(), labels.tolist())]
print(json.dumps([{"train": look(rank, "train", 0), "again": look(rank, "train", 1), "val": look(rank, "val", 0)}
                  for rank in range(2)]))
"""

# runs a program with one last word after the other, and says which of them it refuses: torch is loaded once
EACH = """
import os, runpy, sys
last, program, *options = sys.argv[1:]
sys.path.insert(0, os.path.dirname(program))
for word in last.split(","):
    sys.argv = [program, *options, word]
    try:
        runpy.run_path(program, run_name="__main__")
    except BaseException as problem:
        print(f"refused {word}: {problem}".replace(chr(10), " "), flush=True)
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def user() -> Iterator[ExampleUser]:
    yield from open_user("training")


@pytest.fixture(scope="module")
def python() -> Path:
    return require_tool("training") / "python"


@pytest.fixture(scope="module")
def resnet(user: ExampleUser, python: Path) -> Path:
    """The built example beside a small ImageNet."""
    folder = user.copy_example("resnet50")
    user.read("[ -e resnet50.sif ] || kedge build resnet50.sif resnet50.def", folder)
    small.write_pictures(python, folder / "imagenet")
    give_to(user.runner, folder)
    return folder


@pytest.fixture(scope="module")
def bert(user: ExampleUser) -> Path:
    """The built example beside the tutorial's CSV files and weights."""
    folder = user.copy_example("bert")
    user.read("[ -e bert.sif ] || kedge build bert.sif bert.def", folder)
    small.write_news(folder / "news", train=32, valid=8, test=12)
    small.write_bert(folder / "bert-base-uncased")
    give_to(user.runner, folder)
    return folder


def test_data_page_commands_do_what_it_shows(user: ExampleUser, python: Path) -> None:
    folder = user.runner.folder / "page"
    folder.mkdir()
    pictures = small.write_pictures(python, folder / "painted")
    small.write_archives(pictures, folder)
    small.write_news(folder / "news", train=4, valid=2, test=2)
    give_to(user.runner, folder)
    for step in read_tool_steps(PAGE)["data"]:
        printed = user.read(step.command, folder)
        missing = [line for line in step.shown if not is_shown(line, printed)]
        assert not missing, f"{step.command}\ndoes not show {missing}\nbut:\n{printed}"
    found = {path.relative_to(pictures).parent for path in pictures.rglob("*.JPEG")}
    assert {path.relative_to(folder / "again").parent for path in (folder / "again").rglob("*.JPEG")} == found
    for part in ("train", "val"):  # and every picture is in the directory of its class
        for name in small.CLASSES:
            expected = sorted(path.read_bytes() for path in (pictures / part / name).iterdir())
            assert sorted(path.read_bytes() for path in (folder / "again" / part / name).iterdir()) == expected


@each_row("name, tool", [("mnist/mnist", "sha256"), ("bert-base-uncased/bert", "sha256"), ("imagenet", "md5")])
def test_data_page_checksums_are_read_and_find_another_file(tmp_path: Path, name: str, tool: str) -> None:
    text = read_tool_files(PAGE, "data")[f"{name}.{tool}"]
    (tmp_path / "sums").write_text(text)
    names = [line.split()[1] for line in text.splitlines()]
    for each in names:
        (tmp_path / each).write_bytes(b"cut")
    words = [f"{tool}sum", "--check", "--strict", "sums"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, env={"LC_ALL": "C"})
    assert done.returncode == 1
    assert done.stdout.splitlines() == [f"{each}: FAILED" for each in names]


def test_resnet_learns_from_a_directory_of_jpegs_and_goes_on(user: ExampleUser, resnet: Path) -> None:
    train = f"kedge exec -B imagenet:/data/imagenet:ro resnet50.sif {MULTIPROC} --nproc_per_node 2 {MAIN} {OPTIONS}"
    said = user.read(f"{train} --epochs 1 /data/imagenet", resnet)
    assert "--data-backend dali-cpu: the image has no DALI: reading by pytorch instead" in said
    assert "train: 48 pictures of 3 classes, by pytorch" in said
    assert "Epoch: 0 Iteration: 6/6 " in said  # 48 pictures, 2 processes, 4 at once
    report = json.loads((resnet / "raport.json").read_text())
    assert (report["processes"], report["steps"], report["val.pictures"]) == (2, 6, 15)
    assert report["data_backend"] == "pytorch"
    said = user.read(f"{train} --epochs 2 --resume checkpoint.pth.tar /data/imagenet", resnet)
    assert "Resumed checkpoint.pth.tar: epoch 1 is next" in said
    assert "Epoch: 0 " not in said
    assert json.loads((resnet / "raport.json").read_text())["val.top1"] >= 90  # a third by chance


def test_resnet_knows_the_class_of_every_picture_and_shares_them_out(resnet: Path, python: Path) -> None:
    done = subprocess.run(
        [python, "-c", SHARES, REPOSITORY / "examples/resnet50", resnet / "imagenet"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
    )
    ranks = json.loads(done.stdout)
    judged = [pair for rank in ranks for pair in rank["val"]]
    assert sorted(judged) == sorted([number, number] for number in range(3) for _ in range(5))  # each once, right
    trained = [pair for rank in ranks for pair in rank["train"]]
    assert len(trained) == 48
    # two of the first class are grey or of printed colours, which show no class
    assert sum(colour == label for colour, label in trained) >= 46
    assert [sum(label == number for _, label in trained) for number in range(3)] == [16, 16, 16]
    assert ranks[0]["train"] != ranks[0]["again"]  # another order in the next epoch


def test_resnet_reads_one_file_of_data(user: ExampleUser, resnet: Path) -> None:
    user.read("[ -e imagenet.sqsh ] || kedge convert --data --compress none imagenet imagenet.sqsh", resnet)
    start = f"kedge exec -B imagenet.sqsh:/data/imagenet:image-src=/ resnet50.sif {MULTIPROC} {MAIN} {OPTIONS}"
    said = user.read(f"{start} --epochs 1 --prof 1 --no-checkpoints --raport-file one.json /data/imagenet", resnet)
    assert "val: 15 pictures of 3 classes, by pytorch" in said
    assert json.loads((resnet / "one.json").read_text())["steps"] == 1
    script = user.read("kedge submit --site generic-slurm -j imagenet --dry-run", resnet)
    assert "imagenet.sqsh:/data/imagenet:image-src=/" in script


def check_refusals(user: ExampleUser, folder: Path, data: str, start: str, wrong: dict[str, str]) -> None:
    """Change a copy of the data by each command; what the program says of it has the words beside the command."""
    (folder / "each.py").write_text(EACH)
    copies = "".join(f"cp -r {data} wrong/{n}; (cd wrong/{n} && {change}); " for n, change in enumerate(wrong))
    names = [f"wrong/{number}" for number in range(len(wrong))]
    command = f"rm -rf wrong && mkdir wrong && {copies} {start.format(','.join(names))}"
    status, said = user.run(command, folder, seconds=600)  # several programs in one
    assert status == 0, said
    for name, reason in zip(names, wrong.values(), strict=True):
        assert [line for line in said.splitlines() if line.startswith(f"refused {name}: ") and reason in line], said


def test_resnet_says_what_is_wrong_with_a_directory(user: ExampleUser, resnet: Path) -> None:
    start = f"kedge exec -B $PWD resnet50.sif python each.py {{}} {MAIN} {OPTIONS} --epochs 1"
    picture = "train/n01440764/n01440764_3.JPEG"
    wrong = {
        "rm -r val": "/val does not exist; --training-only needs no val/",
        "mv val/n01440764/n01440764_0.JPEG val": "n01440764_0.JPEG belongs to no class",
        "rm -r train": "has no directory train/",
        f"echo no >{picture}": f"cannot read the picture wrong/3/{picture}",
        "rm train/n*/*.JPEG": "/train has no pictures",
        "rm train/n*/*_?.JPEG train/n*/*_1[1-5].JPEG": "too few pictures for one batch of 4",
    }
    check_refusals(user, resnet, "imagenet", start, wrong)


def test_mnist_learns_from_its_own_files(user: ExampleUser) -> None:
    folder = user.copy_example("mnist-horovod")
    user.read("[ -e mnist-horovod.sif ] || kedge build mnist-horovod.sif mnist-horovod.def", folder)
    small.write_mnist(folder / "mnist", train=400, test=50)
    give_to(user.runner, folder)
    start = "kedge exec mnist-horovod.sif python /opt/mnist-horovod/train.py --steps 40 --batch-size 20 --data"
    said = user.read(f"{start} mnist", folder)
    found = [line for line in said.splitlines() if line.startswith("accuracy on 50 test digits of MNIST = ")]
    assert float(found[0].rpartition(" ")[2]) >= 0.9, said  # a tenth by chance
    wrong = {
        "head -c 5000 ../../mnist/t10k-images-idx3-ubyte >t10k-images-idx3-ubyte": "is cut: 4984 values, not 39200",
        "head -c 500 ../../mnist/train-images-idx3-ubyte.gz >train-images-idx3-ubyte.gz": "is damaged",
        "rm t10k-labels-idx1-ubyte": "has no t10k-labels-idx1-ubyte",
        "cp t10k-labels-idx1-ubyte t10k-images-idx3-ubyte": "not an IDX file of bytes in 3 dimensions",
    }
    check_refusals(user, folder, "mnist", start.replace("python ", "python each.py {} "), wrong)


def test_bert_reads_the_tutorials_texts_and_published_weights(user: ExampleUser, bert: Path) -> None:
    start = "kedge exec bert.sif bert_classifier.py -d cpu -o out --length 16 --epochs 1"
    said = user.read(f"{start} -s news --pretrained bert-base-uncased", bert)
    assert "Building tokenizer from 'bert-base-uncased'" in said
    assert "Epoch [1/1], Step [2/2]" in said
    assert is_shown("accuracy … 12", said)
    wrong = {
        "sed -i 1s/titletext/text2/ train.csv": "train.csv, row 1: needs the columns label (1 or 0) and titletext",
        "sed -i 's/^1,/FAKE,/' valid.csv": "valid.csv, row 2: needs the columns",
        "rm test.csv": "test.csv does not exist",
    }
    start = start.replace("bert_classifier.py", "python each.py {} /opt/bert/bert_classifier.py")
    check_refusals(user, bert, "news", f"{start} -s", wrong)


def test_bert_computes_what_the_formulas_say(bert: Path, python: Path) -> None:
    program = REPOSITORY / "tests/builders/bert_by_formula.py"
    done = subprocess.run(
        [python, program, REPOSITORY / "examples/bert", bert / "bert-base-uncased"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
    )
    pieces, difference = done.stdout.splitlines()
    assert pieces == "[CLS] shock ##ing cafe ##s , the news ! 世 [SEP]"
    most, of, largest = difference.split()
    assert of == "of"
    assert float(most) < 1e-4
    assert float(largest) > 0.5


def test_bert_downloads_weights_by_name_once(user: ExampleUser, bert: Path) -> None:
    server_folder = bert / "hub"
    target = server_folder / "someone/small-bert/resolve/main"
    target.parent.mkdir(parents=True)
    small.write_bert(target)
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_words: object) -> None:
            asked.append(self.path)

    serve = functools.partial(Handler, directory=str(server_folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        names = "someone/small-bert,someone/small-bert,someone/absent"
        words = f"python each.py {names} /opt/bert/bert_classifier.py -d cpu -o out2 --length 16 --epochs 1 -s news"
        (bert / "each.py").write_text(EACH)
        endpoint = f"HF_ENDPOINT=http://127.0.0.1:{server.server_port}"
        said = user.read(f"{endpoint} kedge exec bert.sif {words} --pretrained", bert)
        server.shutdown()
    fetched = sorted(path.rpartition("/")[2] for path in asked if "small-bert" in path)
    assert fetched == ["config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"]
    [refused] = [line for line in said.splitlines() if line.startswith("refused ")]
    assert refused.startswith("refused someone/absent: ")
    assert "cannot download http://127.0.0.1" in refused
    assert "--pretrained DIRECTORY" in refused
