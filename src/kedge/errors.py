# SPDX-License-Identifier: BSD-3-Clause
"""The error tree: every failure a user can meet, with one exit code per class.

A message says what was tried and why it failed; `context` names the file, host, field or offset; `hint` is the next
thing to type. Domain code raises these; only `cli/main.py` catches and renders them. Codes 1-9 are general,
10-19 registries, 20-29 image content, 30-39 files and the cache, 40-49 limits of this host, 50-59 settings,
60-69 containers, 70-79 jobs, 80-89 compatibility and diagnosis. `run`, `exec`, `shell` and `test` end with 255 instead,
which no program uses for itself.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # loading it would cost a failing start more than all else
    from typing import ClassVar


class KedgeError(Exception):
    """Base of all errors that are the user's business; anything else that escapes is a bug."""

    reference: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, context: dict[str, str] | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.context = dict(context or {})
        self.hint = hint

    def as_dict(self) -> dict[str, object]:
        """The error as `--json` prints it."""
        return {
            "error": self.reference,
            "exit_code": self.exit_code,
            "message": self.message,
            "context": self.context,
            "hint": self.hint,
        }


class UsageError(KedgeError):
    """The command line is not valid."""

    reference, exit_code = "usage", 2


class InvalidReference(KedgeError):
    """The image reference is not valid."""

    reference, exit_code = "invalid-reference", 10


class ImageNotFound(KedgeError):
    """The registry answers, but has no such repository, tag or digest."""

    reference, exit_code = "image-not-found", 11


class AuthenticationFailed(KedgeError):
    """Credentials are missing or were refused (401)."""

    reference, exit_code = "authentication-failed", 12


class AccessDenied(KedgeError):
    """The registry does not allow this user the access (403)."""

    reference, exit_code = "access-denied", 13


class NetworkFailed(KedgeError):
    """No connection, a broken connection, a TLS error, or a server error that remained after all retries."""

    reference, exit_code = "network-failed", 14

    def __init__(
        self,
        message: str,
        *,
        context: dict[str, str] | None = None,
        hint: str | None = None,
        is_transient: bool | None = None,
        is_slow: bool = False,
    ) -> None:
        super().__init__(message, context=context, hint=hint)
        self.is_transient = is_transient  # whether the same request may succeed later; None where nobody knows
        self.is_slow = is_slow  # data came, but slower than the user accepts: what arrived counts as no progress


class RateLimited(KedgeError):
    """The registry's rate limit is reached, and the wait would be too long (429)."""

    reference, exit_code = "rate-limited", 15


class RegistryProtocolError(KedgeError):
    """The registry's answer does not follow the distribution specification."""

    reference, exit_code = "registry-protocol", 16


class NoMatchingPlatform(KedgeError):
    """The image exists, but not for this architecture."""

    reference, exit_code = "no-matching-platform", 17


class DigestMismatch(KedgeError):
    """The data do not have the expected digest or size."""

    reference, exit_code = "digest-mismatch", 20


class CorruptImage(KedgeError):
    """A blob, tar, SquashFS or SIF is truncated or damaged; context names the field and offset."""

    reference, exit_code = "corrupt-image", 21


class HostileImage(KedgeError):
    """The image attacks the host: it writes outside its root, or expands without bound."""

    reference, exit_code = "hostile-image", 22


class UnsupportedFormat(KedgeError):
    """The file is valid, but kedge does not support its format."""

    reference, exit_code = "unsupported-format", 23


class SignatureInvalid(KedgeError):
    """A signature does not match the image, or a required signature is missing."""

    reference, exit_code = "signature-invalid", 24


class KeyNotFound(KedgeError):
    """The key for signing or verifying is not in the keyring."""

    reference, exit_code = "key-not-found", 25


class KeyUnusable(KedgeError):
    """A key is damaged, expired, revoked, locked with another passphrase, or of an unsupported type."""

    reference, exit_code = "key-unusable", 26


class FaultyImage(KedgeError):
    """kedge wrote an image that it cannot read back, and removed it: a bug in kedge; context names the place."""

    reference, exit_code = "faulty-image", 27

    @classmethod
    def of(cls, problem: KedgeError) -> FaultyImage:
        """The error for an image of kedge's own in which `problem` was found."""
        return cls(
            f"kedge wrote a broken image and removed it. This is a bug in kedge, not in your input: {problem.message}",
            context=problem.context,
            hint="report it with this message, the version ('kedge version') and the input, if others may have it",
        )


class FileProblem(KedgeError):
    """A local file is missing, unreadable, unwritable or of the wrong kind."""

    reference, exit_code = "file-problem", 30


class OutputExists(KedgeError):
    """The output exists already, and --force was not given."""

    reference, exit_code = "output-exists", 31


class NoSpace(KedgeError):
    """The file system or the quota is full."""

    reference, exit_code = "no-space", 32


class StoreBusy(KedgeError):
    """Another process works on the same item and does not finish."""

    reference, exit_code = "store-busy", 33


class LimitReached(KedgeError):
    """A memory, process or thread limit of this host is too low."""

    reference, exit_code = "limit-reached", 40


class ProgramMissing(KedgeError):
    """A required program is not installed on this host."""

    reference, exit_code = "program-missing", 41


class ProgramFailed(KedgeError):
    """A program of the host failed."""

    reference, exit_code = "program-failed", 42


class InvalidSetting(KedgeError):
    """A configuration file, environment variable or option has an invalid value."""

    reference, exit_code = "invalid-setting", 50


