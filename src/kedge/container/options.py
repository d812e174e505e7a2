# SPDX-License-Identifier: BSD-3-Clause
"""What can be asked of a container: vendors of GPUs, the table of flags, the options they make, settings behind."""

from __future__ import annotations

from kedge.system.settings_lines import load_setting, read_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kedge.container.step_options import StepOptions
    from kedge.system.views import View


# The vendors of GPUs: one row each. Flags, variables, the plan, other runtimes and doctor loop over this table.
#
# A row holds what is needed before the vendor's own module is loaded; that module knows its driver, and is loaded
# only
# when its GPUs are asked for. A new vendor is a module with the two functions of `devices.VendorModule`, and a row.


class Switch:
    """One flag of a vendor: its name, its help text, and the variables that stand for it."""

    __slots__ = ("attribute", "help", "name", "variables")

    def __init__(self, name: str, help: str, variables: str) -> None:
        self.name = name
        self.help = help
        self.variables = variables  # without KEDGE_, APPTAINER_, SINGULARITY_; separated by spaces
        self.attribute = name.replace("-", "_")  # of RunOptions


class Vendor:
    """One row; the attributes below are the defaults."""

    module: str = ""  # in kedge.container.devices
    platform: str = ""  # what images for its GPUs are built with
    node: str = ""  # the device node of a loaded driver
    grant: str = ""  # variable in which a scheduler names the GPUs of a job; empty: no hint for a forgotten flag
    image_variables: tuple[str, ...] = ()  # variables that only images for its GPUs set
    selectors: tuple[str, ...] = ()  # variables by which a user chooses GPUs for a container with a private /dev
    cdi_kind: str = ""  # its GPUs in CDI files, which Podman reads
    enroot_variables: Mapping[str, str] = {}  # what makes Enroot's own hook add its GPUs, with defaults
    in_apptainer: bool = True  # whether Apptainer and Singularity have the same flags

    def __init__(self, name: str, on: tuple[Switch, ...], off: Switch, **facts: object) -> None:
        self.name = name
        self.on = on  # flags that ask for its GPUs, the usual one first
        self.off = off  # the flag that overrules them
        self.flag = f"--{on[0].name}"
        for fact, value in facts.items():
            if not hasattr(self, fact):
                raise TypeError(f"Vendor has no '{fact}'")
            setattr(self, fact, value)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of RunOptions that its flags set."""
        return (*(switch.attribute for switch in self.on), self.off.attribute)

    def is_asked(self, options: object) -> bool:
        """Whether its GPUs are asked for, and no flag overrules that."""
        return not self.is_off(options) and any(getattr(options, switch.attribute) for switch in self.on)

    def is_off(self, options: object) -> bool:
        """Whether its GPUs are ruled out."""
        return bool(getattr(options, self.off.attribute))


VENDORS = (
    Vendor(
        "NVIDIA",
        (
            Switch("nv", "add NVIDIA GPUs and the host's driver libraries", "NV"),
            Switch("nvccli", "as --nv; NVIDIA_VISIBLE_DEVICES and NVIDIA_DRIVER_CAPABILITIES select", "NVCCLI"),
        ),
        Switch("no-nv", "no NVIDIA GPUs, even if a variable or another flag asks for them", "NV_OFF NO_NV"),
        module="nvidia",
        platform="CUDA",
        node="/dev/nvidiactl",
        grant="CUDA_VISIBLE_DEVICES",
        image_variables=("CUDA_VERSION", "NVIDIA_VISIBLE_DEVICES"),
        selectors=("NVIDIA_VISIBLE_DEVICES",),
        cdi_kind="nvidia.com/gpu",
        enroot_variables={"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
    ),
    Vendor(
        "AMD",
        (Switch("rocm", "add AMD GPUs and the host's ROCm libraries", "ROCM"),),
        Switch("no-rocm", "no AMD GPUs, even if a variable or another flag asks for them", "ROCM_OFF NO_ROCM"),
        module="amd",
        platform="ROCm",
        node="/dev/kfd",
    ),
)


def list_switches() -> list[Switch]:
    """The flags of all vendors."""
    return [switch for vendor in VENDORS for switch in (vendor.on[0], vendor.off, *vendor.on[1:])]


def is_granted(environ: Mapping[str, str]) -> bool:
    """Whether a scheduler says that it gave this process GPUs, by the variable of any vendor."""
    return any(vendor.grant and vendor.grant in environ for vendor in VENDORS)


def find_vendor(name: str) -> Vendor:
    """The row of a vendor."""
    return next(vendor for vendor in VENDORS if vendor.name == name)


def find_other_vendor(view: View, name: str) -> Vendor | None:
    """A vendor other than `name` whose driver is loaded on this host."""
    return next((vendor for vendor in VENDORS if vendor.name != name and view.kind(vendor.node)), None)


# Every flag of `exec`, `run`, `shell`, `test` and `instance start`: Apptainer's and kedge's own, in one table.
#
# `flags` parses with it; help, completion, the reference page and the shims are made from it.

GROUPS = {
    "files": "files and directories",
    "environment": "environment",
    "devices": "devices",
    "isolation": "isolation and identity",
    "limits": "limits (need a control group that this user may write)",
    "scripts": "program",
    "image": "image",
    "messages": "messages",
    "idle": "accepted for Apptainer, without effect",
    "refused": "options of Apptainer that kedge refuses",
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
        "overlay", "list", "files", "overlay a directory, SquashFS or ext3 image; PATH:ro mounts it read-only",
        short="o", metavar="PATH[:ro]", variables="OVERLAY OVERLAYIMAGE",
    ),
    Flag("writable-tmpfs", "switch", "files", "make the root writable; changes are kept in memory and lost at the end",
         variables="WRITABLE_TMPFS"),
    Flag(
        "tmpfs-size", "text", "files", "size of --writable-tmpfs and of the private directories of --contain",
        metavar="SIZE", variables="KEDGE_TMPFS_SIZE",
    ),
    Flag("writable", "switch", "files", "write to the image itself (sandbox directories only)", short="w",
         variables="WRITABLE"),
    Flag(
        "scratch", "list", "files", "mount an empty directory at PATH, removed with the container",
        short="S", metavar="PATH", variables="SCRATCH SCRATCHDIR",
    ),
    Flag(
        "workdir", "text", "files", "host directory for --scratch and the private tmp and home",
        short="W", metavar="DIR", variables="WORKDIR",
    ),
    Flag(
        "home", "text", "files", "host directory to use as home, and its path in the container",
        short="H", metavar="SOURCE[:DESTINATION]", variables="HOME",
    ),
    Flag("no-home", "switch", "files", "do not bind the home directory", variables="NO_HOME"),
    Flag(
        "pwd cwd", "text", "files", "working directory in the container",
        metavar="DIR", variables="PWD TARGET_PWD CWD TARGET_CWD", verbs=_NOT_START,
    ),
    Flag(
        "no-workdir", "switch", "files", "ignore the WORKDIR of the image", variables="KEDGE_NO_WORKDIR",
        verbs=_NOT_START,
    ),
    Flag(
        "no-mount", "list", "files", "do not mount proc, sys, dev, devpts, home, tmp, cwd, bind-paths, or a path",
        metavar="LIST", variables="NO_MOUNT",
    ),
    Flag("underlay", "switch", "files", "create mount points with binds instead of an overlay", variables="UNDERLAY"),
    Flag(
        "containlibs", "list", "files", "host libraries to add in /.singularity.d/libs",
        attribute="contain_libs", metavar="LIST", variables="CONTAINLIBS",
    ),
    Flag("env", "list", "environment", "set variables: NAME=VALUE, several separated by commas", metavar="LIST"),
    Flag(
        "env-file", "list", "environment", "set variables from a file of shell assignments",
        metavar="FILE", variables="ENV_FILE",
    ),
    Flag(
        "no-env", "list", "environment", "host variables that are not passed in", metavar="NAMES",
        variables="NOENV",
    ),
    Flag("cleanenv", "switch", "environment", "pass no host variables into the container",
         short="e", variables="CLEANENV"),
    Flag("no-eval", "switch", "environment", "do not evaluate values with a shell",
         variables="NO_EVAL"),
    Flag(
        "keep", "list", "environment", "pass a guarded host variable in: its name, user-site, locale or all",
        metavar="NAME", variables="KEDGE_KEEP",
    ),
    *(
        Flag(switch.name, "switch", "devices", switch.help, variables=switch.variables)
        for switch in list_switches()
    ),
    Flag("force", "switch", "devices", "start even if the image cannot work with this driver or GPU",
         variables="KEDGE_FORCE"),
    Flag("device", "list", "devices", "add a CDI device, such as nvidia.com/gpu=0",
         metavar="NAME", variables="KEDGE_DEVICE"),
    Flag("cdi-dirs", "list", "devices", "directories with CDI files (default: /etc/cdi,/var/run/cdi)",
         metavar="DIRS", variables="KEDGE_CDI_DIRS"),
    Flag("contain", "switch", "isolation", "private /dev, tmp and home", short="c", variables="CONTAIN"),
    Flag("containall", "switch", "isolation", "--contain, --pid, --ipc and --cleanenv", short="C",
         variables="CONTAINALL"),
    Flag("compat", "switch", "isolation", "behave like Docker: --containall, --no-init, --no-umask, --no-eval, "
         "--writable-tmpfs", variables="COMPAT"),
    Flag("fakeroot", "switch", "isolation", "appear as root in the container", short="f", variables="FAKEROOT"),
    Flag("ignore-subuid", "switch", "isolation", "--fakeroot without /etc/subuid",
         variables="IGNORE_SUBUID"),
    Flag("pid", "switch", "isolation", "separate PID namespace", short="p", variables="PID UNSHARE_PID",
         verbs=_NOT_START),
    Flag("ipc", "switch", "isolation", "separate IPC namespace (System V shared memory and queues)", short="i",
         variables="IPC UNSHARE_IPC"),
    Flag("uts", "switch", "isolation", "separate UTS namespace (host name)", variables="UTS UNSHARE_UTS"),
    Flag("hostname", "text", "isolation", "host name in the container", metavar="NAME", variables="HOSTNAME"),
    Flag("net", "switch", "isolation", "separate network namespace; needs --network none", short="n",
         variables="NET UNSHARE_NET"),
    Flag("network", "text", "isolation", "none: no network; host: the network of the host", metavar="none|host",
         variables="NETWORK"),
    Flag("dns", "text", "isolation", "DNS servers, separated by commas", metavar="ADDRESSES", variables="DNS"),
    Flag("userns", "switch", "isolation", "use a user namespace, also as root", short="u",
         variables="USERNS UNSHARE_USERNS"),
    Flag("no-init", "switch", "isolation", "with --pid, start no init process",
         variables="NOSHIMINIT NO_INIT"),
    Flag("no-umask", "switch", "isolation", "use umask 0022 instead of the caller's", variables="NO_UMASK"),
    Flag("drop-caps", "list", "isolation", "capabilities to drop", metavar="LIST", variables="DROP_CAPS"),
    Flag("no-privs", "switch", "isolation", "drop all capabilities, also for root", variables="NO_PRIVS"),
    Flag("keep-privs", "switch", "isolation", "keep all capabilities (root only)", variables="KEEP_PRIVS"),
    Flag("sharens", "switch", "isolation", "share one container among the ranks of a node (=false: one each)",
         variables="SHARENS", verbs=_NOT_START),
    Flag("memory", "text", "limits", "memory limit", attribute="limits", metavar="SIZE",
         variables="MEMORY"),
    Flag("memory-reservation", "text", "limits", "memory that is reclaimed last", attribute="limits", metavar="SIZE",
         variables="MEMORY_RESERVATION"),
    Flag("memory-swap", "text", "limits", "limit for memory and swap together; -1: unlimited swap",
         attribute="limits", metavar="SIZE", variables="MEMORY_SWAP"),
    Flag("oom-kill-disable", "switch", "limits", "wait for memory instead of being killed (cgroup v1 only)",
         attribute="limits", variables="OOM_KILL_DISABLE"),
    Flag("cpus", "text", "limits", "number of CPUs, such as 1.5", attribute="limits", metavar="N"),
    Flag("cpu-shares", "text", "limits", "relative share of CPU time (default: 1024)", attribute="limits",
         metavar="N", variables="CPU_SHARES"),
    Flag("cpuset-cpus", "text", "limits", "CPUs to run on, such as 0-3", attribute="limits", metavar="LIST",
         variables="CPUSET_CPUS"),
    Flag("cpuset-mems", "text", "limits", "NUMA nodes to allocate memory from", attribute="limits", metavar="LIST",
         variables="CPUSET_MEMS"),
    Flag("pids-limit", "text", "limits", "limit on the number of processes", attribute="limits", metavar="N",
         variables="PIDS_LIMIT"),
    Flag("blkio-weight", "text", "limits", "relative share of disk I/O, 10 to 1000", attribute="limits", metavar="N",
         variables="BLKIO_WEIGHT"),
    Flag("blkio-weight-device", "list", "limits", "relative share of disk I/O of a device, such as /dev/sda:500",
         attribute="limits",
         metavar="LIST", variables="BLKIO_WEIGHT_DEVICE"),
    Flag("apply-cgroups", "text", "limits", "TOML file with limits", attribute="limits", metavar="FILE",
         variables="APPLY_CGROUPS"),
    Flag("app", "text", "scripts", "run an application (SCIF) of the image", metavar="NAME", variables="APP APPNAME"),
    Flag("shell", "text", "scripts", "shell to start", short="s", metavar="PATH", variables="SHELL",
         verbs=("shell",)),
    Flag("record", "switch", "scripts", "record the commands in the overlay, for 'kedge commit --recipe'",
         verbs=("shell",)),
    Flag("record", "switch", "scripts", "write a record of the run to kedge-run-….json in this directory",
         attribute="run_record", verbs=("exec", "run")),
    Flag("record-to", "text", "scripts", "write the record to FILE", metavar="FILE", verbs=("exec", "run")),
    Flag("pid-file", "text", "scripts", "write the process id to FILE", metavar="FILE",
         variables="PID_FILE", verbs=("start",)),
    Flag("root-from", "text", "image", "how to provide the root file system (default: auto)", attribute="root",
         metavar="auto|unpack|squashfuse|kernel", variables="KEDGE_ROOT_FROM"),
    Flag("unsquash tmp-sandbox", "switch", "image", "--root-from unpack", attribute="root", value="unpack",
         variables="UNSQUASH TMP_SANDBOX"),
    Flag("pull", "text", "image", "when to ask the registry what a reference means (default: auto)",
         metavar="auto|missing|newer|always|never", variables="KEDGE_PULL"),
    Flag("passphrase", "switch", "image", "prompt for the passphrase of an encrypted image"),
    Flag("pem-path", "text", "image", "RSA private key of an encrypted image", metavar="FILE",
         variables="ENCRYPTION_PEM_PATH"),
    Flag("runtime", "text", "image", "use another runtime, such as apptainer", metavar="NAME",
         variables="KEDGE_RUNTIME"),
    Flag("arch", "text", "image", "architecture to pull", attribute="pull_words", metavar="ARCH"),
    Flag("disable-cache", "switch", "image", "do not keep the image in the cache", attribute="pull_words"),
    Flag("docker-login", "switch", "image", "prompt for user name and password", attribute="pull_words",
         variables="DOCKER_LOGIN"),
    Flag("authfile", "text", "image", "docker-config.json with credentials", attribute="pull_words",
         metavar="FILE", variables="AUTH_FILE"),
    Flag("no-https nohttps", "switch", "image", "use http, not https", attribute="pull_words"),
    Flag("tmpdir", "text", "image", "directory for temporary files", attribute="pull_words", metavar="DIR"),
    Flag("dry-run", "switch", "messages", "show the plan and start nothing"),
    Flag("json", "switch", "messages", "print one JSON document, also for errors"),
    Flag("quiet", "switch", "messages", "no progress, no notes", short="q", variables="QUIET"),
    Flag("silent", "switch", "messages", "print results and errors only", short="s", variables="SILENT"),
    Flag("verbose", "count", "messages", "show each decision and its reason", short="v", variables="VERBOSE"),
    Flag("debug", "switch", "messages", "show a traceback for errors", short="d", variables="DEBUG"),
    Flag("nocolor no-color", "switch", "messages", "no colours", variables="NOCOLOR"),
    Flag("help", "help", "messages", "show the options that most people use", short="h"),
    Flag("help-all", "help", "messages", "show all options"),
    Flag("no-pid", "switch", "idle", "the PID namespace is separate only with --pid or --containall",
         variables="NO_PID"),
    Flag("runscript-timeout", "text", "idle", "runscripts have no time limit", metavar="TIME",
         variables="RUNSCRIPT_TIMEOUT"),
    Flag("ignore-fakeroot-command", "switch", "idle", "--fakeroot never uses the fakeroot program",
         variables="IGNORE_FAKEROOT_COMMAND"),
    Flag("no-tmp-sandbox", "switch", "idle", "--root-from chooses how to provide the root file system",
         variables="NO_TMP_SANDBOX"),
    Flag("no-oci", "switch", "idle", "kedge has no OCI mode", variables="NO_OCI"),
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
    "oci": ("kedge starts no OCI runtime", "leave it out, or use --compat to behave like Docker"),
    "security": (
        "kedge sets no SELinux label, AppArmor profile, seccomp filter or foreign user",
        "leave it out; a container has the rights of its caller only",
    ),
    "capabilities": (
        "a container has the rights of its caller only",
        "--fakeroot adds the capabilities of a user namespace",
    ),
    "setuid": ("setuid programs in a container run with the rights of the caller", "use --fakeroot to appear as root"),
    "network": (
        "a separate network needs root",
        "use --network none for no network, or leave it out for the network of the host",
    ),
    "fusemount": (
        "kedge starts no FUSE programs for users",
        "mount it on the host first (sshfs HOST:/data /tmp/data), then: --bind /tmp/data:/data",
    ),
    "docker-host": ("kedge calls the docker program", "set DOCKER_HOST, which docker reads"),
    "login": (
        "every user of this host can read command lines",
        "set APPTAINER_DOCKER_USERNAME and APPTAINER_DOCKER_PASSWORD, or: kedge registry login",
    ),
    "gaudi": ("kedge does not support Gaudi accelerators", "bind their devices: --bind /dev/accel"),
    "compat32": ("kedge adds 64-bit driver files only", "leave it out"),
    "userns": ("without root a container needs a user namespace", "leave it out"),
    "boot": ("an init system in a container needs root", "start the service itself: kedge instance start"),
    "checkpoint": ("kedge has no checkpoints", "use DMTCP inside the container: kedge exec IMAGE dmtcp_launch ..."),
}


# What a user asks of a container, after flags, environment variables and defaults were merged; `flags` fills it.


class RunOptions:
    """One request; the attributes below are the defaults. Lists of text are as the user typed them, split by nobody."""

    verb: str = "exec"  # exec, run, shell, test or start
    image: str = ""
    arguments: list[str]  # the program and its arguments for exec, the arguments of the script for the others

    # environment
    cleanenv: bool = False
    env: list[str]  # A=1,B=2
    env_file: list[str]
    no_env: list[str]  # names of host variables that stay outside
    no_eval: bool = False
    keep: list[str]  # names of guarded host variables, or 'user-site', 'locale', 'all', that are let in

    # file systems
    bind: list[str]
    mount: list[str]
    scratch: list[str]
    overlay: list[str]
    home: str = ""
    no_home: bool = False
    workdir: str = ""
    pwd: str = ""
    no_workdir: bool = False  # refuse the image's WORKDIR
    no_mount: list[str]
    contain: bool = False
    containall: bool = False
    compat: bool = False
    writable: bool = False
    writable_tmpfs: bool = False
    tmpfs_size: str = ""  # of --writable-tmpfs and of the private tmp and home of --contain
    underlay: bool = False
    contain_libs: list[str]  # files of the host for /.singularity.d/libs

    # namespaces and identity
    fakeroot: bool = False
    ignore_subuid: bool = False  # map the own number only, whatever /etc/subuid offers
    userns: bool = False
    pid: bool = False
    ipc: bool = False
    uts: bool = False
    hostname: str = ""
    net: bool = False
    network: str = ""
    no_init: bool = False
    no_umask: bool = False
    no_privs: bool = False
    keep_privs: bool = False
    drop_caps: list[str]
    dns: str = ""
    sharens: bool = False

    # control groups
    limits: list[str]  # memory=8G and the like

    # devices; nv, no_nv, rocm and all other switches of GPU vendors come from the table in gpu_vendors.py
    force: bool = False  # also where the image does not run on these GPUs
    device: list[str]
    cdi_dirs: list[str]

    # scripts
    app: str = ""
    shell: str = ""  # of `shell`
    record: bool = False  # of `shell`: keep the commands in the overlay, for `kedge commit --recipe`
    run_record: bool = False  # of `exec` and `run`: leave a record of the run in this directory
    record_to: str = ""  # likewise, in this file
    pid_file: str = ""  # of `start`
    command_name: str = ""  # `run`: what APPTAINER_COMMAND says; filled by the front end with the verb
    instance: str = ""  # the instance that is started or joined: what APPTAINER_INSTANCE says

    # kedge
    step: StepOptions | None = None  # this container is a step of a build
    root: str = "auto"  # auto, unpack, squashfuse or kernel: where the root file system comes from
    passphrase: bool = False  # ask for that of an encrypted image
    pem_path: str = ""  # the key that opens it
    runtime: str = ""  # kedge, auto, or another runtime to drive
    passed_on: list[str]  # flags of Apptainer that kedge refuses, as words for a runtime that may take them
    pull: str = "auto"  # auto, missing, newer, always or never
    pull_words: list[str]  # options for the pull that may be needed first, as `kedge pull` takes them
    dry_run: bool = False
    json: bool = False
    verbose: int = 0
    quiet: bool = False
    silent: bool = False
    debug: bool = False
    nocolor: bool = False
    shim: bool = False  # called by a name of Apptainer's: whoever reads the messages expects Apptainer's
    given: dict[str, str]  # flag or variable that set an attribute, for messages: {'nv': '--nv'}
    notes: list[str]  # said with --verbose
    warnings: list[str]  # said unless --silent

    _LISTS = (
        *("arguments", "env", "env_file", "no_env", "keep", "bind", "mount", "scratch", "overlay", "no_mount"),
        *(
            "contain_libs",
            "drop_caps",
            "limits",
            "device",
            "cdi_dirs",
            "pull_words",
            "passed_on",
            "notes",
            "warnings",
        ),
    )

    def __init__(self, **values: object) -> None:
        for name in self._LISTS:
            setattr(self, name, [])
        for vendor in VENDORS:
            for name in vendor.attributes:
                setattr(self, name, False)
        self.given = {}
        for name, value in values.items():
            if not hasattr(self, name):
                raise TypeError(f"RunOptions has no '{name}'")
            setattr(self, name, value)
        self.settle()

    @property
    def is_foreign(self) -> bool:
        """Whether another runtime is to be driven; `auto` is kedge, and a setuid Apptainer where kedge is not let."""
        return self.runtime not in ("", "kedge", "auto")

    @property
    def asks_devices(self) -> bool:
        """Whether GPUs or other devices are asked for."""
        return bool(self.device) or any(getattr(self, switch.attribute) for vendor in VENDORS for switch in vendor.on)

    def settle(self) -> None:
        """Let the flags that stand for several others set them; called once all values are in."""
        if self.compat:
            self.containall = self.no_init = self.no_umask = self.no_eval = True
            self.writable_tmpfs = self.writable_tmpfs or not (self.overlay or self.writable)
        if self.containall:
            self.contain = self.pid = self.ipc = self.cleanenv = True
        if self.hostname:
            self.uts = True
        if self.network:
            self.net = True


# Settings that every start asks, read out of the configuration files without what reads all of them.

# setting -> attribute of RunOptions; the variable of the same name and the flag come before it
CONTAINER_SETTINGS = ("keep", "root_from", "tmpfs_size")
_ATTRIBUTES = {"root_from": "root"}


def settle_options(options: RunOptions, environ: Mapping[str, str], names: tuple[str, ...]) -> None:
    """Let the configuration files say what neither a flag nor a variable said."""
    for name, value in read_settings(names, environ).items():
        if name == "root_from":
            _check_root(value, environ)
        attribute = _ATTRIBUTES.get(name, name)
        if attribute not in options.given and not (name == "runtime" and options.runtime):
            setattr(options, attribute, [value] if name == "keep" else value)


def _check_root(value: str, environ: Mapping[str, str]) -> None:

    flag = next(flag for flag in FLAGS if "root-from" in flag.names)
    if value not in flag.metavar.split("|"):
        load_setting("root_from", environ)  # which says where it stands
