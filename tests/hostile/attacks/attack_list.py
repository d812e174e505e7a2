# SPDX-License-Identifier: BSD-3-Clause
"""All attacks, with what is expected: the tests prove this list, and the threat model's table is made from it."""

from __future__ import annotations

from tests.hostile.attacks.attack import EVERYTHING, FILES, PROCESSES, VARIABLES, Attack

_FILES = "your home, `/tmp`, `/var/tmp`, the current directory and `/dev` are bound; `--contain` leaves them out"
_PROCESSES = "the host's processes are yours too; `--pid` and `--containall` hide them"
_VARIABLES = "your environment is handed on; `--containall` and `--cleanenv` keep it out"
_IPC = "shared memory of the host is used by MPI; `--ipc` and `--containall` give the container its own"
_NETWORK = "the network is the host's, and with it loopback and abstract sockets; `--net` gives the container its own"
_KEYS = "your keyrings are handed on, as to any program; `--contain` keeps them out"
_TERMINAL = "it is the program's terminal too; `--contain` forbids typing into it"
_SYS = "it is there with your rights, which are few; `--contain` makes it read-only"
_HANDED = "what you opened for the program is handed on"

ATTACKS = (
    # -- files
    Attack("read a key in your home by its path", ("home",), FILES, _FILES),
    Attack("read a file of your project by its path", ("project",), FILES, _FILES),
    Attack("read a file of yours in `/tmp`", ("temporary",), FILES, _FILES),
    Attack("read a file of yours in `/dev/shm`", ("shared memory file",), FILES, _FILES),
    Attack("read a file that is bound nowhere", ("outside",)),
    Attack("read through a directory that you left open", ("descriptor",), EVERYTHING, _HANDED),
    Attack("read past a mount by unmounting what covers it", ("covered",)),
    Attack("read the host's root by binding `/proc/N/root` or `cwd`", ("bind of a root",)),
    Attack("read the host's files by their handle", ("handle",)),
    Attack("read the host's disks, memory and ports", ("devices",)),
    Attack("write to a read-only bind", ("readonly written",)),
    Attack("change images that are unpacked on the node", ("node written",)),
    Attack("let a mount appear on the host", ("mount outside",)),
    Attack("change anything that is bound nowhere", ("changed outside",)),
    # -- processes
    Attack("read the caller's files through `/proc/N/cwd`", ("process cwd",)),
    Attack("read the caller's files through `/proc/N/root`", ("process root",)),
    Attack("read the caller's files through `/proc/N/fd`", ("process fd",)),
    Attack("read the caller's files through `/proc/N/map_files`", ("process map_files",)),
    Attack("read your keys in `/proc/N/environ`", ("process environ",)),
    Attack("read a secret of `--env` in `/proc/N/cmdline`", ("process cmdline",)),
    Attack("read the memory of a process outside, or trace it", ("process memory",)),
    Attack("enter the namespaces of a process outside", ("process namespaces",)),
    Attack("change kedge's interpreter through `/proc/N/exe`", ("interpreter changed",)),
    Attack("end a process of yours outside", ("killed",), PROCESSES, _PROCESSES),
    # -- the kernel's
    Attack("read your keys in its own environment", ("environment",), VARIABLES, _VARIABLES),
    Attack("read a shared memory segment of yours", ("segment",), VARIABLES, _IPC),
    Attack("read a message queue of yours", ("queue",), VARIABLES, _IPC),
    Attack("ask a program of yours at a socket in `/tmp`", ("socket",), FILES, _FILES),
    Attack("ask a program of yours at an abstract socket", ("abstract socket",), EVERYTHING, _NETWORK),
    Attack("ask a program of yours at the loopback address", ("loopback",), EVERYTHING, _NETWORK),
    Attack("read a key of your session keyring", ("session key",), FILES, _KEYS),
    Attack("read a key of your user keyring", ("user key",), FILES, _KEYS),
    Attack("type into your terminal (TIOCSTI)", ("typed",), FILES, _TERMINAL),
    Attack("paste into your console (TIOCLINUX)", ("paste",), FILES, _TERMINAL),
    Attack("read another terminal of yours", ("terminal",), FILES, _FILES),
    Attack("write to `/sys`", ("sys", "sys remounted"), FILES, _SYS),
    Attack("change settings of the kernel (`core_pattern` and others)", ("settings",)),
)
