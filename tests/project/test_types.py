"""Type checkers see the same public names and keywords that Python has. `tools/check_types.py` checks the types."""

from __future__ import annotations

import ast
from dataclasses import fields
from importlib.resources import files
from inspect import getsource, signature

import pytest

import prowess
from prowess.runtime.agent import Agent, AgentOptions, RunOptions
from prowess.runtime.factories import KitKeywords, KitOptions, SessionKeywords, SessionOptions
from prowess.skills import discover


def test_the_package_says_that_it_has_types() -> None:
    assert files("prowess").joinpath("py.typed").is_file()


def test_a_type_checker_sees_every_lazy_import() -> None:
    seen: dict[str, str] = {}
    for node in ast.walk(ast.parse(getsource(prowess))):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            seen.update({name.name: node.module or "" for name in node.names if name.asname == name.name})
    assert seen == prowess._HOME


@pytest.mark.parametrize(("keywords", "options"), [(KitKeywords, KitOptions), (SessionKeywords, SessionOptions)])
def test_a_runtime_takes_the_fields_of_its_options_as_keywords(keywords: type, options: type) -> None:
    declared = {name: hint.__forward_arg__ for name, hint in keywords.__annotations__.items()}
    assert declared == {field.name: field.type for field in fields(options)}


def test_one_request_takes_the_keywords_of_an_agent_and_of_its_run() -> None:
    given = _keywords(Agent.__init__) - {"model", "on_event"}  # on_event is a keyword of the run
    assert AgentOptions.__annotations__.keys() == given
    assert RunOptions.__annotations__.keys() == _keywords(Agent.run)


def test_a_library_takes_the_keywords_of_discover() -> None:
    (declared,) = (
        node
        for node in ast.walk(ast.parse(getsource(discover)))
        if isinstance(node, ast.ClassDef) and node.name == "DiscoverOptions"
    )
    names = {node.target.id for node in declared.body if isinstance(node, ast.AnnAssign)}
    assert names == _keywords(discover.discover)


def _keywords(function: object) -> set[str]:
    """Names of the keywords of a function, without the request."""
    found = signature(function).parameters.values()
    return {each.name for each in found if each.kind is each.KEYWORD_ONLY or each.name == "model"}
