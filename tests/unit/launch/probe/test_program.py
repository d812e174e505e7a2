# SPDX-License-Identifier: BSD-3-Clause
"""The programs in the wheel are what the source says, and ask nothing of an image but some libc."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

from kedge.image.formats.elf import read_elf
from kedge.launch.probe.words import MACHINES, find_probe
from tests.builders.rows import each_row
from tests.requirements import REPOSITORY, require_file, require_program

SOURCES = [REPOSITORY / "src/kedge" / name for name in ("system/no_libc.h", "launch/probe/probe.c")]


def read_origin(path: Path) -> str:
    """What the program was made of: the digest of the source, compiler and linker."""
    found = re.search(rb"kedge-probe made of ([^\0]+)\0", path.read_bytes())
    return found[1].decode()


@each_row("machine", MACHINES)
def test_program_is_made_of_this_source(machine: str) -> None:
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()
    assert read_origin(Path(find_probe(machine))).startswith(f"sha256:{digest} by "), "run scripts/build-probe"


@each_row("machine", MACHINES)
def test_program_needs_no_version_of_anything(machine: str) -> None:
    program = read_elf(Path(find_probe(machine)))
    assert program.needed == ("libc.so.6",)
    assert not program.interpreter, "the first stage chooses one"
    assert b"GLIBC_" not in Path(find_probe(machine)).read_bytes()


def test_program_comes_out_the_same_from_the_same_compiler(tmp_path: Path) -> None:
    for machine in MACHINES:
        require_program(f"{machine}-linux-gnu-gcc")
    done = subprocess.run([REPOSITORY / "scripts/build-probe", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for machine in MACHINES:
        made, shipped = tmp_path / f"probe-{machine}", Path(find_probe(machine))
        if read_origin(made) == read_origin(shipped):
            assert made.read_bytes() == shipped.read_bytes()


# As much of MPI as the probe calls, with the handles of the MPICH ABI, for one rank.
PLAYED_MPI = """
int MPI_Init(int *a, char ***b) { return 0; }
int MPI_Finalize(void) { return 0; }
int MPI_Comm_rank(long comm, int *rank) { *rank = 0; return (int)comm != 0x44000000; }
int MPI_Comm_size(long comm, int *size) { *size = 1; return 0; }
int MPI_Barrier(long comm) { return 0; }
static int copy(const double *from, double *into, int count, int kind) {
    for (int each = 0; each < count; each++) into[each] = from[each];
    return kind != 0x4c00080b;
}
int MPI_Reduce(const void *a, void *b, int n, int kind, int op, int root, int comm) { return copy(a, b, n, kind); }
int MPI_Allreduce(const void *a, void *b, int n, int kind, int op, int comm) { return copy(a, b, n, kind); }
int MPI_Allgather(const void *a, int n, int kind, void *b, int m, int other, int comm) { return 1; }
int MPI_Get_library_version(char *text, int *length) {
    const char *from = "Played \\"MPI\\"\\n1.0";
    for (*length = 0; from[*length]; ++*length) text[*length] = from[*length];
    return text[*length] = 0;
}
"""


def test_program_for_x86_64_runs_under_emulation(tmp_path: Path) -> None:
    compiler, emulator = require_program("x86_64-linux-gnu-gcc"), require_program("qemu-x86_64")
    loader = require_file("/usr/x86_64-linux-gnu/lib/ld-linux-x86-64.so.2")
    (tmp_path / "mpi.c").write_text(PLAYED_MPI)
    subprocess.run([compiler, "-shared", "-fPIC", "-nostdlib", "-o", "libplayed.so", "mpi.c"], cwd=tmp_path, check=True)

    def run(*words: str) -> str:
        second_stage = [loader, "--library-path", loader.parent, find_probe("x86_64"), "\n@run", *words]
        done = subprocess.run([emulator, *second_stage], capture_output=True, text=True, check=False, cwd=tmp_path)
        return done.stdout

    assert r'"abi":"mpich","library":"./libplayed.so","version":"Played \"MPI\"\u000a1.0"' in run(
        "version", "--library", "./libplayed.so"
    )
    assert '"rank":0,"size":1}\n{"kedge":"met"' in run("world", "--library", "./libplayed.so")
    assert '"pi":3.14159265' in run("pi", "--library", "./libplayed.so", "--intervals", "100000")
    assert run("allreduce", "--library", "./libplayed.so", "--bytes", "4096").count('"kedge":"allreduce"') == 4
    without_loader = subprocess.run([emulator, find_probe("x86_64"), "version"], capture_output=True, check=False)
    if not Path("/lib64/ld-linux-x86-64.so.2").exists():
        assert (without_loader.returncode, b"no dynamic loader for x86_64" in without_loader.stdout) == (3, True)
