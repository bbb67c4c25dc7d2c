"""Talk to a real model on every wire, measure how it chooses and uses skills, and say exactly what was run.

PROWESS_E2E_BASE_URL=URL     a server that speaks OpenAI's or Anthropic's protocol, such as http://localhost:8080/v1
PROWESS_E2E_MODEL=NAME       the model there (default: local)
PROWESS_E2E_KEY=KEY          its key, if it wants one
PROWESS_E2E_WIRES=…          of chat,responses,messages those that it speaks (default: all); the first one is measured

PROWESS_E2E_GGUF=FILE        instead of an address: a model file, served by xllamacpp in a process of its own
PROWESS_E2E_PYTHON=PROGRAM   the Python that has xllamacpp (default: this one; pip install xllamacpp)
PROWESS_E2E_TEMPLATE=FILE    a chat template, where the one in the model file does not know tools
PROWESS_E2E_THREADS=N        (default: 2)

PROWESS_E2E_PART=…           of wires,triggers,tasks (default: all): checks of the adapters, 60 requests that want a
                             skill or none, three tasks with a script. triggers asks for 120 replies of one turn,
                             with about 2,500 tokens in each
PROWESS_E2E_PROFILES=…       of default,lean,full (default: default,lean)
PROWESS_E2E_HALF=…           of tune,held_out (default: both): of held_out only totals are printed
PROWESS_E2E_SETTINGS=JSON    settings that are measured, such as '{"guidance": "", "skills.budget": 400}'
PROWESS_E2E_MAX_TOKENS=N     most tokens of a reply (default: 200; a model that thinks needs more)

Exit code 1 when a check failed or a request could not be made; what was measured is no failure. A small model errs: a
check that depends on its choice may take three attempts, and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from e2e_triggers import HALVES, measure_tasks, measure_triggers

from prowess.agent.agent import Limits
from prowess.core.events import CallDelta, ModelReplied, TextDelta
from prowess.core.values import Message, Part, ToolSpec
from prowess.errors import ModelError, ProwessError
from prowess.models.providers.anthropic import AnthropicModel
from prowess.models.providers.openai import OpenAIModel
from prowess.runtime.runtime import open_runtime
from prowess.testing import skill_dir

WIRES = ("chat", "responses", "messages")
PARTS = ("wires", "triggers", "tasks")
PROFILES = ("default", "lean", "full")
ATTEMPTS = 3
SECRET = "heliotrope-4711"  # cannot be guessed, only looked up
LOOKUP = ToolSpec(
    name="lookup",
    description="Look up a value in the register by its key. Use it for every question about the register.",
    parameters={"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
)
RULES = (
    "You answer questions about a register of values. You know nothing about it by yourself: call the tool lookup with "
    "the key, and repeat the value that it gives, word for word. Answer in one short sentence. " * 4
)
PADDING = "The register is kept with care, and nobody may change it but its keeper. " * 150
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["red", "green", "blue"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
_SERVE = """
import signal, sys
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = sys.argv[1], ["127.0.0.1"], 0
params.n_ctx, params.n_parallel, params.use_jinja = 8192, 1, True
params.model_alias = {"local"}
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(sys.argv[2])
if sys.argv[3]:
    with open(sys.argv[3], encoding="utf-8") as file:
        params.chat_template = file.read()
server = xllamacpp.Server(params)
print("listening", server.listening_address, flush=True)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
"""


class Failed(Exception):
    """What was expected, and what came instead."""


class NotHeld(Exception):
    """The server is known not to do this; the adapter's part went well."""


class Place(NamedTuple):
    root: str  # without /v1
    model: str
    key: str | None
    is_file: bool


class Wanted(NamedTuple):
    wires: list[str]
    parts: list[str]
    profiles: list[str]
    halves: list[str]
    settings: dict[str, object]
    max_tokens: int


Speaker = OpenAIModel | AnthropicModel
Check = Callable[[Speaker, Place], Awaitable[str]]


