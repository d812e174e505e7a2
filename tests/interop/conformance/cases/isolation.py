# SPDX-License-Identifier: BSD-3-Clause
"""Namespaces, devices, /proc, host name, network, root's part played by an ordinary user, and who one is."""

from __future__ import annotations

from tests.interop.conformance.case import HOME, IMAGES, Case, execute

BASE = f"{IMAGES}/base.sif"


def apart(name: str, command: str, flags: str = "", *, image: str = "base.sif", **more: object) -> Case:
    return Case(f"apart-{name}", execute(image, command, flags), **more)  # type: ignore[arg-type]


def who(name: str, command: str, flags: str = "", *, image: str = "base.sif", **more: object) -> Case:
    return Case(f"user-{name}", execute(image, command, flags), **more)  # type: ignore[arg-type]


def namespaces(*flags: str) -> Case:
    """Which namespaces are the host's."""
    look = "for each in pid ipc uts net mnt user cgroup; do echo $each $(readlink /proc/self/ns/$each); done"
    inside = f"$runtime exec {' '.join(flags)} {BASE} sh -c '{look}' > in"
    label = "-".join(flag.strip("-") for flag in flags) or "plain"
    return Case(f"apart-namespaces-{label}", script=f"{look} > host; {inside}; grep -Fxf host in | cut -d' ' -f1")


