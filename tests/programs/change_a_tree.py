# SPDX-License-Identifier: BSD-3-Clause
"""Changes a directory tree at random, the same way for the same seed, and describes trees; as root of a namespace."""

import contextlib
import hashlib
import json
import os
import random
import shutil
import stat
import sys


def list_paths(top):
    """All paths below a directory, in byte order."""
    found = []
    for folder, folders, names in os.walk(top):
        found += [os.path.join(folder, name) for name in (*folders, *names)]
    return sorted(found)


def describe(top):
    """Kind, mode, time in seconds, content and the first name of every file; not the root itself."""
    out, firsts = {}, {}
    for path in list_paths(top):
        status = os.lstat(path)
        inside = ""
        if stat.S_ISREG(status.st_mode):
            with open(path, "rb") as file:
                inside = hashlib.sha256(file.read()).hexdigest()
        elif stat.S_ISLNK(status.st_mode):
            inside = os.readlink(path)
        name = os.path.relpath(path, top)
        first = name if stat.S_ISDIR(status.st_mode) else firsts.setdefault(status.st_ino, name)
        attributes = {}
        with contextlib.suppress(OSError):
            names = [key for key in os.listxattr(path, follow_symlinks=False) if key.startswith("user.kedge")]
            attributes = {key: os.getxattr(path, key, follow_symlinks=False).decode() for key in names}
        out[name] = [oct(status.st_mode), int(status.st_mtime), inside, first, attributes]
    return out


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def fill(top, chance):
    """A tree of some depth to begin with."""
    folders = [top]
    for number in range(12):
        folder = os.path.join(chance.choice(folders), f"d{number}")
        os.mkdir(folder)
        os.chmod(folder, chance.choice((0o755, 0o700, 0o775, 0o1777)))
        folders.append(folder)
    for number in range(40):
        path = os.path.join(chance.choice(folders), f"f{number}")
        write(path, bytes([number]) * chance.randrange(3000))
        os.chmod(path, chance.choice((0o644, 0o600, 0o755, 0o444)))
        if number % 7 == 0:
            os.symlink(chance.choice(("f1", "/d0", "../nowhere")), path + ".link")
    for path in list_paths(top):
        os.utime(path, (1_600_000_000, 1_600_000_000), follow_symlinks=False)


def remove(path):
    shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)


def change(top, chance):
    """One change of any kind; what cannot be done at that place is not done."""
    paths = list_paths(top)
    folders = [top, *(path for path in paths if os.path.isdir(path) and not os.path.islink(path))]
    files = [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]
    fresh = os.path.join(chance.choice(folders), f"n{chance.randrange(1000)}")
    path = chance.choice(paths or [fresh])
    file = chance.choice(files or [fresh])
    kind = chance.randrange(14)
    if kind == 0:
        write(fresh, b"new" * chance.randrange(100))
    elif kind == 1:
        with open(file, "ab") as opened:
            opened.write(b"more")
    elif kind == 2:
        remove(path)
    elif kind == 3:
        os.mkdir(fresh)
        write(fresh + "/inside", b"x")
    elif kind == 4:
        os.rename(file, fresh)
    elif kind == 5:
        os.symlink(os.path.basename(path), fresh)
    elif kind == 6:
        os.link(file, fresh)
    elif kind == 7:
        os.chmod(file, chance.choice((0o600, 0o000, 0o755, 0o640)))
    elif kind == 8:
        os.chmod(chance.choice(folders[1:] or [top]), chance.choice((0o700, 0o000, 0o777)))
    elif kind == 9:
        remove(path)
        os.mkdir(path)
        write(path + "/again", b"y")
    elif kind == 10:
        remove(path)
        write(path, b"a file now")
    elif kind == 11:
        remove(path)
        os.symlink("elsewhere", path)
    elif kind == 12:
        os.mkfifo(fresh)
    else:
        folder = chance.choice(folders[1:] or [top + "/none"])
        os.setxattr(file, "user.kedge.test", b"1")
        if not fresh.startswith(folder + "/"):
            shutil.copytree(folder, fresh, symlinks=True)
            shutil.rmtree(folder)


def change_often(top, chance):
    """Between one and thirty changes."""
    for _ in range(chance.randrange(1, 30)):
        with contextlib.suppress(OSError, shutil.Error):
            change(top, chance)


if __name__ == "__main__":
    word, top, seed = sys.argv[1:]
    chance = random.Random(seed)
    if word == "fill":
        fill(top, chance)
    elif word == "change":
        change_often(top, chance)
    print(json.dumps(describe(top)))
