# SPDX-License-Identifier: BSD-3-Clause
"""The shims: what real command lines of Apptainer and Singularity become, and the files that give kedge their names."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.base.release import VERSION
from kedge.cli.main import make_parser
from kedge.cli.shims.shim_words import SPOKEN, translate
from kedge.container.flags import parse_words
from kedge.container.shim_file import MARK, PROGRAMS, is_shim, make_shim
from kedge.errors import KedgeError
from tests.builders.busybox import read_busybox
from tests.builders.rows import each_row
from tests.builders.warm_kedge import kedge
from tests.functional.test_cli_container import FORBIDDEN
from tests.requirements import REPOSITORY, require_shared, require_user_namespaces
from tests.wording import assert_reads, assert_says

# The options of job scripts, most frequent first, in the spellings that they have there.
SCRIPTS = r"""
singularity shell —-nv pytorch22.03.sif
singularity run -B /scratch/ideeps/user:my_scratch pytorch20.03.sif sh -c 'cd my_scratch/my_repo && python cnn_gpu.py'
singularity pull --disable-cache --docker-login docker://nvcr.io/partners/chainer:4.0.0b1
apptainer shell --fakeroot --overlay /tmp/cache/pytorch_24.03_overlay pytorch_24.03-py3.sif
apptainer exec --nv lightning.sif bash -c "export NODE_RANK=\${SLURM_PROCID}; python ptl_ddp_example.py -N 2 -p 2"
apptainer exec docker://python:latest python --version
singularity exec -B /scratch:/scratch,/home/me --nv /images/x.simg bash -c 'python train.py'
singularity exec --bind /data --bind /work:/work:ro --cleanenv x.img Rscript a.R
singularity exec --nv --overlay /scratch/me/overlay-25GB.ext3:ro /scratch/image.sif /bin/bash -c "source /ext3/env.sh"
singularity exec --nv --overlay a.sqf:ro --overlay b.ext3:rw image.sif bash
singularity run --pwd /opt/app --home /scratch/me:/home/me -e image.sif --participant-label 01
singularity run --cleanenv --env OMP_NUM_THREADS=4,FOO=bar image.sif
singularity run -C -B "$PWD" --writable-tmpfs image.sif
singularity exec --containall --no-home -W /tmp image.sif true
singularity exec -c --rocm folder/ python
singularity exec --contain --env-file vars.sh image.sif env
singularity exec --writable sandbox/ apt-get update
singularity exec --no-mount home,tmp --no-https docker://localhost:5000/x:1 true
singularity exec instance://web ps -ef
singularity exec --nv=true --pwd=/tmp image.sif true
singularity -s exec image.sif true
singularity --quiet --nocolor exec -u -p image.sif true
singularity -dv run --app foo image.sif
singularity shell -s /bin/zsh image.sif
singularity test image.sif
singularity pull --name x.simg docker://ubuntu
singularity pull -F --dir /tmp --arch amd64 library://sylabsed/examples/lolcow:latest
singularity pull --force --no-cleanup x.sif oras://registry.example/x:1
singularity push -U x.sif oras://registry.example/x:1
singularity inspect --runscript x.sif
singularity inspect -j x.sif
singularity run-help x.sif
singularity cache list -a
singularity cache clean -f -D 30
singularity cache clean --type=library,oci --force
singularity cache clean -n -T blob
singularity sif list x.sif
singularity sif dump 2 x.sif
singularity sign x.sif
singularity verify --local x.sif
singularity key list
singularity key newpair
singularity registry login -u '$oauthtoken' --password-stdin docker://nvcr.io
singularity registry list
singularity remote login -u me docker://docker.io
singularity remote logout docker://docker.io
singularity remote list
singularity build x.sif docker://ubuntu:22.04
singularity build --fakeroot --force --tmpdir /tmp x.sif docker-daemon:me/app:latest
singularity build -s directory library://alpine
singularity help exec
"""


def accept(line: str) -> list[str]:
    """Kedge's words for a command line, after its own parser took them; raises where it does not."""
    program, *words = shlex.split(line)
    meant = translate(program, words)
    position = next((index for index, word in enumerate(meant.words) if not word.startswith("-")), 0)
    verb, rest = meant.words[position], meant.words[position + 1 :]
    if verb in ("exec", "run", "shell", "test"):
        parse_words(verb, [*meant.words[:position], *rest], {})
    elif verb != "help":
        make_parser(verb).parse_args(rest)
    return meant.words


