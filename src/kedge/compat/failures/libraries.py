# SPDX-License-Identifier: BSD-3-Clause
"""Libraries and programs that do not go with an image: C library, missing files, other CPUs."""

from __future__ import annotations

from kedge.compat.failures.failure import LIKELY, Failure

LIBRARIES = (
    Failure(
        "host-glibc",
        r"(GLIBC_[\w.]+)['\u2019]? not found \(required by (/\.singularity\.d/libs/\S+?)\)",
        cause="a library of the host, {2}, was brought into an image whose C library is older",
        remedy=(
            "start it with 'kedge run --nv', which brings in the driver's own libraries only; or take a newer image"
        ),
        source="https://github.com/apptainer/apptainer/issues/598",
        examples=("/lib64/libc.so.6: version `GLIBC_2.34' not found (required by /.singularity.d/libs/libGLX.so.0)",),
    ),
    Failure(
        "old-glibc",
        r"version [`'\u2018](GLIBC_[\w.]+)['\u2019]? not found \(required by (\S+?)\)",
        cause="{2} needs a newer C library ({1}) than the one that was loaded: it comes from a newer system",
        remedy="a library of the host in an older image: do not bind it, or take a newer image; a program of "
        "yours: build "
        "it inside of the image; a wheel: pip install it in the container",
        source="a program built for a newer glibc in an older image",
        examples=(
            "./solver: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by ./solver)",
            "/lib64/libc.so.6: version `GLIBC_2.34' not found (required by /opt/host/lib/libucp.so.0)",
        ),
        unless=r"/\.singularity\.d/libs/",
    ),
    Failure(
        "old-libstdcxx",
        r"version [`'\u2018]((?:GLIBCXX|CXXABI|GOMP|GFORTRAN)_[\w.]+)['\u2019]? not found \(required by (\S+?)\)",
        cause="{2} needs a newer compiler library ({1}) than the one that was loaded: often conda's or a "
        "module's stands "
        "before the image's",
        remedy="'unset LD_LIBRARY_PATH' before the start; in conda: conda install -c conda-forge libstdcxx-ng",
        source="the dynamic loader",
        examples=(
            "ImportError: /usr/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by "
            "/opt/env/lib/python3.11/site-packages/x.so)",
        ),
    ),
    Failure(
        "musl",
        r"Error relocating (\S+?): (\S+?): symbol not found|ld-musl-\w+",
        cause="a program for the GNU C library runs in an image with musl (Alpine), or the other way round",
        remedy="use an image of Debian, Ubuntu or Rocky Linux for it",
        source="musl's loader",
        examples=("Error relocating /usr/local/lib/libfoo.so: __memcpy_chk: symbol not found",),
        sure=LIKELY,
    ),
    Failure(
        "other-architecture",
        r"[Ee]xec format error|cannot execute binary file|wrong ELF class|image's architecture \(\w+\) could not run",
        cause="the program or the image is for another kind of CPU (x86-64 or ARM) than that node's, or a script "
        "has no "
        "first line #!",
        remedy="'uname -m' on the node; pull the image for it: kedge pull --arch arm64 (or amd64); begin scripts "
        "with "
        "#!/bin/bash",
        source="the Linux kernel, bash",
        examples=(
            "bash: ./solver: cannot execute binary file: Exec format error",
            "OSError: [Errno 8] Exec format error: './solver'",
            "FATAL: While checking container encryption: the image's architecture (arm64) could not run on the "
            "host's "
            "(amd64)",
        ),
    ),
    Failure(
        "missing-library",
        r"error while loading shared libraries: (\S+?): cannot open shared object file|ImportError: (\S+?): "
        r"cannot open "
        r"shared object file|OSError: (\S+?): cannot open shared object file",
        cause="the program needs a library that is not in the container: {1}",
        remedy="take an image that has it, or install its package in yours; a library of the host's MPI or fabric: "
        "'kedge mpi check IMAGE'; do not set LD_LIBRARY_PATH to directories of the host",
        source="the dynamic loader",
        examples=(
            "./solver: error while loading shared libraries: libmpi.so.12: cannot open shared object file: No "
            "such file or "
            "directory",
            "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory",
        ),
        unless=r"libcuda\.so",
        missing="the line names it",
    ),
    Failure(
        "undefined-symbol",
        r"(?:undefined symbol|symbol lookup error): ?(\S+)",
        cause="two libraries of different versions were mixed: one lacks what the other needs",
        remedy="PYTHONNOUSERSITE=1 keeps packages below ~/.local out; 'unset LD_LIBRARY_PATH'; reinstall the "
        "package in "
        "the container, for its own PyTorch",
        source="the dynamic loader",
        examples=(
            "ImportError: /opt/env/lib/python3.11/site-packages/flash_attn_2_cuda.so: undefined symbol: "
            "_ZN3c104cuda9SetDeviceEi",
        ),
        sure=LIKELY,
    ),
)
