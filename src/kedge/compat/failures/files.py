# SPDX-License-Identifier: BSD-3-Clause
"""Files and directories: full disks, missing paths, rights, network file systems."""

from __future__ import annotations

from kedge.compat.failures.failure import LIKELY, Failure

FILES = (
    Failure(
        "full-disk",
        r"No space left on device|Disk quota exceeded",
        cause="a disk is full, or a quota is used up: of space or of the number of files",
        remedy=(
            "'df -h DIRECTORY', 'df -i DIRECTORY' and 'quota -s' show how much is left; write to scratch, or "
            "remove what is not needed; 'kedge cache clean' makes room where kedge's cache is"
        ),
        source="the C library",
        examples=("OSError: [Errno 28] No space left on device: '/tmp/x'",),
    ),
    Failure(
        "stale-handle",
        r"Stale (?:NFS )?file handle|Transport endpoint is not connected|Remote I/O error|Input/output error",
        cause="the file system lost the file: another node replaced or removed it, or its server has trouble",
        remedy="try again; do not replace files that running jobs use (write beside it, then rename); tell the "
        "administrators if it stays",
        source="runtime facts: threads about network file systems",
        examples=("OSError: [Errno 116] Stale file handle", "cp: error reading 'data.h5': Input/output error"),
        sure=LIKELY,
    ),
    Failure(
        "open-files",
        r"Too many open files|\[Errno 24\]",
        cause="the limit of open files is reached (ulimit -n)",
        remedy="'ulimit -n 65536' in the script before the program; in PyTorch "
        "torch.multiprocessing.set_sharing_strategy('file_system'), or fewer workers",
        source="PyTorch, the C library",
        examples=(
            "OSError: [Errno 24] Too many open files",
            "RuntimeError: received 0 items of ancdata\nToo many open files",
        ),
    ),
    Failure(
        "read-only",
        r"Read-only file system",
        cause="the program writes into the image, which is read-only, or to a file system that is",
        remedy="write to your home or scratch directory; --writable-tmpfs or --overlay let it write into the "
        "container; "
        "TORCH_HOME, HF_HOME and TRITON_CACHE_DIR move caches",
        source="the C library",
        examples=("OSError: [Errno 30] Read-only file system: '/workspace/out'",),
    ),
    Failure(
        "hdf5-lock",
        r"unable to lock file, errno = \d+|BlockingIOError: .{0,80}unable to (?:lock|open) file",
        cause="HDF5 could not lock its file: the file system has no locks, or another process holds it",
        remedy="HDF5_USE_FILE_LOCKING=FALSE if nobody writes at the same time",
        source="HDF5",
        examples=(
            "BlockingIOError: [Errno 11] Unable to open file (unable to lock file, errno = 11, error message = "
            "'Resource "
            "temporarily unavailable')",
        ),
        sure=LIKELY,
    ),
    Failure(
        "no-such-program",
        r"execve\(\): (\S+?): (?:No such file or directory|Permission denied)",
        cause="a program was not found: {1}; it is not installed there, not in PATH, or not executable",
        remedy="give its absolute path, or load its module in the script; a program of the image runs as 'kedge exec "
        "IMAGE PROGRAM'",
        source="srun 22.05",
        examples=("slurmstepd-gpu01: error: execve(): nosuch: No such file or directory",),
    ),
    Failure(
        "no-such-file",
        r"FileNotFoundError: \[Errno 2\] No such file or directory: ['\"]([^'\"\n]{1,200})"
        r"|can't open file '([^'\n]{1,200})': \[Errno 2\]|couldn't chdir to `?([^':\n]{1,200})'?: No such file",
        cause="there is no {1}: a wrong name or directory, or the directory is not in the container, or not on "
        "that node",
        remedy="paths are relative to where the job was submitted; --bind DIRECTORY brings one into the container; "
        "'kedge exec IMAGE ls DIRECTORY' shows what it sees",
        source="Python, Slurm",
        examples=(
            "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.h5'",
            "python3: can't open file '/home/me/trian.py': [Errno 2] No such file or directory",
            "slurmstepd: error: couldn't chdir to `/scratch/me/x': No such file or directory: going to /tmp instead",
        ),
    ),
    Failure(
        "permission",
        r"PermissionError: \[Errno 13\] Permission denied: ['\"]([^'\"\n]{1,200})",
        cause="you may not use {1}: its rights do not allow it",
        remedy="'ls -ld FILE' shows its rights; inside of a container write to your own directories",
        source="Python",
        examples=("PermissionError: [Errno 13] Permission denied: '/opt/data/out.csv'",),
    ),
)
