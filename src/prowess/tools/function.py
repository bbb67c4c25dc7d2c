"""@tool: makes a tool from a typed Python function. Annotations become the schema, the docstring the description.

    @tool(read_only=True)
    def weather(city: str, days: Annotated[int, "how far ahead"] = 1) -> dict[str, float]:
        "The forecast for a city."

The decorated function can still be called as a function. Arguments are checked before it runs, and arrive with the
annotated types. A function that is not async runs in a thread. Its exceptions are raised to the caller.

A model is told the first paragraph of the docstring, and the text about each parameter: `Args:` in Google style, or
`:param name:`. It is not told the rest, nor a parameter that is annotated with ToolContext.
"""

from __future__ import annotations

import functools
import inspect
import json
import operator
import re
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Annotated, Any, Generic, Literal, NamedTuple, ParamSpec, TypeVar, Union, overload
from weakref import WeakKeyDictionary

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import to_json

from prowess._internal.worker_thread import without_stop_iteration
from prowess.core.ports import CallGrant, CapabilityRequest
from prowess.core.tool_context import ToolContext
from prowess.core.values import Outcome, Spawn, ToolSpec
from prowess.errors import ConfigError, ToolFailed
from prowess.tools.base import RUN_PLAIN
from prowess.tools.docstring import parameters_of, summary_of
from prowess.tools.schema import Arguments, parse_arguments, render_schema
from prowess.tools.toolset import is_tool

