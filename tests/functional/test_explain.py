# SPDX-License-Identifier: BSD-3-Clause
"""`kedge explain` of the fake nvcr.io's releases, of files, directories and archives. Needs openssl."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.answers.explain import Explanation, explain
from kedge.base.reference import Reference
from kedge.compat.contents.table_facts import TABLE_ONLY, read_row
from kedge.compat.tables.load import load_tables
from kedge.compat.target import Target
from kedge.compat.traits import ImageTraits
from kedge.errors import ImageNotFound, NetworkFailed, WillNotRun
from kedge.image.sources.resolve import resolve
from kedge.image.workplace import Workplace
from kedge.system.settings import Settings
from tests.builders.images import MACHINE, add_rich_image
from tests.builders.rows import each_row
from tests.builders.sif import fixture_path
from tests.builders.warm_kedge import kedge
from tests.fakes.http_server import Recorded, Reply
from tests.fakes.ngc import RELEASES, NgcSite, find_row, open_ngc
from tests.fakes.registry import FakeRegistry
from tests.wording import assert_begins, assert_says

PYTORCH = "nvcr.io/nvidia/pytorch"


@pytest.fixture(scope="module")
def ngc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NgcSite]:
    with open_ngc(tmp_path_factory.mktemp("ngc")) as site:
        yield site


@pytest.fixture
def workplace(ngc: NgcSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    for name, value in {**ngc.environment, "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    ngc.registry.server.log.clear()
    ngc.registry.storage.log.clear()
    return make_workplace(tmp_path)


def make_workplace(folder: Path, **flags: object) -> Workplace:
    return Workplace(Settings.load({"cache_directory": folder / "cache", **flags}, {"HOME": str(folder)}))


def read(name: str, place: Workplace, *, target: Target | None = None, offline: bool = False) -> Explanation:
    return explain(Reference.parse(name), place, tables=load_tables(), target=target, offline=offline)


def paths(site: NgcSite) -> list[str]:
    """What was asked, digests in short."""
    return [f"{each.method} {each.path.partition('sha256:')[0]}" for each in site.registry.server.log]


# what is asked


def test_explain_cold_makes_three_requests_of_a_few_kilobytes(
    ngc: NgcSite, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    for server in (ngc.registry.server, ngc.registry.storage):
        answer = server.answer

        def counted(request: Recorded, answer: object = answer) -> Reply:
            reply: Reply = answer(request)  # type: ignore[operator]
            sent.append(len(reply.body))
            return reply

        monkeypatch.setattr(server, "answer", counted)
    found = read(f"{PYTORCH}:26.07-py3", workplace)
    assert paths(ngc) == [
        "GET /proxy_auth",
        "GET /v2/nvidia/pytorch/manifests/26.07-py3",
        "GET /v2/nvidia/pytorch/manifests/",
        "GET /v2/nvidia/pytorch/blobs/",
    ]
    assert len(ngc.registry.storage.log) == 1  # where nvcr.io sends those who ask for a blob
    assert (found.requests, found.received) == (5, sum(sent))
    assert sum(sent) < 100_000


def test_explain_warm_asks_for_the_digest_alone(ngc: NgcSite, workplace: Workplace) -> None:
    first = read(f"{PYTORCH}:24.01-py3", workplace)
    ngc.registry.server.log.clear()
    second = read(f"{PYTORCH}:24.01-py3", workplace)
    assert paths(ngc) == ["GET /proxy_auth", "HEAD /v2/nvidia/pytorch/manifests/24.01-py3"]
    assert second.traits == first.traits


def test_explain_offline_asks_nobody(ngc: NgcSite, workplace: Workplace) -> None:
    first = read(f"{PYTORCH}:24.03-py3", workplace)
    ngc.registry.server.log.clear()
    second = read(f"{PYTORCH}:24.03-py3", workplace, offline=True)
    assert paths(ngc) == []
    assert second.traits.layers == first.traits.layers
    assert second.requests == 0
    known = read(f"{PYTORCH}:21.10-py3", workplace, offline=True).traits
    assert known.notes[0].startswith(TABLE_ONLY)
    assert (known.cuda.value, known.size) == ("11.4.2", None)
    with pytest.raises(ImageNotFound, match="--offline"):
        read("nvcr.io/nvidia/unheard:1", workplace, offline=True)


def test_explain_offline_knows_the_images_that_the_tutorials_name(tmp_path: Path) -> None:
    """TACC's base image with CUDA 10 on A100, and the one for K40, of which no release table knows."""
    target = ("--gpu", "A100", "--driver", "535.104.05", "--arch", "amd64")
    tacc = kedge("explain", "--offline", *target, "docker://tacc/tacc-ml:centos7-cuda10-tf2.4-pt1.7", cache=tmp_path)
    assert_says(tacc.stdout, "compat/cuda-does-not-support-gpu", 10)
    assert TABLE_ONLY in tacc.stdout
    legacy = kedge("explain", "--offline", "docker://lucasfernandoaes/pytorch-legacy:1.6.0", cache=tmp_path).stdout
    assert re.search(r"^Python +3\.6$", legacy, re.MULTILINE)
    assert "note: published by a person, not by NVIDIA or kedge" in legacy


