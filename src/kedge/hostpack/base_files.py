# SPDX-License-Identifier: BSD-3-Clause
"""What every image of `host:` programs has: directories to mount on, root and nobody, and name lookup that works."""

from __future__ import annotations

from pathlib import Path

from kedge.hostpack.host_tree import HostTree

PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
# On merged systems these are links into /usr, and programs written for either place must find their files.
_MERGED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
_FOLDERS = (
    "/dev",
    "/etc",
    "/home",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/srv",
    "/sys",
    "/usr/bin",
    "/usr/lib",
    "/var",
)
_FILES = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "/etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/resolv.conf": "",  # runtimes mount the host's own over it
}


def add_base(tree: HostTree) -> None:
    """Add the directories and files; what the programs brought themselves is kept."""
    for path in _MERGED:
        if Path(path).is_symlink():
            tree.add(path)
    for path in _FOLDERS:
        tree.make_folder(path)
    for path in ("/tmp", "/var/tmp"):
        tree.make_folder(path, 0o1777)
    for path, text in _FILES.items():
        tree.put(path, text.encode())
