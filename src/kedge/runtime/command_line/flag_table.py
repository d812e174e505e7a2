# SPDX-License-Identifier: BSD-3-Clause
"""Every flag of `exec`, `run`, `shell`, `test` and `instance start`: Apptainer's and kedge's own, in one table.

`flags` parses with it; help, completion, the reference page and the shims are made from it.
"""

from __future__ import annotations

from kedge.runtime.gpu_vendors import list_switches

GROUPS = {
    "files": "files and directories",
    "environment": "environment",
    "devices": "devices",
    "isolation": "isolation and identity",
    "limits": "limits, where this user may make control groups",
    "scripts": "what is run",
    "image": "where the image comes from",
    "messages": "messages",
    "idle": "accepted, and without effect here",
    "refused": "of Apptainer, and refused with the reason",
}

VERBS = ("exec", "run", "shell", "test", "start")


class Flag:
    """One line of the table."""

    __slots__ = ("attribute", "group", "help", "kind", "metavar", "names", "short", "value", "variables", "verbs")

    def __init__(
        self,
        names: str,
        kind: str,
        group: str,
        help: str,
        *,
        short: str = "",
        attribute: str = "",
        value: str = "",
        variables: str = "",
        metavar: str = "",
        verbs: tuple[str, ...] = VERBS,
    ) -> None:
        self.names = names.split()  # without dashes; the first is the one that messages use
        self.kind = kind  # switch, count, text, list or help
        self.group = group  # of GROUPS; 'refused' and 'idle' are treated so, 'image' may be handed to a pull
        self.help = help  # of refused flags: the key of REFUSALS
        self.short = short
        self.attribute = attribute or self.names[0].replace("-", "_")  # of RunOptions; 'pull_words' hands it on
        self.value = value  # what a switch sets instead of True
        self.variables = variables.split()  # without KEDGE_, APPTAINER_, SINGULARITY_; 'KEDGE_X' is only that one
        self.metavar = metavar  # with '|' in it: the values that are allowed
        self.verbs = verbs

    @property
    def takes_value(self) -> bool:
        """Whether a word follows it."""
        return self.kind in ("text", "list")


_NOT_START = ("exec", "run", "shell", "test")