def test_explain_when_the_registry_cannot_be_reached_answers_from_the_tables(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    traits = read(f"{PYTORCH}:22.03-py3", workplace).traits
    assert_begins(traits.notes[0], "compat/could-not-ask", TABLE_ONLY, "nvcr.io")
    assert traits.os.value.startswith("Ubuntu 20.04")
    assert traits.cuda.value.startswith("11.6.1")
    assert traits.framework_version.value.startswith("1.12.0")
    with pytest.raises(NetworkFailed):
        read("nvcr.io/nvidia/unheard:1", make_workplace(workplace.settings.cache_directory, retries="0"))


def test_explain_of_a_tag_that_is_gone_says_so(workplace: Workplace) -> None:
    """The table may know a tag that NVIDIA deleted: whoever wants to pull it must hear that it is gone."""
    with pytest.raises(ImageNotFound, match="deletes CUDA tags some months after"):
        read("nvcr.io/nvidia/cuda:11.2.0-base-ubuntu20.04", workplace)


# what is told


def test_explain_of_every_release_agrees_with_the_table(workplace: Workplace) -> None:
    wrong = []
    for name, tag in RELEASES:
        traits = read(f"nvcr.io/nvidia/{name}:{tag}", workplace).traits
        for field, fact in read_row(find_row(name, tag), tag, traits.architecture).items():
            value = getattr(traits, field).value
            if fact and field not in ("framework", "compat_branches") and (tag, field) != ("21.10-py3", "cuda"):
                is_same = value.startswith(fact.value) or fact.value.startswith(value)
                wrong += [] if value and is_same else [f"{name}:{tag} {field}: {value!r}, {fact.value!r}"]
        is_whole = traits.size and traits.layers[0].created_by.startswith("ADD file:")
        wrong += [] if is_whole and all(each.created_by for each in traits.layers) else [f"{name}:{tag} {traits}"]
    assert not wrong, "\n".join(wrong)


def test_explain_answers_the_question_of_the_tutorial(ngc: NgcSite, tmp_path: Path) -> None:
    done = kedge("explain", f"docker://{PYTORCH}:22.03-py3", cache=tmp_path, environment=ngc.environment)
    assert "Framework           PyTorch 1.12.0a0+2c916ef\n" in done.stdout
    assert "CUDA                11.6.1.005\n" in done.stdout
    assert "System              Ubuntu 20.04\n" in done.stdout
    assert "Architectures       amd64, arm64" in done.stdout
    assert "Nothing was pulled; " in done.stdout
    assert_says(done.stdout, "explain/cuda-all-nvidias-framework-images")


@pytest.mark.parametrize(("machine", "first"), [("amd64", "7.5"), ("arm64", "8.0")])
def test_explain_of_one_tag_differs_by_architecture(
    tmp_path: Path, workplace: Workplace, machine: str, first: str
) -> None:
    place = make_workplace(tmp_path, architecture=machine)
    traits = read(f"{PYTORCH}:25.10-py3", place).traits
    assert traits.architecture == machine
    assert traits.architectures == ("amd64", "arm64")
    assert traits.capabilities.value.split()[0] == first


def test_explain_reads_the_architecture_of_the_target(workplace: Workplace) -> None:
    for machine in ("amd64", "arm64"):
        found = read(f"{PYTORCH}:25.10-py3", workplace, target=Target("x", architecture=machine))
        assert found.traits.architecture == machine


def test_explain_of_an_image_for_other_processors_is_explained_and_refused(workplace: Workplace) -> None:
    """And the store does not take it for the image of this machine afterwards."""
    found = read(f"{PYTORCH}:18.06-py3", workplace, target=Target("a node", architecture="arm64", has_gpus=False))
    assert found.traits.architecture == "amd64"
    assert found.verdict is not None
    assert found.verdict.runs is False


def test_explain_of_an_index_without_this_processor_remembers_nothing(ngc: NgcSite, workplace: Workplace) -> None:
    other = Target("a node", architecture="ppc64le", has_gpus=False)
    found = read(f"{PYTORCH}:24.05-py3", workplace, target=other)
    assert found.traits.architecture == "amd64"
    assert found.verdict is not None
    assert found.verdict.runs is False
    place = make_workplace(workplace.settings.cache_directory.parent, architecture="ppc64le")
    with place.open_store() as store, pytest.raises(ImageNotFound):
        resolve(Reference.parse(f"{PYTORCH}:24.05-py3"), place, store, offline=True)


# what people see


@pytest.mark.parametrize(
    ("where", "tag", "sentence"),
    [
        (("H200", "580.95.05"), "24.01-py3", "runs natively on NVIDIA H200 with driver 580.95.05"),
        (("V100", "580.95.05"), "25.10-py3", "does not run on "),
    ],
)
def test_explain_check_ends_with_the_verdict(
    ngc: NgcSite, tmp_path: Path, where: tuple[str, str], tag: str, sentence: str
) -> None:
    gpu, driver = where
    status = WillNotRun.exit_code if sentence.startswith("does not") else 0
    words = ["explain", "--check", "--arch", "amd64", "--gpu", gpu, "--driver", driver, f"{PYTORCH}:{tag}"]
    done = kedge(*words, cache=tmp_path, environment=ngc.environment, check=False)
    assert done.returncode == status, done.stderr
    assert done.stdout.startswith(f"{PYTORCH}:{tag}: {sentence}")
    if status:
        assert "\n  NO      " in done.stdout
        assert "        -> " in done.stdout
    told = kedge(*words, "--json", cache=tmp_path, environment=ngc.environment, check=False)
    assert told.returncode == status
    document = json.loads(told.stdout)
    assert document["verdict"]["runs"] is (status == 0)
    assert document["target"]["driver"] == driver
    assert document["image"]["cuda"]["source"] == "image config, CUDA_VERSION"


def test_explain_shows_sources_and_layers(ngc: NgcSite, tmp_path: Path) -> None:
    done = kedge("explain", "--sources", f"{PYTORCH}:24.01-py3", cache=tmp_path, environment=ngc.environment)
    assert "[image config, CUDA_VERSION]" in done.stdout
    assert "[image history, PYVER]" in done.stdout
    bars = [line for line in done.stdout.splitlines() if line.startswith("  #")]
    assert len(bars) == 6
    assert max(bars, key=lambda line: line.count("#")).split()[1:3] == ["3.91", "GB"]
    assert "smaller layers" in done.stdout
    assert "Default command     /opt/nvidia/nvidia_entrypoint.sh" in done.stdout


def test_explain_compares_several_images(ngc: NgcSite, tmp_path: Path) -> None:
    names = [f"{PYTORCH}:22.03-py3", f"{PYTORCH}:26.07-py3", f"{PYTORCH}:99.01-py3"]
    words = ["explain", *names, "--arch", "amd64", "--gpu", "A100", "--driver", "535.104.05"]
    done = kedge(*words, cache=tmp_path, environment=ngc.environment, check=False)
    assert done.returncode == ImageNotFound.exit_code
    lines = done.stdout.splitlines()
    assert lines[1].startswith(names[0])
    assert "PyTorch 1.12.0a0" in lines[1]
    assert "problem: " in lines[3]
    told = json.loads(kedge(*words, "--json", cache=tmp_path, environment=ngc.environment, check=False).stdout)
    assert [each["name"] for each in told] == names
    assert told[2]["problem"]["error"] == ImageNotFound.reference


def test_explain_writes_a_page_once(ngc: NgcSite, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words: list[str | Path] = [
        "explain",
        f"{PYTORCH}:24.01-py3",
        "--gpu",
        "H200",
        "--driver",
        "535.104",
        "--html",
        page,
    ]
    kedge(*words, cache=tmp_path / "c", environment=ngc.environment)
    text = page.read_text()
    assert text.lower().startswith("<!doctype html>")
    assert "24.01-py3" in text
    refused = kedge(*words, cache=tmp_path / "c", environment=ngc.environment, check=False)
    assert refused.returncode != 0
    assert "page.html" in refused.stderr
    kedge(*words, "--force", cache=tmp_path / "c", environment=ngc.environment)
    several = kedge("explain", "--html", page, "a", "b", cache=tmp_path / "c", check=False)
    assert "one image" in several.stderr


# files and directories


def make_sandbox(root: Path) -> Path:
    """A root file system with what can be recognised without running anything."""
    files = {
        "etc/os-release": 'ID=ubuntu\nNAME="Ubuntu"\nVERSION_ID="22.04"\n',
        "usr/lib/x86_64-linux-gnu/libc.so.6": "ELF GNU C Library (Ubuntu GLIBC 2.35-0) stable release version 2.35.",
        "usr/lib/x86_64-linux-gnu/libnccl.so.2.19.4": "x",
        "usr/lib/x86_64-linux-gnu/libcuda.so.1": "",
        "usr/bin/python3.10": "x",
        "usr/local/cuda-12.3/version.json": '{"cuda": {"name": "CUDA SDK", "version": "12.3.2"}}',
        "usr/local/cuda-12.3/compat/libcuda.so.545.23.08": "x",
        "opt/hpcx/ompi/include/mpi.h": "#define OMPI_MAJOR_VERSION 4\n#define OMPI_MINOR_VERSION 1\n"
        "#define OMPI_RELEASE_VERSION 5\n",
        "usr/local/lib/python3.10/dist-packages/torch-2.2.0a0+81ea7a4.dist-info/METADATA": "x",
        "usr/local/lib/python3.10/dist-packages/nvidia_dali_cuda120-1.33.0.dist-info/METADATA": "x",
        "usr/local/lib/python3.10/dist-packages/apex-0.1.dist-info/METADATA": "x",
        ".singularity.d/labels.json": json.dumps(
            {
                "org.label-schema.usage.singularity.deffile.bootstrap": "docker",
                "org.label-schema.usage.singularity.deffile.from": f"{PYTORCH}:24.01-py3",
            }
        ),
        ".singularity.d/env/10-docker2singularity.sh": '#!/bin/sh\nexport NCCL_VERSION="${NCCL_VERSION:-"2.19.5"}"\n',
        ".singularity.d/runscript": "#!/bin/sh\nexec bash\n",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "usr/bin/python3").symlink_to("python3.10")
    (root / "usr/local/cuda").symlink_to("cuda-12.3")
    (root / "bin").symlink_to("usr/bin")
    (root / "bin/sh").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\x3e\x00" + bytes(100))
    (root / "bin/sh").chmod(0o755)
    return root


def check_sandbox(traits: ImageTraits) -> None:
    known = {name: fact.value for name, fact in traits.known.items() if fact}
    assert known["os"] == "Ubuntu 22.04"
    assert known["glibc"] == "2.35"
    assert known["cuda"] == "12.3.2"
    assert known["nccl"] == "2.19.5"  # what the image says of itself is surer than a file's name
    assert known["mpi"] == "Open MPI 4.1.5"
    assert known["python"] == "3.10"
    assert known["driver"] == "545.23.08"
    assert known["framework"] == "PyTorch"
    assert known["framework_version"] == "2.2.0a0+81ea7a4"
    assert (known["dali"], known["apex"]) == ("1.33.0", "0.1")
    assert "horovod" not in known
    assert known["cudnn"] == "8.9.7.29"  # of the table, by the reference that it was made from
    assert traits.compat.value == "yes"
    assert traits.glibc.source == "file /usr/lib/x86_64-linux-gnu/libc.so.6"
    assert traits.architecture == "amd64"
    assert any("libcuda.so.1 is empty" in note for note in traits.notes)
    assert traits.entrypoint == ("/.singularity.d/runscript",)


def test_explain_of_a_folder_looks_at_its_files(tmp_path: Path) -> None:
    found = read(str(make_sandbox(tmp_path / "box")), make_workplace(tmp_path))
    check_sandbox(found.traits)
    assert found.requests == 0


@each_row(
    "image, named, not_named",
    [
        ("pytorch:26.08-py3", ("DALI", "Apex", "Horovod", "JupyterLab"), ()),
        ("tensorflow:25.02-tf2-py3", ("Horovod", "JupyterLab"), ("Apex", "DALI")),
        ("cuda:12.4.1-devel-ubuntu22.04", (), ("DALI", "Apex", "Horovod", "JupyterLab")),
    ],
)
def test_explain_says_which_tools_are_unknown(
    tmp_path: Path, image: str, named: tuple[str, ...], not_named: tuple[str, ...]
) -> None:
    told = kedge("explain", "--offline", f"nvcr.io/nvidia/{image}", cache=tmp_path / "c").stdout
    line = next(line for line in " ".join(told.split()).split("unknown: ")[1:])
    assert [name for name in named if name not in line] == []
    assert [name for name in not_named if name in line] == []


def test_explain_of_a_sif_looks_at_its_files(tmp_path: Path) -> None:
    box = make_sandbox(tmp_path / "box")
    kedge("convert", box, tmp_path / "x.sif", cache=tmp_path / "c")
    traits = read(str(tmp_path / "x.sif"), make_workplace(tmp_path)).traits
    check_sandbox(traits)
    assert traits.size == (tmp_path / "x.sif").stat().st_size


def test_explain_of_a_folder_does_not_leave_it(tmp_path: Path) -> None:
    """Links out of the directory mean what they mean inside, and pipes are not waited for."""
    import os

    box = tmp_path / "box"
    (box / "etc").mkdir(parents=True)
    (box / "usr/lib64").mkdir(parents=True)
    (tmp_path / "secret").write_text("ID=ubuntu\nVERSION_ID=99\n")
    (box / "etc/os-release").symlink_to("../../secret")
    os.mkfifo(box / "usr/lib64/libc.so.6")
    (box / "usr/local").symlink_to("local")
    traits = read(str(box), make_workplace(tmp_path)).traits
    assert traits.os.value == ""
    assert traits.glibc.value == ""


def test_explain_of_musl_says_so(tmp_path: Path) -> None:
    box = tmp_path / "box"
    for name, text in {"lib/ld-musl-x86_64.so.1": "x", "etc/os-release": "ID=alpine\nVERSION_ID=3.19\n"}.items():
        (box / name).parent.mkdir(parents=True, exist_ok=True)
        (box / name).write_text(text)
    (box / "usr").mkdir()
    traits = read(str(box), make_workplace(tmp_path)).traits
    assert (traits.os.value, traits.glibc.value) == ("Alpine 3.19", "musl")


def test_explain_of_real_sif_files_and_their_copies_in_registries(tmp_path: Path) -> None:
    sif = fixture_path("busybox_arm64.sif")
    local = read(str(sif), make_workplace(tmp_path)).traits
    assert local.architecture == "arm64"
    here = {"cache": tmp_path / "cache", "cwd": tmp_path}
    with FakeRegistry() as registry:
        kedge("push", sif, f"oras://{registry.host}/sif/busybox:1", **here)
        for scheme in ("oras", "docker"):
            remote = read(f"{scheme}://{registry.host}/sif/busybox:1", make_workplace(tmp_path)).traits
            assert (remote.architecture, remote.size, remote.entrypoint) == ("arm64", local.size, local.entrypoint)


@pytest.mark.parametrize("target", ["x.oci.tar", "docker-archive:x.tar", "x.sif"])
def test_explain_of_archives(tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"cache": tmp_path / "cache", "cwd": tmp_path}
    with FakeRegistry() as registry:
        add_rich_image(registry)
        kedge("pull", target, f"docker://{registry.host}/team/rich:1", **here)
    monkeypatch.chdir(tmp_path)
    traits = read(target, make_workplace(tmp_path)).traits
    assert traits.architecture == MACHINE
    assert traits.entrypoint == ("/bin/printf", "[%s]")
    assert traits.command == ("default",)
    assert len(traits.layers) == (0 if target == "x.sif" else 3)
    assert traits.size


@each_row("name", ["nothing.sif", "./nothing", "instance://x", "host:true"])
def test_explain_of_what_is_no_image_is_one_error(tmp_path: Path, name: str) -> None:
    done = kedge("explain", name, cache=tmp_path, check=False, cwd=tmp_path)
    assert 0 < done.returncode < 100
    assert "Traceback" not in done.stderr
