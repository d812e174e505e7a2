# SPDX-License-Identifier: BSD-3-Clause
"""The working directory, home, temporary directories, --contain and its relatives, scratch and work directories."""

from __future__ import annotations

from tests.interop.conformance.case import HOME, IMAGES, Case, execute, run

BASE = f"{IMAGES}/base.sif"


def place(name: str, command: str, flags: str = "", *, image: str = "base.sif", **more: object) -> Case:
    return Case(f"place-{name}", execute(image, command, flags), **more)  # type: ignore[arg-type]


def covered(name: str, flags: str, *, below: str = "", own: str = "") -> Case:
    """The current folder, in which a file `mark` says `host`, and something else that is asked for there or above it.

    Its directory `other` has a `mark`, too, also in what is `below`.
    """
    case, folder = f"/srv/case/place-covered-{name}", HOME if not own else f"/srv/case/place-covered-{name}"
    inside = f"{folder}/{below}".rstrip("/")
    setup = f"mkdir -p other/{below} {inside}; echo other > other/mark; echo other > other/{below}/mark"
    setup += f"; echo host > {folder}/mark; echo host > {inside}/mark"
    words = flags.format(other=f"{case}/other", here=folder)
    return place(f"covered-{name}", "pwd; cat mark; rm -f mark", words, cwd=inside, setup=setup, after="cat other/mark")


def size_of(folder: str) -> str:
    return f"df -m {folder} | tail -1 | awk '{{print ($2 > 100) ? \"large\" : $2}}'"


