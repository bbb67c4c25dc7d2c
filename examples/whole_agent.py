"""The whole Python interface in one program: an agent with tools, files, events and a conversation; then a SkillKit.

No key is needed, because the replies of the model are written below. It prints:

    output   name='A-7' printed=148.4 computed=159.0
    file     invoice-check.json application/json True
    asked    pay 1590.0
    told     There are only 1000.00. Pay less.
    asked    pay 159.0
    told     Paid. 841.00 are left.
    chat     s-1 s-1
    catalog  api-style-guide invoice-check meeting-notes
    prompt   1 skill
    tools    skill_load skill_list_docs skill_select_docs skill_read skill_run
    call     True <skill_content name="meeting-notes" source="explicit">
    decide   ask
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import BaseModel

import prowess
from prowess.ports import Decision, ToolCall
from prowess.testing import ScriptedModel

SKILLS = Path(__file__).parent / "skills"
INVOICE = SKILLS / "invoice-check" / "evals" / "files" / "invoice.json"
POLICY = '[[rule]]\ntool = "skill_run"\ncommand = "python3 scripts/check_invoice.py"\nverdict = "allow"\n'
CHECK = "python3 scripts/check_invoice.py inputs/invoice.json"


class Invoice(BaseModel):
    name: str
    printed: float
    computed: float


@dataclass
class Account:
    balance: float


@prowess.tool(requires_approval=True)
def pay(amount: float, context: prowess.ToolContext[Account]) -> str:
    """Pays an amount of money."""
    account = context.deps
    if amount > account.balance:
        raise prowess.ToolRetry(f"There are only {account.balance:.2f}. Pay less.")  # the model may try again
    account.balance -= amount
    return f"Paid. {account.balance:.2f} are left."


def ask_me(call: ToolCall, decision: Decision) -> bool:
    print("asked   ", call.tool, call.args["amount"])
    return True


def calling(tool: str, **args: object) -> dict[str, Any]:
    return {"calls": [{"tool": tool, "args": args}]}


ANSWER = {"text": '{"name": "A-7", "printed": 148.4, "computed": 159}'}
CHECKING = [
    calling("skill_load", skill="invoice-check"),
    calling("skill_run", skill="invoice-check", command=CHECK),
    ANSWER,
]
PAYING = [calling("pay", amount=1590), calling("pay", amount=159), ANSWER]


def make_agent(folder: Path) -> prowess.Agent[Invoice]:
    policy = folder / "policy.toml"
    policy.write_text(POLICY, encoding="utf-8")
    return prowess.Agent(
        ScriptedModel([*CHECKING, *PAYING, ANSWER, ANSWER]),  # or a name, such as "openai:gpt-5"
        skills=[SKILLS, "builtin"],
        tools=[pay],
        instructions="You check invoices before they are paid.",
        policy=policy,
        approve=ask_me,
        executor="auto",
        store=f"sqlite:///{folder}/runs.db",
        limits=prowess.Limits(turns=20),
        output_type=Invoice,
        deps=Account(balance=1000),
    )


def check_invoice(agent: prowess.Agent[Invoice], folder: Path) -> None:
    result = agent.run_sync("Check invoice A-7.", files=[INVOICE], output_dir=folder / "out")
    print("output  ", result.output)  # an Invoice, validated
    file = result.files[0]
    copy = file.save(folder / "copy.json")
    is_same = copy.read_bytes() == file.read_bytes() == file.read_text().encode()
    print("file    ", file.path.name, file.mime_type, is_same and file.size_bytes > 0)


async def talk(agent: prowess.Agent[Invoice]) -> None:
    async for event in agent.stream("Pay it."):
        if event.type == "call_acted":
            print("told    ", event.to_dict()["outcome"]["content"])
    async with agent.session("s-1") as chat:  # the second request knows the first one
        results = [await chat.run("How much is A-7?"), await chat.run("And without tax?")]
    print("chat    ", *(result.session for result in results))


async def lend_skills() -> None:
    """Gives one of the skills to another agent: a text for its prompt, tools for its model, and `call`."""
    catalog = prowess.discover(SKILLS)
    print("catalog ", *sorted(entry.name for entry in catalog))
    kit = prowess.SkillKit(catalog.where(names=["meeting-*"]), executor="local", store="memory:", artifacts="memory:")
    async with kit, kit.session("conv-7", user="ann") as session:
        print("prompt  ", session.instructions.count("<skill>"), "skill")
        print("tools   ", *(tool.name for tool in session.tools))
        outcome = await session.call("skill_load", {"skill": "meeting-notes"})
        print("call    ", outcome.ok, outcome.content.splitlines()[2])
        decision = await session.decide("skill_run", {"skill": "meeting-notes", "command": "echo hello"})
        print("decide  ", decision.verdict)  # without a sandbox, a person is asked first


with TemporaryDirectory() as folder:
    agent = make_agent(Path(folder))
    check_invoice(agent, Path(folder))
    asyncio.run(talk(agent))
asyncio.run(lend_skills())