FLAGS = (
    Flag(
        "bind", "list", "files", "bind SOURCE[:DESTINATION[:OPTIONS]]; several separated by commas; OPTIONS: ro, rw",
        short="B", metavar="SPEC", variables="BIND BINDPATH",
    ),
    Flag(
        "mount", "list", "files", "bind, written type=bind,source=PATH,destination=PATH[,ro]",
        metavar="SPEC", variables="MOUNT",
    ),
    Flag(
        "overlay", "list", "files", "put a directory, SquashFS or ext3 image over the image; PATH:ro for reading only",
        short="o", metavar="PATH[:ro]", variables="OVERLAY OVERLAYIMAGE",
    ),
    Flag("writable-tmpfs", "switch", "files", "let programs write anywhere, into memory", variables="WRITABLE_TMPFS"),
    Flag(
        "tmpfs-size", "text", "files", "room for --writable-tmpfs and for the private directories of --contain",
        metavar="SIZE", variables="KEDGE_TMPFS_SIZE",
    ),
    Flag("writable", "switch", "files", "write into the image itself: a sandbox directory", short="w",
         variables="WRITABLE"),
    Flag(
        "scratch", "list", "files", "an empty directory at PATH that ends with the container",
        short="S", metavar="PATH", variables="SCRATCH SCRATCHDIR",
    ),
    Flag(
        "workdir", "text", "files", "folder of the host for the scratch directories and the private tmp and home",
        short="W", metavar="DIR", variables="WORKDIR",
    ),
    Flag(
        "home", "text", "files", "folder of the host that is the home, and where it is seen inside",
        short="H", metavar="SOURCE[:DESTINATION]", variables="HOME",
    ),
    Flag("no-home", "switch", "files", "the home is not bound", variables="NO_HOME"),
    Flag(
        "pwd cwd", "text", "files", "folder in the container to start in",
        metavar="DIR", variables="PWD TARGET_PWD CWD TARGET_CWD", verbs=_NOT_START,
    ),
    Flag(
        "no-workdir", "switch", "files", "do not start in the image's WORKDIR", variables="KEDGE_NO_WORKDIR",
        verbs=_NOT_START,
    ),
    Flag(
        "no-mount", "list", "files", "leave out proc, sys, dev, devpts, home, tmp, cwd, bind-paths, or a path",
        metavar="LIST", variables="NO_MOUNT",
    ),
    Flag("underlay", "switch", "files", "make mount points with binds, not with an overlay", variables="UNDERLAY"),
    Flag(
        "containlibs", "list", "files", "files of the host to put into /.singularity.d/libs",
        attribute="contain_libs", metavar="LIST", variables="CONTAINLIBS",
    ),
    Flag("env", "list", "environment", "set variables: NAME=VALUE, several separated by commas", metavar="LIST"),
    Flag(
        "env-file", "list", "environment", "set the variables that a file of shell assignments sets",
        metavar="FILE", variables="ENV_FILE",
    ),
    Flag(
        "no-env", "list", "environment", "variables of the host that stay outside", metavar="NAMES",
        variables="NOENV",
    ),
    Flag("cleanenv", "switch", "environment", "no variables of the host", short="e", variables="CLEANENV"),
    Flag("no-eval", "switch", "environment", "values are taken as they are, not evaluated by a shell",
         variables="NO_EVAL"),
    Flag(
        "keep", "list", "environment", "let a guarded variable of the host in: its name, user-site, locale or all",
        metavar="NAME", variables="KEDGE_KEEP",
    ),
    *(
        Flag(switch.name, "switch", "devices", switch.help, variables=switch.variables)
        for switch in list_switches()
    ),
    Flag("force", "switch", "devices", "start even if the image cannot work with this driver or GPU",
         variables="KEDGE_FORCE"),
    Flag("device", "list", "devices", "a CDI device, as nvidia.com/gpu=0", metavar="NAME", variables="KEDGE_DEVICE"),
    Flag("cdi-dirs", "list", "devices", "folders with CDI descriptions", metavar="DIRS", variables="KEDGE_CDI_DIRS"),
    Flag("contain", "switch", "isolation", "private /dev, tmp and home", short="c", variables="CONTAIN"),
    Flag("containall", "switch", "isolation", "--contain, --pid, --ipc and --cleanenv", short="C",
         variables="CONTAINALL"),
    Flag("compat", "switch", "isolation", "as Docker does: --containall, --no-init, --no-umask, --no-eval, "
         "--writable-tmpfs", variables="COMPAT"),
    Flag("fakeroot", "switch", "isolation", "appear as root inside", short="f", variables="FAKEROOT"),
    Flag("ignore-subuid", "switch", "isolation", "--fakeroot without the ranges of /etc/subuid",
         variables="IGNORE_SUBUID"),
    Flag("pid", "switch", "isolation", "process numbers of its own", short="p", variables="PID UNSHARE_PID",
         verbs=_NOT_START),
    Flag("ipc", "switch", "isolation", "System V memory and queues of its own", short="i",
         variables="IPC UNSHARE_IPC"),
    Flag("uts", "switch", "isolation", "a host name of its own", variables="UTS UNSHARE_UTS"),
    Flag("hostname", "text", "isolation", "the host name inside", metavar="NAME", variables="HOSTNAME"),
    Flag("net", "switch", "isolation", "a network of its own; with --network none", short="n",
         variables="NET UNSHARE_NET"),
    Flag("network", "text", "isolation", "none: no network; host: the host's", metavar="none|host",
         variables="NETWORK"),
    Flag("dns", "text", "isolation", "name servers, separated by commas", metavar="ADDRESSES", variables="DNS"),
    Flag("userns", "switch", "isolation", "a user namespace, as root too", short="u",
         variables="USERNS UNSHARE_USERNS"),
    Flag("no-init", "switch", "isolation", "no process that looks after the others with --pid",
         variables="NOSHIMINIT NO_INIT"),
    Flag("no-umask", "switch", "isolation", "umask 0022 inside, not the caller's", variables="NO_UMASK"),
    Flag("drop-caps", "list", "isolation", "capabilities to go without", metavar="LIST", variables="DROP_CAPS"),
    Flag("no-privs", "switch", "isolation", "no capabilities inside, for root too", variables="NO_PRIVS"),
    Flag("keep-privs", "switch", "isolation", "root keeps its capabilities (root only)", variables="KEEP_PRIVS"),
    Flag("sharens", "switch", "isolation", "one container for all ranks of a launch here (=false: one each)",
         variables="SHARENS", verbs=_NOT_START),
    Flag("memory", "text", "limits", "how much memory the container may use", attribute="limits", metavar="SIZE",
         variables="MEMORY"),
    Flag("memory-reservation", "text", "limits", "memory to be left to it", attribute="limits", metavar="SIZE",
         variables="MEMORY_RESERVATION"),
    Flag("memory-swap", "text", "limits", "memory and swap together; -1: as much swap as there is",
         attribute="limits", metavar="SIZE", variables="MEMORY_SWAP"),
    Flag("oom-kill-disable", "switch", "limits", "wait for memory instead of being killed (version 1 only)",
         attribute="limits", variables="OOM_KILL_DISABLE"),
    Flag("cpus", "text", "limits", "how many processors' time, such as 1.5", attribute="limits", metavar="N"),
    Flag("cpu-shares", "text", "limits", "share of processor time, 1024 being an equal one", attribute="limits",
         metavar="N", variables="CPU_SHARES"),
    Flag("cpuset-cpus", "text", "limits", "which processors, such as 0-3", attribute="limits", metavar="LIST",
         variables="CPUSET_CPUS"),
    Flag("cpuset-mems", "text", "limits", "which memory nodes", attribute="limits", metavar="LIST",
         variables="CPUSET_MEMS"),
    Flag("pids-limit", "text", "limits", "how many processes", attribute="limits", metavar="N",
         variables="PIDS_LIMIT"),
    Flag("blkio-weight", "text", "limits", "share of disk traffic, 10 to 1000", attribute="limits", metavar="N",
         variables="BLKIO_WEIGHT"),
    Flag("blkio-weight-device", "list", "limits", "the same for a device: /dev/sda:500", attribute="limits",
         metavar="LIST", variables="BLKIO_WEIGHT_DEVICE"),
    Flag("apply-cgroups", "text", "limits", "a TOML file of limits", attribute="limits", metavar="FILE",
         variables="APPLY_CGROUPS"),
    Flag("app", "text", "scripts", "an application (SCIF) of the image", metavar="NAME", variables="APP APPNAME"),
    Flag("shell", "text", "scripts", "the shell to start", short="s", metavar="PATH", variables="SHELL",
         verbs=("shell",)),
    Flag("pid-file", "text", "scripts", "write the number of the first process there", metavar="FILE",
         variables="PID_FILE", verbs=("start",)),
    Flag("root-from", "text", "image", "how the image's files get there", attribute="root",
         metavar="auto|unpack|squashfuse|kernel", variables="KEDGE_ROOT_FROM"),
    Flag("unsquash tmp-sandbox", "switch", "image", "--root-from unpack", attribute="root", value="unpack",
         variables="UNSQUASH TMP_SANDBOX"),
    Flag("pull", "text", "image", "when to ask the registry what a reference means (default: auto)",
         metavar="auto|missing|newer|always|never", variables="KEDGE_PULL"),
    Flag("passphrase", "switch", "image", "ask for the passphrase of an encrypted image"),
    Flag("pem-path", "text", "image", "RSA private key that opens an encrypted image", metavar="FILE",
         variables="ENCRYPTION_PEM_PATH"),
    Flag("runtime", "text", "image", "another runtime to drive, as apptainer", metavar="NAME",
         variables="KEDGE_RUNTIME"),
    Flag("arch", "text", "image", "architecture to pull", attribute="pull_words", metavar="ARCH"),
    Flag("disable-cache", "switch", "image", "keep nothing in the store", attribute="pull_words"),
    Flag("docker-login", "switch", "image", "ask for user name and password", attribute="pull_words",
         variables="DOCKER_LOGIN"),
    Flag("authfile", "text", "image", "docker-config.json to take credentials from", attribute="pull_words",
         metavar="FILE", variables="AUTH_FILE"),
    Flag("no-https nohttps", "switch", "image", "use http, not https", attribute="pull_words"),
    Flag("tmpdir", "text", "image", "folder for temporary files", attribute="pull_words", metavar="DIR"),
    Flag("dry-run", "switch", "messages", "say what would be done, and start nothing"),
    Flag("json", "switch", "messages", "print one JSON document, also for errors"),
    Flag("quiet", "switch", "messages", "no progress and no notes", short="q", variables="QUIET"),
    Flag("silent", "switch", "messages", "nothing but results and errors", short="s", variables="SILENT"),
    Flag("verbose", "count", "messages", "say more: each decision and its reason", short="v", variables="VERBOSE"),
    Flag("debug", "switch", "messages", "show where an error came from", short="d", variables="DEBUG"),
    Flag("nocolor no-color", "switch", "messages", "no colours", variables="NOCOLOR"),
    Flag("help", "help", "messages", "show the options that most people use", short="h"),
    Flag("help-all", "help", "messages", "show all options"),
    Flag("no-pid", "switch", "idle", "process numbers are private only with --pid or --containall",
         variables="NO_PID"),
    Flag("runscript-timeout", "text", "idle", "scripts may take as long as they take", metavar="TIME",
         variables="RUNSCRIPT_TIMEOUT"),
    Flag("ignore-fakeroot-command", "switch", "idle", "--fakeroot never uses the fakeroot program",
         variables="IGNORE_FAKEROOT_COMMAND"),
    Flag("no-tmp-sandbox", "switch", "idle", "--root-from says how the files get there",
         variables="NO_TMP_SANDBOX"),
    Flag("no-oci", "switch", "idle", "there is one way to run an image", variables="NO_OCI"),
    Flag("oci", "switch", "refused", "oci", variables="OCI"),
    Flag("security", "list", "refused", "security", metavar="LIST", variables="SECURITY"),
    Flag("add-caps", "text", "refused", "capabilities", metavar="LIST", variables="ADD_CAPS"),
    Flag("allow-setuid", "switch", "refused", "setuid", variables="ALLOW_SETUID"),
    Flag("network-args", "list", "refused", "network", metavar="LIST", variables="NETWORK_ARGS"),
    Flag("netns-path", "text", "refused", "network", metavar="PATH", variables="NETNS_PATH"),
    Flag("fusemount", "list", "refused", "fusemount", metavar="SPEC", variables="FUSESPEC"),
    Flag("docker-host", "text", "refused", "docker-host", metavar="HOST"),
    Flag("docker-username", "text", "refused", "login", metavar="NAME"),
    Flag("docker-password", "text", "refused", "login", metavar="TEXT"),
    Flag("intel-hpu", "switch", "refused", "gaudi", variables="INTEL_HPU"),
    Flag("compat32", "switch", "refused", "compat32", variables="COMPAT32"),
    Flag("ignore-userns", "switch", "refused", "userns", variables="IGNORE_USERNS"),
    Flag("boot", "switch", "refused", "boot", variables="BOOT", verbs=("start",)),
    Flag("dmtcp-launch", "text", "refused", "checkpoint", metavar="NAME", variables="DMTCP_LAUNCH",
         verbs=("start",)),
    Flag("dmtcp-restart", "text", "refused", "checkpoint", metavar="NAME", variables="DMTCP_RESTART",
         verbs=("start",)),
)  # fmt: skip

