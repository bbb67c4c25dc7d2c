"""Severity, message, hint and reason of every finding code.

Parsing and scanning produce light `Note`s (code, line, details). `make_finding` turns a note into the `Finding` that a
person or a program reads. A code never changes its meaning. It has a folder under tests/fixtures/bad/ and a section in
docs/finding-codes.md.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from prowess.core.catalog_values import Finding, Severity


class Note(NamedTuple):
    """Finding without its path."""

    code: str
    line: int | None = None
    details: dict[str, Any] = {}  # noqa: RUF012 - never written to


class FindingRule(NamedTuple):
    stage: str  # place of the check: head | file | body | tree | library | url | trust | config | scan
    severity: Severity
    message: str
    hint: str
    why: str


def make_finding(note: Note, path: str, *, severity: Severity | None = None) -> Finding:
    """Makes the finding of a note. `severity` replaces that of its rule."""
    rule = RULES[note.code]
    message = _fill(rule.message, note.details)
    hint = _fill(rule.hint, note.details)
    return Finding(note.code, severity or rule.severity, path, message, note.line, hint)


def _fill(template: str, details: dict[str, Any]) -> str:
    def text(slot: re.Match[str]) -> str:
        value = details.get(slot[1], slot[0])
        if isinstance(value, (list, tuple)):
            value = ", ".join(map(str, value))
        return visible(str(value))

    return re.sub(r"\{(\w+)\}", text, template)


def visible(text: str) -> str:
    """Makes text from a skill safe to print: control and invisible characters are escaped, so that a terminal does not
    obey them."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text)


