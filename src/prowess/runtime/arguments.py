"""Arguments of the public functions: strings, paths, functions and objects become the parts that the runtime takes.

Everything that can be wrong with an argument is refused here, before a run begins, by the name of its keyword. Each
part of an agent is a text, or an object of a protocol in `prowess.ports`:

    Agent(policy=["policy.toml", OfficeHours()], executor="sandbox", store="sqlite:///runs.db", artifacts=MyBucket())

Texts of errors are written once, with options such as `--model offline`. `PythonDoor` names the keywords instead.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import sysconfig
import traceback
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ContextDecorator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NoReturn, get_args

from prowess.agent.agent import Limits, LoadMode, Placement
from prowess.agent.observers import Observer
from prowess.core.events import ApprovalAnswered, ProtocolName
from prowess.core.ports import Approver, ArtifactStore, EventLog, Executor, Policy, SecretProvider, SkillSource, Toolset
from prowess.core.tool_table import ARGUMENTS
from prowess.core.values import Decision, ToolCall
from prowess.errors import ConfigError, ProwessError
from prowess.runtime.given_objects import GivenArtifacts, GivenExecutor, GivenObjects, find_members
from prowess.runtime.library import Library, LibraryView, as_places
from prowess.runtime.policy_files import read_rules
from prowess.runtime.runtime import Runtime, check_model, open_runtime
from prowess.runtime.services.files import check_inputs
from prowess.runtime.settings import EXECUTORS, default_values
from prowess.runtime.storage import store_name
from prowess.skills.catalog import Catalog
from prowess.skills.skill import Root, Skill
from prowess.tools.base import Tool
from prowess.tools.toolset import Joined, Tools, is_tool, is_toolset

SkillPlace = str | os.PathLike[str] | Root | Skill | SkillSource | Catalog | Library | LibraryView
SkillPlaces = SkillPlace | Sequence[SkillPlace]
FilePaths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
ApproveAnswer = ApprovalAnswered | str | bool | None
Approve = Approver | Callable[[ToolCall, Decision], ApproveAnswer | Awaitable[ApproveAnswer]] | Collection[str] | None
AnyTool = Callable[..., Any] | Tool | Toolset
AnyTools = AnyTool | Iterable[AnyTool]
Observers = Observer | Sequence[Observer]
StorePart = str | os.PathLike[str] | EventLog | None
ArtifactsPart = str | os.PathLike[str] | ArtifactStore | None
ExecutorPart = str | Executor | None
SecretsPart = Mapping[str, str] | SecretProvider | None
PolicyPart = str | os.PathLike[str] | Policy
PolicyParts = PolicyPart | Sequence[PolicyPart] | None

_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_NOT_THEIRS = (_OURS, *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
_KEYWORDS = (
    (re.compile(r"--(model|protocol|executor) ([\w:.-]+\w)"), r'\1="\2"'),
    (re.compile(r"--yes ([\w-]+)"), r'approve=["\1"]'),
    (re.compile(r"--session (\S+\w)"), r'session="\1"'),
    (re.compile(r"without --resume"), "without resume=True"),
    (re.compile(r"--(resume|force)\b"), r"\1=True"),
    (re.compile(r"--input\b"), "files=[…]"),
    (re.compile(r"--root\b"), "skills=[…]"),
    (re.compile(r"--output-dir\b"), "output_dir=…"),
    (re.compile(r'prowess run "…"'), 'agent.run("…")'),
    (re.compile(r"prowess list\b(?: --all)?"), "prowess.discover(…)"),
    (re.compile(r"See: prowess sessions list$"), "Leave out must_exist to begin it: session(id)."),
    (re.compile(r"See: prowess sessions list; a run"), "A run"),
    (re.compile(r"^command line: "), "settings: "),
)


def make_runtime(skills: Sequence[SkillPlaces], settings: Mapping[str, object] | None, parts: Parts) -> Runtime:
    """Reads the configuration, and checks the places of skills and stores."""
    check_options(settings=settings)
    places = as_places(*skills, keyword="skills=")
    flags = {**_check_settings(settings or {}), **parts.settings}
    cwd = os.getcwd()
    with open_runtime(
        cwd=cwd, environ=os.environ, skills=places, flags=flags, policy_files=parts.policy_files
    ) as runtime:
        parts.check(runtime)
        return runtime


def check_options(**given: object) -> None:
    """Refuses a value that its keyword cannot have."""
    for keyword, value in given.items():
        takes = _OPTIONS[keyword]
        if any(_fits(value, each) for each in takes):
            continue
        known = [_KINDS.get(each) or repr(each) for each in takes]
        hint = f"Give {' or '.join(known)}."
        shown = repr(value)[:80] if isinstance(value, str) else _shown(value)
        raise ConfigError(f"{keyword}={shown} cannot be used.", code="option-invalid", hint=hint)


def _fits(value: object, wanted: object) -> bool:
    if isinstance(wanted, type):
        return isinstance(value, wanted)
    return value is wanted or (isinstance(value, str) and value == wanted)


def check_fields(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        check_options(**{name: value})


_OPTIONS: Mapping[str, tuple[Any, ...]] = {  # values that a keyword can have, and their types
    **dict.fromkeys(("instructions", "prefix", "tenant", "app", "user", "call_id"), (str,)),
    **dict.fromkeys(("summarise", "resume", "must_exist"), (bool,)),
    **dict.fromkeys(("session", "id", "by", "token"), (str, None)),
    "settings": (Mapping, None),
    "limits": (Limits, Mapping, None),
    "load_mode": (*get_args(LoadMode), None),
    "placement": (*get_args(Placement), None),
    "protocol": (*get_args(ProtocolName), None),
    "on_ask": ("wait", "deny"),
    "offer": (str, Collection),
    "files": (str, os.PathLike, Iterable),
    "use": (str, Iterable),
    "output_dir": (str, os.PathLike, None),
}
_KINDS = {
    str: "a text",
    bool: "True or False",
    os.PathLike: "a path",
    Mapping: "a mapping",
    Limits: "prowess.Limits(…)",
    Iterable: "a list",
    Collection: "a list of names",
}


def as_names(use: Sequence[str]) -> list[str]:
    """Returns names of skills. A text is one name."""
    check_options(use=use)
    names = [use] if isinstance(use, str) else list(use)
    for name in names:
        if not isinstance(name, str):
            hint = 'Give names of skills, as in use=["pdf"].'
            raise ConfigError(f"use=[{_shown(name)}] cannot be used.", code="option-invalid", hint=hint)
    return names


def as_paths(files: FilePaths) -> list[str]:
    check_options(files=files)
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    paths: list[str] = []
    for file in files:
        if not isinstance(file, (str, os.PathLike)) or not os.fspath(file):
            hint = 'Give paths, as in files=["sales.csv"].'
            raise ConfigError(f"files=[{_shown(file)}] cannot be used.", code="option-invalid", hint=hint)
        path = os.path.abspath(os.path.expanduser(os.fspath(file)))
        if not os.path.isfile(path) and not os.path.isdir(path):
            problem = f"'{path}' is no file and no folder." if os.path.exists(path) else f"There is no file '{path}'."
            raise ConfigError(problem, code="no-file", hint="Check the names in files=[…].")
        paths.append(path)
    check_inputs(os.getcwd(), [(path, None) for path in paths])
    return paths


def _check_settings(settings: Mapping[str, object]) -> dict[str, Any]:
    """Returns the settings by their dotted names, such as `skills.budget`."""
    known = default_values()
    for name in settings:
        if name in known:
            continue
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else "See: prowess config show"
        raise ConfigError(f"There is no setting '{name}'.", code="option-unknown", hint=hint)
    return dict(settings)


def make_limits(given: Limits | Mapping[str, Any] | None) -> Limits | None:
    """Returns the limits. A mapping has them by name."""
    check_options(limits=given)
    if given is None or isinstance(given, Limits):
        return given
    for name in given:
        if name not in Limits.__slots__:
            known = ", ".join(Limits.__slots__)
            raise ConfigError(f"There is no limit '{name}'.", code="limit-invalid", hint=f"There are: {known}.")
    return Limits(**given)


def make_approver(approve: Approve, own: Sequence[str] = ()) -> Any:
    """Returns an Approver as it is. From names, makes one that approves these tools and leaves the others unanswered.

    `own` are names of the caller's tools.
    """
    if approve is None:
        return None
    if isinstance(approve, type):
        message = f"approve={approve.__name__} is a class."
        raise ConfigError(message, code="approve-invalid", hint=f"Give an object: approve={approve.__name__}(…).")
    if callable(approve):
        _check_parameters(approve)
        return approve
    names = [approve] if isinstance(approve, str) else approve
    if not _are_names(names):
        message = f"approve={repr(approve)[:80]} is neither names of tools nor a function."
        raise ConfigError(message, code="approve-invalid", hint=_APPROVE)
    allowed = frozenset(names)
    known = sorted({*ARGUMENTS, *own})
    wrong = sorted(allowed.difference(known))
    if wrong:
        near = difflib.get_close_matches(wrong[0], known, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(known)}."
        raise ConfigError(f"approve names '{wrong[0]}', which is no tool.", code="tool-unknown", hint=hint)
    return NamedApprover(allowed)


class NamedApprover:
    """Approver that approves these tools, and leaves questions about others unanswered."""

    def __init__(self, tools: frozenset[str]) -> None:
        self.tools = tools

    async def __call__(self, call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        if call.tool not in self.tools:
            return None
        return ApprovalAnswered(call_id=call.id, answer="once", by=f"approve={call.tool}", asked=False)


def _are_names(given: Any) -> bool:
    if not isinstance(given, Collection) or isinstance(given, Mapping):
        return False
    return all(isinstance(name, str) for name in given)


def _check_parameters(approve: Callable[..., Any]) -> None:
    """Checks the signature now. At the first question it would be too late, because nobody would answer."""
    try:
        inspect.signature(approve).bind(None, None)
    except TypeError as error:
        message = f"approve cannot be called with a call and a decision: {error}."
        raise ConfigError(message, code="approve-invalid", hint=_APPROVE) from None
    except ValueError:  # written in C: the signature is not known
        return


def check_asker(ask: Any) -> None:
    if ask is not None and not callable(ask):
        raise ConfigError(
            f"ask={repr(ask)[:80]} is no function.",
            code="ask-invalid",
            hint="Give an async function of (question, choices) that returns a text, or None if nobody answers.",
        )


def as_observers(on_event: Observers) -> tuple[Observer, ...]:
    several: list[Any] = [on_event]
    if isinstance(on_event, Sequence) and not isinstance(on_event, str):
        several = list(on_event)
    for each in several:
        if not callable(each):
            hint = "Give a function of an event, or a list of functions."
            raise ConfigError(f"on_event={_shown(each)} is no function.", code="option-invalid", hint=hint)
    return tuple(several)


def check_model_part(model: object) -> None:
    """Refuses a name that is none, and an object that is no model."""
    if isinstance(model, str):
        check_model(model or "(an empty text)")  # which would mean the offline planner
    elif isinstance(model, type):
        hint = f"Give an object: {model.__name__}(…)."
        raise ConfigError(f"The model {model.__name__} is a class.", code="model-unknown", hint=hint)
    elif model is not None and not (callable(getattr(model, "reply", None)) and hasattr(model, "name")):
        hint = "Give a name such as 'openai:gpt-5' or 'offline', or an object of prowess.ports.Model."
        raise ConfigError(f"{_shown(model)} is not a model.", code="model-unknown", hint=hint)


def as_toolsets(given: AnyTools) -> list[Toolset]:
    """Converts functions, tools and sets of tools, or one of them, to sets."""
    is_one = is_toolset(given) or is_tool(given) or callable(given) or isinstance(given, (str, Mapping))
    several: list[Any] = [given]
    if isinstance(given, Iterable) and not is_one:
        several = list(given)
    sets: list[Toolset] = []
    for each in several:
        sets.append(each if is_toolset(each) else Tools(each))
    for name in list_names(sets):
        if name in ARGUMENTS:
            hint = "Give yours another name: prowess.tool(name=…)(function)."
            raise ConfigError(f"There would be two tools '{name}': one is built in.", code="tool-duplicate", hint=hint)
    if len(sets) > 1:
        return [Joined(*sets)]
    return sets


def list_names(toolsets: Sequence[Toolset]) -> list[str]:
    """Names of all tools in these sets."""
    names: list[str] = []
    for toolset in toolsets:
        names += [spec.name for spec in toolset.specs()]
    return names


_APPROVE = 'Give names, as in approve=["skill_run"], or a function of (call, decision).'


# --- parts: a text or an object ---------------------------------------------------------------------------------------


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


# --- errors in words of Python ----------------------------------------------------------------------------------------


class PythonDoor(ContextDecorator):
    """Around a public function: an error that leaves it names keywords, and its traceback begins here. What is below is
    ours, and the error says what to do without it."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, ProwessError):
            return
        error.message = with_keywords(error.message)
        if error.hint:
            error.hint = with_keywords(error.hint)
        cause = error.__cause__
        if cause is not None and not _is_foreign(cause):
            raise error.with_traceback(None) from None  # the message has the reason
        raise error.with_traceback(None)


def _is_foreign(cause: BaseException) -> bool:
    """True if code of the program is behind it, and not only ours, Python or a library."""
    paths = [frame.filename for frame in traceback.extract_tb(cause.__traceback__)]
    return any(os.path.isabs(path) and not path.startswith(_NOT_THEIRS) for path in paths)


def with_keywords(text: str) -> str:
    for pattern, keyword in _KEYWORDS:
        text = pattern.sub(keyword, text)
    return text
