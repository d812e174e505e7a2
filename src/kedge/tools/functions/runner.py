# SPDX-License-Identifier: BSD-3-Clause
"""Runs packed calls. This file is copied beside them and is started by the image's own Python, 3.6 or newer.

It knows nothing of kedge, and it is `__main__` there: what was defined in the caller's `__main__` is defined here. The
job's command knows the digest of this file and of `sums`, which has those of the others: nothing else is read.
"""

import hashlib
import hmac
import os
import pickle
import sys
import traceback


def define(call):
    """Make the caller's functions and values again, in this module."""
    for folder in reversed(call["folders"]):
        sys.path.insert(0, folder)
    space = sys.modules["__main__"].__dict__
    for kind, name, text in call["definitions"]:
        if kind == "module":
            __import__(text)
            space[name] = sys.modules[text]
        elif kind == "alias":
            space[name] = space[text]
        elif kind == "value":
            space[name] = pickle.loads(text)
        else:
            # a file name that is true makes tracebacks show the lines
            path = os.path.join(call["place"], name + ".py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            exec(compile(text, path, "exec"), space)


def find(module, name):
    """The function that is called."""
    __import__(module)
    found = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part)
    return found


def answer(call, define=define, find=find):  # here: the caller's functions may have these names
    """The result of a call, or what it raised, as it is written."""
    try:
        define(call)
        function = find(call["module"], call["name"])
        calls = pickle.loads(call["arguments"])
        values = [function(*arguments, **named) for arguments, named in calls]
        return pickle.dumps({"values": [pickle.dumps(value, 4) for value in values]}, 4)
    except BaseException as problem:  # whatever ends the function is the caller's to see
        text = traceback.format_exc()
        try:
            kept = pickle.dumps(problem, 4)
            pickle.loads(kept)
        except Exception:  # exceptions that cannot travel travel as text
            kept = b""
        return pickle.dumps({"problem": kept, "traceback": text, "kind": type(problem).__name__}, 4)


def read(folder, name, digest):
    """A file that is what was submitted."""
    with open(os.path.join(folder, name), "rb") as file:
        data = file.read()
    if not hmac.compare_digest(hashlib.sha256(data).hexdigest(), digest):
        raise SystemExit("kedge: " + os.path.join(folder, name) + " is not what was submitted, and is not run")
    return data


def main():
    """Read the call of this task, and write its answer whole or not at all."""
    folder, digest = sys.argv[1], sys.argv[3]
    index = os.environ.get("KEDGE_ARRAY_INDEX", "")
    suffix = "." + index if index else ""
    lines = read(folder, "sums", digest).decode().splitlines()
    sums = {name: each for each, name in (line.split("  ", 1) for line in lines)}
    call = pickle.loads(read(folder, "call", sums["call"]))
    call["arguments"] = read(folder, "arguments" + suffix, sums["arguments" + suffix])
    call["place"] = os.path.join(folder, "source" + suffix)
    os.makedirs(call["place"], exist_ok=True)
    name = "result" + suffix
    seal = hmac.new(call["key"], name.encode() + b"\0", hashlib.sha256)
    told = answer(call)
    seal.update(told)
    temporary = os.path.join(folder, "." + name + "." + str(os.getpid()))
    with open(temporary, "wb") as file:
        file.write(seal.digest())
        file.write(told)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, os.path.join(folder, name))
    return 0 if "values" in pickle.loads(told) else 1


if __name__ == "__main__":
    raise SystemExit(main())