RULES: dict[str, FindingRule] = {
    # --- the head: front matter as YAML ---------------------------------------------------------------------------
    "no-front-matter": FindingRule(
        "head",
        "error",
        "The file does not begin with front matter.",
        "Put '---' on line 1, then name and description, then '---' on a line of its own.",
        "Without a name and a description an agent cannot know that the skill exists.",
    ),
    "front-matter-unclosed": FindingRule(
        "head",
        "error",
        "The front matter that begins on line 1 never ends.",
        "Add a line with only '---' after the last field.",
        "The end of the fields and the start of the instructions are unknown.",
    ),
    "head-not-utf8": FindingRule(
        "head",
        "error",
        "The front matter is not UTF-8 ({reason}).",
        "Save the file as UTF-8.",
        "With another encoding, a name or description reads differently on each machine.",
    ),
    "head-too-large": FindingRule(
        "head",
        "error",
        "The front matter is longer than {limit_bytes} bytes.",
        "Close it with '---', and move long text into the body.",
        "Discovery reads the front matter of every skill. Without a limit it would read whole files.",
    ),
    "yaml-invalid": FindingRule(
        "head",
        "error",
        "The front matter is not YAML and no description could be saved from it: {reason}.",
        "Quote values that contain ': ' or begin with a special character.",
        "A skill without a readable description cannot be shown.",
    ),
    "yaml-not-mapping": FindingRule(
        "head",
        "error",
        "The front matter is not a mapping: {reason}.",
        "Write it as 'key: value' lines.",
        "Fields are read by name.",
    ),
    "yaml-alias": FindingRule(
        "head",
        "error",
        "The front matter uses YAML anchors, aliases or tags, and no description could be saved from it: {reason}.",
        "Write the values out, or quote a value that begins with '&', '*' or '!'.",
        "Expanded aliases can turn a small file into a huge one, so we never expand them.",
    ),
    "yaml-too-deep": FindingRule(
        "head",
        "error",
        "The front matter is nested too deeply, and no description could be saved from it: {reason}.",
        "Keep fields flat.",
        "Deep nesting can crash a parser.",
    ),
    "yaml-repaired": FindingRule(
        "head",
        "warning",
        "The front matter is not valid YAML ({reason}); values on line {lines} were read as if they were quoted.",
        'Put these values in double quotes: description: "Use when: …".',
        "We load the skill. Other agents may drop it silently.",
    ),
    "yaml-salvaged": FindingRule(
        "head",
        "warning",
        "The front matter could not be read as YAML ({reason}); only {fields} were saved, and no tool is allowed.",
        "Repair the YAML: prowess validate shows the line.",
        "The unreadable part may have been a restriction, so the tool list counts as empty.",
    ),
    "yaml-comment-cut": FindingRule(
        "head",
        "warning",
        "YAML cuts the value of '{key}' at ' #': the rest of the line is a comment.",
        "Put the value in quotes if the '#' belongs to it.",
        "'Handles C # and F #' silently becomes 'Handles C'.",
    ),
    "duplicate-key": FindingRule(
        "head",
        "warning",
        "The key '{key}' occurs twice; the last one counts.",
        "Keep one.",
        "Parsers disagree about which one counts.",
    ),
    # --- the head: fields ------------------------------------------------------------------------------------------
    "name-missing": FindingRule(
        "head",
        "warning",
        "There is no name; the folder's name '{folder}' is used.",
        "Add: name: {folder}",
        "The specification requires a name; other agents drop the skill.",
    ),
    "name-invalid": FindingRule(
        "head",
        "warning",
        "The name '{name}' {problem}.",
        "Use 1 to 64 lower-case letters, digits and single hyphens, equal to the folder's name.",
        "Other agents drop such skills. 4 % of real skills have this.",
    ),
    "name-too-long": FindingRule(
        "head",
        "warning",
        "The name has {length} characters; the specification allows 64.",
        "Shorten the name and the folder.",
        "Other agents refuse longer names.",
    ),
    "name-mismatch": FindingRule(
        "head",
        "warning",
        "The name '{name}' is not the folder's name '{folder}'; the folder's name counts, both are understood.",
        "{remedy}",
        "A tenth of real skills have this, and several loaders drop them.",
    ),
    "name-not-portable": FindingRule(
        "head",
        "info",
        "The name '{name}' has letters beyond a-z and 0-9.",
        "Use ASCII if the skill should work with every agent.",
        "The reference library accepts them; most other tools do not.",
    ),
    "description-missing": FindingRule(
        "head",
        "error",
        "There is no description.",
        "Add: description: What it does. Use when …",
        "An agent decides by name and description alone.",
    ),
    "description-too-long": FindingRule(
        "head",
        "warning",
        "The description has {length} characters; the specification allows 1024.",
        "Move the details into the body.",
        "Some agents cut the description, some drop the skill. We show all of it.",
    ),
    "description-too-many-tokens": FindingRule(
        "body",
        "warning",
        "The skill takes about {tokens} tokens of every request that shows it; more than 100 crowd out other skills.",
        "Shorten the description: what it does, when to use it, what it is not for. Count with: prowess tokens",
        "Names and descriptions of all skills share one budget. Skills that do not fit are shown by name only.",
    ),
    "description-no-when": FindingRule(
        "head",
        "info",
        "The description does not say when to use the skill.",
        "Add a sentence such as: Use when the user asks for …",
        "Descriptions that say when are chosen far more often.",
    ),
    "compatibility-invalid": FindingRule(
        "head",
        "warning",
        "The field 'compatibility' {problem}.",
        "Use one text of 1 to 500 characters.",
        "The specification limits it.",
    ),
    "metadata-invalid": FindingRule(
        "head",
        "warning",
        "The field 'metadata' is not a map; nothing is read from it.",
        "Use a map of texts: metadata: {author: …, version: …}.",
        "A version or a role in it would have no effect.",
    ),
    "metadata-not-text": FindingRule(
        "head",
        "info",
        "The field 'metadata' has values that are not texts.",
        "Use a map of texts: metadata: {author: …, version: …}.",
        "The specification asks for a map from text to text. We keep the values unchanged.",
    ),
    "allowed-tools-invalid": FindingRule(
        "head",
        "warning",
        "The field 'allowed-tools' {problem}; it counts as an empty list, so no tool is allowed.",
        "Write one line: allowed-tools: Read Bash(git:*)",
        "The unreadable value may have been a restriction.",
    ),
    "allowed-tools-empty": FindingRule(
        "head",
        "info",
        "The field 'allowed-tools' is empty: the skill may use no tool.",
        "Name the tools, or remove the field.",
        "An empty list is a restriction too: it allows no tool.",
    ),
    "allowed-tools-unknown": FindingRule(
        "head",
        "warning",
        "These entries of 'allowed-tools' name no tool known here, or cannot be read, and allow nothing: {entries}.",
        "Correct them, or leave them for the agents that know them. The names: docs/permissions.md",
        "A misspelled tool stays forbidden.",
    ),
    "field-invalid": FindingRule(
        "head",
        "warning",
        "The field '{field}' {problem}.",
        "{remedy}",
        "The value cannot be used.",
    ),
    "field-misspelled": FindingRule(
        "head",
        "info",
        "The field '{field}' is read as '{meant}'.",
        "Write '{meant}'.",
        "Other agents ignore the misspelled field.",
    ),
    "field-unknown": FindingRule(
        "head",
        "info",
        "Fields outside the specification and our extensions are kept, and have no effect: {fields}.",
        "Put them under metadata if they are only information.",
        "Half of all real skills have such fields. They are no reason to drop a skill.",
    ),
    "angle-brackets": FindingRule(
        "head",
        "warning",
        "The field '{field}' contains '<' or '>'; they are escaped in what a model is shown.",
        "Write it without angle brackets.",
        "Some agents refuse them, because tags in a description can look like instructions.",
    ),
    "angle-brackets-refused": FindingRule(
        "head",
        "error",
        "The field '{field}' contains '<' or '>', which this configuration refuses.",
        "Write it without angle brackets, or unset security.block_angle_brackets_in_frontmatter.",
        "The configuration of this machine asks for it.",
    ),
    "invisible-characters": FindingRule(
        "head",
        "warning",
        "The {where} has invisible or direction-changing characters ({characters}); no model is shown them.",
        "Delete them. An editor that shows them helps.",
        "Invisible text can hide instructions from people.",
    ),
    # --- the file --------------------------------------------------------------------------------------------------
    "file-name-case": FindingRule(
        "file",
        "warning",
        "The file is called {found}; it should be SKILL.md.",
        "Rename it to SKILL.md.",
        "Most agents look for SKILL.md only.",
    ),
    "not-regular": FindingRule(
        "file",
        "error",
        "{kind} stands where SKILL.md should be; it was not opened.",
        "Replace it by a regular file.",
        "Opening a FIFO can block for ever, and opening a device can have side effects.",
    ),
    "file-outside": FindingRule(
        "file",
        "error",
        "{what} leads outside the skill's folder; it is not read.",
        "Copy the file into the skill.",
        "A link out of a skill could bring any file of this machine into a prompt.",
    ),
    "unreadable": FindingRule(
        "file",
        "error",
        "It cannot be read: {reason}.",
        "Check the permissions and that it still exists.",
        "Without this finding, an unreadable skill would just be missing.",
    ),
    "folder-name-bytes": FindingRule(
        "file",
        "warning",
        "The folder's name has bytes or characters that cannot be shown; it is shown as '{shown}'.",
        "Rename the folder.",
        "Nobody can type such a name.",
    ),
    # --- the body --------------------------------------------------------------------------------------------------
    "body-empty": FindingRule(
        "body",
        "warning",
        "There are no instructions below the front matter.",
        "Write what the agent should do, step by step.",
        "Loading the skill would give the agent no instructions.",
    ),
    "body-not-utf8": FindingRule(
        "body",
        "warning",
        "The body has bytes that are not UTF-8; they are shown as U+FFFD.",
        "Save the file as UTF-8.",
        "The model would not read the text that you wrote.",
    ),
    "body-too-long": FindingRule(
        "body",
        "warning",
        "The body has {lines} lines; more than 500 are hard to follow.",
        "Move details into references/ and say when to read each.",
        "The whole body enters the context each time the skill is loaded.",
    ),
    "body-too-many-tokens": FindingRule(
        "body",
        "warning",
        "The body takes about {tokens} tokens when it is loaded; more than 5000 crowd out the task.",
        "Move details into references/ and say when to read each.",
        "The whole body enters the context each time the skill is loaded.",
    ),
    "template-unedited": FindingRule(
        "body",
        "warning",
        "The skill still says what `prowess new` wrote.",
        "Change these lines of SKILL.md, or remove them: {lines}.",
        "A model that loads it is told what an author should write, and not what to do.",
    ),
    "body-too-large": FindingRule(
        "file",
        "error",
        "The file has more than {limit_bytes} bytes; it cannot be loaded.",
        "Move material into references/ or assets/.",
        "A body is always loaded whole, so its size is limited.",
    ),
    "body-over-limit": FindingRule(
        "body",
        "error",
        "The body has {lines} lines; this configuration refuses more than {limit}.",
        "Split it, or raise security.max_skill_body_lines.",
        "The configuration of this machine asks for it.",
    ),
    "reference-missing": FindingRule(
        "body",
        "warning",
        "The body refers to '{target}', which is not in the skill.",
        "Add the file or correct the path; paths are relative to the skill's folder.",
        "The agent will try to read it and fail.",
    ),
    "reference-deep": FindingRule(
        "body",
        "info",
        "'{target}' is reached only through '{via}'.",
        "Refer to it from SKILL.md as well.",
        "Agents often read only part of a file that another file mentions.",
    ),
    "absolute-path": FindingRule(
        "body",
        "warning",
        "The body uses the absolute path '{target}'.",
        "Use a path relative to the skill's folder.",
        "The path exists on your machine, but not where the skill runs.",
    ),
    # --- the tree --------------------------------------------------------------------------------------------------
    "script-no-interpreter": FindingRule(
        "tree",
        "warning",
        "'{target}' has neither a known extension nor a '#!' line.",
        "Begin it with '#!/usr/bin/env …', or give it an extension.",
        "Nothing says what should run it.",
    ),
    "script-not-executable": FindingRule(
        "tree",
        "info",
        "'{target}' has a '#!' line and no execute bit.",
        "chmod +x {target}",
        "We choose the interpreter, so it runs here. It may not run elsewhere.",
    ),
    "shipped-folder": FindingRule(
        "tree",
        "info",
        "The skill ships '{folder}', a name that leads to the workspace while it runs; look for it in _shipped/.",
        "Rename it.",
        "Scripts use out/, work/ and inputs/ relative to the skill's folder.",
    ),
    "special-file": FindingRule(
        "tree",
        "error",
        "'{target}' is {kind}; it is not part of the skill.",
        "Remove it.",
        "Only regular files can be packed and staged.",
    ),
    "too-many-files": FindingRule(
        "tree",
        "error",
        "The skill has more than {limit} files.",
        "Move what is not needed out of the skill, for instance a virtual environment.",
        "All of them are read for the digest.",
    ),
    "tree-too-large": FindingRule(
        "tree",
        "error",
        "The skill's files have more than {limit_bytes} bytes together.",
        "Move large data out of the skill.",
        "All of them are read for the digest.",
    ),
    "requires-missing": FindingRule(
        "tree",
        "warning",
        "This machine lacks what the skill requires: {missing}.",
        "Install or set it before you use the skill.",
        "A missing requirement should be noticed before the work starts.",
    ),
    # --- the library -----------------------------------------------------------------------------------------------
    "root-missing": FindingRule(
        "library",
        "warning",
        "The root does not exist.",
        "Create it, or correct the path.",
        "A configured root that does not exist is usually a typing mistake.",
    ),
    "root-not-folder": FindingRule(
        "library",
        "error",
        "The root is {kind}, not a folder.",
        "Give the folder that holds the skills.",
        "Nothing can be found in it.",
    ),
    "no-skill-here": FindingRule(
        "library",
        "error",
        "There is no SKILL.md here or below.",
        "Give the folder of a skill, or a folder that holds skills. See: prowess new",
        "A check of nothing must not look like a passed check.",
    ),
    "root-empty": FindingRule(
        "library",
        "warning",
        "There is no skill at this root.",
        "Check that it is the folder or archive you meant.",
        "A configured root without skills is usually a mistake.",
    ),
    "record-left": FindingRule(
        "config",
        "warning",
        "This record lies in the project folder and was not made by you here, so it is not used.",
        "Take its sessions over: {command}",
        "What a folder ships is never your own record: it could hold answers that you never gave.",
    ),
    "projects-gone": FindingRule(
        "config",
        "info",
        "The record of a project that has gone is still kept ({count}, {bytes} bytes).",
        "See: prowess projects list; remove them: prowess projects prune",
        "A record stays when its project is removed.",
    ),
    "environment-unknown": FindingRule(
        "config",
        "warning",
        "The environment variable {name} is set, and means nothing to Prowess.",
        "{remedy}",
        "A setting with a typing mistake in its name changes nothing.",
    ),
    "skill-nested": FindingRule(
        "library",
        "warning",
        "The file lies below the skill '{skill}', so it is part of that skill and not loaded as one.{more}",
        "Move its folder out of '{skill}', or load nested skills as well: --nested, or skills.nested = true.",
        "One SKILL.md at the top of a library would hide all the others.",
    ),
    "skipped-folder": FindingRule(
        "library",
        "info",
        "'{folder}' holds a SKILL.md, but folders of that name are not searched.",
        "Rename the folder if it is a skill of yours.",
        "Dependency and cache folders are skipped for speed and safety.",
    ),
    "depth-limit": FindingRule(
        "library",
        "warning",
        "Folders more than {limit} levels below the root were not searched, the first: {folder}.",
        "Move the skills up, or raise --max-depth.",
        "Without a limit, a wrong root could be searched for minutes.",
    ),
    "entry-limit": FindingRule(
        "library",
        "warning",
        "The search stopped after {limit} folder entries; what comes after {folder} was not seen.",
        "Point the root at the skills only, or raise --max-entries.",
        "Without a limit, a wrong root could be searched for minutes.",
    ),
    "locked-missing": FindingRule(
        "library",
        "warning",
        "Not installed here: {count} of skills.lock ({names}).",
        "Install what the lock says: prowess install",
        "A repository often has the lock of its skills, and not the skills.",
    ),
    "link-again": FindingRule(
        "library",
        "info",
        "The link leads to a folder that was searched already: {target}.",
        "Nothing to do. Remove the link if you do not want it.",
        "Each folder is searched once, so circular links are harmless.",
    ),
    "link-broken": FindingRule(
        "library",
        "warning",
        "The link leads nowhere: {target}.",
        "Remove it or restore its target.",
        "It may have been a skill.",
    ),
    "cache-corrupt": FindingRule(
        "library",
        "info",
        "A cache file was not usable: {reason}.",
        "Nothing to do. Caches can be deleted at any time.",
        "A broken cache must never change a result.",
    ),
    "cache-unwritable": FindingRule(
        "library",
        "info",
        "A cache could not be written ({reason}); everything works, more slowly.",
        "Set PROWESS_CACHE_DIR to a folder that can be written.",
        "The next start will read all skills again.",
    ),
    "mode-unmatched": FindingRule(
        "library",
        "warning",
        "The mode '{mode}' for '{pattern}' matches no skill.",
        "Correct the pattern under [skills.modes].",
        "A restriction that matches no skill has no effect.",
    ),
    "dependency-unmatched": FindingRule(
        "config",
        "warning",
        "The packages under [skills.dependencies] for '{pattern}' are for no skill: none here has such a name.",
        "{remedy}",
        "The scripts of the intended skill run without the packages.",
    ),
    # --- roots behind an address -----------------------------------------------------------------------------------
    "url-failed": FindingRule(
        "url",
        "error",
        "The address gave no skills: {reason}",
        "{remedy}",
        "Its skills are missing from the catalog.",
    ),
    "url-stale": FindingRule(
        "url",
        "warning",
        "The address could not be reached; the copy of {age} ago is used: {reason}",
        "{remedy}",
        "The copy may be out of date.",
    ),
    # --- trust and configuration -----------------------------------------------------------------------------------
    "trust-store-corrupt": FindingRule(
        "trust",
        "error",
        "The record of trusted folders cannot be read ({reason}); nothing is trusted.",
        "Repair or remove the file, or run 'prowess trust' again, which keeps a copy of it.",
        "A record that cannot be read must not grant anything.",
    ),
    "approvals-corrupt": FindingRule(
        "trust",
        "error",
        "The record of approvals cannot be read ({reason}); nothing is approved by it.",
        "Repair or remove the file, or answer 'always' again, which keeps a copy of it.",
        "A record that cannot be read must not approve anything.",
    ),
    "digest-denied": FindingRule(
        "trust",
        "error",
        "{policy} denies this content, under denied_digests.",
        "Use another version, or remove it. If you installed it: prowess uninstall {name}",
        "Content that a policy denies is neither installed, shown to a model, loaded nor run, whatever allows it.",
    ),
    "accepted-changed": FindingRule(
        "trust",
        "warning",
        "The skill changed since you accepted it, so models do not get it any more.",
        "See what changed: prowess verify {name}. Undo it: prowess install --force. Or trust the folder: prowess trust",
        "You accepted exactly the content that you were shown. An edit, by whomever, is content that nobody has seen.",
    ),
    "copy-differs": FindingRule(
        "trust",
        "error",
        "The copy of run {run} differs from the log: {why}.",
        "The log counts. Remove the copy, or write another one: prowess runs export {run} --to DIR",
        "People and programs read copies. One that was changed tells them what did not happen.",
    ),
    "config-ignored-untrusted": FindingRule(
        "config",
        "warning",
        "'{field}' is ignored, because {why}.",
        "Look at the file, then run: prowess trust",
        "Configuration from a folder that is not trusted may only restrict.",
    ),
    "config-not-in-use": FindingRule(
        "config",
        "warning",
        "'{field}' is set, but has no effect in this release.",
        "Do not rely on it yet.",
        "A restriction without effect is worse than none, because people rely on it.",
    ),
    "config-changed": FindingRule(
        "config",
        "warning",
        "The file changed since the folder was trusted; until it is trusted again it may only restrict.",
        "Look at the change, then run: prowess trust",
        "Trust belongs to the content of a file, not to its name.",
    ),
    "policy-ignored-untrusted": FindingRule(
        "config",
        "warning",
        "The policy of this folder, which is not trusted, is broken, and its rules are not in force: {reason}",
        "Mend or remove the file. In a folder that you trust, nothing runs until it is mended.",
        "A stranger's policy may restrict your work, but must not stop it. Your own broken policy must stop it.",
    ),
    "policy-allows-anything": FindingRule(
        "config",
        "warning",
        "Rule {number} of the policy allows {command}, and so every program that it starts.",
        "Name each program. If it starts other programs, name those too. Or use 'ask' instead.",
        "A rule that allows env, python3, a pattern or the whole tool allows every program. Only isolation limits it.",
    ),
    "policy-option-skipped": FindingRule(
        "config",
        "warning",
        "An option in a rule that asks or denies is skipped: '{command}' of rule {number} fits every '{rest}'.",
        "Write '{rest}'. To allow a harmless form, put a rule that allows it above this one.",
        "An option has many spellings (-rf, -fr, -r -f, --recursive), and a rule must not miss one.",
    ),
    "kit-not-closed": FindingRule(
        "config",
        "warning",
        "A SkillKit was closed, and its thread did not end within {seconds} s: work that was cancelled goes on.",
        "Let the store, executor and policy objects that you give to a kit end their work when it is cancelled.",
        "A thread that is left holds what it works with, and nobody else would say so.",
    ),
    # --- the security scan -----------------------------------------------------------------------------------------
    "scan-hidden-tags": FindingRule(
        "scan",
        "error",
        "The text contains Unicode tag characters, which spell hidden text: {text}.",
        "Delete them.",
        "People cannot see them, but models can read them.",
    ),
    "scan-pipe-to-shell": FindingRule(
        "scan",
        "error",
        "Something is downloaded and run at once: {text}.",
        "Ship the script in the skill, or pin it by its sha256.",
        "The owner of the address then controls the machine.",
    ),
    "scan-encoded-command": FindingRule(
        "scan",
        "error",
        "An encoded text is decoded and run: {text}.",
        "Write the command in the open.",
        "Encoding hides what will run.",
    ),
    "scan-secret": FindingRule(
        "scan",
        "error",
        "This looks like a {kind}.",
        "Remove it, revoke it, and declare the name of the secret under requires.env.",
        "Everybody who gets the skill gets the secret.",
    ),
    "scan-sensitive-path": FindingRule(
        "scan",
        "warning",
        "It reads a place where secrets are stored: {text}.",
        "Ask for exactly the file that is needed.",
        "Keys and passwords are stored there.",
    ),
    "scan-override": FindingRule(
        "scan",
        "warning",
        "A sentence tries to override instructions or to hide from the user: {text}.",
        "Say what the skill does; it needs no authority over the agent.",
        "Prompt injection looks like this.",
    ),
    "scan-command-in-prose": FindingRule(
        "scan",
        "warning",
        "A sentence names a command that downloads or decodes something and runs it: {text}.",
        "Remove it, or say plainly not to do it.",
        "A model that reads it may do it.",
    ),
    "scan-skipped": FindingRule(
        "scan",
        "info",
        "'{target}' has more than {limit_bytes} bytes and was not scanned.",
        "Look at it yourself, or ship it in parts.",
        "A file that was not scanned must not count as clean.",
    ),
    "scan-wide-tools": FindingRule(
        "scan",
        "warning",
        "'allowed-tools' asks for every command: {text}.",
        "Name the commands: Bash(git:*).",
        "A list that allows everything restricts nothing.",
    ),
}
