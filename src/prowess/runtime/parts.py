"""Parts of an agent as a program gives them: each is a string, or an object of a protocol in `prowess.ports`.

    Agent(policy=["policy.toml", OfficeHours()], executor="sandbox", store="sqlite:///runs.db", artifacts=MyBucket())

A part that cannot be used is refused at once, by the name of its keyword.
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from prowess.core.ports import ArtifactStore, EventLog, Executor, Policy, SecretProvider
from prowess.errors import ConfigError
from prowess.runtime.given_objects import GivenArtifacts, GivenExecutor, GivenObjects, find_members
from prowess.runtime.policy_files import read_rules
from prowess.runtime.runtime import Runtime
from prowess.runtime.settings import EXECUTORS
from prowess.runtime.storage import store_name

StorePart = str | os.PathLike[str] | EventLog | None
ArtifactsPart = str | os.PathLike[str] | ArtifactStore | None
ExecutorPart = str | Executor | None
SecretsPart = Mapping[str, str] | SecretProvider | None
PolicyPart = str | os.PathLike[str] | Policy
PolicyParts = PolicyPart | Sequence[PolicyPart] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts that were given: strings are settings, everything else is an object."""

    settings: Mapping[str, str] = field(default_factory=dict)
    policy_files: tuple[str, ...] = ()
    log: EventLog | None = None
    objects: GivenObjects = field(default_factory=GivenObjects)

    def check(self, runtime: Runtime) -> None:
        """Refuses a store or a place of artifacts that does not exist. Opens nothing."""
        if "store" in self.settings:
            _name_keyword("store", lambda: store_name(runtime.config, runtime.places))
        if "artifacts" in self.settings:
            _name_keyword("artifacts", runtime.open_artifacts)


def read_parts(
    *,
    policy: PolicyParts = None,
    executor: ExecutorPart = None,
    store: StorePart = None,
    artifacts: ArtifactsPart = None,
    secrets: SecretsPart = None,
) -> Parts:
    settings: dict[str, str] = {}
    files, policies = _read_policies(policy)
    own_executor = None
    if isinstance(executor, str):
        settings["workspace.executor"] = _check_executor(executor)
    elif executor is not None:
        _check_object("executor", executor, Executor)
        own_executor = GivenExecutor(executor)
    log = None
    if isinstance(store, (str, os.PathLike)):
        settings["store"] = _read_place(store)
    elif store is not None:
        _check_object("store", store, EventLog)
        log = store
    own_artifacts = None
    if isinstance(artifacts, (str, os.PathLike)):
        settings["artifacts"] = _read_place(artifacts)
    elif artifacts is not None:
        _check_object("artifacts", artifacts, ArtifactStore)
        own_artifacts = GivenArtifacts(artifacts)
    objects = GivenObjects(
        policies=policies,
        executor=own_executor,
        artifacts=own_artifacts,
        secrets=_check_secrets(secrets),
    )
    return Parts(settings=settings, policy_files=files, log=log, objects=objects)


def _read_place(given: str | os.PathLike[str]) -> str:
    """Returns the setting. A path object is a path, and never an address or a word such as `none`."""
    if isinstance(given, str):
        return given
    return os.path.join(os.curdir, os.fspath(given))


def _check_executor(name: str) -> str:
    if not EXECUTORS.has(name):
        names = EXECUTORS.names()
        near = difflib.get_close_matches(name, names, n=1)
        meant = f"Did you mean '{near[0]}'? " if near else ""
        hint = f"{meant}There are: {', '.join(names)}. Or give an object of prowess.ports.Executor."
        raise ConfigError(f"executor={name[:80]!r} is no executor.", code="part-invalid", hint=hint)
    return name


def _read_policies(policy: PolicyParts) -> tuple[tuple[str, ...], tuple[Policy, ...]]:
    """Returns the paths of policy files, and the policies that are objects."""
    files: list[str] = []
    objects: list[Policy] = []
    several: list[Any] = [] if policy is None else [policy]
    if isinstance(policy, (list, tuple)):
        several = list(policy)
    for each in several:
        if isinstance(each, (str, os.PathLike)):
            path = os.path.abspath(os.path.expanduser(os.fspath(each)))
            _name_keyword("policy", lambda path=path: read_rules(path))
            files.append(path)
            continue
        _check_object("policy", each, Policy)
        if inspect.iscoroutinefunction(each.decide):
            hint = "Write `def decide(self, call, decision)`: it answers at once, without I/O."
            message = f"policy={_shown(each)} has an async decide."
            raise ConfigError(message, code="part-invalid", hint=hint)
        objects.append(each)
    return tuple(files), tuple(objects)


def _check_secrets(secrets: SecretsPart) -> SecretsPart:
    """Checks the secrets. No value is ever in a message."""
    if not isinstance(secrets, Mapping):
        if secrets is not None:
            _check_object("secrets", secrets, SecretProvider)
        return secrets
    for name, value in secrets.items():
        if not isinstance(name, str) or not isinstance(value, str):
            message = f"The value of secrets[{str(name)[:80]!r}] is no text, but an object of {type(value).__name__}."
            raise ConfigError(message, code="part-invalid", hint=_TAKES["secrets"])
    return dict(secrets)


_TAKES = {
    "policy": 'Give the path of a file, as in policy="policy.toml", an object of prowess.ports.Policy, or a list.',
    "executor": 'Give a name, as in executor="sandbox", or an object of prowess.ports.Executor.',
    "store": 'Give a path, "sqlite:///runs.db", "postgresql://…", "memory:", or an object of prowess.ports.EventLog.',
    "artifacts": 'Give a path, "s3://…", "memory:", "none", or an object of prowess.ports.ArtifactStore.',
    "secrets": "Give a mapping of names to texts, or an object of prowess.ports.SecretProvider.",
}


def _check_object(keyword: str, given: object, protocol: type[Any]) -> None:
    """Refuses what is no object of the protocol, and says why."""
    wanted = find_members(protocol)
    lacking = [name for name in wanted if not callable(getattr(given, name, None))]
    kind = protocol.__name__
    if isinstance(given, type):
        _refuse(f"{keyword}={given.__name__} is a class.", f"Give an object: {keyword}={given.__name__}(…).")
    is_builtin = type(given).__module__ == "builtins"  # a list has `append`, and a text has `find`
    if is_builtin or len(lacking) == len(wanted):
        article = "an" if kind[0] in "AE" else "a"
        _refuse(f"{keyword}={_shown(given)} is not {article} {kind}.", _TAKES[keyword])
    if lacking:
        methods = ", ".join(f"{name}()" for name in lacking)
        hint = f"prowess.ports.{kind} has: {', '.join(wanted)}."
        _refuse(f"{keyword}={_shown(given)} lacks {methods}.", hint)


def _refuse(message: str, hint: str) -> NoReturn:
    raise ConfigError(message, code="part-invalid", hint=hint)


def _shown(given: object) -> str:
    """Returns a short text for a message. An object is shown by its class, because its text may have secrets."""
    if given is None or isinstance(given, (bool, int, float)):
        return repr(given)
    return f"<{type(given).__name__}>"


def _name_keyword(keyword: str, check: Callable[[], object]) -> None:
    """Makes a check. Its error names the keyword."""
    try:
        check()
    except ConfigError as error:
        message = f"{keyword}= cannot be used. {error.message}"
        raise ConfigError(message, code=str(error.code), hint=error.hint) from None  # one traceback
