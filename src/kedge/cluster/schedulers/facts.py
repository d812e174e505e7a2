# SPDX-License-Identifier: BSD-3-Clause
"""What a scheduler calls its programs, variables and files: plain text that any part of kedge may ask for.

Each package of a scheduler holds one such table, `FACTS`, and nothing else in its `__init__`: it costs little to load.
"""

from __future__ import annotations

from kedge.base.frozen import NOTHING, frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

Words = tuple[str, ...]


@frozen
class SchedulerFacts:
    """Names. Patterns are regular expressions; what is empty, the scheduler does not have."""

    name: str  # of its package, and in profiles and records
    title: str
    queue_word: str = "queue"  # what its users call one
    prefix: str = ""  # what a directive begins with: #SBATCH
    submit: str = ""  # the program that submits a script
    submit_path: str = ""  # where that program usually is, on the login nodes of this scheduler only
    signal_carrier: str = ""  # what is sent to jobs instead of a signal that would end them: their script reads which
    launcher_of_tasks: str = ""  # the program that starts a task on any node of a job, without MPI
    node_shell: str = ""  # the program that runs a command on a node of the job: its name, and words as they are
    broadcast: str = ""  # the program that copies a file to all nodes of a job, where no such file may be
    interactive: Words = ()  # the commands that open a terminal in a job, the usual one first
    # inside a job
    job_id: str = ""  # the variable with the job's id
    step_id: str = ""  # that with the number of a launch in it
    job_begin: str = ""  # the variable with the second in which the job began, where there is one
    job_queue: str = ""  # that with its queue
    job_mark: str = ""  # one that nobody but the scheduler sets
    job_scope: Words = ()  # those that all processes of a job share, and of an array's task
    submit_directory: str = ""
    submit_host: str = ""  # the variable with the host that submitted it
    node_file: str = ""  # the variable that names the list of nodes which mpirun has to be given
    gpu_lists: Words = ()  # variables with the numbers of the GPUs that it was given, the narrowest first
    gpu_counts: Words = ()  # those that say otherwise that it was given some
    own_variables: str = ""  # pattern: variables that are empty under other schedulers
    traces: str = ""  # pattern: words by which a script without directives is known
    # what a submission inside a job must not inherit
    inherited: Words = ()  # beginnings of names
    lasting: Words = ()  # names that begin so, and are settings
    # signs of a host that has it
    settings: str = ""  # the variable that names its settings
    program: str = ""  # one that no other scheduler has
    settings_files: Words = ()  # with the program they prove it
    own_files: Words = ()  # they prove it alone
    # questions
    version: Words = ()  # the call that prints its version, without asking the scheduler
    queues: Words = ()  # the call that lists its queues
    queue_line: str = ""  # pattern: a line of that list with the name of a queue
    # arrays and reservations
    has_array_lists: bool = True  # 1,3,7-9 and not only one range
    has_single_arrays: bool = True  # an array of one task is an array
    first_index: int = 0  # the smallest index there is
    reservation_queue: str = ""  # pattern: queues that are reservations, with limits that no profile knows
    # what to tell a user
    ask_for_gpu: str = ""
    job_with_memory: str = ""  # the words that run a command in a job with 8 GiB of memory

    def has_job(self, environ: Mapping[str, str]) -> bool:
        """Whether these are the variables of one of its jobs."""
        marks = (self.job_mark, self.settings)
        return bool(environ.get(self.job_id)) and any(environ.get(mark) for mark in marks)


@frozen
class RefusalAdvice:
    """Words of one scheduler's programs, in small letters."""

    unreachable: tuple[str, ...] = ()  # the scheduler itself does not answer
    not_set_up: Mapping[str, tuple[str, str]] = NOTHING  # what is wrong and what to do: it was never told of a cluster
    remedies: Mapping[str, str] = NOTHING  # the first that is found counts
