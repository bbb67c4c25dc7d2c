"""Renders reports about skills as SARIF 2.1.0, for code-scanning tools."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import prowess
from prowess.core.catalog_values import Finding
from prowess.core.findings import RULES
from prowess.runtime.check import Report

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def render_sarif(reports: Sequence[Report], cwd: str) -> dict[str, Any]:
    """Renders one run, with our registry as rules and one result per finding. Paths are relative to `cwd`."""
    findings: list[Finding] = []
    for report in reports:
        findings += report.findings
    codes = sorted({finding.code for finding in findings})
    rules = [_rule(code) for code in codes]
    results = [_result(finding, codes.index(finding.code), cwd) for finding in findings]
    driver = {"name": "prowess", "version": prowess.__version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, Any]:
    rule = RULES[code]
    return {
        "id": code,
        "shortDescription": {"text": rule.message},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.hint},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(finding: Finding, rule_index: int, cwd: str) -> dict[str, Any]:
    location = {
        "artifactLocation": {"uri": _uri(finding.path, cwd)},
        "region": {"startLine": finding.line or 1},
    }
    text = f"{finding.message} {finding.hint or ''}"
    return {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": _LEVELS[finding.severity],
        "message": {"text": text.strip()},
        "locations": [{"physicalLocation": location}],
    }


def _uri(path: str, cwd: str) -> str:
    """Returns the path as a URI, relative to `cwd` if it is below that."""
    shown = os.path.relpath(path, cwd)
    if shown.startswith(".."):
        shown = path
    return quote(shown.replace(os.sep, "/"), errors="replace")
