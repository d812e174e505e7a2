# SPDX-License-Identifier: BSD-3-Clause
"""All attacks, with what is expected: the tests prove this list, and the threat model's table is made from it."""

from __future__ import annotations

from tests.hostile.attacks.attack import EVERYTHING, FILES, PROCESSES, REFUSED, VARIABLES, Attack

_FILES = "Your home, `/tmp`, `/var/tmp`, the current directory and `/dev` are writable. `--contain` leaves them out."
_PROCESSES = "The host's processes are visible, and yours obey you. `--pid` and `--containall` hide them."
_VARIABLES = "Your environment is passed on. `--cleanenv` and `--containall` keep it out."
_IPC = "MPI needs the host's shared memory. `--ipc` and `--containall` give the container its own."
_NETWORK = "The network namespace is the host's, and loopback and abstract sockets with it. `--net` gives another."
_KEYS = "Your keyrings are passed on, as to any program. `--contain` keeps them out."
_NAMES = "The kernel shows them to every process of their owner."
_TERMINAL = (
    "Your terminal is the program's terminal. `--contain` forbids it to type there; a kernel with "
    "`dev.tty.legacy_tiocsti=0` forbids TIOCSTI to all."
)
_SYS = "It is there with your rights, which are few. `--contain` mounts it read-only."
_PASSED = "What you leave open for the program is passed on. `--contain` closes directories."

# Proved by test_attacks.py, and by test_peer.py for Apptainer
ATTACKS = (
    Attack("Read a key in your home by its path", ("home",), "ohhoh", FILES, _FILES),
    Attack("Read a file of your project by its path", ("project",), "ohhoh", FILES, _FILES),
    Attack("Read a file of yours in `/tmp`", ("temporary",), "ohhoh", FILES, _FILES),
    Attack("Read a file of yours in `/dev/shm`", ("shared memory file",), "ohhoh", FILES, _FILES),
    Attack("Read another terminal of yours", ("terminal",), "ohhoh", FILES, _FILES),
    Attack("Talk to a program of yours at a socket in `/tmp`", ("socket",), "ohhoh", FILES, _FILES),
    Attack("Read a file that is not bound", ("outside",), "hhhhh"),
    Attack("Read through a directory that you left open", ("descriptor",), "ooooo", FILES, _PASSED),
    Attack("Read through a descriptor that waits in a socket", ("queued descriptor",), "hhhhh"),
    Attack("Read what a mount covers, by unmounting or `chroot`", ("covered",), "hhhhh"),
    Attack("Read the host's root by binding `/proc/N/root` or `cwd`", ("bind of a root",), "hhhhh"),
    Attack("Read the host's files by handle (`open_by_handle_at`)", ("handle",), "hhhhh"),
    Attack("Read disks and memory of the host through devices", ("devices",), "hhhhh"),
    Attack("Write to a read-only bind", ("readonly written",), "hhhoo"),
    Attack("Change the image that it runs from", ("image written",), "hhhhh"),
    Attack("Change images that kedge unpacked on the node", ("node written",), "-----"),
    Attack("Make a mount appear on the host", ("mount outside",), "hhhhh"),
    Attack("Change a file that is not bound", ("changed outside",), "hhhhh"),
    Attack("Read your files through `/proc/N/cwd`", ("process cwd",), "hhhoh"),
    Attack("Read your files through `/proc/N/root`", ("process root",), "hhhoh"),
    Attack("Read your files through `/proc/N/fd`", ("process fd",), "hhhoh"),
    Attack("Read your files through `/proc/N/map_files`", ("process map_files",), "hhhhh"),
    Attack("Read your API keys in `/proc/N/environ`", ("process environ",), "hhhoh"),
    Attack("Read command lines of processes outside", ("command lines",), "oohoh", PROCESSES, _PROCESSES),
    Attack("Read a value of `--env` in `/proc/N/cmdline`", ("process cmdline",), "hhhhh"),
    Attack("Read the memory of a process outside, or trace it", ("process memory",), "hhhoh"),
    Attack("Enter the namespaces of a process outside (`setns`)", ("process namespaces",), "hhhoh"),
    Attack("Change your Python interpreter through `/proc/N/exe`", ("interpreter changed",), "-----"),
    Attack("Kill a process of yours outside", ("killed",), "oohoh", PROCESSES, _PROCESSES),
    Attack("Read your API keys in its own environment", ("environment",), "oohoh", VARIABLES, _VARIABLES),
    Attack("Read a System V shared memory segment of yours", ("segment",), "oohoh", VARIABLES, _IPC),
    Attack("Read a POSIX message queue of yours", ("queue",), "oohoh", VARIABLES, _IPC),
    Attack("Talk to a program of yours at an abstract socket", ("abstract socket",), "ooooo", EVERYTHING, _NETWORK),
    Attack("Talk to a program of yours at 127.0.0.1", ("loopback",), "ooooo", EVERYTHING, _NETWORK),
    Attack("Read the names of your keys (`/proc/keys`)", ("names of keys",), "ooooo", EVERYTHING, _NAMES),
    Attack("Read a key of your session keyring", ("session key",), "ooooo", FILES, _KEYS),
    Attack("Read a key of your user keyring", ("user key",), "ooooo", FILES, _KEYS),
    Attack("Type into your terminal (TIOCSTI)", ("typed",), "ooooo", FILES, _TERMINAL),
    Attack("Paste into your console (TIOCLINUX)", ("paste",), "ooooo", FILES, _TERMINAL),
    Attack("Write to `/sys`", ("sys", "sys remounted"), "ooooo", FILES, _SYS),
    Attack("Change kernel settings (`core_pattern` and others)", ("settings",), "hhhhh"),
)
# Proved by test_interpreter.py, test_joining.py and test_places.py in all columns; not run against Apptainer
STARTS = (
    Attack("Change your Python interpreter with a `#!/proc/self/exe` script", (), "-----"),
    Attack("The same while you enter an instance", (), "-----"),
    Attack("Read your files from kedge while you enter an instance", (), "-----"),
    Attack("Start in a directory outside (`--pwd /proc/1/cwd`)", (), "-----", otherwise=REFUSED),
)
