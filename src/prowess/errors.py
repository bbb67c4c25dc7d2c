"""Every failure is a ProwessError: what happened, to which thing, what to do next, under a code that never changes.

    ProwessError(message, *, code, hint)
    ├─ ConfigError                                 exit 2
    ├─ SkillError        SkillNotFound(near) · SkillDenied (exit 3) · SkillInvalid(findings) · ResourceNotFound
    ├─ WorkspaceError(op, retryable)   PathEscape · ExecTimeout · WorkspaceUnavailable
    ├─ ModelError(retryable)           ModelAuth · ModelOverloaded(retry_after_s) · ModelMalformed
    ├─ StoreError        SessionConflict · AuditBroken
    ├─ PackError         PackUnsafe · PackMismatch · SignatureInvalid
    ├─ FetchError(retryable)
    └─ MissingExtra(extra)             pip install 'prowess[serve]'

Signals a tool raises for the loop, which are not errors: ToolRetry(why) · ToolFailed(why).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class ProwessError(Exception):
    """What happened, to which thing, what to do next; `code` never changes its meaning."""

    code: ClassVar[str] | str = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "hint": self.hint}


class ConfigError(ProwessError):
    """A setting, a file of settings or a command line that cannot be used as it is."""

    code = "config-invalid"
    exit_code = 2


class SkillError(ProwessError):
    """Something about a skill; one of those below says what."""

    code = "skill-error"


class SkillNotFound(SkillError):
    """No skill of that name, several, or one that was removed; `near` has what comes close."""

    code = "skill-not-found"

    def __init__(
        self, message: str, *, near: Sequence[str] = (), code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.near = tuple(near)


class SkillDenied(SkillError):
    """The skill exists, and whoever asked may not have it now."""

    code = "skill-denied"
    exit_code = 3


class SkillInvalid(SkillError):
    """The skill is there and its files cannot be used; `findings` says why."""

    code = "skill-invalid"

    def __init__(
        self, message: str, *, findings: Sequence[Any] = (), code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.findings = tuple(findings)


class ResourceNotFound(SkillError):
    """A file of a skill that is not there, changed since the load, or is too large."""

    code = "resource-not-found"


class WorkspaceError(ProwessError):
    """Something about the place where scripts run; `op` says during what."""

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
    """A path that leads outside the folder it belongs to."""

    code = "path-escape"


class ExecTimeout(WorkspaceError):
    """A script took longer than it may."""

    code = "exec-timeout"


class WorkspaceUnavailable(WorkspaceError):
    """Nothing here can run scripts the way it was asked for."""

    code = "workspace-unavailable"


class ModelError(ProwessError):
    """A model or its provider failed; `retryable` says whether trying again can help."""

    code = "model-error"

    def __init__(
        self, message: str, *, retryable: bool = False, code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retryable = retryable


class ModelAuth(ModelError):
    """The provider refused the key, or there is none."""

    code = "model-auth"


class ModelOverloaded(ModelError):
    """The provider asks to wait; `retry_after_s` says how long, when it is known."""

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
    """The model answered something that is not an answer."""

    code = "model-malformed"


class StoreError(ProwessError):
    """What must be kept could not be read or written."""

    code = "store-error"


class SessionConflict(StoreError):
    """Somebody else wrote to the session; nothing was mixed."""

    code = "session-conflict"


class AuditBroken(StoreError):
    """A record is not what was written."""

    code = "audit-broken"


class PackError(ProwessError):
    """An archive or a pack that cannot be used."""

    code = "pack-error"


class PackUnsafe(PackError):
    """An archive that would write where it must not, or grow without bound; nothing was unpacked."""

    code = "pack-unsafe"


class PackMismatch(PackError):
    """The content is not the one that was promised."""

    code = "pack-mismatch"


class SignatureInvalid(PackError):
    """The signature does not belong to the content, or to nobody who is trusted."""

    code = "signature-invalid"


class FetchError(ProwessError):
    """An address gave no usable content; `retryable` says whether trying again can help."""

    code = "fetch-failed"

    def __init__(
        self, message: str, *, retryable: bool = False, code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retryable = retryable


class MissingExtra(ProwessError):
    """A part of Prowess that is installed only on request."""

    code = "missing-extra"
    exit_code = 2

    def __init__(self, extra: str, *, wanted_for: str) -> None:
        super().__init__(
            f"{wanted_for} needs the optional part '{extra}', which is not installed.",
            hint=f"Run: pip install 'prowess[{extra}]'",
        )
        self.extra = extra


class ToolRetry(Exception):
    """The tool asks the model to call again, differently, and says why."""


class ToolFailed(Exception):
    """The tool could not do it and says why; the model sees the reason as the outcome."""
