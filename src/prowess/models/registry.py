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
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

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
    written = (spec or "").strip() or "offline"
    kind, _, name = written.partition(":")
    given = dict(params or {})
    provider = PROVIDERS.get(kind)
    if provider is None:
        return _installed(written, kind, name, environ, given)
    if kind in _SCRIPTED and not name:
        return _scripted(kind, given, base)
    if bool(name) != bool(provider.after):
        _check_name(written, kind, provider)
    make = _import(provider.place)
    if kind in _KEYS:
        return make(name, params=given, **_account(kind, environ, given))
    if kind in _SCRIPTED:
        return make(_path(base, name), name=written)
    if kind == "replay":
        return _recorded(make, written, name, base, recordings)
    return make()


def check_spec(spec: str | None) -> None:
    """Refuses an unknown provider, and a name too many or too few, without making a model."""
    written = (spec or "").strip() or "offline"
    kind, _, name = written.partition(":")
    provider = PROVIDERS.get(kind)
    if provider is None:
        _find_installed(written, kind)
    elif bool(name) != bool(provider.after) and not (kind in _SCRIPTED and not name):
        _check_name(written, kind, provider)


# --- providers that need a key ---------------------------------------------------------------------------------------

_KEYS = {"openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"), "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")}


def _account(kind: str, environ: Mapping[str, str], params: dict[str, Any]) -> dict[str, Any]:
    """Returns key and address. A custom address needs no key, because local servers have none."""
    key_name, base_name = _KEYS[kind]
    base_url = params.pop("base_url", None) or environ.get(base_name) or None
    if not isinstance(base_url, str | None):
        raise ConfigError(
            f"model.params.base_url must be a text, not {base_url!r}."[:300],
            code="model-address-invalid",
            hint="Write it as in http://localhost:8080/v1",
        )
    key = (environ.get(key_name) or "").strip() or None
    if key is None and base_url is None:  # checked before the provider's library is imported
        raise ModelAuth(
            f"There is no key for {kind}: {key_name} is not set.",
            code="model-no-key",
            hint=f"Set {key_name}, or {base_name} for a server of your own. Without a language model: --model offline",
        )
    return {"api_key": key, "base_url": base_url}


# --- scripts ---------------------------------------------------------------------------------------------------------

_SCRIPTED = ("scripted", "mock")


def _scripted(kind: str, params: Mapping[str, Any], base: str) -> Model:
    """Makes `{"provider": "mock", "params": {"script": [replies]}}`, or one with `"file": "replies.yaml"`."""
    given = {name: params[name] for name in ("script", "file") if params.get(name) is not None}
    if len(given) != 1:
        what = "does not say which script" if not given else "has a script and a file"
        raise ConfigError(
            f"The model '{kind}' {what}.",
            code="model-incomplete",
            hint=f"Write {PROVIDERS[kind].example}, or set one of model.params.script (a list of replies) and "
            "model.params.file.",
        )
    script, file = given.get("script"), given.get("file", "")
    if not isinstance(script, list | None) or not isinstance(file, str):
        wanted = "script must be a list of replies" if given.keys() == {"script"} else "file must be a path"
        raise ConfigError(
            f"model.params.{wanted}, not {(script or file)!r}."[:300],
            code="script-invalid",
            hint='Such as "script": [{"text": "Done."}], or "file": "replies.yaml".',
        )
    if script is not None:
        return _import("prowess.models.scripted:ScriptedModel")(script, name=kind)
    return _import("prowess.models.scripted:load_script")(_path(base, file), name=f"{kind}:{file}")


def _path(base: str, name: str) -> str:
    return os.path.join(base, os.path.expanduser(name))


# --- recordings ------------------------------------------------------------------------------------------------------


def _recorded(make: Callable[..., Model], written: str, name: str, base: str, recordings: Recordings | None) -> Model:
    path = _path(base, name)
    if os.path.exists(path) or name.endswith(".jsonl") or recordings is None:
        return make(path, name=written)
    events = recordings(name)
    model = _import("prowess.models.replay:ReplayModel")(events, name=written)
    if not model.unused:
        raise ConfigError(
            f"The run '{name[:80]}' has no replies of a model to replay.",
            code="recording-invalid",
            hint="Name a run that asked a model, or the path of its events.jsonl.",
        )
    return model


# --- everything else -------------------------------------------------------------------------------------------------


def _find_installed(written: str, kind: str) -> EntryPoint:
    found = installed(GROUP)
    if kind not in found:
        _check_known(written, kind, [*PROVIDERS, *sorted(found)])
    return found[kind]


def _installed(written: str, kind: str, name: str, environ: Mapping[str, str], params: dict[str, Any]) -> Model:
    entry = _find_installed(written, kind)
    try:
        make = entry.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"The model '{kind}' is offered by {entry.value}, which cannot be imported: {error}.",
            code="model-plugin",
            hint="Reinstall or remove the package that offers it.",
        ) from error
    return make(name, environ=environ, params=params)


def _import(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _check_name(written: str, kind: str, provider: _Provider) -> NoReturn:
    if not provider.after:
        raise ConfigError(
            f"The model '{written[:80]}' is not valid: {kind} takes no name.",
            code="model-unknown",
            hint=f"Write: --model {kind}",
        )
    raise ConfigError(
        f"The model '{written[:80]}' is not complete: write {kind}:{provider.after}.",
        code="model-incomplete",
        hint=f"Such as --model {provider.example}",
    )


_FAMILIES = {
    "gpt": "openai",
    "chatgpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude": "anthropic",
}


def _check_known(written: str, kind: str, known: Sequence[str]) -> NoReturn:
    near = difflib.get_close_matches(kind[:64].lower(), known, n=1)
    family = _FAMILIES.get(re.split(r"[-.:\d]", kind.lower(), maxsplit=1)[0]) or _FAMILIES.get(kind.lower()[:2])
    meant = f"{family}:{written[:80]}" if family and not near else near[0] if near else ""
    forms = ", ".join(
        f"{name}:{PROVIDERS[name].after}" if name in PROVIDERS and PROVIDERS[name].after else name for name in known
    )
    raise ConfigError(
        f"There is no model '{written[:80]}'.",
        code="model-unknown",
        hint=(f"Did you mean {meant}? " if meant else "") + f"There are: {forms}.",
    )
