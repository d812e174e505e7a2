# SPDX-License-Identifier: BSD-3-Clause
"""Verbs that start no container, typed through a shim: help, keys, remotes, caches; and the variables of commands."""

from __future__ import annotations

from tests.interop.conformance.case import IMAGES, Case, execute

BASE = f"{IMAGES}/base.sif"
DEFINED = f"{IMAGES}/definition.sif"
QUIET = ">/dev/null 2>&1"
JUDGED = f"{QUIET} && echo done || echo refused"


FLAGS = {  # by verb, one that its help names
    **{"exec": "--bind", "instance start": "--pid-file", "instance stats": "--no-stream", "pull": "--arch"},
    **{"inspect": "--helpfile", "key newpair": "--bit-length", "verify": "--certificate", "remote add": "--no-login"},
    **{"registry login": "--password-stdin", "overlay create": "--size", "run-help": "--app"},
}


def shim(name: str, *lines: str, **more: object) -> Case:
    """Lines for a shell with a home of the case's own, in which `$shim` is `apptainer`; what counts is printed."""
    return Case(name, script="\n".join(['export HOME="$PWD"', *lines, "true"]), **more)  # type: ignore[arg-type]


def by_variable(name: str, command: str, setup: str = "", **variables: str) -> Case:
    """`exec` with variables that stand for flags; HOST_X is no flag, but the variable X of the host."""
    names = {key: key.removeprefix("HOST_") if key.startswith("HOST_") else f"APPTAINER_{key}" for key in variables}
    environment = {names[key]: value for key, value in variables.items()}
    return Case(f"variable-{name}", words=execute("base.sif", command), setup=setup, env=environment)


