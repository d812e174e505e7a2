# SPDX-License-Identifier: BSD-3-Clause
"""The error tree: every failure a user can meet, with one exit code per class.

A message says what was tried and why it failed; `context` names the file, host, field or offset; `hint` is the next
thing to type. Domain code raises these; only `cli/main.py` catches and renders them. Codes 1-9 are general,
10-19 registries, 20-29 image content, 30-39 files and the store, 40-49 limits of this machine, 50-59 settings,
60-69 containers, 70-79 jobs, 80-89 what does not fit together. `run`, `exec`, `shell` and `test` end with 255 instead,
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
    """The command line makes no sense."""

    reference, exit_code = "usage", 2


class InvalidReference(KedgeError):
    """The image reference cannot be read."""

    reference, exit_code = "invalid-reference", 10


class ImageNotFound(KedgeError):
    """The registry answers, but has no such repository, tag or digest."""

    reference, exit_code = "image-not-found", 11


class AuthenticationFailed(KedgeError):
    """Credentials are missing or were refused (401)."""

    reference, exit_code = "authentication-failed", 12


class AccessDenied(KedgeError):
    """The registry knows who asks and says no (403)."""

    reference, exit_code = "access-denied", 13


class NetworkFailed(KedgeError):
    """No connection, a broken connection, TLS trouble, or a server error that outlived the retries."""

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
    """The registry asks us to wait longer than we will (429)."""

    reference, exit_code = "rate-limited", 15


class RegistryProtocolError(KedgeError):
    """The registry's answer does not follow the distribution specification."""

    reference, exit_code = "registry-protocol", 16


class NoMatchingPlatform(KedgeError):
    """The image exists, but not for this architecture."""

    reference, exit_code = "no-matching-platform", 17


class DigestMismatch(KedgeError):
    """Bytes do not have the digest or size that was promised."""

    reference, exit_code = "digest-mismatch", 20


class CorruptImage(KedgeError):
    """A blob, tar, SquashFS or SIF is truncated or damaged; context names the field and offset."""

    reference, exit_code = "corrupt-image", 21


class HostileImage(KedgeError):
    """The image tries something no honest image does (leaves its root, expands without bound)."""

    reference, exit_code = "hostile-image", 22


class UnsupportedFormat(KedgeError):
    """A well-formed thing of a kind that is not supported."""

    reference, exit_code = "unsupported-format", 23


class SignatureInvalid(KedgeError):
    """A signature does not fit the image, or there is none where one is required."""

    reference, exit_code = "signature-invalid", 24


class KeyNotFound(KedgeError):
    """The key to sign or verify with is not in the keyring."""

    reference, exit_code = "key-not-found", 25


class KeyUnusable(KedgeError):
    """A key is damaged, expired, revoked, locked by another passphrase, or of a kind that cannot be used."""

    reference, exit_code = "key-unusable", 26


class FileProblem(KedgeError):
    """A local file is missing, unreadable, unwritable or of the wrong kind."""

    reference, exit_code = "file-problem", 30


class OutputExists(KedgeError):
    """The output is there already and --force was not given."""

    reference, exit_code = "output-exists", 31


class NoSpace(KedgeError):
    """The file system or the quota has no room."""

    reference, exit_code = "no-space", 32


class StoreBusy(KedgeError):
    """Another process holds the lease and does not let go."""

    reference, exit_code = "store-busy", 33


class LimitReached(KedgeError):
    """A memory, process or thread limit of this machine is too low."""

    reference, exit_code = "limit-reached", 40


class ProgramMissing(KedgeError):
    """A program of the host that this path needs is not installed."""

    reference, exit_code = "program-missing", 41


class ProgramFailed(KedgeError):
    """A program of the host was started and failed."""

    reference, exit_code = "program-failed", 42


class InvalidSetting(KedgeError):
    """A configuration file, environment variable or option has a value that cannot be used."""

    reference, exit_code = "invalid-setting", 50


