"""Spans through OpenTelemetry's own SDK, as somebody who traces would see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kits import with_kit
from prowess._internal.tracing import span
from prowess.errors import WorkspaceError
from spans import watch_spans


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    return watch_spans()


def test_a_run_is_a_set_of_spans(tmp_path: Path, make_skill: Any, exporter: InMemorySpanExporter) -> None:
    root = make_skill(tmp_path / "skills" / "demo", files={"assets/a": "a"}).parent
    exporter.clear()
    args = {"skill": "demo", "command": "echo hi; echo x > out/x; exit 3", "inputs": ["skill://demo/assets/a"]}
    with_kit(root, lambda kit: kit.call("skill_run", args), executor="local")
    spans = {span.name: dict(span.attributes or {}) for span in exporter.get_finished_spans()}
    assert {
        "workspace.create",
        "workspace.stage.publish",
        "workspace.stage.skill",
        "workspace.stage.inputs",
        "workspace.run",
        "workspace.collect",
        "workspace.inline",
        "workspace.cleanup",
    } <= spans.keys()
    run = spans["workspace.run"]
    assert run["prowess.skill"] == "demo" and str(run["prowess.digest"]).startswith("sha256:")
    assert (run["prowess.executor"], run["prowess.exit_code"], run["prowess.stdout_bytes"]) == ("local:none", 3, 3)
    assert spans["workspace.collect"]["prowess.files"] == 1 and spans["workspace.collect"]["prowess.bytes"] == 2
    assert spans["workspace.stage.inputs"]["prowess.bytes"] == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [(WorkspaceError("hush hush", op="x", code="no-input"), "no-input"), (OSError("hush hush"), "OSError")],
)
def test_an_error_is_told_by_its_code_alone(error: Exception, code: str, exporter: InMemorySpanExporter) -> None:
    exporter.clear()
    with pytest.raises(type(error)), span("workspace.run"):
        raise error
    [found] = exporter.get_finished_spans()
    assert "hush" not in found.to_json() and not found.events
    assert (found.status.status_code.name, found.status.description) == ("ERROR", code)
    assert dict(found.attributes or {}) == {"error.type": code}