def test_shim_accepts_job_scripts() -> None:
    wrong = []
    for line in SCRIPTS.strip().splitlines():
        try:
            if not accept(line):
                wrong.append(f"{line}: no words")
        except (KedgeError, SystemExit) as problem:
            wrong.append(f"{line}: {problem}")
    assert not wrong, "\n".join(wrong)


def test_shim_accepts_what_the_tutorials_type() -> None:
    folder = require_shared("tutorials")
    calls = re.compile(r"(?:^|[\s`$])(?:singularity|apptainer) ((?:pull|exec|run|shell|build|push|test)\s[^`\n]*)")
    found = [call for page in sorted(folder.glob("*.txt")) for call in calls.findall(page.read_text())]
    assert len(found) > 25
    for call in found:
        words = call.replace("‚Äî", "—").split(" 2>")[0]
        if not call.startswith("run``") and not words.split()[1].startswith("command"):
            accept(f"apptainer {words}")


@each_row(
    ("line", "words"),
    [
        ("apptainer exec --nv i.sif ls -l", ["exec", "--force", "--nv", "i.sif", "ls", "-l"]),
        ("apptainer -s shell -s zsh i.sif", ["--silent", "shell", "--force", "-s", "zsh", "i.sif"]),
        ("apptainer -qv exec i x", ["--quiet", "--verbose", "exec", "--force", "i", "x"]),
        ("run-singularity ./i.sif --help", ["run", "--no-workdir", "--force", "./i.sif", "--help"]),
        ("apptainer -q run --nv i.sif x.py", ["--quiet", "run", "--no-workdir", "--force", "--nv", "i.sif", "x.py"]),
        ("apptainer pull docker://x", ["pull", "--format", "sif", "--last-wins", "docker://x"]),
        ("apptainer pull --sandbox x docker://x", ["pull", "--last-wins", "--sandbox", "x", "docker://x"]),
        (
            "apptainer pull --arch arm64 oras://x",
            ["pull", "--format", "sif", "--plain-name", "--last-wins", "--arch", "arm64", "oras://x"],
        ),
        ("apptainer push -U -D text x.sif oras://r/x", ["push", "x.sif", "oras://r/x"]),
        ("apptainer push --description=text x.sif oras://r/x", ["push", "x.sif", "oras://r/x"]),
        ("apptainer cache clean -n -T oci,library", ["cache", "clean", "--dry-run", "-T", "image"]),
        ("apptainer cache clean --type=blob", ["cache", "clean", "--type=blob"]),
        ("apptainer cache list -T blob,oci", ["cache", "list", "-T", "all"]),
        ("apptainer remote login -i -u me r.example", ["registry", "login", "--no-https", "-u", "me", "r.example"]),
        ("apptainer build x.sif docker://y", ["pull", "--format", "sif", "x.sif", "docker://y"]),
        ("apptainer build -sF x oci:y", ["pull", "--format", "sandbox", "-F", "x", "oci:y"]),
        ("apptainer build -s -F x oci:y", ["pull", "--format", "sandbox", "-F", "x", "oci:y"]),
        ("apptainer build --arch arm64 x oci:y", ["pull", "--format", "sif", "--arch", "arm64", "x", "oci:y"]),
        ("apptainer build -f -B /a -B/b -T x docker://y", ["pull", "--format", "sif", "x", "docker://y"]),
        ("apptainer run-help x.sif", ["run-help", "x.sif"]),
        ("apptainer search --arch amd64 alpine", ["search", "--in-library", "--arch", "amd64", "alpine"]),
        ("apptainer delete -F library://a/b/c:1", ["delete", "-F", "library://a/b/c:1"]),
        ("apptainer remote use x", ["remote", "use", "x"]),
        ("apptainer remote -c f list", ["remote", "list", "-c", "f"]),
        ("apptainer remote add-keyserver -o 1 site https://k.example", ["keyserver", "add", "-o", "1", "https://k.example"]),
        ("apptainer instance stats --no-stream web", ["instance", "stats", "--no-stream", "web"]),
        ("apptainer instance start i.sif web", ["instance", "start", "--force", "i.sif", "web"]),
        ("singularity instance.stop web", ["instance", "stop", "web"]),
        ("apptainer overlay create --size 512 o.img", ["overlay", "create", "--size", "512", "o.img"]),
        ("apptainer help inspect", ["help", "inspect"]),
        ("apptainer --build-config exec i x", ["exec", "--force", "i", "x"]),
    ],
)  # fmt: skip
def test_shim_translates(line: str, words: list[str]) -> None:
    program, *given = shlex.split(line)
    assert translate(program, given).words == words


