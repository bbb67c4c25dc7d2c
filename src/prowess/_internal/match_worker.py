"""Meets patterns and JSON Schemas of others in a separate process, because both can run for ever.

Runs as a script and imports nothing of Prowess. The first line on stdin is the search path for modules. Each line after
it is an order, and gets one line of JSON. An order that takes too long ends the process: then there is no answer.
"""

import contextlib
import json
import re
import resource
import signal
import sys
from typing import Any

MEMORY_BYTES = 1 << 30
_CAUSED_BY_OTHERS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError)


def main() -> None:
    with contextlib.suppress(ValueError, OSError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    sys.path[:] = json.loads(sys.stdin.buffer.readline())
    while line := sys.stdin.buffer.readline():
        order = json.loads(line)
        # Seconds of the processor, so that a busy machine changes nothing. The signal ends even a match in C.
        signal.setitimer(signal.ITIMER_PROF, order["seconds"])
        try:
            answer = _obey(order)
        except re.error as error:
            answer = {"why": f"the pattern '{str(error.pattern)[:80]}' cannot be used: {error}"}
        except ModuleNotFoundError:
            answer = {"missing": True}
        except _CAUSED_BY_OTHERS as error:
            answer = {"why": f"{type(error).__name__}: {error}"[:500]}
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _obey(order: dict[str, Any]) -> dict[str, Any]:
    """Answers `ok`, and `why` if it is not."""
    if "pattern" in order:
        return {"ok": re.search(order["pattern"], order["text"]) is not None}
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import UnknownType, best_match
    from jsonschema.validators import validator_for
    from jsonschema_specifications import REGISTRY  # it fetches nothing, unlike the default one of jsonschema
    from referencing.exceptions import Unresolvable

    schema = order["schema"]
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        if "value" in order:
            wrong = best_match(kind(schema, registry=REGISTRY).iter_errors(order["value"]))
        else:
            wrong = best_match(kind(kind.META_SCHEMA, format_checker=kind.FORMAT_CHECKER).iter_errors(schema))
            if wrong is None:
                _look_up_references(schema, REGISTRY)
    except UnknownType as error:
        return {"why": f"there is no type {error.type!r}"[:300]}
    except Unresolvable as error:
        return {"why": f"it refers to {error.ref!r}, which is not in it; nothing is fetched"[:300]}
    return {"ok": wrong is None, "why": wrong and f"{wrong.json_path[:200]}: {wrong.message[:300]}"}


def _look_up_references(schema: Any, registry: Any) -> None:
    from referencing.jsonschema import DRAFT202012

    found: list[Any] = []
    json.loads(json.dumps(schema), object_hook=lambda part: found.extend(map(part.get, ("$ref", "$dynamicRef"))))
    uri = schema.get("$id", "") if isinstance(schema, dict) else ""
    resolver = registry.with_resource(uri, DRAFT202012.create_resource(schema)).crawl().resolver(uri)
    for reference in filter(lambda each: isinstance(each, str), found):
        resolver.lookup(reference)


if __name__ == "__main__":
    main()