OTHER = "mkdir other; echo m > other/mark"
WORK = "find work | sort"
SEE = "echo $HOME; cat ~/mark"
CASES = [
    # where a program starts
    place("cwd", "pwd; echo $PWD; touch here", after="ls"),
    place("cwd-home", "pwd", cwd=HOME),
    place("cwd-root", "pwd", cwd="/"),
    place("cwd-etc", "pwd; ls", cwd="/etc", ignore="^[^/]"),
    place("cwd-outside-missing-in-image", "pwd; ls images/base.sif", cwd="/srv"),
    place("cwd-proc", "pwd", cwd="/proc"),
    place("cwd-link", "pwd; /bin/pwd", setup="mkdir real; ln -s real link", cwd="/srv/case/place-cwd-link/link"),
    place("cwd-space", "pwd", setup="mkdir 'a b'", cwd="/srv/case/place-cwd-space/a b"),
    Case("place-cwd-removed", script=f"mkdir gone; cd gone; rmdir ../gone; $runtime exec {BASE} pwd"),
    place("pwd", "pwd; echo $PWD", "--pwd /data"),
    place("cwd-flag", "pwd", "--cwd /data"),
    place("pwd-variable", "pwd", env={"APPTAINER_PWD": "/data"}),
    place("cwd-variable", "pwd", env={"APPTAINER_CWD": "/data"}),
    place("pwd-link", "pwd", "--pwd /data/link"),
    place("pwd-missing", "pwd", "--pwd /no/such/place", status=255, mentions=("/no/such/place",)),
    place("pwd-relative", "pwd", "--pwd data"),
    place("pwd-contain", "pwd", "--pwd /data --contain"),
    place("pwd-bind", "pwd; ls", "--pwd /mnt -B sub:/mnt", setup="mkdir sub; touch sub/x"),
    Case("place-workdir-run", run("workdir.sif"), difference="workdir", ours="/data/real\n"),
    place("workdir-exec", "pwd", image="workdir.sif"),
    Case("place-workdir-pwd", run("workdir.sif", flags="--pwd /opt")),
    Case("place-workdir-shell", ("shell", f"{IMAGES}/workdir.sif"), stdin="pwd\n"),
    Case("place-workdir-contain", run("workdir.sif", flags="--contain"), difference="workdir", ours="/data/real\n"),
    # home
    place("home", "echo $HOME; echo ~; touch ~/place-home", after="ls ~/place-home"),
    place("home-variable-of-host", "echo $HOME; echo ~", env={"HOME": "/tmp"}),
    place("home-flag", "echo $HOME; cat ~/mark; pwd", "--home other", setup=OTHER, status=255),
    place("home-flag-destination", "echo $HOME; cat ~/mark; ls /home", "-H other:/newhome", setup=OTHER),
    place("home-flag-destination-in-home", SEE, "-H other:/home/somebody", setup=OTHER),
    place("home-flag-missing", "echo $HOME", "--home /no/such/home"),
    place("home-flag-relative-destination", "true", "--home other:relative", setup="mkdir other", status=255),
    place("home-flag-passwd", "grep ^peer /etc/passwd", "-H other:/newhome", setup="mkdir other"),
    place("home-variable", SEE, env={"APPTAINER_HOME": "/srv/case/place-home-variable/other"}, setup=OTHER),
    place("home-flag-contain", "echo $HOME; ls ~", "--contain -H other", setup=OTHER, status=255),
    place("no-home", "echo $HOME; ls -d ~ 2>/dev/null; pwd", "--no-home"),
    place(
        "no-home-cwd-in-home",
        "pwd; ls",
        "--no-home",
        setup="mkdir -p ~/project; touch ~/project/x",
        cwd=f"{HOME}/project",
    ),
    place("no-home-at-home", "pwd; ls at-home", "--no-home", cwd=HOME, setup="touch ~/at-home"),
    place("no-mount-home", "ls -d ~ 2>/dev/null; echo $?", "--no-mount home"),
    place(
        "cwd-in-home",
        "pwd; ls",
        setup="mkdir -p ~/project-folder; touch ~/project-folder/file",
        cwd=f"{HOME}/project-folder",
    ),
    place(
        "home-linked-in-image", "echo $HOME; touch ~/linked && ls ~/linked", image="linkedhome.sif", after="ls ~/linked"
    ),
    # the current directory does not hide what is asked for at its place
    covered("home", "--home {other}:{here}"),
    covered("home-above", "--home {other}:{here}", below="covered-1"),
    covered("bind", "-B {other}:{here}"),
    covered("bind-own", "-B {other}:{here}", own="own"),
    covered("bind-above", "-B {other}:{here}", below="covered-2"),
    place(
        "covered-bind-lacks-it",
        "pwd",
        f"-B /srv/case/place-covered-bind-lacks-it/other:{HOME}",
        setup="mkdir -p other ~/covered-3",
        cwd=f"{HOME}/covered-3",
        after="ls other",
    ),
    place(
        "covered-parent",
        "pwd; ls",
        "-B /srv/case/place-covered-parent/other:/home",
        setup="mkdir -p other/peer; touch other/peer/shown",
        cwd=HOME,
    ),
    # temporary directories
    place(
        "tmp-shared",
        "echo inside > /tmp/place-shared; echo v > /var/tmp/place-shared",
        after="cat /tmp/place-shared /var/tmp/place-shared",
    ),
    place("tmp-of-host", "cat /tmp/place-host", setup="echo host > /tmp/place-host"),
    place("tmp-mode", "stat -c '%a' /tmp /var/tmp"),
    *(
        place(
            f"tmp-{image}{kind}",
            f"echo t > /tmp/{image}-t; echo v > /var/tmp/{image}-v; ls /tmp /var/tmp | grep {image}",
            flags,
            image=f"{image}.sif",
            setup="mkdir own",
            after=f"find /tmp/{image}-* /var/tmp/{image}-* own -type f 2>/dev/null | sort",
        )
        for image in ("linkedtmp", "linkedvar")
        for kind, flags in (("", ""), ("-contain", "--contain"), ("-workdir", "--contain --workdir own"))
    ),
    place("no-mount-tmp", "ls -A /tmp; (touch /tmp/x) 2>/dev/null || echo refused", "--no-mount tmp"),
    place("no-mount-cwd", "pwd; ls /srv 2>/dev/null; true", "--no-mount cwd"),
    place("no-mount-bind-paths", "cat /etc/hosts | wc -l", "--no-mount bind-paths"),
    place("no-mount-several", "ls -A /tmp /sys; pwd", "--no-mount tmp,sys,cwd,home"),
    place("no-mount-proc", "ls -A /proc", "--no-mount proc"),
    place("no-mount-dev", "ls -A /dev | wc -l", "--no-mount dev"),
    place("no-mount-unknown", "echo ran", "--no-mount nonsense"),
    place("no-mount-variable", "ls -A /tmp", env={"APPTAINER_NO_MOUNT": "tmp"}, setup="touch /tmp/seen-variable"),
    # contain
    place("contain-cwd", "pwd; ls -A", "--contain"),
    place(
        "contain-home",
        "echo $HOME; ls -A ~; touch ~/x && echo written",
        "--contain",
        setup="touch ~/of-host",
        after="ls ~/x 2>/dev/null; true",
    ),
    place(
        "contain-tmp",
        "ls -A /tmp /var/tmp; touch /tmp/contained && echo written",
        "--contain",
        after="ls /tmp/contained 2>/dev/null; true",
    ),
    place("contain-variable", "ls -A /tmp; pwd", env={"APPTAINER_CONTAIN": "1"}),
    place("contain-tmp-mode", "stat -c %a /tmp /var/tmp", "--contain"),
    place("contain-tmp-size", size_of("/tmp"), "--contain", difference="sizes", ours="large\n"),
    place("contain-etc", "wc -l < /etc/hosts; grep ^peer /etc/passwd", "--contain"),
    place("contain-readonly", "(touch /data/x) 2>/dev/null || echo refused", "--contain"),
    place("contain-no-home", "ls -d ~ 2>/dev/null; pwd", "--contain --no-home"),
    place("containall-cwd", "pwd; ls -A", "-C"),
    place("compat", "pwd; ls -A ~ /tmp; echo w > /data/new && cat /data/new", "--compat"),
    place("compat-environment", "env | sort", "--compat", env={"A": "host"}),
    place(
        "contain-bind-home-part",
        "ls -A ~; cat ~/part/x",
        f"--contain -B part:{HOME}/part",
        setup="mkdir part; echo x > part/x",
    ),
    # work and scratch directories
    place(
        "workdir-flag",
        "touch /tmp/t /var/tmp/v ~/h; echo done",
        "--contain --workdir work",
        setup="mkdir work",
        after=WORK,
    ),
    place(
        "workdir-flag-without-contain",
        "touch /tmp/uncontained; echo done",
        "--workdir work",
        setup="mkdir work",
        after="find work | sort; ls /tmp/uncontained",
    ),
    place("workdir-flag-missing", "echo done", "--contain --workdir missing", status=255),
    place("workdir-kept", "cat /tmp/earlier", "-c -W work", setup="mkdir -p work/tmp; echo earlier > work/tmp/earlier"),
    place("scratch", "touch /scratch/x && ls /scratch", "--scratch /scratch", after="ls"),
    place("scratch-several", "touch /one/x /two/y; ls /one /two", "-S /one,/two"),
    place("scratch-over-folder", "ls -A /data; touch /data/x && echo written", "-S /data"),
    place("scratch-workdir", "touch /scratch/x; echo done", "-S /scratch -W work", setup="mkdir work", after=WORK),
    place("scratch-relative", "ls -d /scratch", "-S scratch", status=255),
    place(
        "scratch-size", "touch /scratch/x; " + size_of("/scratch"), "-S /scratch", difference="sizes", ours="large\n"
    ),
]
