"""Entry point of the command line: argv in, exit code out.

A command's module is imported when the command is called, so that `prowess list` imports only what list needs.

Exit codes: 0 fine · 1 findings or failure · 2 usage or configuration · 3 denied · 4 waiting for approval ·
130 interrupted · 143 terminated (of the commands for packs).
"""

from __future__ import annotations

import os
import sys

import prowess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

COMPLETING = "_PROWESS_COMPLETE"  # variable that a shell sets when it wants completions

# command -> (module, what it does). The only list of the commands.
COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("prowess.cli.commands.list", "Show every skill that was found, and its status."),
    "inspect": ("prowess.cli.commands.inspect", "Show everything about one skill, and why it is or is not visible."),
    "validate": ("prowess.cli.commands.validate", "Check skills against the specification and good practice."),
    "prompt": ("prowess.cli.commands.prompt", "Print exactly what a model is shown of the library."),
    "load": ("prowess.cli.commands.load", "Print what a model gets when it loads a skill."),
    "run": ("prowess.cli.commands.run", "Let a model do something with skills."),
    "chat": ("prowess.cli.commands.run", "Talk with a model that has skills."),
    "exec": ("prowess.cli.commands.exec", "Run a command of a skill in an isolated workspace."),
    "workspaces": (
        "prowess.cli.commands.workspaces",
        "Show and clean what sessions left on disk; build the container image.",
    ),
    "runs": ("prowess.cli.commands.runs", "Show, check, repeat, compare, export and remove the records of runs."),
    "sessions": ("prowess.cli.commands.sessions", "Show and remove what was said and done in sessions."),
    "projects": ("prowess.cli.commands.projects", "Show, adopt and remove the records that are kept of projects."),
    "artifacts": ("prowess.cli.commands.artifacts", "Show, read, save and remove the files that runs have saved."),
    "search": ("prowess.cli.commands.search", "Find skills by what they are for."),
    "doctor": ("prowess.cli.commands.doctor", "Explain what was found, repaired, shadowed, skipped and missing."),
    "tokens": ("prowess.cli.commands.tokens", "Count what skills cost in tokens."),
    "new": ("prowess.cli.commands.new", "Write a new skill from a template."),
    "init": ("prowess.cli.commands.init", "Make a folder a project: .agent/ with configuration and skills."),
    "install": ("prowess.cli.commands.install", "Install skills from a folder, an archive, a repository or a site."),
    "update": ("prowess.cli.commands.install", "Bring installed skills to the newest content of their sources."),
    "uninstall": ("prowess.cli.commands.uninstall", "Remove installed skills, and keep a backup."),
    "rollback": ("prowess.cli.commands.uninstall", "Return an installed skill to the version before."),
    "verify": ("prowess.cli.commands.verify", "Compare skills with the lock, or a pack with its manifest."),
    "pack": ("prowess.cli.commands.pack", "Write skills into one archive that others can install."),
    "eval": ("prowess.cli.commands.eval", "Run eval cases: did the right skill fire, did it help, did it get worse?"),
    "batch": ("prowess.cli.commands.eval", "Answer many requests, from a file into a file."),
    "evals": ("prowess.cli.commands.evals", "Write starter cases; show and compare eval runs."),
    "trust": ("prowess.cli.commands.trust", "Trust a folder or an address, show what is trusted, or take it back."),
    "approvals": (
        "prowess.cli.commands.approvals",
        "Answer questions that wait; show and take back what is approved for good.",
    ),
    "policy": ("prowess.cli.commands.policy", "Explain what policy says about a call, and which rule decided."),
    "config": ("prowess.cli.commands.config", "Show the configuration in force and where each value came from."),
    "schema": ("prowess.cli.commands.schema", "Print the JSON Schema of a document that Prowess reads or writes."),
    "completion": ("prowess.cli.commands.completion", "Print the script with which bash, zsh or fish completes words."),
    "read-properties": ("prowess.cli.commands.reference", "Print a skill's properties as the reference library does."),
    "to-prompt": ("prowess.cli.commands.reference", "Print the XML of some skills as the reference library does."),
}


def run_process() -> NoReturn:
    """Runs the command line of this process, and ends the process without freeing its objects one by one, which takes
    as long as `prowess list`. A process with another thread ends in the usual way, which waits for it."""
    code = main()
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() == 1:
        import atexit

        atexit._run_exitfuncs()
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            sys.exit(code)  # the interpreter tells that its output was lost
        os._exit(code)
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line, by default that of the process, and returns its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args == ["--version"]:
        sys.stdout.write(f"prowess {prowess.__version__}\n")
        return 0
    try:
        code = _run(args, is_process=argv is None)
    except KeyboardInterrupt:  # before the command began, or after it ended
        sys.stderr.write("Interrupted.\n")
        code = 130
    if code == 130 and argv is None:
        from prowess.cli.call import leave

        leave()
    return code


def _run(args: Sequence[str], *, is_process: bool) -> int:
    import gc

    gc.disable()  # imports make many objects that all stay; collecting meanwhile is wasted work
    if _is_plain_list(args):
        from prowess.cli.commands.list_json import run
    elif COMPLETING in os.environ:
        from prowess.cli.completion import run
    else:
        from prowess.cli.app import run
    gc.freeze()
    gc.enable()
    if is_process:
        gc.set_threshold(50_000)  # a catalog has many objects and no cycles: collecting takes longer than listing
        sys.unraisablehook = _tell_unless_interrupted
    return run(args)


def _is_plain_list(args: Sequence[str]) -> bool:
    """True for `list --json` with no other option than `--root DIR`. It needs no parser, whose import takes longer than
    listing a thousand skills."""
    if args[:2] == ["list", "--json"]:
        options = args[2:]
    elif args[:1] == ["list"] and args[-1] == "--json":
        options = args[1:-1]
    else:
        return False
    names = options[::2]
    roots = options[1::2]
    if len(names) != len(roots):
        return False
    if any(name != "--root" for name in names):
        return False
    return not any(root.startswith("-") for root in roots)


def _tell_unless_interrupted(told: sys.UnraisableHookArgs) -> None:
    """Keeps another Ctrl-C during clean-up from printing a traceback."""
    if not issubclass(told.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(told)