class MissingExtra(KedgeError):
    """An optional Python package is needed; the hint names the extra to install."""

    reference, exit_code = "missing-extra", 51


class NamespaceRefused(KedgeError):
    """This machine does not let the user make the namespaces that a container needs."""

    reference, exit_code = "namespace-refused", 60


class MountFailed(KedgeError):
    """A part of the container's file system could not be put in its place."""

    reference, exit_code = "mount-failed", 61


class CannotStart(KedgeError):
    """The program inside the container could not be started: it is not there, or made for another machine."""

    reference, exit_code = "cannot-start", 62


class InstanceProblem(KedgeError):
    """A named container is not there, is there already, or has ended."""

    reference, exit_code = "instance-problem", 63


class DeviceProblem(KedgeError):
    """A GPU or another device was asked for and cannot be given."""

    reference, exit_code = "device-problem", 64


class RuntimeUnsuited(KedgeError):
    """Another runtime was asked for and is not here, or cannot do what the options say."""

    reference, exit_code = "runtime-unsuited", 65


class NotReady(KedgeError):
    """The child that pulls and unpacks an image has failed, and has said why."""

    reference, exit_code = "not-ready", 66
    is_reported = True


def all_errors() -> list[type[KedgeError]]:
    """Every class of this module, by exit code: the source of the documented list. Others refine one of these."""
    found: list[type[KedgeError]] = [KedgeError]
    for parent in found:
        found.extend(kind for kind in parent.__subclasses__() if kind.__module__ == __name__)
    return sorted(set(found), key=lambda kind: kind.exit_code)


def rebuild_error(told: dict[str, object]) -> KedgeError:
    """The error that another process described with `as_dict`."""
    kinds = {kind.reference: kind for kind in all_errors()}
    kind = kinds.get(str(told.get("error")), KedgeError)
    context = told.get("context")
    shown = {str(name): str(value) for name, value in context.items()} if isinstance(context, dict) else None
    hint = told.get("hint")
    return kind(str(told.get("message")), context=shown, hint=str(hint) if hint else None)


class InvalidJob(KedgeError):
    """The description of a job cannot be used: context names the key or flag, and the file it stands in."""

    reference, exit_code = "invalid-job", 70


class RequestRefused(KedgeError):
    """The site or its scheduler cannot serve a request; the hint is the nearest one that would do."""

    reference, exit_code = "request-refused", 71


class SchedulerFailed(KedgeError):
    """A program of the scheduler failed, or said what cannot be understood; its words are in the context."""

    reference, exit_code = "scheduler-failed", 72


class JobNotFound(KedgeError):
    """Nobody knows that job: no record of kedge's, and not the scheduler."""

    reference, exit_code = "job-not-found", 73


class NoScheduler(KedgeError):
    """There is no scheduler here, or not the one that was asked for."""

    reference, exit_code = "no-scheduler", 74


class SiteProblem(KedgeError):
    """A site is not known, or its profile cannot be used."""

    reference, exit_code = "site-problem", 75


class JobFailed(KedgeError):
    """A job that was waited for did not end well."""

    reference, exit_code = "job-failed", 76


class JobStuck(KedgeError):
    """A job that was waited for never begins by itself: what it waits for cannot happen, or an error holds it."""

    reference, exit_code = "job-stuck", 77


class WillNotRun(KedgeError):
    """The image does not run on this machine or in this queue: driver, GPU or processor do not fit."""

    reference, exit_code = "will-not-run", 80


class TableProblem(KedgeError):
    """A table of drivers, GPUs or releases has a row that makes no sense."""

    reference, exit_code = "table-problem", 81


class NothingFits(KedgeError):
    """No image that is known runs there."""

    reference, exit_code = "nothing-fits", 82


class UnknownGpu(KedgeError):
    """No GPU is known by that name."""

    reference, exit_code = "unknown-gpu", 83


class DoctorFailed(KedgeError):
    """`kedge doctor` found something that keeps containers or jobs from working."""

    reference, exit_code = "doctor-failed", 84
