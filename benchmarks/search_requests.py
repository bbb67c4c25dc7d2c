"""Skills and what people ask for when they need them, to measure search: all of it written for this purpose.

Each skill has a plain request, in words of its description and others, and a request in words that only its body has.
`make_others` adds skills: one in four shares their words, and the others are about products, as in public libraries.

The plain requests are harder than those that people typed for 2,000 public skills (docs/catalog.md): many share one
word with the description, or none. So the figures tell a better search from a worse one, not how good it is.
"""

from __future__ import annotations

import random
from typing import NamedTuple


class Wanted(NamedTuple):
    name: str
    description: str
    body: str
    request: str  # as people ask
    request_of_body: str  # about something that only the instructions mention


WANTED = [
    Wanted(*row)
    for row in [
        (
            "ledger-reconcile",
            "Compares bank statements with the accounting ledger and lists what does not match. Use at month end.",
            "Export the statement as CAMT or MT940. Duplicates, bounced direct debits and rounding are reported first.",
            "our bank statement and the books do not match this month, find the difference",
            "a bounced direct debit is missing somewhere",
        ),
        (
            "pr-review",
            "Reviews a pull request for bugs, missing tests and risky changes, and writes comments to act on.",
            "Look for race conditions, unchecked errors and off-by-one mistakes. Mark nitpicks as such.",
            "look over my changes before they are merged and tell me what could break",
            "is there a race condition in what I pushed",
        ),
        (
            "slide-maker",
            "Makes presentations from an outline: layouts, speaker notes, charts. Writes .pptx files.",
            "Each slide has one message. Use the corporate template, 16:9, and a font of 24 points at least.",
            "turn these bullet points into slides for Monday's meeting",
            "put it into our corporate template in 16:9",
        ),
        (
            "incident-timeline",
            "Builds the timeline of an outage from chat, alerts and deploy logs, for a post-mortem.",
            "Start with the first page of the on-call engineer. Note detection, mitigation and recovery times.",
            "write down what happened during yesterday's outage, minute by minute",
            "when did the on-call engineer start with the mitigation",
        ),
        (
            "recipe-scale",
            "Scales recipes to another number of guests and converts cups, ounces and grams.",
            "Leavening and salt do not scale linearly. Round eggs. Adjust the size of the tin and the oven time.",
            "I cook for twelve instead of four, how much of everything do I need",
            "how many eggs and which tin for a double batch",
        ),
        (
            "contract-redline",
            "Marks clauses of a contract that differ from house positions and proposes wording. For NDAs and MSAs.",
            "Check limitation of liability, indemnity, governing law and auto-renewal. Keep tracked changes on.",
            "which parts of this agreement should we push back on",
            "does it have an auto-renewal or an uncapped indemnity",
        ),
        (
            "k8s-debug",
            "Finds out why a workload on Kubernetes does not start: events, probes, images, quotas.",
            "CrashLoopBackOff: read the previous container's log. ImagePullBackOff: check the registry secret.",
            "my pods keep restarting and I have no idea why",
            "ImagePullBackOff after rotating the registry secret",
        ),
        (
            "survey-themes",
            "Groups free-text survey answers into themes with counts and quotations.",
            "Read all answers before naming a theme. Keep verbatims. Sentiment is a separate column.",
            "summarise what customers wrote in the open questions of our survey",
            "verbatims with sentiment for each theme",
        ),
        (
            "sql-tuning",
            "Explains slow database queries and proposes indexes. PostgreSQL, MySQL and SQLite.",
            "Run EXPLAIN ANALYZE. Sequential scans of large tables, nested loops and stale statistics come first.",
            "this database query takes forty seconds, make it fast",
            "there is a sequential scan with stale statistics",
        ),
        (
            "travel-claims",
            "Collects receipts of a business trip into an expense report with per diems and exchange rates.",
            "Photographs of receipts are fine. Mileage has its own rate. Alcohol is listed apart.",
            "I am back from Berlin and need to file my expenses",
            "what is the mileage rate for my own car",
        ),
        (
            "alt-text",
            "Writes descriptions of images for people who use screen readers.",
            "Decorative pictures get an empty attribute. Charts: say the trend, not the colours. WCAG 2.2.",
            "make the pictures on our page understandable for blind visitors",
            "we failed the WCAG check for decorative pictures",
        ),
        (
            "onboarding-plan",
            "Plans the first ninety days of a new colleague: goals, people to meet, things to read.",
            "Assign a buddy. Laptop, badge and accounts are ordered a week ahead. Check-ins at day 30 and 60.",
            "someone new joins the team next week, prepare their first months",
            "has anybody ordered the laptop and a badge",
        ),
        (
            "csv-clean",
            "Repairs messy CSV files: encodings, delimiters, duplicate rows, dates in several formats.",
            "Mojibake comes from Latin-1 read as UTF-8. Thousands separators differ by locale.",
            "this spreadsheet export is a mess, half of the dates are wrong",
            "mojibake in the customer column",
        ),
        (
            "threat-model",
            "Lists what an attacker could do to a system and which defences are missing. STRIDE.",
            "Draw trust boundaries and data flows first. Spoofing, tampering, repudiation, disclosure.",
            "how could somebody break into the service we are designing",
            "draw the trust boundaries and data flows",
        ),
        (
            "podcast-notes",
            "Writes show notes with chapters and links from the recording of an episode.",
            "Transcribe with speaker diarisation. Cut filler words. Timestamps every three minutes.",
            "write the notes for our latest episode from the audio",
            "diarisation of two speakers without filler words",
        ),
        (
            "price-watch",
            "Compares prices of competitors' web shops day by day and reports changes.",
            "Respect robots.txt. Use schema.org offers where there are some. Ignore bundles and vouchers.",
            "tell me when the competition gets cheaper than us",
            "does it respect robots.txt and skip vouchers",
        ),
        (
            "unit-convert",
            "Converts physical units exactly, with uncertainties. Length, mass, energy, pressure.",
            "Fahrenheit has an offset. A psi is 6894.757 Pa. Keep significant digits.",
            "how much is 35 pounds per square inch in metric",
            "is a reading in Fahrenheit handled with its offset",
        ),
        (
            "grant-writer",
            "Drafts funding applications for research: aims, impact, budget, work packages.",
            "Horizon Europe wants a Gantt chart and a data management plan. Overheads are 25 percent.",
            "we want to apply for research funding, start the application",
            "Gantt chart and data management plan for Horizon Europe",
        ),
        (
            "email-digest",
            "Sorts an inbox by urgency and drafts short replies in your voice.",
            "Newsletters are unsubscribed on request. Never send; leave drafts. Threads over ten mails get a summary.",
            "I have four hundred unread mails, what matters",
            "unsubscribe me from newsletters",
        ),
        (
            "iac-review",
            "Checks Terraform modules for cost, security and drift before they are applied.",
            "Public buckets, open security groups and missing tags are errors. Pin provider versions.",
            "is this Terraform safe to apply",
            "someone opened a security group to the world",
        ),
        (
            "lesson-plan",
            "Plans school lessons with goals, timing, exercises and homework for a given age.",
            "Differentiate for fast learners. Bloom's taxonomy. A warm-up of five minutes.",
            "I teach fractions to ten-year-olds tomorrow, plan the hour",
            "a warm-up with something for fast learners",
        ),
        (
            "log-triage",
            "Groups errors in server logs by cause and shows when each began.",
            "Strip request ids and addresses, then cluster stack traces. Compare with the release calendar.",
            "the log is full of errors since the release, what are the real problems",
            "cluster the stack traces",
        ),
        (
            "font-audit",
            "Finds which typefaces a document or site uses and whether their licences allow it.",
            "WOFF2 subsets count. Desktop licences do not cover embedding. Foundries differ.",
            "are we allowed to use these typefaces on our site",
            "desktop licence and WOFF2 embedding",
        ),
        (
            "energy-report",
            "Reads smart meter data and shows where electricity is wasted in a building.",
            "Base load at night, peaks at start-up. Compare with degree days. Photovoltaics are netted.",
            "why is our electricity bill so high",
            "night base load and degree days",
        ),
    ]
]