NODES = "null zero full random urandom tty ptmx pts shm fd stdin stdout stderr console mqueue fuse"
DEVICES = f"cd /dev; for each in {NODES}; do [ -e $each ] && echo $each; done; true"
STORE = r"/var/tmp/.+"  # the node's place, read-only there; and what the tests are run from
MOUNTS = "cut -d' ' -f5 /proc/self/mountinfo | grep -vE '^/(sys|dev|proc)/' | sort"
CASES = [
    namespaces(),
    *map(namespaces, ["--containall", "--compat", "--contain", "--pid", "--ipc", "--uts", "--userns", "--fakeroot"]),
    namespaces("--net", "--network", "none"),
    apart("pid-numbers", "[ $$ -lt 50 ] && echo small; set -- /proc/[0-9]*; echo $#", "--pid"),
    apart("pid-first", "cat /proc/1/comm", "--pid", difference="init", ours="(kedge|python3?|python3\\.\\d+)\\S*\n"),
    apart("pid-no-init", "echo $$", "--pid --no-init"),
    apart("pid-host-hidden", "kill -0 $(cat pid) 2>/dev/null; echo $?", "--pid", setup="echo 99999999 > pid"),
    apart("hostname", "hostname; cat /etc/hostname; grep -c compute /etc/hosts; true", "--hostname compute"),
    apart("hostname-variable", "hostname", env={"APPTAINER_HOSTNAME": "compute"}),
    Case("apart-hostname-host", script=f"$runtime exec {BASE} hostname > in; hostname > out; cmp in out && echo same"),
    apart(
        "net-none", "ls /sys/class/net | sort; cat /proc/net/dev | grep -c :", "--net --network none", ignore="^[a-z]"
    ),
    apart("net-loopback-up", "ip link show lo | grep -o 'LOOPBACK[A-Z,]*'", "--net --network none"),
    apart("net-bridge", "true", "--net --network bridge", status=255),
    apart("dns", "cat /etc/resolv.conf", "--dns 192.0.2.1,192.0.2.2"),
    apart("dns-bad", "true", "--dns nonsense", status=255),
    # devices
    apart("dev", DEVICES),
    apart("dev-contain", "ls /dev | grep -v full", "--contain"),
    apart("dev-containall", "ls /dev | grep -v full", "--containall"),
    apart("dev-contain-full", "ls /dev | grep full; true", "--contain", difference="devices", ours="full\n"),
    apart("dev-works", "echo x > /dev/null && head -c 3 /dev/zero | od -An -tx1 && head -c 4 /dev/urandom | wc -c"),
    apart(
        "dev-contain-inside",
        "echo x > /dev/null && head -c 3 /dev/zero | od -An -tx1 && head -c 4 /dev/urandom | wc -c; touch /dev/shm/x; "
        "ls /dev/shm; stat -c %a /dev/shm; echo out > /dev/stdout; cat /dev/stdin; ls /dev/fd/0; "
        "(touch /dev/x) 2>/dev/null && echo written || echo refused; ls -A /dev/pts | grep -c ptmx",
        "--contain",
        stdin="in\n",
    ),
    apart(
        "dev-shm-shared",
        "touch /dev/shm/kedge-conformance && echo made",
        after="rm -f /dev/shm/kedge-conformance && echo removed",
    ),
    # /proc, /sys, mounts
    apart("mounts", MOUNTS, ignore=STORE),
    apart("mounts-contain", MOUNTS, "--contain", ignore=STORE),
    apart("mounts-bind", MOUNTS, "-B sub:/new/place", setup="mkdir sub", ignore=STORE),
    apart("mounts-tmpfs", MOUNTS, "--writable-tmpfs", ignore=STORE),
    apart(
        "look",
        "(echo 1 > /proc/sys/kernel/hostname) 2>/dev/null && echo written || echo refused; ls /sys | grep -c kernel; "
        "ls / | grep -cE '^(host|lower|session|old|\\.old|\\.host)$'; ls -A /.singularity.d/libs; date +%Z; "
        f"cat /etc/resolv.conf /etc/hosts; grep -c ' {HOME} ' /proc/self/mountinfo; ls /.singularity.d | sort; "
        "mount -t tmpfs x /mnt 2>/dev/null && echo mounted || echo refused",
        ignore="^(runscript.help|bootstrap_history|Singularity)$",
    ),
    # root's part
    apart("fakeroot", "id; whoami; echo $HOME; echo $USER", "--fakeroot"),
    apart(
        "fakeroot-ownership",
        "touch made; stat -c '%u %g' made /data /bin/busybox",
        "--fakeroot",
        after="stat -c '%u %g' made",
    ),
    apart(
        "fakeroot-chown",
        # without ids Apptainer cannot change it, and kedge makes believe: both show root's
        "touch made; chown 7:8 made 2>/dev/null; stat -c '%u %g' made",
        "--fakeroot --writable-tmpfs --pwd /data",
    ),
    apart(
        "fakeroot-home", "ls -d ~; pwd; touch ~/fakeroot-home && echo written", "--fakeroot", after="ls ~/fakeroot-home"
    ),
    apart(
        "fakeroot-inside",
        "cat /etc/passwd /etc/group; grep CapEff /proc/self/status; env | sort; mount -t tmpfs x /mnt && echo mounted; "
        "(touch /data/new) 2>/dev/null && echo written || echo refused",
        "--fakeroot",
    ),
    apart("fakeroot-map", "awk '{print $1, $3}' /proc/self/uid_map", "--fakeroot"),
    apart("fakeroot-variable", "id -u", env={"APPTAINER_FAKEROOT": "1"}),
    apart("userns", "id -u; cat /proc/self/uid_map | awk '{print $1, $2, $3}'", "--userns"),
    apart("map", "awk '{print $1, $2, $3}' /proc/self/uid_map /proc/self/gid_map"),
    # who one is
    who(
        "who",
        "id; whoami; id -un; id -gn; id -Gn; echo $USER $LOGNAME; stat -c '%u %g' $PWD ~ /srv; "
        "cat /etc/passwd /etc/group; stat -c '%a' /etc/passwd /etc/group",
    ),
    who("passwd-of-image", "cat /etc/passwd; echo; cat /etc/group", image="users.sif"),
    who("passwd-missing", "ls /etc; id", image="nousers.sif"),
    who("passwd-contain", "cat /etc/passwd; cat /etc/group", "--contain"),
    who("home-of-image", "echo $HOME; whoami", image="users.sif"),
    who("of-image-ignored", "id -u; id -g", image="user.sif"),
    who("variables-cleanenv", 'echo "[$USER] [$LOGNAME] [$HOME] [$SHELL]"', "--cleanenv"),
    who("drop-caps", "echo ran", "--drop-caps CAP_CHOWN"),
    who("add-caps", "echo ran", "--add-caps CAP_NET_RAW", difference="privileges", our_status=255, ours=""),
    *(
        who(f"refused{flag}", "echo ran", f"{flag} {value}", status=255)
        for flag, value in (("--memory", "1G"), ("--cpus", "1"), ("--pids-limit", "10"), ("--security", "seccomp:x"))
    ),
]
