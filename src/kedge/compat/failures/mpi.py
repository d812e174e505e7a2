# SPDX-License-Identifier: BSD-3-Clause
"""MPI programs and their launchers: what Open MPI, MPICH and Intel MPI say."""

from __future__ import annotations

from kedge.compat.failures.failure import CONSEQUENCE, GENERAL, LIKELY, POSSIBLE, Failure

MPI = (
    Failure(
        "opal-prefix",
        r"couldn't open the help file:\s+(\S+/share/openmpi)/help-|mpirun\S*: Error: unknown option \"-(?:np|n|H"
        r"|-\w+)\""
        r"|unable to find the (?:help|text) file.{0,80}OPAL_PREFIX",
        cause="Open MPI looks for its files in the wrong directory: a module of the host set OPAL_PREFIX, and it was "
        "passed into the container, or the other way round",
        remedy="'unset OPAL_PREFIX PMIX_INSTALL_PREFIX' before the launch, or use 'kedge launch', which does",
        source="Open MPI 4.1.4 with a wrong OPAL_PREFIX",
        examples=(
            "Sorry!  You were supposed to get help about:\n    opal_init:startup:internal-failure\n"
            "But I couldn't open the help file:\n    /opt/nosuch/share/openmpi/help-opal-runtime.txt: No such "
            "file or "
            "directory.  Sorry!",
            'mpirun.openmpi: Error: unknown option "-np"',
        ),
    ),
    Failure(
        "no-orted",
        r"orted: (?:command )?not found|prted: (?:command )?not found|orted: No such file or directory",
        cause="mpirun wants to start its daemon orted on another node, which does not have it: mpirun runs "
        "inside of the "
        "container, and other nodes see the host only",
        remedy="start the ranks from outside: 'kedge launch IMAGE PROGRAM', or srun --mpi=pmix kedge exec IMAGE "
        "PROGRAM",
        source="workflow facts: MPI and containers",
        examples=("bash: line 1: orted: command not found", "bash: orted: command not found"),
    ),
    Failure(
        "ssh-host",
        r"ssh: Could not resolve hostname ([\w.-]+)|ssh: connect to host ([\w.-]+)|Host key verification failed"
        r"|Permission denied \(publickey|rsh: command not found|ssh: command not found",
        cause="the launcher wanted to start processes on another node by ssh, which failed",
        remedy="inside a job use 'kedge launch' or srun, which need no ssh; check the names of hosts where you "
        "give them",
        source="Open MPI 4.1.4 and MPICH 4.0.2 with a host that does not exist",
        examples=(
            "ssh: Could not resolve hostname nosuchhost: Name or service not known",
            "Host key verification failed.",
            "me@gpu02: Permission denied (publickey,password).",
        ),
    ),
    Failure(
        "daemons",
        r"ORTE was unable to reliably start one or more daemons|PRTE has lost communication|ORTE does not know "
        r"how to "
        r"route|An ORTE daemon has unexpectedly failed after launch|ORTE has lost communication with a remote daemon",
        cause="mpirun could not start its daemons on the other nodes, or lost them: no ssh between nodes, mpirun "
        "inside "
        "of a container, a node that died, or a firewall",
        remedy="inside a job use 'kedge launch' or srun instead of mpirun; the lines above this one name the node",
        source="Open MPI 4.1.4 with a host that does not exist",
        examples=(
            "ORTE was unable to reliably start one or more daemons.\nThis usually is caused by:",
            "ORTE does not know how to route a message to the specified daemon",
            "An ORTE daemon has unexpectedly failed after launch and before\ncommunicating back to mpirun.",
        ),
        sure=LIKELY,
    ),
    Failure(
        "no-slots",
        r"not enough slots available in the system to satisfy the (\d+)",
        cause="mpirun was asked for {1} processes, and the job has fewer slots",
        remedy="ask the scheduler for more tasks (--ntasks-per-node, or -pe), or start fewer; 'kedge launch' "
        "takes the "
        "number from the job; --oversubscribe is for tests only",
        source="Open MPI 4.1.4",
        examples=(
            "There are not enough slots available in the system to satisfy the 64\nslots that were requested by the "
            "application:",
        ),
    ),
    Failure(
        "as-root",
        r"mpirun\S* has detected an attempt to run as root",
        cause="Open MPI refuses to run as root: mpirun runs as root inside of a container",
        remedy="start the ranks from outside with 'kedge launch', or without --fakeroot; else set "
        "OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
        source="Open MPI 4.1.4",
        examples=("mpirun.openmpi has detected an attempt to run as root.",),
    ),
    Failure(
        "mpi-no-program",
        r"unable to launch the specified application as it could not\s+access\s+or execute an executable"
        r"|HYDU_create_process .{0,80}execvp error on file (\S+)|unable to find an executable file",
        cause="the program to start does not exist on that node, or may not be executed",
        remedy="give its absolute path; a program of the image runs as 'kedge launch IMAGE PROGRAM'; a program on a "
        "node's own disk is missing on other nodes",
        source="Open MPI 4.1.4, MPICH 4.0.2",
        examples=(
            "mpirun.openmpi was unable to launch the specified application as it could not access\nor execute an "
            "executable:",
            "[proxy:0:0@vm] HYDU_create_process (utils/launch/launch.c:73): execvp error on file ./nosuch (No "
            "such file "
            "or directory)",
        ),
    ),
    Failure(
        "mpi-component",
        r"A requested component was not found, or was unable to be opened|No components were able to be opened "
        r"in the "
        r"(\w+) framework|mca_base_component_repository_open: unable to open (\S+?):? |PML (\w+) cannot be selected",
        cause="Open MPI could not load a component that it was told to use: a library that it needs is not in the "
        "container, or an OMPI_MCA_ variable of the host names one that the image does not have",
        remedy="'env | grep OMPI_MCA' shows such variables: unset them; where the host's MPI is bound into the "
        "container, bind UCX and libfabric, too; 'kedge mpi check IMAGE' lists what is missing",
        source="Open MPI 4.1.4 with components that do not exist",
        examples=(
            "A requested component was not found, or was unable to be opened.  This\nmeans that this component is "
            "either not installed or is unable to be",
            "No components were able to be opened in the pml framework.",
            "[n1:22] mca_base_component_repository_open: unable to open mca_pml_ucx: libucp.so.0: cannot open shared "
            "object file: No such file or directory (ignored)",
            "[vm:24101] PML ucx cannot be selected",
        ),
        sure=LIKELY,
    ),
    Failure(
        "mpi-usage",
        r"\*\*\* (MPI_ERR_(?:TRUNCATE|RANK|COUNT|TAG|TYPE|BUFFER|COMM|ARG|OP|ROOT|REQUEST)\b[^\n]{0,60})"
        r"|(?:\(rank (?P<rank>\d+) in comm \d+\): )?Fatal error in (\w+: (?:Message truncated|Invalid \w+(?: \w+)?))",
        cause="the program called MPI wrongly: a message longer than its buffer, or a rank, size or communicator "
        "that "
        "does not exist",
        remedy="the line names the call; look whether the program expects another number of ranks",
        source="Open MPI 4.1.4, MPICH 4.0.2",
        examples=(
            "[vm:22569] *** MPI_ERR_TRUNCATE: message truncated",
            "[vm:22740] *** MPI_ERR_RANK: invalid rank",
            "Abort(604119054) on node 1 (rank 1 in comm 0): Fatal error in internal_Recv: Message truncated, "
            "error stack:",
            "Abort(604654086) on node 0 (rank 0 in comm 0): Fatal error in internal_Send: Invalid rank, error stack:",
        ),
    ),
    Failure(
        "mpi-peer-gone",
        r"mca_btl_tcp_\w+\] .{0,40}(?:Connection reset by peer|failed)|ucp_ep_\w*.{0,60}Endpoint is not connected"
        r"|Endpoint timeout|UCX  ERROR .{0,80}Connection reset by (?:remote )?peer",
        cause="another rank went away: it failed before this one",
        remedy="look at the rank that failed first; this is only what the others noticed",
        source="Open MPI 4.1.4 under Slurm and Grid Engine, one rank killed",
        examples=(
            "[ge01][[56442,1],0][../../../../../../opal/mca/btl/tcp/btl_tcp.c:559:mca_btl_tcp_recv_blocking] "
            "recv(17) failed: "
            "Connection reset by peer (104)",
        ),
        level=CONSEQUENCE,
    ),
    Failure(
        "hydra-lost",
        r"HYDU_sock_(?:write|connect|read)|HYDT_dmxu_poll_wait_for_event|HYD_pmcd_pmiserv_\w+|unable to get host "
        r"address for",
        cause="MPICH's launcher lost its connection to another node, or could not start there",
        remedy="look for a line about ssh or a host before it; inside a job use 'kedge launch' or srun --mpi=pmi2",
        source="MPICH 4.0.2 with a host that does not exist",
        examples=("[mpiexec@vm] HYDU_sock_write (utils/sock/sock.c:254): write error (Bad file descriptor)",),
        level=CONSEQUENCE,
    ),
    Failure(
        "mpi-init",
        r"It looks like MPI_INIT failed for some reason|Fatal error in (?:PMPI_|internal_)?Init(?:_thread)?\b"
        r"|MPII?R?_Init_thread\(\d+\)|\*\*\* An error occurred in MPI_Init",
        cause="MPI could not start in that process; the lines around it say more",
        remedy="'kedge mpi check IMAGE' compares the MPI of the image with the host's and names what is missing",
        source="Open MPI 4.1.4, MPICH 4.0.2",
        examples=(
            "It looks like MPI_INIT failed for some reason; your parallel process is\nlikely to abort.",
            "[vm:24130] *** An error occurred in MPI_Init",
            "Abort(1090831) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init_thread: Other MPI error, "
            "error stack:",
        ),
        level=GENERAL,
        sure=POSSIBLE,
    ),
    Failure(
        "mpi-abort",
        r"MPI_ABORT was invoked on rank (?P<rank>\d+)"
        r"|(?:\(rank (?P<rank_mpich>\d+) in comm \d+\): )?application called MPI_Abort\(MPI_COMM_WORLD, (-?\d+)\)"
        r"|MPI_Abort\(.{0,40}\) - process \d+",
        cause="the program itself ended the whole job with MPI_Abort",
        remedy="read what that rank printed before: kedge cannot know the program's own reasons",
        source="Open MPI 4.1.4, MPICH 4.0.2",
        examples=(
            "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 3.",
            "Abort(3) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 3) - process 1",
        ),
        level=GENERAL,
    ),
)
