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
    code = "config-invalid"
    exit_code = 2


class SkillError(ProwessError):
    code = "skill-error"


class SkillNotFound(SkillError):
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
    code = "skill-invalid"

    def __init__(
        self, message: str, *, findings: Sequence[Any] = (), code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.findings = tuple(findings)


class ResourceNotFound(SkillError):
    code = "resource-not-found"


class WorkspaceError(ProwessError):
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
    code = "path-escape"


class ExecTimeout(WorkspaceError):
    code = "exec-timeout"


class WorkspaceUnavailable(WorkspaceError):
    code = "workspace-unavailable"


class ModelError(ProwessError):
    code = "model-error"

    def __init__(
        self, message: str, *, retryable: bool = False, code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retryable = retryable


class ModelAuth(ModelError):
    code = "model-auth"


class ModelOverloaded(ModelError):
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
    code = "model-malformed"


class StoreError(ProwessError):
    code = "store-error"


class SessionConflict(StoreError):
    code = "session-conflict"


class AuditBroken(StoreError):
    code = "audit-broken"


class PackError(ProwessError):
    code = "pack-error"


class PackUnsafe(PackError):
    code = "pack-unsafe"


class PackMismatch(PackError):
    code = "pack-mismatch"


class SignatureInvalid(PackError):
    code = "signature-invalid"


class FetchError(ProwessError):
    code = "fetch-failed"

    def __init__(
        self, message: str, *, retryable: bool = False, code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retryable = retryable


class MissingExtra(ProwessError):
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