P = ParamSpec("P")
R = TypeVar("R")
MAX_TEXT = 32 << 20  # characters of a result; the recorder cuts it again for the model
Kind = Literal["list", "object"]  # kind of a parameter that cannot be a text
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    requires_approval: bool = False,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    requires_approval: bool = False,
) -> Any:
    """Makes a tool from a function. ConfigError `tool-signature` if a model cannot be told its parameters.

    With `read_only`, it may run at the same time as its neighbours. With `requires_approval`, a person is asked before
    each call, as `execution.require_approval_for` does.
    """

    def decorate(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(
            function,
            name=name,
            description=description,
            read_only=read_only,
            requires_approval=requires_approval,
        )

    if function is None:
        return decorate
    return decorate(function)


def as_tool(given: Any) -> Any:
    """Returns a tool unchanged, and makes a tool from a function. ConfigError `tool-invalid` for anything else."""
    if is_tool(given):
        return given
    if callable(given) and not isinstance(given, type):
        return tool(given)
    what = f"a {type(given).__name__}"
    if isinstance(given, type):
        what = f"the class {given.__name__}"
    shown = repr(given)[:80]
    hint = "Give a function with annotations, what @prowess.tool makes of one, or an object that is a Tool."
    raise ConfigError(f"{shown} cannot be a tool: it is {what}.", code="tool-invalid", hint=hint)


class FunctionTool(Generic[P, R]):
    """Tool made from a Python function. Implements tools.base.Tool."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        read_only: bool = False,
        requires_approval: bool = False,
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        called = name or getattr(function, "__name__", type(function).__name__)
        if not _NAME.fullmatch(called):
            hint = "Give it one of letters, digits, _ and -: @tool(name=…)."
            raise ConfigError(f"'{called[:100]}' cannot be the name of a tool.", code="tool-name", hint=hint)
        shape = _find_shape(function, called)
        self._signature = shape.signature
        self._within = shape.within
        self._context = shape.context
        self._kind = shape.kind
        self._fields: dict[str, str] = {}
        self._never_null: set[str] = set()  # many models send every field, with null for "not given"
        for number, (parameter, hint) in enumerate(shape.parameters.items()):
            self._fields[f"arg_{number}"] = parameter
            if not _takes_nothing(hint):
                self._never_null.add(parameter)
        if description is None:
            description = shape.summary
        self.spec: ToolSpec = ToolSpec(
            name=called,
            description=description,
            parameters=shape.schema,
            read_only=read_only,
            requires_approval=requires_approval,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        parsed = self._parse(args)
        return parsed.normal()

    async def needs(self, args: Mapping[str, Any]) -> Sequence[CapabilityRequest]:
        return ()

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome | Spawn:
        parsed = self._parse(args)
        bound = self._signature.bind_partial()
        for own, name in self._fields.items():
            if own in parsed.model_fields_set:
                bound.arguments[name] = getattr(parsed, own)
        if self._within is not None:
            bound.arguments[self._within] = within
        if self._context is not None:
            bound.arguments[self._context] = within.context()
        bound.apply_defaults()
        result = await self._run(*bound.args, **bound.kwargs)
        return _outcome(result, self.spec.name)

    def _parse(self, args: Mapping[str, Any]) -> FunctionArguments:
        said: dict[str, Any] = {}
        for name, value in args.items():
            if value is not None or not self._is_left_out(name):
                said[name] = value
        return parse_arguments(self._kind, said, self.spec.name)

    def _is_left_out(self, name: str) -> bool:
        """True for a parameter whose null means "not given"."""
        if name not in self._never_null:
            return False
        parameter = self._signature.parameters[name]
        return parameter.default is not inspect.Parameter.empty

    async def _run(self, *args: Any, **kwargs: Any) -> Any:
        function: Callable[..., Any] = self._function
        try:
            if inspect.iscoroutinefunction(function):
                return await function(*args, **kwargs)
            run_plain = RUN_PLAIN.get()
            result = await run_plain(functools.partial(without_stop_iteration, function, *args, **kwargs))
            if inspect.isawaitable(result):
                return await result
            return result
        except SystemExit as error:
            raise ToolFailed(f"{self.spec.name} wanted to end the whole process (exit {error.code}).") from error


class FunctionArguments(Arguments):
    """Arguments of a function, under the function's own names. The normal form is parsed again before the call, so that
    the function gets what was recorded and judged: its types may have members that their JSON lacks."""

    model_config = ConfigDict(coerce_numbers_to_str=True, defer_build=False)

    def normal(self) -> dict[str, Any]:
        """Only the arguments that were given, because the function has its own defaults."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class _Shape(NamedTuple):
    """Parameters of a function as a model is told them. It takes milliseconds to find out."""

    signature: inspect.Signature
    within: str | None  # name of the CallGrant parameter
    context: str | None  # name of the ToolContext parameter
    parameters: Mapping[str, Any]  # annotations of all other parameters
    kind: type[FunctionArguments]
    schema: dict[str, Any]
    summary: str
    stamp: tuple[object, ...]  # everything that it was made of


_SHAPES: WeakKeyDictionary[Callable[..., Any], _Shape] = WeakKeyDictionary()


def _find_shape(function: Callable[..., Any], called: str) -> _Shape:
    """Returns the shape of a function, which is kept as long as the function exists and is not changed."""
    if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
        return _make_shape(function, called, ())
    annotations = function.__annotations__
    defaults = function.__kwdefaults__ or {}
    parts = (*annotations, *annotations.values(), *defaults, *defaults.values())
    stamp = (called, function.__code__, function.__doc__, function.__defaults__, *parts)
    shape = _SHAPES.get(function)
    if shape is None or not _are_same(shape.stamp, stamp):
        shape = _make_shape(function, called, stamp)
        _SHAPES[function] = shape
    return shape


def _are_same(stamp: tuple[object, ...], other: tuple[object, ...]) -> bool:
    if len(stamp) != len(other):
        return False
    return all(map(operator.is_, stamp, other))


def _make_shape(function: Callable[..., Any], called: str, stamp: tuple[object, ...]) -> _Shape:
    signature = _signature(function, called)
    parameters = _parameters(function, signature, called)
    within = _take_grant(parameters, called)
    context = _take_context(parameters, called)
    said = parameters_of(function)
    kind = _arguments(called, parameters, signature, said)
    schema = _schema(kind, called)
    return _Shape(signature, within, context, parameters, kind, schema, summary_of(function), stamp)


def _signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        why = f"its parameters cannot be read ({error})"
        hint = "Write a function around it."
        raise _unfit(name, why, hint) from None


def _parameters(function: Callable[..., Any], signature: inspect.Signature, name: str) -> dict[str, Any]:
    """Returns the annotations of all parameters, in their order."""
    hints = _hints(function, name)
    found: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        called = parameter.name
        if parameter.kind in _VARIABLE:
            why = f"*{called} could be anything"
            raise _unfit(name, why, "Name and annotate each parameter, or take a list or a dict.")
        if called not in hints:
            hint = f"Annotate it: def {name}({called}: str). For a method, bind it first: tool(object.{name})."
            raise _unfit(name, f"the parameter '{called}' has no annotation", hint)
        found[called] = hints[called]
    return found


def _take_grant(parameters: dict[str, Any], name: str) -> str | None:
    """Removes the CallGrant parameter, which must be the first, and returns its name."""
    for position, (called, hint) in enumerate(parameters.items()):
        if hint is not CallGrant:
            continue
        if position > 0:
            raise _unfit(name, f"the CallGrant parameter '{called}' is not the first", "Put it first.")
        del parameters[called]
        return called
    return None


def _take_context(parameters: dict[str, Any], name: str) -> str | None:
    """Removes the ToolContext parameter, wherever it is, and returns its name."""
    found = [called for called, hint in parameters.items() if _is_context(hint)]
    if len(found) > 1:
        raise _unfit(name, f"'{found[0]}' and '{found[1]}' are both a ToolContext", "Take one.")
    for called in found:
        del parameters[called]
        return called
    return None


def _is_context(hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return _is_context(typing.get_args(hint)[0])
    if origin is Union or origin is types.UnionType:  # ToolContext | None
        others = [each for each in typing.get_args(hint) if each is not types.NoneType]
        return len(others) == 1 and _is_context(others[0])
    return hint is ToolContext or origin is ToolContext


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Reads the annotations of the parameters. Ignores the return annotation, which may be anything."""
    if isinstance(function, functools.partial):
        function = function.func
    plain: Any = inspect.unwrap(function)
    if not inspect.isfunction(plain) and not inspect.ismethod(plain):
        plain = type(plain).__call__
    annotations = dict(getattr(plain, "__annotations__", {}))
    annotations.pop("return", None)
    annotated = types.SimpleNamespace(__annotations__=annotations)
    names = getattr(plain, "__globals__", {})
    try:
        return typing.get_type_hints(annotated, names, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        why = f"an annotation cannot be read ({error})"
        hint = "Define and import what the annotations name at the top of the module, not only for type checking."
        raise _unfit(name, why, hint) from None


def _arguments(
    name: str, parameters: Mapping[str, Any], signature: inspect.Signature, said: Mapping[str, str]
) -> type[FunctionArguments]:
    """Builds the argument class. Names are aliases of numbered fields: `json`, `copy`, `_x` are no field names."""
    fields: dict[str, Any] = {}
    for number, (parameter, hint) in enumerate(parameters.items()):
        about: dict[str, Any] = {"alias": parameter}
        description = _described(hint) or said.get(parameter)
        if description:
            about["description"] = description
        if signature.parameters[parameter].default is not inspect.Parameter.empty:
            about["default"] = None  # never used: the function has its own
        read = functools.partial(_read, kind=_structure(hint))
        annotation = Annotated[hint, BeforeValidator(read)]
        fields[f"arg_{number}"] = (annotation, Field(**about))
    try:
        return create_model(f"{name}_arguments", __base__=FunctionArguments, **fields)
    except (PydanticUserError, TypeError) as error:
        raise _no_schema(name, error) from None


def _schema(kind: type[FunctionArguments], name: str) -> dict[str, Any]:
    try:
        return render_schema(kind)
    except (PydanticUserError, ValueError) as error:
        raise _no_schema(name, error) from None
    except RecursionError:
        why = "a type of its parameters contains itself"
        hint = "Take a list or a dict instead."
        raise _unfit(name, why, hint) from None


def _described(hint: Any) -> str | None:
    """Finds the description in `Annotated[…, "text"]`, or in a Field inside it."""
    for each in getattr(hint, "__metadata__", ()):
        if isinstance(each, str):
            return each
        if isinstance(each, FieldInfo) and each.description:
            return each.description
    return None


def _structure(hint: Any) -> Kind | None:
    """Returns "list" or "object" when the parameter takes only that, else None."""
    if typing.get_origin(hint) is Annotated:
        return _structure(typing.get_args(hint)[0])
    if _is_union(hint):
        members = [each for each in typing.get_args(hint) if each is not type(None)]
        kinds: set[Kind | None] = {_structure(each) for each in members}
        return kinds.pop() if len(kinds) == 1 else None
    plain = typing.get_origin(hint) or hint
    if not isinstance(plain, type) or issubclass(plain, str | bytes | bytearray):
        return None
    if issubclass(plain, abc.Mapping | BaseModel) or is_dataclass(plain) or typing.is_typeddict(plain):
        return "object"
    if issubclass(plain, abc.Sequence | abc.Set):
        return "list"
    return None


def _takes_nothing(hint: Any) -> bool:
    """True if the parameter accepts None."""
    if typing.get_origin(hint) is Annotated:
        return _takes_nothing(typing.get_args(hint)[0])
    if _is_union(hint):
        return type(None) in typing.get_args(hint)
    return hint in (Any, None, type(None), object)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _read(value: Any, *, kind: Kind | None) -> Any:
    """Parses JSON text for lists and objects, and wraps a single value in a list where a list belongs."""
    if kind is None or value is None:
        return value
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            pass  # a text that only looks like JSON
    if kind == "list" and not isinstance(value, list | tuple | set | frozenset):
        return [value]
    return value


def _outcome(result: Any, name: str) -> Outcome | Spawn:
    """Outcome of a result: text as it is, anything else as JSON."""
    if isinstance(result, Outcome | Spawn):
        return result
    if result is None:
        return Outcome(status="ok", content="done")
    if isinstance(result, bytes | bytearray | memoryview):
        return _no_text(name, "bytes")
    if isinstance(result, str):
        text = str(result)
    else:
        try:
            text = to_json(result, inf_nan_mode="strings").decode()
        except (ValueError, RecursionError) as error:
            kind = type(result).__name__
            why = _first_line(error)
            article = "an" if kind[0] in "aeiouAEIOU" else "a"
            return _no_text(name, f"{article} {kind} that is no JSON ({why})")
    text = text.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair cannot be encoded
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}\n[cut here: the result has {len(text)} characters]"
    return Outcome(status="ok", content=text)


def _no_text(name: str, what: str) -> Outcome:
    content = f"{name} returned {what}."
    hint = "This is a mistake in the tool, not in the call: it should return text, or what can be written as JSON."
    return Outcome(status="failed", code="tool-result", content=content, hint=hint)


def _first_line(error: BaseException) -> str:
    """First line of its message, or its type if it has none."""
    text = str(error) or type(error).__name__
    first = text.splitlines()[0]
    return first[:200].rstrip(".")


def _no_schema(name: str, error: Exception) -> ConfigError:
    reason = _first_line(error)
    why = f"an annotation has no JSON Schema ({reason})"
    return _unfit(name, why, _PLAIN)


def _unfit(name: str, why: str, hint: str) -> ConfigError:
    """Error for a function whose parameters a model cannot be told."""
    message = f"The function '{name}' cannot be a tool: {why}."
    return ConfigError(message, code="tool-signature", hint=hint)


_PLAIN = "Use str, int, float, bool, Literal, list, dict, dataclasses or pydantic models."