_TASKS = {
    "review": "Reviews {thing} for errors and risky changes before they are merged.",
    "report": "Makes a report with charts about {thing} for the meeting at month end.",
    "convert": "Converts {thing} between formats and repairs encodings and dates.",
    "plan": "Plans work on {thing}: goals, people, budget, first months.",
    "debug": "Finds out why {thing} do not start, restart or fail, from logs and events.",
    "summarise": "Summarises {thing} into notes with themes, quotations and links.",
    "compare": "Compares {thing} with last month and lists what does not match.",
    "audit": "Checks {thing} for security, cost and licences before they are applied.",
    "draft": "Drafts {thing} and short replies from an outline, in your voice.",
    "monitor": "Watches {thing} day by day and reports changes and outages.",
}
_THINGS = (
    "invoices contracts slides pictures recordings mails queries databases pods containers modules pipelines "
    "newsletters surveys recipes lessons trips receipts prices shops fonts meters buildings tests releases alerts "
    "applications grants colleagues teams pages sites documents tables spreadsheets statements budgets episodes "
    "customers tickets meetings threads services clusters dashboards schemas endpoints packages licences policies"
).split()
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeio"]
_SENTENCES = (
    "Ask for the file if there is none. Work in small steps and show each result before you go on.",
    "Read the whole input first. Keep the original. Write results to the output folder.",
    "If something is not clear, say so instead of guessing. Numbers come from the script, never from memory.",
    "Start with an overview, then go into details. Errors are listed with line and column.",
    "Use the template in references. Check the result against the list at the end.",
)


def make_others(chance: random.Random, count: int) -> list[tuple[str, str, str]]:
    """Rows of name, description and body."""
    others = []
    for number in range(count):
        task, thing, second = chance.choice(list(_TASKS)), chance.choice(_THINGS), chance.choice(_THINGS)
        description = f"{_TASKS[task].format(thing=thing)} Use when the user has {second}."
        words = " ".join(chance.sample(_THINGS, 12))
        if number % 4:
            thing, *made_up = ("".join(chance.choices(_SYLLABLES, k=3)) for _ in range(25))
            description = f"{thing.title()} {second}: {' '.join(made_up[:12])}. Use when the user works with {thing}."
            words = " ".join(made_up)
        body = f"# {thing} {task}\n\n{' '.join(chance.sample(_SENTENCES, 4))}\n\nSee also: {words}."
        others.append((f"{thing}-{task}-{number}", description, body))
    return others