def test_shim_version_can_be_parsed() -> None:
    text = translate("singularity", ["--version"]).text
    assert text == f"apptainer version {SPOKEN}\n"
    last = text.split()[-1]
    assert re.fullmatch(r"\d+\.\d+\.\d+\+kedge\.[\d.]+\w*", last)
    assert last.endswith(VERSION)
    assert translate("apptainer", ["version"]).text == f"{SPOKEN}\n"


@each_row(
    ("line", "message", "hint"),
    [
        ("apptainer --nv exec i x", "'apptainer' has no option --nv", "apptainer exec --nv ..."),
        ("apptainer buld x y", "'apptainer' has no verb 'buld'", "did you mean 'build'?"),
        ("apptainer capability list", "kedge does not support 'apptainer capability'", "rights of their caller"),
        ("singularity oci run", "kedge does not support 'singularity oci'", "kedge run oci:DIRECTORY"),
        (
            "apptainer config fakeroot --add x",
            "kedge does not support 'apptainer config fakeroot'",
            "kedge config fakeroot",
        ),
        ("apptainer config global --get x", "kedge does not support 'apptainer config'", "kedge config show"),
        ("apptainer keyserver login https://k", "kedge does not support 'apptainer keyserver login'", "no credentials"),
        ("apptainer plugin install x", "kedge does not support 'apptainer plugin'", "no plugins"),
        ("apptainer buildcfg NO_SUCH", 'no variable named "NO_SUCH"', "apptainer buildcfg"),
        ("apptainer remote login --tokenfile f r.example", "'apptainer remote --tokenfile' is not", "--password-stdin"),
        ("apptainer pull --docker-host=h docker://x", "'apptainer pull --docker-host' is not", "DOCKER_HOST"),
        ("apptainer build -e x docker://y", "'build -e' is not supported", "cannot write encrypted images"),
        ("apptainer build x.sif", "'build' needs an output file and a definition file or image", "docker://NAME"),
        ("apptainer build x.sif gone.def", "gone.def: No such file or directory", ""),
        ("apptainer exec --security uid:1 i x", "--security is not supported", "leave it out"),
        ("apptainer exec i", "'kedge exec' needs a command to run", "usage"),
        ("apptainer -Z exec", "'apptainer' has no option -Z", ""),
    ],
)  # fmt: skip
def test_shim_refuses_with_a_remedy(line: str, message: str, hint: str) -> None:
    with pytest.raises(KedgeError) as caught:
        accept(line)
    assert caught.value.message.startswith(message)
    assert hint in (caught.value.hint or "")


def test_shim_builds_definitions(tmp_path: Path) -> None:
    for name in ("Definition.nbody", "app.def", "Singularity"):
        recipe = tmp_path / name
        recipe.write_text("Bootstrap: docker\nFrom: ubuntu\n")
        words = translate("apptainer", ["build", "-fF", "--nv", "-B", "/a", "-T", "x.sif", str(recipe)]).words
        assert words == ["build", "--format", "sif", "-F", "--nv", "-B", "/a", "-T", "x.sif", str(recipe)]
        words = translate("apptainer", ["build", "--sandbox", "--build-arg", "A=1", "x", str(recipe)]).words
        assert words == ["build", "--format", "sandbox", "--build-arg", "A=1", "x", str(recipe)]


def test_shim_builds_images_from_images(tmp_path: Path) -> None:
    (tmp_path / "i.sif").write_bytes(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + bytes(100))
    words = translate(
        "apptainer", ["build", "-F", "--disable-cache", "--tmpdir", "/t", "x", str(tmp_path / "i.sif")]
    ).words
    assert words == ["convert", "--format", "sif", "-F", "--tmpdir", "/t", str(tmp_path / "i.sif"), "x"]
    words = translate("apptainer", ["build", "--sandbox", "x", str(tmp_path)]).words
    assert words == ["convert", "--format", "sandbox", str(tmp_path), "x"]


