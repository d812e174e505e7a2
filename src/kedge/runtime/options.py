# SPDX-License-Identifier: BSD-3-Clause
"""What a user asks of a container, after flags, environment variables and defaults were merged; `flags` fills it."""

from __future__ import annotations

from kedge.runtime.gpu_vendors import VENDORS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.runtime.step_options import StepOptions


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
