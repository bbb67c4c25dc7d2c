"""A model is found by what a person writes after --model, and what cannot be found says what to write."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prowess.core.events import Envelope, ModelReplied, render_event
from prowess.core.ports import Model
from prowess.errors import ConfigError, ModelAuth, ProwessError
from prowess.models.registry import PROVIDERS, resolve_model
from prowess.models.replay import ReplayModel
from prowess.models.scripted import ScriptedModel


def resolve(spec: str | None, **more: Any) -> Any:
    return resolve_model(spec, **{"environ": {}, "params": {}, "base": ".", "recordings": None, **more})


def refusal(spec: str | None, **more: Any) -> ProwessError:
    with pytest.raises(ProwessError) as caught:
        resolve(spec, **more)
    return caught.value


def text_of(model: Model) -> str:
    return asyncio.run(model.reply((), ())).text


@pytest.mark.parametrize("spec", [None, "", "  ", "offline", " offline "])
def test_without_a_word_it_is_offline(spec: str | None) -> None:
    assert resolve(spec).name.startswith("offline")


@pytest.mark.parametrize("kind", ["scripted", "mock"])
def test_a_script_is_found_from_the_base(kind: str, tmp_path: Path, machine: Path) -> None:
    (tmp_path / "s.json").write_text('[{"text": "hi"}]', encoding="utf-8")
    (machine / "home.json").write_text('[{"text": "at home"}]', encoding="utf-8")
    model = resolve(f"{kind}:s.json", base=str(tmp_path))
    assert isinstance(model, ScriptedModel) and (model.name, text_of(model)) == (f"{kind}:s.json", "hi")
    assert text_of(resolve(f"{kind}:{tmp_path / 's.json'}", base="/")) == "hi"
    assert text_of(resolve(f"{kind}:~/home.json", base=str(tmp_path))) == "at home"
    assert refusal(f"{kind}:none.json", base=str(tmp_path)).code == "script-unreadable"


@pytest.mark.parametrize("kind", ["scripted", "mock"])
def test_a_script_among_the_parameters(kind: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("- text: from a file\n", encoding="utf-8")
    inline = resolve(kind, params={"script": [{"text": "inline"}], "temperature": 0}, base=str(tmp_path))
    assert (inline.name, text_of(inline)) == (kind, "inline")
    kept = resolve(kind, params={"file": "s.yaml", "script": None}, base=str(tmp_path))
    assert (kept.name, text_of(kept)) == (f"{kind}:s.yaml", "from a file")
    named = resolve(f"{kind}:s.yaml", params={"script": [{"text": "inline"}]}, base=str(tmp_path))
    assert text_of(named) == "from a file", "what is named is meant"


@pytest.mark.parametrize(
    ("params", "code", "said"),
    [
        ({}, "model-incomplete", "which script"),
        ({"script": [], "file": "s.yaml"}, "model-incomplete", "a script and a file"),
        ({"script": "s.yaml"}, "script-invalid", "a list of replies"),
        ({"script": {"text": "hi"}}, "script-invalid", "a list of replies"),
        ({"file": ["s.yaml"]}, "script-invalid", "a path"),
        ({"script": ["hi"]}, "script-invalid", "Reply 1"),
        ({"script": [{"txt": "hi"}]}, "script-invalid", "'txt'"),
        ({"file": "none.yaml"}, "script-unreadable", "none.yaml"),
    ],
)
def test_parameters_that_are_no_script(params: dict[str, Any], code: str, said: str, tmp_path: Path) -> None:
    error = refusal("mock", params=params, base=str(tmp_path))
    assert (error.code, error.exit_code) == (code, 2) and said in str(error) and error.hint


EVENTS = [Envelope(seq=1, at="2026-01-02T03:04:05.000006Z", session="s", run="r1", event=ModelReplied(text="again"))]


def test_a_run_is_found_by_its_id_or_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "r1"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text(json.dumps(render_event(EVENTS[0])) + "\n", encoding="utf-8")
    for written in ("runs/r1", "runs/r1/events.jsonl", str(folder)):
        model = resolve(f"replay:{written}", base=str(tmp_path))
        assert isinstance(model, ReplayModel) and (model.name, text_of(model)) == (f"replay:{written}", "again")
    wanted: list[str] = []

    def recordings(run: str) -> list[Envelope]:
        wanted.append(run)
        return EVENTS

    model = resolve("replay:r1", base=str(tmp_path), recordings=recordings)
    assert (model.name, text_of(model), wanted) == ("replay:r1", "again", ["r1"])
    assert refusal("replay:r1", base=str(tmp_path)).code == "recording-invalid"
    assert refusal("replay:r1", base=str(tmp_path), recordings=lambda run: []).code == "recording-invalid"
    assert refusal("replay:x.jsonl", base=str(tmp_path), recordings=recordings).code == "recording-invalid"


@pytest.mark.parametrize(
    ("spec", "code", "hint"),
    [
        ("opnai:gpt-5", "model-unknown", "Did you mean openai?"),
        ("gpt-5", "model-unknown", "Did you mean openai:gpt-5?"),
        ("o3-mini", "model-unknown", "Did you mean openai:o3-mini?"),
        ("claude-sonnet-4-5", "model-unknown", "Did you mean anthropic:claude-sonnet-4-5?"),
        ("llama", "model-unknown", "There are: offline, openai:NAME, anthropic:NAME, scripted:FILE"),
        ("OpenAI:x", "model-unknown", "Did you mean openai?"),
        (":x", "model-unknown", "There are: "),
        ("x" * 5000, "model-unknown", "There are: "),
        ("offline:x", "model-unknown", "--model offline"),
        ("openai", "model-incomplete", "openai:gpt-5"),
        ("anthropic:", "model-incomplete", "anthropic:claude"),
        ("scripted", "model-incomplete", "scripted:replies.yaml"),
        ("replay:", "model-incomplete", "events.jsonl"),
        ("scripted:a\0b", "script-unreadable", "regular file"),
    ],
)
def test_what_is_not_a_model_is_refused_with_what_to_write(spec: str, code: str, hint: str) -> None:
    error = refusal(spec)
    assert (error.code, error.exit_code) == (code, 2)
    assert hint in (error.hint or "") and len(str(error)) < 1000


@pytest.mark.parametrize(("kind", "variable"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")])
def test_a_missing_key_is_said_before_anything_is_sent(kind: str, variable: str) -> None:
    for environ in ({}, {variable: " "}):
        error = refusal(f"{kind}:m", environ=environ)
        assert isinstance(error, ModelAuth) and error.code == "model-no-key"
        assert variable in error.message


def test_a_provider_is_imported_when_it_is_named() -> None:
    code = (
        "import sys; from prowess.models.registry import resolve_model\n"
        "from prowess.errors import ModelAuth\n"
        "try: resolve_model('openai:x', environ={}, params={}, base='.')\n"
        "except ModelAuth: pass\n"
        "print(*sorted({'openai', 'anthropic', 'pydantic', 'yaml'} & sys.modules.keys()))"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "anthropic" not in answer.stdout and "pydantic" not in answer.stdout and "yaml" not in answer.stdout


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_keys_and_addresses_come_from_the_environment(kind: str) -> None:
    key, base = f"{kind.upper()}_API_KEY", f"{kind.upper()}_BASE_URL"
    assert resolve(f"{kind}:m", environ={key: "secret"}).name == f"{kind}:m"
    assert resolve(f"{kind}:org/m:latest", environ={base: "http://127.0.0.1:9/v1"}).name == f"{kind}:org/m:latest"
    params = {"base_url": "http://127.0.0.1:9/v1", "temperature": 0}
    assert resolve(f"{kind}:m", params=params).name == f"{kind}:m"
    assert params == {"base_url": "http://127.0.0.1:9/v1", "temperature": 0}
    error = refusal(f"{kind}:m", environ={key: "secret"}, params={"api_key": "x"})
    assert isinstance(error, ConfigError) and "environment" in (error.hint or "")
    for address in ("ftp://x", "nowhere", 7):
        error = refusal(f"{kind}:m", environ={key: "secret"}, params={"base_url": address})
        assert (error.code, "secret" in str(error)) == ("model-address-invalid", False)


# --- packages of other people


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "toy_models-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-models\nVersion: 1.0\n", encoding="utf-8")
    offers = "toy = toy_models:make\nbroken = toy_models:nothing\nopenai = toy_models:make\n"
    (info / "entry_points.txt").write_text(f"[prowess.models]\n{offers}", encoding="utf-8")
    (tmp_path / "toy_models.py").write_text(
        "from prowess.testing import ScriptedModel\n"
        "def make(name, *, environ, params):\n"
        "    return ScriptedModel([{'text': f'{name} {environ} {params}'}], name=f'toy:{name}')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "toy_models", raising=False)


@pytest.mark.usefixtures("plugin")
def test_an_installed_package_can_offer_models() -> None:
    model = resolve("toy:big:1", environ={"A": "b"}, params={"x": 1})
    assert (model.name, text_of(model)) == ("toy:big:1", "big:1 {'A': 'b'} {'x': 1}")
    assert text_of(resolve("toy")).startswith(" ")
    assert "toy" in (refusal("nothing-like-it").hint or "")
    assert "Did you mean toy?" in (refusal("tooy:x").hint or "")
    assert refusal("openai:m").code == "model-no-key"  # ours cannot be replaced
    error = refusal("broken:x")
    assert (error.code, "toy_models:nothing" in error.message) == ("model-plugin", True)


def test_every_provider_of_the_table_is_there() -> None:
    for kind, provider in PROVIDERS.items():
        module, _, name = provider.place.partition(":")
        assert importlib.util.find_spec(module) is not None, kind
        assert name.isidentifier()