def run_kedge(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return kedge(*words, cache=Path("/nonexistent"), check=False, environment=environment)


def install(folder: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    return run_kedge("shim", "install", "--dir", folder, *words, PATH=path or f"{folder}:{os.environ['PATH']}")


def test_shim_install_list_and_remove(tmp_path: Path) -> None:
    folder = tmp_path / "new/bin"
    assert install(folder, "--dry-run").stdout.startswith("would write")
    assert not folder.exists()
    done = install(folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"wrote {folder / program}" for program in PROGRAMS]
    for program in PROGRAMS:
        assert stat.S_IMODE((folder / program).stat().st_mode) & 0o500 == 0o500
        assert is_shim(str(folder / program))
    assert install(folder).returncode == 0  # ours are written again
    shown = json.loads(run_kedge("--json", "shim", "list", PATH=f"{folder}:{os.environ['PATH']}").stdout)
    assert [(each["program"], each["state"]) for each in shown] == [(program, "used") for program in PROGRAMS]
    (folder / "other").write_text("mine")
    done = run_kedge("shim", "remove", "--dir", folder)
    assert done.stdout.splitlines() == [f"removed {folder / program}" for program in PROGRAMS]
    assert [each.name for each in folder.iterdir()] == ["other"]
    assert "no shims in" in run_kedge("shim", "remove", "--dir", folder).stderr


def test_shim_install_docker_alone_or_with_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    assert install(folder, "docker").stdout == f"wrote {folder / 'docker'}\n"
    shown = subprocess.run([folder / "docker", "--version"], check=True, capture_output=True, text=True)
    assert shown.stdout.startswith("Docker version 27.")
    assert "kedge" in shown.stdout
    install(folder, "singularity", "docker")
    assert {each.name for each in folder.iterdir()} == {*PROGRAMS, "docker"}
    run_kedge("shim", "remove", "--dir", folder, "apptainer")
    assert [each.name for each in folder.iterdir()] == ["docker"]
    run_kedge("shim", "remove", "--dir", folder)
    assert not list(folder.iterdir())
    done = install(folder, "dokcer")
    assert (done.returncode, "did you mean 'docker'?" in done.stderr) == (2, True)


def test_shim_install_goes_to_the_users_programs_by_default(tmp_path: Path) -> None:
    done = run_kedge("shim", "install", HOME=str(tmp_path), PATH="/usr/bin:/bin")
    folder = tmp_path / ".local/bin"
    assert is_shim(str(folder / "apptainer"))
    assert_reads(done.stderr, "shims/warning-not-path-export-path", folder)
    shown = json.loads(run_kedge("--json", "shim", "list", HOME=str(tmp_path), PATH="/usr/bin:/bin").stdout)
    assert {each["state"] for each in shown} == {"off-path"}


def test_shim_list_looks_into_a_directory(tmp_path: Path) -> None:
    """Where `install --dir` put them, they are found, also outside of PATH."""
    folder = tmp_path / "own bin"
    install(folder, path="/usr/bin:/bin")
    done = run_kedge("--json", "shim", "list", "--dir", folder, PATH="/usr/bin:/bin", HOME=str(tmp_path))
    shown = json.loads(done.stdout)
    assert [(each["path"], each["state"]) for each in shown] == [(str(folder / x), "off-path") for x in PROGRAMS]
    done = run_kedge("shim", "list", "--dir", str(tmp_path), PATH="/usr/bin:/bin")
    assert done.returncode == 0
    assert f"kedge shim install --dir {tmp_path}" in done.stderr


def test_shim_install_leaves_other_programs_alone(tmp_path: Path) -> None:
    real = tmp_path / "singularity"
    real.write_text("#!/bin/sh\necho real\n")
    done = install(tmp_path)
    assert done.returncode == 31
    assert_says(done.stderr, "shims/not-kedges", real)
    assert [each.name for each in tmp_path.iterdir()] == ["singularity"]
    assert run_kedge("shim", "remove", "--dir", str(tmp_path)).returncode == 0
    assert real.read_text() == "#!/bin/sh\necho real\n"
    assert install(tmp_path, "--force").returncode == 0
    assert is_shim(str(real))


def test_shim_install_with_force_replaces_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text("real")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/apptainer").symlink_to(real)
    assert install(tmp_path / "bin", "--force").returncode == 0
    assert real.read_text() == "real"
    assert not (tmp_path / "bin/apptainer").is_symlink()


def test_shim_install_says_which_program_a_shell_finds(tmp_path: Path) -> None:
    real = tmp_path / "real/apptainer"
    real.parent.mkdir()
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    ours = tmp_path / "ours"
    first = install(ours, path=f"{real.parent}:{ours}:/usr/bin")
    assert_says(first.stderr, "shims/your-shell-finds-another-apptainer", real)
    after = install(ours, path=f"{ours}:{real.parent}:/usr/bin")
    assert_says(after.stderr, "shims/apptainer-now-starts-other-one", real)


@pytest.mark.parametrize("name", ["with blank", "l" * 130])
def test_shim_starts_whatever_the_interpreter_is_called(tmp_path: Path, name: str) -> None:
    python = tmp_path / name
    python.symlink_to(sys.executable)
    for program in ("singularity", "run-singularity"):
        path = tmp_path / program
        path.write_text(make_shim(program, str(python), str(REPOSITORY / "src")))
        path.chmod(0o755)
    done = subprocess.run([tmp_path / "singularity", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"apptainer version {SPOKEN}\n"
    done = subprocess.run([tmp_path / "run-singularity"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (255, "FATAL:   'kedge run' needs an image")


def test_shim_without_its_package_says_so(tmp_path: Path) -> None:
    path = tmp_path / "apptainer"
    path.write_text(make_shim("apptainer", sys.executable, "/nowhere"))
    path.chmod(0o755)
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "kedge is not in /nowhere" in done.stderr
    assert_says(done.stderr, "shims/write-file-again-shim-install")
    assert MARK in path.read_text()


# As `kedge shim install` of 0.1 wrote it: such files lie in people's ~/bin, and a newer kedge leaves them there.
OF_KEDGE_0_1 = """#!{python} -SI
# {program}: made by 'kedge shim install', and removed by 'kedge shim remove'
import sys

sys.path.insert(0, '{source}')
try:
    from kedge.cli.{module} import main
except ImportError as problem:
    sys.exit(f"{program}: kedge is not in {{sys.path[0]}} ({{problem}}); to write this file again: kedge shim install")
sys.exit(main('{program}'))
"""


@pytest.mark.parametrize(
    ("program", "module", "words", "shown"),
    [
        ("apptainer", "shim_words", ["--version"], f"apptainer version {SPOKEN}"),
        ("singularity", "shim_words", ["--version"], "version"),
        ("docker", "docker_words", ["--version"], "Docker version"),
        ("enroot", "enroot_words", ["version"], ""),
        ("srun", "srun_words", ["--version"], ""),
    ],
)
def test_shim_that_kedge_0_1_installed_still_starts_kedge(program, module, words, shown, tmp_path):
    path = tmp_path / program
    source = str(REPOSITORY / "src")
    path.write_text(OF_KEDGE_0_1.format(python=sys.executable, program=program, source=source, module=module))
    path.chmod(0o755)
    assert is_shim(str(path))
    done = subprocess.run([path, *words], capture_output=True, text=True, check=False)
    assert "to write this file again" not in done.stderr
    assert shown in done.stdout


def test_shim_verbs_find_the_libraries(tmp_path: Path) -> None:
    install(tmp_path)
    for words, status in ((["inspect", "--help"], 0), (["sif", "list", "/gone"], 255), ([], 1)):
        done = subprocess.run([tmp_path / "apptainer", *words], capture_output=True, text=True, check=False)
        assert done.returncode == status, words
        assert status or not done.stderr


def test_shim_starts_of_containers_import_nothing_heavy() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY / 'src')!r})\n"
        "fake = type(sys)('kedge.container.start_container'); fake.run_container = lambda options, say, services: 7\n"
        "sys.modules['kedge.container.start_container'] = fake\n"
        "from kedge.cli.shims.shim_words import main\n"
        "status = main('singularity', ['-q', 'exec', '--nv', 'i', 'x']); print(*sys.modules); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-SI", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert not [name for name in done.stdout.split() if name.split(".")[0] in FORBIDDEN]


def test_shim_lets_an_image_run_itself(tmp_path: Path) -> None:
    require_user_namespaces()
    root = tmp_path / "root"
    for folder in ("bin", "dev", "etc", "proc", "sys", "tmp", "var/tmp", ".singularity.d"):
        (root / folder).mkdir(parents=True)
    (root / "bin/sh").write_bytes(read_busybox())
    (root / "bin/sh").chmod(0o755)
    script = root / ".singularity.d/runscript"
    script.write_text('#!/bin/sh\necho "$#:$2"\nexit 5\n')
    script.chmod(0o755)
    install(tmp_path / "bin")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path}
    subprocess.run(["apptainer", "build", "i.sif", "root"], cwd=tmp_path, env=environ, check=True, capture_output=True)
    done = subprocess.run(
        ["./i.sif", "a", "b c"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (5, "2:b c\n"), done.stderr