HELP = [
    shim(
        "help-status",
        *(
            f"$shim {words} {QUIET}; echo $?"
            for words in ("", "help", "--help", "-h", "--version", "version", "help exec", "help instance start")
        ),
    ),
    shim(
        "help-of-verbs",
        *(f"$shim {words} --help 2>&1 | grep -c -- {flag} | sed 's/[1-9].*/some/'" for words, flag in FLAGS.items()),
    ),
    shim("help-unknown-verb", f"$shim no-such-verb {JUDGED}"),
    shim("help-unknown-flag", f"$shim pull --no-such-flag x {JUDGED}"),
    shim("help-unknown-command", f"$shim instance start --no-such {BASE} x {JUDGED}"),
    shim("help-missing-image", f"$shim exec {JUDGED}", f"$shim run {JUDGED}", f"$shim shell {JUDGED}"),
    shim("help-missing-command", f"$shim exec {BASE} {JUDGED}"),
    shim("run-help", f"$shim run-help {DEFINED}"),
    shim("run-help-none", f"$shim run-help {BASE}"),
    shim("run-help-of-app-without", f"$shim run-help --app first {DEFINED}"),
    shim("run-help-missing", "$shim run-help /no/such.sif; echo $?", mentions=("/no/such.sif",)),
    shim("inspect-helpfile", f"$shim inspect --helpfile {DEFINED}"),
]
NEW_KEY = f"$shim key newpair -N Some -E some@x.example -C words -P secret -b 2048 --push=false {JUDGED}"
LISTED = "$shim key list 2>/dev/null | grep -c some@x.example"
PRINT = "$shim key list 2>/dev/null | awk '/Fingerprint/ {print $NF}'"
KEYS = [
    shim("key-list-empty", "$shim key list >/dev/null 2>&1; echo $?", f"$shim key list --secret {QUIET}; echo $?"),
    shim(  # making a pair takes long: one serves for all that is done with it
        "key-life",
        NEW_KEY,
        LISTED,
        "$shim key list --secret 2>/dev/null | grep -c some@x.example",
        "stat -c '%a %n' .apptainer/keys/pgp-*",
        f"echo 0 | $shim key export --armor k.asc {JUDGED}; head -1 k.asc",
        f"echo 0 | $shim key export k.bin {JUDGED}; [ -s k.bin ] && echo there",
        f"$shim key remove $({PRINT}) {JUDGED}",
        LISTED,
        "rm -r .apptainer",
        f"$shim key import k.asc {JUDGED}",
        LISTED,
    ),
    shim("key-import-nothing", f"echo no > k; $shim key import k {JUDGED}; $shim key import /no/such {JUDGED}"),
    shim("key-remove-unknown", f"$shim key remove {'A' * 40} {JUDGED}"),
    shim("key-pull-nobody", f"$shim key pull --url http://127.0.0.1:9 {'A' * 40} {JUDGED}"),
    shim("key-search-nobody", f"$shim key search --url http://127.0.0.1:9 x {JUDGED}"),
    shim("key-push-unknown", f"$shim key push --url http://127.0.0.1:9 {'A' * 40} {JUDGED}"),
    shim(
        "key-directory",
        f"export APPTAINER_KEYSDIR=$PWD/mine; {NEW_KEY}",
        "ls mine | grep -v lock; ls -d .apptainer/keys",
    ),
    shim("key-configdir", f"export APPTAINER_CONFIGDIR=$PWD/mine; {NEW_KEY}", "ls mine/keys | grep -v lock"),
    shim("verify-unsigned", f"$shim verify --local {BASE} {JUDGED}", f"$shim verify /no/such.sif {JUDGED}"),
    shim("sign-without-key", f"cp {BASE} i.sif; $shim sign i.sif </dev/null {JUDGED}"),
]
NAMES = "$shim remote list 2>/dev/null | awk 'NF {print $1, $2}'"
REMOTES = [
    shim(
        "remote-add",
        NAMES,
        f"$shim remote add --no-login a a.example {JUDGED}",
        NAMES,
        "cut -d: -f1 .apptainer/remote.yaml; stat -c %a .apptainer/remote.yaml",
        f"$shim remote add --no-login a a.example {JUDGED}",
    ),
    shim("remote-add-http", f"$shim remote add --no-login a http://a.example {JUDGED}", "ls .apptainer/remote.yaml"),
    shim("remote-add-insecure", f"$shim remote add --no-login -i a http://a.example {JUDGED}", NAMES),
    shim("remote-add-global", f"$shim remote add --global --no-login a a.example {JUDGED}"),
    shim(
        "remote-use",
        f"$shim remote add --no-login --no-default a a.example {QUIET}",
        f"$shim remote use a {JUDGED}",
        "grep Active .apptainer/remote.yaml",
        f"$shim remote use no-such {JUDGED}",
        f"$shim remote remove a {JUDGED}",
        NAMES,
        f"$shim remote remove a {JUDGED}",
        f"$shim remote remove DefaultRemote {JUDGED}",
    ),
    shim("remote-status-unknown", f"$shim remote status no-such {JUDGED}"),
    shim("remote-logout", f"$shim remote logout {JUDGED}"),
    shim("remote-config", f"$shim remote -c $PWD/r.yaml add --no-login a a.example {JUDGED}", "grep -c URI r.yaml"),
    shim("keyserver-list", "$shim keyserver list 2>/dev/null | grep -o 'https://keys.openpgp.org'"),
    shim("library-none", f"$shim search --library http://127.0.0.1:9 alpine {JUDGED}", f"$shim search al {JUDGED}"),
    shim("library-delete", f"$shim delete --force --library http://127.0.0.1:9 library://a/b/c {JUDGED}"),
    shim("library-delete-other", f"$shim delete --force docker://a/b {JUDGED}"),
    shim("buildcfg", "$shim buildcfg APPTAINER_CONFDIR; $shim buildcfg APPTAINER_SUID_INSTALL"),
    shim("buildcfg-unknown", f"$shim buildcfg NO_SUCH {JUDGED}"),
    shim("capability", f"$shim capability add --user peer CAP_CHOWN {JUDGED}", f"$shim capability list {JUDGED}"),
    shim("config-needs-root", f"$shim config fakeroot --add peer {JUDGED}"),
    shim("plugin-list", "$shim plugin list"),
    shim("stats-unknown", f"$shim instance stats --no-stream no-such {JUDGED}"),
]
ARCHIVE = f"oci-archive:{IMAGES}/base.oci.tar"
PULL = f"$shim pull p.sif {ARCHIVE} {JUDGED}"
CACHES = [
    shim("cache-list-empty", "$shim cache list >/dev/null 2>&1; echo $?"),
    shim("cache-clean-empty", "$shim cache clean --force >/dev/null 2>&1; echo $?"),
    shim("cache-clean-dry", "$shim cache clean --dry-run >/dev/null 2>&1; echo $?"),
    shim("cache-clean-bad-type", f"$shim cache clean --force --type no-such {JUDGED}"),
    shim("cache-directory", f"export APPTAINER_CACHEDIR=$PWD/c; {PULL}", "ls -d .apptainer/cache"),
    shim(
        "cache-disabled",
        f"export APPTAINER_DISABLE_CACHE=1 APPTAINER_CACHEDIR=$PWD/c; {PULL}",
        "ls c 2>/dev/null | wc -l",
    ),
    shim(
        "cache-flag-disabled",
        f"export APPTAINER_CACHEDIR=$PWD/c; $shim pull --disable-cache p.sif {ARCHIVE} {JUDGED}",
        "ls c 2>/dev/null | wc -l",
    ),
    shim("cache-pull-directory", "mkdir d", f"APPTAINER_PULLDIR=$PWD/d $shim pull p.sif {ARCHIVE} {JUDGED}", "ls d"),
    shim("cache-pull-exists", f"touch p.sif; {PULL}", f"$shim pull --force p.sif {ARCHIVE} {JUDGED}"),
]
VARIABLES = [
    by_variable("silent", "echo ran", SILENT="1"),
    by_variable("containall", "[ $$ -lt 100 ] && ls -A ~", CONTAINALL="1"),
    by_variable("no-home", "[ -d ~ ] && ls -A ~ || echo none", NO_HOME="1"),
    by_variable("pid", "[ $$ -lt 100 ] && echo small", UNSHARE_PID="1"),
    by_variable("writable-tmpfs-off", "touch /data/x 2>/dev/null || echo refused", WRITABLE_TMPFS="0"),
    by_variable("scratch", "touch /mnt/x && ls /mnt", SCRATCH="/mnt"),
    Case("variable-no-umask", script=f"umask 077; APPTAINER_NO_UMASK=1 $runtime exec {BASE} sh -c umask"),
    by_variable("dns", "grep -c 192.0.2.7 /etc/resolv.conf", DNS="192.0.2.7"),
    by_variable("no-privs", "grep CapEff /proc/self/status", NO_PRIVS="1"),
]
SECURITY = [
    Case(
        "security-fakeroot-capabilities", words=execute("base.sif", "grep NoNewPrivs /proc/self/status", "--fakeroot")
    ),
    Case("security-selinux", words=execute("base.sif", "echo ran", "--security selinux:x"), status=255),
    Case("security-apparmor", words=execute("base.sif", "echo ran", "--security apparmor:x"), status=255),
    Case(
        "security-uid",
        words=execute("base.sif", "id -u", "--security uid:0"),
        difference="privileges",
        our_status=255,
        ours="",
    ),
    Case("security-keep-privs", script=f"$runtime exec --keep-privs {BASE} true {JUDGED}"),
    Case("security-devices", words=execute("base.sif", "ls /dev/mem /dev/kmem 2>/dev/null | wc -l", "--contain")),
    Case("security-mknod", words=execute("base.sif", "mknod /tmp/n c 1 3 2>/dev/null || echo refused", "--contain")),
]
REGISTRY = "r=$(cat /srv/registry)"
LOGIN = f"$shim registry login -u somebody -p secret docker://$r {JUDGED}"
PRIVATE = f"$shim pull --no-https --force p.sif docker://$r/private/base:1 {JUDGED}"
BOTH_VARIABLES = "export APPTAINER_DOCKER_USERNAME=somebody APPTAINER_DOCKER_PASSWORD"
# need a registry with passwords, whose address is in /srv/registry
LOGINS = [
    shim("login-cache", REGISTRY, LOGIN, "export APPTAINER_CACHEDIR=$PWD/c", PRIVATE, "[ -d c ] && echo used"),
    shim("login-none", REGISTRY, PRIVATE),
    shim("login-exec-none", REGISTRY, f"$shim exec --no-https docker://$r/private/base:1 true {JUDGED}"),
    shim(
        "login",
        REGISTRY,
        LOGIN,
        "$shim registry list 2>/dev/null | grep -c $r",
        PRIVATE,
        f"$shim registry logout docker://$r {JUDGED}",
        PRIVATE,
    ),
    shim("login-wrong", REGISTRY, f"$shim registry login -u somebody -p no docker://$r {QUIET}", PRIVATE),
    shim(
        "login-stdin",
        REGISTRY,
        f"echo secret | $shim registry login -u somebody --password-stdin docker://$r {JUDGED}",
        PRIVATE,
    ),
    shim("login-remote", REGISTRY, f"$shim remote login -u somebody -p secret docker://$r {JUDGED}", PRIVATE),
    shim("login-out-nowhere", REGISTRY, f"$shim registry logout docker://no.example {JUDGED}"),
    shim(
        "login-authfile",
        REGISTRY,
        f"$shim registry login --authfile a.json -u somebody -p secret docker://$r {JUDGED}",
        PRIVATE,
        f"$shim pull --no-https --authfile a.json --force p.sif docker://$r/private/base:1 {JUDGED}",
    ),
    shim("login-variables", REGISTRY, f"{BOTH_VARIABLES}=secret", PRIVATE),
    shim("login-variables-wrong", REGISTRY, f"{BOTH_VARIABLES}=no", PRIVATE),
    shim("login-variables-first", REGISTRY, LOGIN, f"{BOTH_VARIABLES}=no", PRIVATE),
    shim("login-configdir", REGISTRY, "export APPTAINER_CONFIGDIR=$PWD/mine", LOGIN, PRIVATE, "ls .apptainer"),
    shim("login-exec", REGISTRY, LOGIN, "$shim exec --no-https docker://$r/private/base:1 cat /data/file 2>/dev/null"),
    shim("login-push", REGISTRY, LOGIN, f"$shim push --no-https -U {BASE} oras://$r/$$/pushed:1 {JUDGED}"),
    shim("login-push-none", REGISTRY, f"$shim push --no-https -U {BASE} oras://$r/$$/pushed:1 {JUDGED}"),
]
CASES = [*HELP, *KEYS, *REMOTES, *CACHES, *VARIABLES, *SECURITY]
