"""@tool: makes a tool from a typed Python function. Annotations become the schema, the docstring the description.

    @tool(read_only=True)
    def weather(city: str, days: Annotated[int, "how far ahead"] = 1) -> dict[str, float]:
        "The forecast for a city."

The decorated function can still be called as a function. Arguments are checked before it runs, and arrive with the
annotated types. A function that is not async runs in a thread. Its exceptions are raised to the caller.

A model is told the first paragraph of the docstring, and the text about each parameter: `Args:` in Google style, or
`:param name:`. It is not told the rest.
"""

from __future__ import annotations

import asyncio
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
from typing import Annotated, Any, Generic, Literal, NamedTuple, ParamSpec, TypeVar, overload
from weakref import WeakKeyDictionary

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import to_json

from prowess.core.ports import CallGrant, CapabilityRequest
from prowess.core.values import Outcome, Spawn, ToolSpec
from prowess.errors import ConfigError, ToolFailed
from prowess.tools.schema import Arguments, parse_arguments, render_schema

_ARGS = re.compile(r"^(?:Args|Arguments|Parameters):\s*$")
_HEADING = re.compile(r"^[A-Z]\w[\w ]*:\s*$")
_GOOGLE = re.compile(r"^\*{0,2}(?P<name>\w++)\s*+(?:\([^)]*+\))?+\s*+:\s*+(?P<text>.*)$")
_SPHINX = re.compile(r"^:(?:param|parameter|arg|argument)\s(?P<name>[^:]*+):\s*+(?P<text>.*)$")
_FIELD = re.compile(r"^:\w+")


def summary_of(function: Callable[..., Any]) -> str:
    """First paragraph of the docstring, on one line."""
    lines: list[str] = []
    for line in (inspect.getdoc(function) or "").strip().splitlines():
        if not line.strip() or _ARGS.match(line) or _FIELD.match(line.strip()):
            break
        lines.append(line.strip())
    return " ".join(lines)