def main(environ: Mapping[str, str]) -> int:
    try:
        wanted = Wanted(
            wires=read_names(environ, "WIRES", WIRES),
            parts=read_names(environ, "PART", PARTS),
            profiles=read_names(environ, "PROFILES", PROFILES, PROFILES[:2]),
            halves=read_names(environ, "HALF", HALVES),
            settings=json.loads(environ.get("PROWESS_E2E_SETTINGS") or "{}"),
            max_tokens=int(environ.get("PROWESS_E2E_MAX_TOKENS") or 200),
        )
    except ValueError as error:
        print(f"make e2e: {error}", file=sys.stderr)
        return 2
    if not (environ.get("PROWESS_E2E_BASE_URL") or environ.get("PROWESS_E2E_GGUF")):
        _, _, variables = str(__doc__).partition("\n\n")
        print(f"*** make e2e: NOTHING WAS RUN: there is no model. ***\n\nTo run it, set:\n\n{variables}")
        return 0
    try:
        with open_place(environ) as place:
            print(f"model {place.model} at {place.root}: {', '.join(wanted.parts)}", flush=True)
            return asyncio.run(run(place, wanted))
    except (Failed, OSError, ProwessError) as error:
        print(f"FAIL  {error}")
        return 1


def read_names(environ: Mapping[str, str], name: str, known: Sequence[str], usual: Sequence[str] = ()) -> list[str]:
    """Reads names that commas separate. Without any, the usual ones."""
    names = [word for word in environ.get(f"PROWESS_E2E_{name}", "").split(",") if word]
    if unknown := [word for word in names if word not in known]:
        raise ValueError(f"PROWESS_E2E_{name}: {', '.join(unknown)} is none of {', '.join(known)}")
    return names or list(usual or known)


async def run(place: Place, wanted: Wanted) -> int:
    failed = 0
    if "wires" in wanted.parts:
        failed += await check_wires(place, wanted)
    async with contextlib.aclosing(open_model(place, wanted.wires[0], wanted.max_tokens)) as model:
        if "triggers" in wanted.parts:
            failed += await measure_triggers(model, wanted.profiles, wanted.halves, wanted.settings)
        if "tasks" in wanted.parts:
            failed += await measure_tasks(model, wanted.profiles, wanted.settings)
    return 1 if failed else 0


async def check_wires(place: Place, wanted: Wanted) -> int:
    wires, verdicts = wanted.wires, list[str]()
    for wire in wires:
        for name, check in CHECKS.items():
            model, begun = open_model(place, wire, wanted.max_tokens), time.monotonic()
            try:
                told, verdict = await check(model, place), "PASS"
            except NotHeld as error:
                told, verdict = str(error), "NOT HELD"
            except (Failed, ProwessError) as error:
                told, verdict = str(error), "FAIL"
            finally:
                await model.aclose()
            verdicts.append(verdict)
            print(f"{verdict:<10}{wire}: {name} ({time.monotonic() - begun:.1f} s): {told}", flush=True)
    passed, not_held, failed = (verdicts.count(verdict) for verdict in ("PASS", "NOT HELD", "FAIL"))
    print(f"\n{len(verdicts)} checks of {place.model} on {', '.join(wires)}: ", end="")
    print(f"{passed} passed, {not_held} not held by the server, {failed} failed.")
    return failed


def open_model(place: Place, wire: str, max_tokens: int) -> Speaker:
    params = {"max_tokens": max_tokens, "temperature": 0}
    if wire == "messages":
        return AnthropicModel(place.model, api_key=place.key, base_url=place.root, params=params)
    return OpenAIModel(place.model, api_key=place.key, base_url=f"{place.root}/v1", params={**params, "api": wire})


# --- the checks -------------------------------------------------------------------------------------------------------


async def streams(model: Speaker, place: Place) -> str:
    pieces: list[str] = []

    def listen(delta: TextDelta | CallDelta) -> None:
        pieces.append(delta.text if isinstance(delta, TextDelta) else "")

    reply = await ask(model, [system(RULES), user("Say in one sentence what you do.")], listen=listen)
    expect(reply.text.strip() != "", f"a text, not {reply!r}")
    expect("".join(pieces) == reply.text, "the pieces to make the whole")
    expect(len(pieces) > 2, f"several pieces, not {len(pieces)}")
    expect(reply.usage.input > 0 and reply.usage.output > 0, f"usage, not {reply.usage}")
    return f"{len(pieces)} pieces, {tokens(reply)}, finish {reply.finish}"


