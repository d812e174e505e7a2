# SPDX-License-Identifier: BSD-3-Clause
import errno
import os

from kedge.system import libc

refused = os.environ["REFUSED"].split(",")
mount = libc.mount


def refuse(number):
    def call(*arguments):
        raise OSError(number, os.strerror(number))

    return call


def mount_some(source, target, kind, flags, data=""):
    if kind in refused:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), target)
    mount(source, target, kind, flags, data)


libc.mount = mount_some
if "mount_setattr" in refused:
    libc.set_mount_attributes = refuse(errno.ENOSYS)
if "openat2" in refused:
    libc.open_in_root = libc.open_beneath = refuse(errno.ENOSYS)
if "call notices" in refused:
    libc.filter_calls_with_notices = refuse(errno.EINVAL)
if "pivot_root" in refused:
    libc.pivot_root = refuse(errno.EINVAL)
if "flock" in refused:
    import fcntl

    fcntl.flock = refuse(errno.ENOSYS)
if "in children" in refused:  # which kedge starts without the variable that leads to this file
    from kedge.system import start_kedge

    own_command = start_kedge.own_command
    CODE = (
        "import runpy, sys; sys.path.insert(0, {1!r}); runpy.run_path({0!r}); "
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )

    def start_with_refusals(*words):
        command = own_command(*words)
        place = command.index(f"{start_kedge.own_package()}/__main__.py")
        code = CODE.format(__file__, os.path.dirname(start_kedge.own_package()))
        return [*command[:place], "-c", code, *command[place:]]

    start_kedge.own_command = start_with_refusals
