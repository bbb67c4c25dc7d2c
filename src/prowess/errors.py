"""Every failure is a ProwessError: it says what happened, to which thing, and what to do next. Codes never change.

    ProwessError(message, *, code, hint)
    ├─ ConfigError       EvalError                 exit 2
    ├─ SkillError        SkillNotFound(near) · SkillDenied (exit 3) · SkillInvalid(findings) · ResourceNotFound
    ├─ WorkspaceError(op, retryable)   PathEscape · ExecTimeout · WorkspaceUnavailable
    ├─ ModelError(retryable)           ModelAuth · ModelOverloaded(retry_after_s) · ModelMalformed
    ├─ StoreError        SessionConflict · AuditBroken
    ├─ PackError         PackUnsafe · PackMismatch · PackDenied (exit 3) · SignatureInvalid · FetchError(retryable)
    └─ MissingExtra(extra)             pip install 'prowess[serve]'

A tool raises ToolRetry(why) or ToolFailed(why) as a signal to the loop. These two are not errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from prowess.core.catalog_values import Finding


class ProwessError(Exception):
    """Base of every failure, with a message, a hint and a `code`. A code never changes its meaning."""

    code: str = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message

    def to_json(self) -> dict[str, str | None]:
        return {"code": self.code, "message": self.message, "hint": self.hint}


class ConfigError(ProwessError):
    """A setting, a settings file or a command line cannot be used."""

    code = "config-invalid"
    exit_code = 2


class SkillError(ProwessError):
    """Base of the errors about a skill."""

    code = "skill-error"


class SkillNotFound(SkillError):
    """No skill has this name, several have it, or the skill was removed. `near` has similar names."""

    code = "skill-not-found"

    def __init__(
        self, message: str, *, near: Sequence[str] = (), code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.near: tuple[str, ...] = tuple(near)


class SkillDenied(SkillError):
    """The skill exists, but the caller may not use it now."""

    code = "skill-denied"
    exit_code = 3


class SkillInvalid(SkillError):
    """The skill exists, but its files cannot be used. `findings` says why."""

    code = "skill-invalid"

    def __init__(
        self, message: str, *, findings: Sequence[Finding] = (), code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.findings: tuple[Finding, ...] = tuple(findings)


class ResourceNotFound(SkillError):
    """A file of a skill does not exist, has changed since the skill was loaded, or is too large."""

    code = "resource-not-found"


class WorkspaceError(ProwessError):
    """The workspace, in which scripts run, failed. `op` names the operation."""

    code = "workspace-error"

    def __init__(
        self,
        message: str,
        *,
        op: str = "",
        retryable: bool = False,
        code: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.op = op
        self.retryable = retryable


class PathEscape(WorkspaceError):
    """A path leads outside its folder."""

    code = "path-escape"


class ExecTimeout(WorkspaceError):
    """A script ran longer than its time-out."""

    code = "exec-timeout"


class WorkspaceUnavailable(WorkspaceError):
    """No executor here can run scripts in the requested way."""

    code = "workspace-unavailable"


class ModelError(ProwessError):
    """A model or its provider failed. `retryable` says whether a retry can help."""

    code = "model-error"

    def __init__(
        self, message: str, *, retryable: bool = False, code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retryable = retryable


class ModelAuth(ModelError):
    """The provider refused the API key, or no key is set."""

    code = "model-auth"


class ModelOverloaded(ModelError):
    """The provider asks to wait. `retry_after_s` says how long, if the provider told it."""

    code = "model-overloaded"

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float | None = None,
        code: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, retryable=True, code=code, hint=hint)
        self.retry_after_s = retry_after_s


class ModelMalformed(ModelError):
    """The model's reply cannot be read."""

    code = "model-malformed"


class StoreError(ProwessError):
    """A store could not read or write its data."""

    code = "store-error"


class SessionConflict(StoreError):
    """Another writer changed the session first. Nothing was written."""

    code = "session-conflict"


class AuditBroken(StoreError):
    """A record is not the same as it was written."""

    code = "audit-broken"


class EvalError(ConfigError):
    """A case file, a baseline, a recording or an engine cannot be used."""

    code = "eval-error"


class PackError(ProwessError):
    """An archive or a pack cannot be used."""

    code = "pack-error"


class PackUnsafe(PackError):
    """An archive would write outside its folder or grow without limit. Nothing was unpacked."""

    code = "pack-unsafe"


class PackMismatch(PackError):
    """The content does not match its digest."""

    code = "pack-mismatch"


class PackDenied(PackError):
    """A policy denies the content. Nothing was changed."""

    code = "digest-denied"
    exit_code = 3


class SignatureInvalid(PackError):
    """The signature does not match the content, or its signer is not trusted."""

    code = "signature-invalid"


class FetchError(PackError):
    """A download gave no usable content. `retryable` says whether a retry can help."""

    code = "fetch-failed"

    def __init__(
        self, message: str, *, retryable: bool = False, code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retryable = retryable


class MissingExtra(ProwessError):
    """An optional part of Prowess is needed and not installed."""

    code = "missing-extra"
    exit_code = 2

    def __init__(self, extra: str, *, wanted_for: str) -> None:
        super().__init__(
            f"{wanted_for} needs the optional part '{extra}', which is not installed.",
            hint=f"Run: pip install 'prowess[{extra}]'",
        )
        self.extra = extra


class ToolRetry(Exception):
    """A tool's signal: the model should call again with other arguments. The text says why."""


class ToolFailed(Exception):
    """A tool's signal: the call failed. The model sees the reason as the outcome."""