async def calls_a_tool(model: Speaker, place: Place) -> str:
    attempt, reply = await first_call(model)
    expect(isinstance(reply.calls[0].args.get("key"), str), f"an argument key, not {reply.calls[0].args}")
    return f"{reply.calls[0].tool}({json.dumps(reply.calls[0].args)}), {tokens(reply)}, attempt {attempt}"


async def answers_with_a_result(model: Speaker, place: Place) -> str:
    said = ""
    for attempt in range(1, ATTEMPTS + 1):
        _, first = await first_call(model)
        messages = [system(RULES), user(QUESTION), Message(role="assistant", parts=text(first), calls=first.calls)]
        messages += [
            Message(role="tool", call_id=call.id, parts=(Part(text=f"The value is {SECRET}."),)) for call in first.calls
        ]
        # A small model calls again and again while it can, so the last request offers it nothing to call.
        reply = await ask(model, messages, [LOOKUP])
        if reply.calls:
            reply = await ask(model, messages, [])
        if SECRET in reply.text:
            return f"{reply.text.strip()[:80]!r}, {tokens(reply)}, attempt {attempt}"
        said = reply.text
    raise Failed(f"expected {SECRET} in the answer, not {said[:200]!r}, in {ATTEMPTS} attempts")


async def fits_a_schema(model: Speaker, place: Place) -> str:
    """llama.cpp holds a reply to a schema on the chat wire alone."""
    said, is_chat = "", isinstance(model, OpenAIModel) and model.api == "chat"
    for attempt in range(1, ATTEMPTS + 1):
        reply = await ask(model, [user("Which colour has grass? Answer as a JSON object.")], schema=SCHEMA)
        said = reply.text
        with contextlib.suppress(ValueError):
            found = json.loads(said)
            if isinstance(found, dict) and found.get("colour") in ("red", "green", "blue") and len(found) == 1:
                return f"{json.dumps(found)}, attempt {attempt}"
    if place.is_file and not is_chat:
        raise NotHeld(f"llama.cpp does not hold a reply to a schema on this wire: {said[:80]!r}")
    raise Failed(f"expected a document that fits the schema, not {said[:200]!r}, in {ATTEMPTS} attempts")


async def reads_its_cache(model: Speaker, place: Place) -> str:
    """The same long beginning twice. A provider caches from about a thousand tokens on, llama.cpp everything."""
    rules = RULES if place.is_file else RULES + PADDING
    begin = [system(rules), user("Say one word.")]
    first = await ask(model, begin)
    again = [*begin, Message(role="assistant", parts=(Part(text=first.text or "Word."),)), user("And another one.")]
    second = await ask(model, again)
    expect(second.usage.cached > 0, f"cached tokens in the second request, not {second.usage}")
    return f"{second.usage.cached} of {second.usage.input} input tokens of the second request were cached"


async def uses_a_skill(model: Speaker, place: Place) -> str:
    """The whole agent: it is shown a catalog and has to load the one skill that fits. Whether it then answers with what
    only that skill's text says is told: a small model often goes on calling while it can."""
    said = ""
    for attempt in range(1, ATTEMPTS + 1):
        with tempfile.TemporaryDirectory() as folder:
            skill_dir(
                Path(folder),
                "garden-register",
                f"The value of the key garden is {SECRET}. Answer with this value, word for word. Call nothing else.\n",
                description="Knows the values of the garden register. Use it for every question about that register.",
            )
            skill_dir(Path(folder), "cooking", "Cook well.\n", description="Recipes and cooking times.")
            with open_runtime(
                cwd=folder, environ=os.environ, roots=[folder], flags={"store": "memory:", "tools.profile": "lean"}
            ) as runtime:
                async with runtime.open_session(model=model, limits=Limits(turns=6)) as session:
                    result = await session.run(
                        "Use a skill: what is the value of the key garden in the garden register?"
                    )
                    loaded = dict(session.kit.conversation.loads)
        said = f"{result.stop_reason}: {result.text[:200]!r}, loaded {', '.join(loaded) or 'nothing'}"
        if list(loaded) == ["explicit:garden-register"]:
            used, answered = (
                result.usage,
                "answered with its value" if SECRET in result.text else "did not answer with it",
            )
            told = f"{answered}, {used.requests} requests, {used.cached} of {used.input} tokens cached"
            return f"loaded the skill that fits, {told}, attempt {attempt}"
    raise Failed(f"expected the skill that fits to be loaded, not {said}, in {ATTEMPTS} attempts")