class MissingExtra(KedgeError):
    """An optional Python package is missing; the hint names the extra to install."""

    reference, exit_code = "missing-extra", 51


class NamespaceRefused(KedgeError):
    """This host does not allow the namespaces that a container needs."""

    reference, exit_code = "namespace-refused", 60


class MountFailed(KedgeError):
    """kedge could not mount a part of the container's file system."""

    reference, exit_code = "mount-failed", 61


class CannotStart(KedgeError):
    """kedge could not start the program in the container: it is missing, or built for another architecture."""

    reference, exit_code = "cannot-start", 62


class InstanceProblem(KedgeError):
    """An instance does not exist, exists already, or has ended."""

    reference, exit_code = "instance-problem", 63


class DeviceProblem(KedgeError):
    """A requested GPU or other device is not available."""

    reference, exit_code = "device-problem", 64


class RuntimeUnsuited(KedgeError):
    """The requested runtime is not installed, or does not support the options."""

    reference, exit_code = "runtime-unsuited", 65


class NotReady(KedgeError):
    """Pulling or unpacking the image failed; the reason was printed before."""

    reference, exit_code = "not-ready", 66
    is_reported = True


def all_errors() -> list[type[KedgeError]]:
    """Every class of this module, by exit code: the source of the documented list. Others refine one of these."""
    found: list[type[KedgeError]] = [KedgeError]
    for parent in found:
        found.extend(kind for kind in parent.__subclasses__() if kind.__module__ == __name__)
    return sorted(set(found), key=lambda kind: kind.exit_code)


def rebuild_error(fields: dict[str, object]) -> KedgeError:
    """The error that another process described with `as_dict`."""
    kinds = {kind.reference: kind for kind in all_errors()}
    kind = kinds.get(str(fields.get("error")), KedgeError)
    context = fields.get("context")
    shown = {str(name): str(value) for name, value in context.items()} if isinstance(context, dict) else None
    hint = fields.get("hint")
    return kind(str(fields.get("message")), context=shown, hint=str(hint) if hint else None)


class InvalidJob(KedgeError):
    """The description of a job is not valid: the context names the key or flag, and its file."""

    reference, exit_code = "invalid-job", 70


class RequestRefused(KedgeError):
    """The site or its scheduler cannot serve the request; the hint names the closest request that works."""

    reference, exit_code = "request-refused", 71


class SchedulerFailed(KedgeError):
    """A program of the scheduler failed or printed unexpected output; the context contains it."""

    reference, exit_code = "scheduler-failed", 72


class JobNotFound(KedgeError):
    """Neither kedge's records nor the scheduler have that job."""

    reference, exit_code = "job-not-found", 73


class NoScheduler(KedgeError):
    """This host has no scheduler, or not the requested one."""

    reference, exit_code = "no-scheduler", 74


class SiteProblem(KedgeError):
    """The site is unknown, or its profile is not valid."""

    reference, exit_code = "site-problem", 75


class JobFailed(KedgeError):
    """A job did not complete: it failed, was cancelled or reached its time limit."""

    reference, exit_code = "job-failed", 76


class JobStuck(KedgeError):
    """A pending job will never start: its condition cannot be met, or an error holds it."""

    reference, exit_code = "job-stuck", 77


class WillNotRun(KedgeError):
    """The image does not run on this host or queue: the driver, GPU or architecture does not match."""

    reference, exit_code = "will-not-run", 80


class TableProblem(KedgeError):
    """A table of drivers, GPUs or releases has an invalid row."""

    reference, exit_code = "table-problem", 81


class NothingFits(KedgeError):
    """No known image runs there."""

    reference, exit_code = "nothing-fits", 82


class UnknownGpu(KedgeError):
    """The GPU's name is unknown."""

    reference, exit_code = "unknown-gpu", 83


class DoctorFailed(KedgeError):
    """`kedge doctor` found something that keeps containers or jobs from working."""

    reference, exit_code = "doctor-failed", 84


class FailureFound(KedgeError):
    """`kedge diagnose` found the message of a known failure in a log."""

    reference, exit_code = "failure-found", 85


class InvalidRecord(KedgeError):
    """The file is not a record of a run, or it is damaged."""

    reference, exit_code = "invalid-record", 86


class RunDiffers(KedgeError):
    """The recorded run cannot be repeated as it was: the image, driver, GPU, host or a directory is another now."""

    reference, exit_code = "run-differs", 87


class InvalidRecipe(KedgeError):
    """A definition file or Dockerfile is not valid: the message names file, line and column."""

    reference, exit_code = "invalid-recipe", 90


class BuildFailed(KedgeError):
    """A step of a build failed: the message names the step and its line, the context has its last lines of output."""

    reference, exit_code = "build-failed", 91


class PackageReplaced(KedgeError):
    """A build with --protect changed a Python package of its base image."""

    reference, exit_code = "package-replaced", 92


class LaunchRefused(KedgeError):
    """A program cannot be started on these nodes as requested: the message says what does not fit."""

    reference, exit_code = "launch-refused", 93


class LaunchFailed(KedgeError):
    """A rank of a launch failed, or a node or the launcher ended before the program did."""

    reference, exit_code = "launch-failed", 94


class NotebookProblem(KedgeError):
    """An image lacks what a notebook needs, no fitting ipykernel could be installed, or there is no such kernel."""

    reference, exit_code = "notebook-problem", 95