def parameters_of(function: Callable[..., Any]) -> dict[str, str]:
    """Maps each parameter name to its text in the docstring."""
    found: dict[str, list[str]] = {}
    in_args, current, margin = False, "", 0
    for line in (inspect.getdoc(function) or "").splitlines():
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if (field := _SPHINX.match(text)) and field["name"].strip():
            current, margin = field["name"].split()[-1].lstrip("*"), indent  # a type may stand before it
            found[current] = [field["text"]]
        elif _ARGS.match(line):
            in_args, current, margin = True, "", 0
        elif not text or _FIELD.match(text) or (indent == 0 and _HEADING.match(line)):
            in_args = in_args and not text
            current = ""
        elif in_args and indent and (not margin or indent <= margin) and (entry := _GOOGLE.match(text)):
            current, margin = entry["name"], indent
            found[current] = [entry["text"]]
        elif current and indent > margin:
            found[current].append(text)
        elif indent == 0:
            in_args, current = False, ""
    return {name: " ".join(filter(None, texts)) for name, texts in found.items()}


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
    *, name: str | None = None, description: str | None = None, read_only: bool = False
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
) -> Any:
    """Makes a tool from a function. ConfigError `tool-signature` if a model cannot be told its parameters."""

    def decorate(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(function, name=name, description=description, read_only=read_only)

    return decorate if function is None else decorate(function)


def is_tool(given: object) -> bool:
    """True for an object with the methods of a Tool, false for a class."""
    return not isinstance(given, type) and all(hasattr(given, name) for name in ("spec", "normalise", "needs", "call"))


def as_tool(given: Any) -> Any:
    """Returns a tool unchanged, and makes a tool from a function. ConfigError `tool-invalid` for anything else."""
    if is_tool(given):
        return given
    if callable(given) and not isinstance(given, type):
        return tool(given)
    what = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
    raise ConfigError(
        f"{repr(given)[:80]} cannot be a tool: it is {what}.",
        code="tool-invalid",
        hint="Give a function with annotations, what @prowess.tool makes of one, or an object that is a Tool.",
    )


class FunctionTool(Generic[P, R]):
    """Tool made from a Python function. Implements tools.base.Tool."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        read_only: bool = False,
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        called = name or getattr(function, "__name__", type(function).__name__)
        if not _NAME.fullmatch(called):
            hint = "Give it one of letters, digits, _ and -: @tool(name=…)."
            raise ConfigError(f"'{called[:100]}' cannot be the name of a tool.", code="tool-name", hint=hint)
        shape = _find_shape(function, called)
        self._signature, self._within, self._kind = shape.signature, shape.within, shape.kind
        self._fields = {f"arg_{number}": parameter for number, parameter in enumerate(shape.parameters)}
        # Many models send every field, with null for "not given".
        self._never_null = {each for each, hint in shape.parameters.items() if not _takes_nothing(hint)}
        self.spec = ToolSpec(
            name=called,
            description=summary_of(function) if description is None else description,
            parameters=shape.schema,
            read_only=read_only,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return self._parse(args).normal()

    async def needs(self, args: Mapping[str, Any]) -> Sequence[CapabilityRequest]:
        return ()

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome | Spawn:
        parsed = self._parse(args)
        given = {name: getattr(parsed, own) for own, name in self._fields.items() if own in parsed.model_fields_set}
        if self._within is not None:
            given[self._within] = within
        bound = self._signature.bind_partial()
        bound.arguments.update(given)
        bound.apply_defaults()
        return _outcome(await self._run(*bound.args, **bound.kwargs), self.spec.name)

    def _parse(self, args: Mapping[str, Any]) -> FunctionArguments:
        said = {
            name: value
            for name, value in args.items()
            if value is not None or name not in self._never_null or self._is_required(name)
        }
        return parse_arguments(self._kind, said, self.spec.name)

    def _is_required(self, parameter: str) -> bool:
        return self._signature.parameters[parameter].default is inspect.Parameter.empty

    async def _run(self, *args: Any, **kwargs: Any) -> Any:
        function: Callable[..., Any] = self._function
        try:
            if inspect.iscoroutinefunction(function):
                return await function(*args, **kwargs)
            result = await asyncio.to_thread(_guarded, function, args, kwargs)
            return await result if inspect.isawaitable(result) else result
        except SystemExit as error:
            raise ToolFailed(f"{self.spec.name} wanted to end the whole process (exit {error.code}).") from error


class FunctionArguments(Arguments):
    """Arguments of a function, under the function's own names. The normal form is parsed again before the call, so that
    the function gets what was recorded and judged: its types may have members that their JSON lacks."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    def normal(self) -> dict[str, Any]:
        """Only the arguments that were given, because the function has its own defaults."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class _Shape(NamedTuple):
    """Parameters of a function as a model is told them. It takes milliseconds to find out."""

    signature: inspect.Signature
    within: str | None  # name of the CallGrant parameter
    parameters: Mapping[str, Any]  # annotations of all other parameters
    kind: type[FunctionArguments]
    schema: dict[str, Any]
    stamp: tuple[object, ...]  # everything that it was made of


_SHAPES: WeakKeyDictionary[Callable[..., Any], _Shape] = WeakKeyDictionary()


def _find_shape(function: Callable[..., Any], called: str) -> _Shape:
    """Returns the shape of a function, which is kept as long as the function exists and is not changed."""
    if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
        return _make_shape(function, called, ())
    annotations, defaults = function.__annotations__, function.__kwdefaults__ or {}
    parts = (*annotations, *annotations.values(), *defaults, *defaults.values())
    stamp = (called, function.__code__, function.__doc__, function.__defaults__, *parts)
    shape = _SHAPES.get(function)
    if shape is None or not all(map(operator.is_, shape.stamp, stamp)) or len(shape.stamp) != len(stamp):
        shape = _SHAPES[function] = _make_shape(function, called, stamp)
    return shape


def _make_shape(function: Callable[..., Any], called: str, stamp: tuple[object, ...]) -> _Shape:
    signature = _signature(function, called)
    within, parameters = _parameters(function, signature, called)
    kind = _arguments(called, parameters, signature, parameters_of(function))
    return _Shape(signature, within, parameters, kind, _schema(kind, called), stamp)


def _signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise _unfit(name, f"its parameters cannot be read ({error})", "Write a function around it.") from error


def _parameters(
    function: Callable[..., Any], signature: inspect.Signature, name: str
) -> tuple[str | None, dict[str, Any]]:
    """Returns (the name of the CallGrant parameter, annotations of all other parameters)."""
    hints = _hints(function, name)
    within: str | None = None
    found: dict[str, Any] = {}
    for position, parameter in enumerate(signature.parameters.values()):
        if parameter.kind in _VARIABLE:
            why = f"*{parameter.name} could be anything"
            raise _unfit(name, why, "Name and annotate each parameter, or take a list or a dict.")
        if parameter.name not in hints:
            hint = f"Annotate it: def {name}({parameter.name}: str). For a method, bind it first: tool(object.{name})."
            raise _unfit(name, f"the parameter '{parameter.name}' has no annotation", hint)
        if hints[parameter.name] is CallGrant:
            if position:
                raise _unfit(name, f"the CallGrant parameter '{parameter.name}' is not the first", "Put it first.")
            within = parameter.name
            continue
        found[parameter.name] = hints[parameter.name]
    return within, found


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Reads the annotations of the parameters. Ignores the return annotation, which may be anything."""
    plain: Any = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    if not (inspect.isfunction(plain) or inspect.ismethod(plain)):
        plain = type(plain).__call__
    annotations = {each: hint for each, hint in getattr(plain, "__annotations__", {}).items() if each != "return"}
    names = getattr(plain, "__globals__", {})
    try:
        return typing.get_type_hints(types.SimpleNamespace(__annotations__=annotations), names, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        hint = "Define and import what the annotations name at the top of the module, not only for type checking."
        raise _unfit(name, f"an annotation cannot be read ({error})", hint) from error


def _arguments(
    name: str, parameters: Mapping[str, Any], signature: inspect.Signature, said: Mapping[str, str]
) -> type[FunctionArguments]:
    """Builds the argument class. Names are aliases of numbered fields: `json`, `copy`, `_x` are no field names."""
    fields: dict[str, Any] = {}
    for number, (parameter, hint) in enumerate(parameters.items()):
        about: dict[str, Any] = {"alias": parameter}
        if description := _described(hint) or said.get(parameter):
            about["description"] = description
        if signature.parameters[parameter].default is not inspect.Parameter.empty:
            about["default"] = None  # never used: the function has its own
        read = BeforeValidator(functools.partial(_read, kind=_structure(hint)))
        fields[f"arg_{number}"] = (Annotated[hint, read], Field(**about))
    try:
        return create_model(f"{name}_arguments", __base__=FunctionArguments, **fields)
    except (PydanticUserError, TypeError) as error:
        raise _unfit(name, f"an annotation has no JSON Schema ({_first_line(error)})", _PLAIN) from error


def _schema(kind: type[FunctionArguments], name: str) -> dict[str, Any]:
    try:
        return render_schema(kind)
    except (PydanticUserError, ValueError) as error:
        raise _unfit(name, f"an annotation has no JSON Schema ({_first_line(error)})", _PLAIN) from error
    except RecursionError as error:
        raise _unfit(name, "a type of its parameters contains itself", "Take a list or a dict instead.") from error


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
        kinds: set[Kind | None] = {_structure(each) for each in typing.get_args(hint) if each is not type(None)}
        return kinds.pop() if len(kinds) == 1 else None
    plain = typing.get_origin(hint) or hint
    if not isinstance(plain, type) or issubclass(plain, str | bytes | bytearray):
        return None
    if issubclass(plain, abc.Mapping | BaseModel) or is_dataclass(plain) or typing.is_typeddict(plain):
        return "object"
    return "list" if issubclass(plain, abc.Sequence | abc.Set) else None


def _takes_nothing(hint: Any) -> bool:
    if typing.get_origin(hint) is Annotated:
        return _takes_nothing(typing.get_args(hint)[0])
    return hint in (Any, None, type(None), object) or (_is_union(hint) and type(None) in typing.get_args(hint))


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _read(value: Any, *, kind: Kind | None) -> Any:
    """Parses JSON text for lists and objects, and wraps a single value in a list where a list belongs."""
    if kind is None or value is None:
        return value
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return [value] if kind == "list" else value
    return [value] if kind == "list" and not isinstance(value, list | tuple | set | frozenset) else value


def _guarded(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Replaces StopIteration, because it cannot leave a thread: the caller would wait for ever."""
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError("it raised StopIteration") from error


def _outcome(result: Any, name: str) -> Outcome | Spawn:
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
            return _no_text(name, f"a {type(result).__name__} that is no JSON ({_first_line(error)})")
    text = text.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair cannot be encoded
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}\n[cut here: the result has {len(text)} characters]"
    return Outcome(status="ok", content=text)


def _no_text(name: str, what: str) -> Outcome:
    hint = "This is a mistake in the tool, not in the call: it should return text, or what can be written as JSON."
    return Outcome(status="failed", code="tool-result", content=f"{name} returned {what}.", hint=hint)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200].rstrip(".")


def _unfit(name: str, why: str, hint: str) -> ConfigError:
    return ConfigError(f"The function '{name}' cannot be a tool: {why}.", code="tool-signature", hint=hint)


_PLAIN = "Use str, int, float, bool, Literal, list, dict, dataclasses or pydantic models."