CHECKS: dict[str, Check] = {
    "streams": streams,
    "calls a tool": calls_a_tool,
    "answers with the result of a call": answers_with_a_result,
    "fits a schema": fits_a_schema,
    "reads its cache": reads_its_cache,
    "uses a skill": uses_a_skill,
}
QUESTION = "Use the tool lookup: what is the value of the key 'garden' in the register?"


async def first_call(model: Speaker) -> tuple[int, ModelReplied]:
    said = ""
    for attempt in range(1, ATTEMPTS + 1):
        reply = await ask(model, [system(RULES), user(QUESTION)], [LOOKUP])
        if reply.calls and reply.calls[0].tool == LOOKUP.name:
            expect(reply.finish == "calls", f"finish calls, not {reply.finish}")
            return attempt, reply
        said = reply.text
    raise Failed(f"expected a call of lookup, not {said[:200]!r}, in {ATTEMPTS} attempts")


async def ask(
    model: Speaker,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec] = (),
    *,
    listen: Callable[[TextDelta | CallDelta], None] | None = None,
    schema: Mapping[str, Any] | None = None,
) -> ModelReplied:
    """With one more attempt when that can help, as the loop does it."""
    try:
        return await model.reply(messages, tools, on_delta=listen, schema=schema)
    except ModelError as error:
        if not error.retryable:
            raise
        print(f"      once more after: {error}", flush=True)
        return await model.reply(messages, tools, on_delta=listen, schema=schema)


def system(said: str) -> Message:
    return Message(role="system", parts=(Part(text=said),))


def user(said: str) -> Message:
    return Message(role="user", parts=(Part(text=said),))


def text(reply: ModelReplied) -> tuple[Part, ...]:
    return (Part(text=reply.text),) if reply.text else ()


def tokens(reply: ModelReplied) -> str:
    return f"{reply.usage.input} tokens in, {reply.usage.output} out"


def expect(holds: bool, wanted: str) -> None:
    if not holds:
        raise Failed(f"expected {wanted}")


# --- the server -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_place(environ: Mapping[str, str]) -> Iterator[Place]:
    if address := environ.get("PROWESS_E2E_BASE_URL"):
        root = address.rstrip("/").removesuffix("/v1")
        yield Place(root, environ.get("PROWESS_E2E_MODEL") or "local", environ.get("PROWESS_E2E_KEY"), is_file=False)
        return
    python = environ.get("PROWESS_E2E_PYTHON") or sys.executable
    threads, template = environ.get("PROWESS_E2E_THREADS") or "2", environ.get("PROWESS_E2E_TEMPLATE") or ""
    command = [python, "-c", _SERVE, environ["PROWESS_E2E_GGUF"], threads, template]
    print(f"starting {environ['PROWESS_E2E_GGUF']} …", flush=True)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield Place(_listening(process), "local", None, is_file=True)
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listening(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("listening "):
            root = line.split()[1].rstrip("/")
            root = root if root.startswith("http") else f"http://{root}"
            _wait_until_loaded(root)
            return root
    raise Failed(f"the model could not be served: exit code {process.wait()} (is xllamacpp installed there?)")


def _wait_until_loaded(root: str) -> None:
    for _ in range(600):
        with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(f"{root}/health", timeout=5):
            return
        time.sleep(0.2)
    raise Failed(f"{root} did not load its model within two minutes")


if __name__ == "__main__":
    sys.exit(main(os.environ))
