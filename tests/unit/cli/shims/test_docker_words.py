# SPDX-License-Identifier: BSD-3-Clause
"""Docker's words in kedge's: what is passed on, left out, or refused with kedge's own way."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kedge import __version__
from kedge.cli.main import make_parser
from kedge.cli.shims.docker_words import translate
from kedge.cli.verbs import VERBS
from kedge.container.flags import parse_words
from kedge.errors import UsageError
from tests.builders.rows import each_row

RUN = "--contain --ipc --pid --cleanenv --no-umask --no-eval --writable-tmpfs --fakeroot"
USER = RUN.removesuffix(" --fakeroot")

LINES = [
    ("run ubuntu", f"run {RUN} docker://ubuntu"),
    ("run --rm -it ubuntu:22.04 bash -l", f"run {RUN} docker://ubuntu:22.04 bash -l"),
    ("run -ti --rm --gpus all nvcr.io/a/b:1 nvidia-smi", f"run {RUN} --nv docker://nvcr.io/a/b:1 nvidia-smi"),
    ("run -v /data:/data:ro x", f"run {RUN} --bind /data:/data:ro docker://x"),
    ("run --volume=/a:/b:z,rw x", f"run {RUN} --bind /a:/b:rw docker://x"),
    ("run -w /work -u 1000:1000 x id", f"run {USER} --pwd /work docker://x id"),
    ("run -u root x", f"run {RUN} docker://x"),
    ("run --ipc=host --ulimit memlock=-1 --shm-size 1g x", f"run {RUN.replace(' --ipc', '')} docker://x"),
    ("run --network host x", f"run {RUN} docker://x"),
    ("run --network=none x", f"run {RUN} --net --network none docker://x"),
    ("run --entrypoint sh x -c id", f"exec {RUN} docker://x sh -c id"),
    ("run --entrypoint= x id", f"exec {RUN} docker://x id"),
    ("run --read-only x", f"run {RUN.replace(' --writable-tmpfs', '')} docker://x"),
    ("run --tmpfs /scratch:size=1g x", f"run {RUN} --scratch /scratch docker://x"),
    ("run --name n --restart always --privileged x", f"run {RUN} docker://x"),
    ("run --device nvidia.com/gpu=all x", f"run {RUN} --device nvidia.com/gpu=all docker://x"),
    ("run --device /dev/fuse x", f"run {RUN} --bind /dev/fuse docker://x"),
    ("run -m 2g --cpus 2 x", f"run {RUN} --memory 2g --cpus 2 docker://x"),
    ("run --platform linux/arm64 --pull always x", f"run {RUN} --arch linux/arm64 --pull always docker://x"),
    ("run --mount type=bind,src=/a,dst=/b x", f"run {RUN} --mount type=bind,src=/a,dst=/b docker://x"),
    ("run -w/tmp x", f"run {RUN} --pwd /tmp docker://x"),
    ("container run x -it", f"run {RUN} docker://x -it"),
    ("exec -it worker ps", "exec instance://worker ps"),
    ("pull ubuntu:22.04", "unpack --pull newer docker://ubuntu:22.04"),
    ("image pull -q --platform linux/arm64 a/b", "unpack --pull newer -q --arch linux/arm64 docker://a/b"),
    ("push me/nbody:1", "push docker://me/nbody:1 docker://me/nbody:1"),
    ("images", "image list"),
    ("image ls nbody", "image list nbody"),
    ("images -q", "image list -q"),
    ("tag a b:1", "image tag a b:1"),
    ("rmi -f a b:1", "image rm a b:1"),
    ("image rm a", "image rm a"),
    ("login -u ada --password-stdin ghcr.io", "registry login --username ada --password-stdin ghcr.io"),
    ("login", "registry login docker.io"),
    ("logout ghcr.io", "registry logout ghcr.io"),
    ("inspect -f {{.Id}} x", "inspect --oci docker://x"),
    ("ps -a", "instance list"),
    ("stop worker", "instance stop worker"),
    ("save -o x.tar a/b", "pull docker-archive:x.tar docker://a/b"),
    ("search pytorch", "search pytorch"),
    ("build -t x -f Dockerfile.y .", "build -t x -f Dockerfile.y ."),
    ("build --rm --load --cache-from a --network=host -t x .", "build -t x ."),
    ("build --pull=true --progress=rawjson .", "build --pull --progress=json ."),
    ("buildx build --provenance=false --push -t x .", "build --push -t x ."),
    ("image build .", "build ."),
    ("-D --context default images", "--debug image list"),
]


def run(line: str, environ: dict[str, str] | None = None) -> tuple[list[str], dict[str, str]]:
    meant = translate("docker", shlex.split(line), environ or {})
    return meant.words, meant.environ


@each_row(("line", "expected"), LINES)
def test_words_in_kedges(line: str, expected: str) -> None:
    assert run(line)[0] == shlex.split(expected)


@each_row("line", [line for line, _ in LINES])
def test_kedge_takes_the_words(line: str) -> None:
    words = [word for word in run(line)[0] if word != "--debug"]
    if VERBS[words[0]].reads_words:
        parse_words(words[0], words[1:], {})
    else:
        make_parser(words[0], is_for_help=False).parse_args(words[1:])


def test_variables_gpus_binds_and_ports_as_kedge_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "env"
    file.write_text("# comment\nC=a b'c\nD\n")
    words, environ = run(f"run -e A=1,2 -eB --env-file {file} x", {"B": "two", "D": "4"})
    assert environ == {"KEDGEENV_A": "1,2", "KEDGEENV_B": "two", "KEDGEENV_C": "a b'c", "KEDGEENV_D": "4"}
    assert words == shlex.split(f"run {RUN} docker://x")
    assert run("run --gpus 2 x")[1] == {"KEDGEENV_CUDA_VISIBLE_DEVICES": "0,1"}
    assert run("""run --gpus '"device=0,3"' x""")[1] == {"KEDGEENV_CUDA_VISIBLE_DEVICES": "0,3"}
    monkeypatch.chdir(tmp_path)
    assert f"{tmp_path}:/here" in run("run -v .:/here x")[0]
    meant = translate("docker", shlex.split("run -p 80:80 --publish 81:81 x"), {})
    assert len(meant.warnings) == 1


@each_row(("line", "message", "hint"), [
    ("run -d x", "needs a daemon", "kedge instance run"),
    ("run -dit x", "needs a daemon", "kedge instance run"),
    ("create x", "needs a daemon", "docker run"),
    ("run", "needs an image", "IMAGE"),
    ("run -v data:/data x", "no volume 'data'", "name a directory"),
    ("run -v /data x", "anonymous volumes", "--tmpfs"),
    ("run --no-such x", "'docker run --no-such' is not supported", "kedge"),
    ("compose up", "does not support 'docker compose'", "instance"),
    ("image prune", "does not support 'docker prune'", "kedge cache clean"),
    ("buld x", "has no verb 'buld'", "build"),
    ("build --network none .", "host's network", "RUN --network=none"),
    ("pull --all-tags x", "'docker pull --all-tags' is not supported", ""),
    ("pull", "needs an image", ""),
    ("tag a", "needs two names", ""),
    ("save x", "standard output", "-o FILE.tar"),
    ("--nonsense images", "has no option --nonsense", "docker --help"),
])  # fmt: skip
def test_what_kedge_cannot_do_it_says(line: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        run(line)
    assert hint in str(caught.value.hint)


def test_texts_tell_which_docker_it_is() -> None:
    texts = {line: translate("docker", shlex.split(line), {}).text for line in ("--version", "version", "info", "help")}
    whole = f"27.0.0+kedge.{__version__}"
    assert translate("docker", ["version", "--format", "x"], {}).text == f"{whole}\n"
    assert texts["--version"] == f"Docker version {whole}, build kedge\n"
    assert [texts[line].split()[:3] for line in ("version", "info")] == [["Client:", "Version:", whole]] * 2
    assert [translate("docker", words, {}).text for words in (["--help"], [])] == [texts["help"]] * 2
    assert {"build", "pull", "run", "exec"} <= set(texts["help"].split())