# key -> (why not, what to do instead)
REFUSALS = {
    "oci": ("kedge starts no OCI runtime", "leave it out, or take --compat, which does as Docker does"),
    "security": (
        "kedge sets no SELinux label, AppArmor profile, seccomp filter or foreign user",
        "leave it out; the container has the rights of the caller and no more",
    ),
    "capabilities": (
        "a container has the rights of its caller; there is nothing to add",
        "--fakeroot gives the capabilities that a user namespace can give",
    ),
    "setuid": ("setuid programs of an image get no other user's rights", "--fakeroot appears as root inside"),
    "network": (
        "a network of its own would need root",
        "--network none gives a container without network; without it, the host's network is there",
    ),
    "fusemount": (
        "kedge starts no FUSE programs for users",
        "mount it outside first (sshfs HOST:/data /tmp/data), then: --bind /tmp/data:/data",
    ),
    "docker-host": ("kedge asks the docker program", "set the variable DOCKER_HOST, which that program reads"),
    "login": (
        "what stands in a command line can be read by everybody on this machine",
        "set APPTAINER_DOCKER_USERNAME and APPTAINER_DOCKER_PASSWORD, or: kedge registry login",
    ),
    "gaudi": ("kedge does not know these accelerators", "bind what the program needs: --bind /dev/accel"),
    "compat32": ("kedge gives 64-bit driver files only", "leave it out"),
    "userns": ("without root a container needs a user namespace", "leave it out"),
    "boot": ("an init system in a container needs root", "start the service itself: kedge instance start"),
    "checkpoint": ("kedge makes no checkpoints", "DMTCP inside the container does: kedge exec IMAGE dmtcp_launch ..."),
}
