"""Makes a model from its name `provider:name`. A provider is imported only when it is named.

Names: `offline`, `openai:NAME`, `anthropic:NAME`, `scripted:FILE` or `mock:FILE`, `replay:RUN`. `mock` without a file
takes `script` or `file` from the parameters. Installed packages add models in the entry-point group `prowess.models`. A
key comes from the environment, never from a setting.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from prowess._internal.json_values import JsonObject
from prowess._internal.plugins import installed
from prowess.core.events import Envelope
from prowess.core.ports import Model
from prowess.errors import ConfigError, ModelAuth

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "prowess.models"
Recordings = Callable[[str], Sequence[Envelope]]


class _Provider(NamedTuple):
    place: str  # module:name
    after: str  # the part after the colon, as shown in messages
    example: str = ""


PROVIDERS = {
    "offline": _Provider("prowess.models.offline.model:OfflineModel", ""),
    "openai": _Provider("prowess.models.providers.openai:OpenAIModel", "NAME", "openai:gpt-5"),
    "anthropic": _Provider("prowess.models.providers.anthropic:AnthropicModel", "NAME", "anthropic:claude-sonnet-4-5"),
    "scripted": _Provider("prowess.models.scripted:load_script", "FILE", "scripted:replies.yaml"),
    "mock": _Provider("prowess.models.scripted:load_script", "FILE", "mock:replies.yaml"),
    "replay": _Provider("prowess.models.replay:load_recording", "RUN", "replay:.agent/runs/RUN/events.jsonl"),
}


def resolve_model(
    spec: str | None,
    *,
    environ: Mapping[str, str],
    params: Mapping[str, Any] | None = None,
    base: str = ".",
    recordings: Recordings | None = None,
) -> Model:
    """Makes the model. Relative paths start from `base`; `recordings` returns the events of a run by its id."""
    written, kind, name = _split(spec)
    given = dict(params or {})
    provider = PROVIDERS.get(kind)
    if provider is None:
        return _installed(written, kind, name, environ, given)
    is_scripted = kind in _SCRIPTED
    if is_scripted and not name:
        return _scripted(kind, given, base)
    _check_name(written, name, provider)
    make = _import(provider.place)
    if kind in _KEYS:
        account = _account(kind, environ, given)
        return make(name, params=given, **account)
    if is_scripted:
        path = _path(base, name)
        return make(path, name=written)
    if kind == "replay":
        return _recorded(make, written, name, base, recordings)
    return make()


def check_spec(spec: str | None) -> None:
    """Refuses an unknown provider, and a name too many or too few, without making a model."""
    written, kind, name = _split(spec)
    provider = PROVIDERS.get(kind)
    if provider is None:
        _find_installed(written, kind)
    elif name or kind not in _SCRIPTED:
        _check_name(written, name, provider)


def _split(spec: str | None) -> tuple[str, str, str]:
    """Returns the whole name, the provider, and the part after the colon."""
    given = spec or ""
    written = given.strip() or "offline"
    kind, _, name = written.partition(":")
    return written, kind, name


# --- providers that need a key ---------------------------------------------------------------------------------------

_KEYS = {"openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"), "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")}


def _account(kind: str, environ: Mapping[str, str], params: JsonObject) -> JsonObject:
    """Returns key and address. A custom address needs no key, because local servers have none."""
    key_name, base_name = _KEYS[kind]
    given = params.pop("base_url", None)
    base_url = given or environ.get(base_name) or None
    if not isinstance(base_url, str | None):
        message = f"model.params.base_url must be a text, not {base_url!r}."
        hint = "Write it as in http://localhost:8080/v1"
        raise ConfigError(message[:300], code="model-address-invalid", hint=hint)
    written = environ.get(key_name, "")
    key = written.strip() or None
    if key is None and base_url is None:  # checked before the provider's library is imported
        raise _no_key(kind, key_name, base_name)
    return {"api_key": key, "base_url": base_url}


def _no_key(kind: str, key_name: str, base_name: str) -> ModelAuth:
    """Describes a provider whose key is not set."""
    message = f"There is no key for {kind}: {key_name} is not set."
    own = f"Set {key_name}, or {base_name} for a server of your own."
    hint = f"{own} Without a language model: --model offline"
    return ModelAuth(message, code="model-no-key", hint=hint)


# --- scripts ---------------------------------------------------------------------------------------------------------

_SCRIPTED = ("scripted", "mock")


def _scripted(kind: str, params: Mapping[str, Any], base: str) -> Model:
    """Makes `{"provider": "mock", "params": {"script": [replies]}}`, or one with `"file": "replies.yaml"`."""
    script = params.get("script")
    file = params.get("file")
    if script is None and file is None:
        raise _incomplete(kind, "does not say which script")
    if script is not None and file is not None:
        raise _incomplete(kind, "has a script and a file")
    if file is None:
        if not isinstance(script, list):
            raise _no_script("script must be a list of replies", script)
        make = _import("prowess.models.scripted:ScriptedModel")
        return make(script, name=kind)
    if not isinstance(file, str):
        raise _no_script("file must be a path", file)
    load = _import("prowess.models.scripted:load_script")
    return load(_path(base, file), name=f"{kind}:{file}")


def _incomplete(kind: str, what: str) -> ConfigError:
    """Describes a scripted model without exactly one script."""
    example = PROVIDERS[kind].example
    settings = "model.params.script (a list of replies) and model.params.file"
    message = f"The model '{kind}' {what}."
    hint = f"Write {example}, or set one of {settings}."
    return ConfigError(message, code="model-incomplete", hint=hint)


def _no_script(wanted: str, value: object) -> ConfigError:
    message = f"model.params.{wanted}, not {value!r}."
    hint = 'Such as "script": [{"text": "Done."}], or "file": "replies.yaml".'
    return ConfigError(message[:300], code="script-invalid", hint=hint)


def _path(base: str, name: str) -> str:
    """Returns the path of a file as it is named on the command line or in a setting."""
    expanded = os.path.expanduser(name)
    return os.path.join(base, expanded)


# --- recordings ------------------------------------------------------------------------------------------------------


def _recorded(make: Callable[..., Model], written: str, name: str, base: str, recordings: Recordings | None) -> Model:
    """Makes the model from a file, or from the events of a run."""
    path = _path(base, name)
    is_file = os.path.exists(path) or name.endswith(".jsonl")
    if is_file or recordings is None:
        return make(path, name=written)
    events = recordings(name)
    replay = _import("prowess.models.replay:ReplayModel")
    model = replay(events, name=written)
    if not model.unused:
        message = f"The run '{name[:80]}' has no replies of a model to replay."
        hint = "Name a run that asked a model, or the path of its events.jsonl."
        raise ConfigError(message, code="recording-invalid", hint=hint)
    return model


# --- everything else -------------------------------------------------------------------------------------------------


def _find_installed(written: str, kind: str) -> EntryPoint:
    found = installed(GROUP)
    if kind not in found:
        known = [*PROVIDERS, *sorted(found)]
        raise _unknown(written, kind, known)
    return found[kind]


def _installed(written: str, kind: str, name: str, environ: Mapping[str, str], params: JsonObject) -> Model:
    """Makes a model of an installed package, which gets the parameters as they are."""
    entry = _find_installed(written, kind)
    try:
        make = entry.load()
    except (ImportError, AttributeError) as error:
        message = f"The model '{kind}' is offered by {entry.value}, which cannot be imported: {error}."
        hint = "Reinstall or remove the package that offers it."
        raise ConfigError(message, code="model-plugin", hint=hint) from error
    return make(name, environ=environ, params=params)


def _import(place: str) -> Any:
    """Imports the class or function of a provider."""
    module_name, _, name = place.partition(":")
    module = import_module(module_name)
    return getattr(module, name)


def _check_name(written: str, name: str, provider: _Provider) -> None:
    """Refuses a name where the provider takes none, and no name where it needs one."""
    shown = written[:80]
    kind, _, _ = written.partition(":")
    if name and not provider.after:
        message = f"The model '{shown}' is not valid: {kind} takes no name."
        hint = f"Write: --model {kind}"
        raise ConfigError(message, code="model-unknown", hint=hint)
    if provider.after and not name:
        message = f"The model '{shown}' is not complete: write {kind}:{provider.after}."
        hint = f"Such as --model {provider.example}"
        raise ConfigError(message, code="model-incomplete", hint=hint)


_FAMILIES = {
    "gpt": "openai",
    "chatgpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude": "anthropic",
}


def _unknown(written: str, kind: str, known: Sequence[str]) -> ConfigError:
    """Describes a model that no provider has."""
    forms = ", ".join(map(_form, known))
    hint = f"There are: {forms}."
    meant = _find_meant(written, kind, known)
    if meant:
        hint = f"Did you mean {meant}? {hint}"
    message = f"There is no model '{written[:80]}'."
    return ConfigError(message, code="model-unknown", hint=hint)


def _find_meant(written: str, kind: str, known: Sequence[str]) -> str | None:
    """Returns a provider with a similar name, or the one that has a model of this name."""
    lowered = kind.lower()
    for near in difflib.get_close_matches(lowered[:64], known, n=1, cutoff=0.7):
        return near
    start, *_ = re.split(r"[-.:\d]", lowered, maxsplit=1)
    family = _FAMILIES.get(start) or _FAMILIES.get(lowered[:2])
    if family is None:
        return None
    return f"{family}:{written[:80]}"


def _form(name: str) -> str:
    """Returns how a provider is written, such as `openai:NAME`."""
    provider = PROVIDERS.get(name)
    if provider is None or not provider.after:
        return name
    return f"{name}:{provider.after}"
