"""Composition root: makes one Runtime from places, configuration and trust. Every surface uses it.

Nothing here decides anything; each part gets what it needs. The environment is an argument, so nothing below reads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import cached_property
from operator import is_
from typing import TYPE_CHECKING, Any
from zlib import crc32

from prowess._internal.json_file import file_signature
from prowess._internal.paths import inside, is_inside
from prowess.core.catalog_values import CatalogPlan, Finding, Trigger
from prowess.core.findings import Note, make_finding
from prowess.errors import ConfigError
from prowess.policy.trust import Trust, TrustFile, still_trusted
from prowess.runtime.config import Config, ConfigPlaces, LoadedConfig, find_places, load_config
from prowess.runtime.settings import DOCS, IN_USE
from prowess.skills.catalog import Catalog
from prowess.skills.discover import Library, changed_since_accepted
from prowess.skills.roots import default_roots, named_root
from prowess.skills.scanner import Bounds
from prowess.skills.skill import Entry, Root, Skill

if TYPE_CHECKING:
    from prowess._internal.tokens import TokenCounter
    from prowess.agent.session import Session
    from prowess.agent.toolkit import Toolkit
    from prowess.core.ports import ArtifactStore, Model
    from prowess.skills.catalog_budget import CatalogBudget


@contextmanager
def open_runtime(
    *,
    cwd: str,
    environ: Mapping[str, str],
    roots: Sequence[str] = (),
    config_file: str | None = None,
    without_files: bool = False,
    flags: Mapping[str, Any] | None = None,
    bounds: Bounds = Bounds(),
    more: Sequence[Any] = (),
) -> Iterator[Runtime]:
    """Reads the configuration, once. `roots` (flags) and `more` (skills made in code) replace the default places."""
    places = find_places(cwd, environ)
    file = TrustFile(places.state_dir)
    trust = file.current()
    loaded = load_config(
        places,
        environ,
        flags=flags,
        config_file=config_file,
        without_files=without_files,
        is_trusted=trust.trusts_folder,
        accepts=trust.accepts_file,
    )
    yield Runtime(places, loaded, file, roots, bounds, unknown_variables(environ), environ, more)


class Runtime:
    """Configuration, trust and skills of one call. The library is read at its first use."""

    def __init__(
        self,
        places: ConfigPlaces,
        loaded: LoadedConfig,
        trust: TrustFile,
        roots: Sequence[str],
        bounds: Bounds,
        findings: Sequence[Finding] = (),
        environ: Mapping[str, str] | None = None,
        more: Sequence[Any] = (),
    ) -> None:
        self.places, self.loaded, self._findings = places, loaded, tuple(findings)
        self.trust, self.trust_file = trust.current(), trust
        self._trusted: tuple[Trust, Trust] = (self.trust, self.trust)  # the file now, and our part of it
        self._restricted: tuple[tuple[Catalog, Trust, Mapping[str, str]], Catalog] | None = None
        self._denied: tuple[object, Mapping[str, str]] = (None, {})  # signatures of the policy files, denied digests
        self.environ: Mapping[str, str] = environ or {}
        self._roots, self._bounds, self._more = tuple(roots), bounds, tuple(more)
        self._planned: tuple[Catalog, CatalogPlan] | None = None

    @property
    def config(self) -> Config:
        return self.loaded.config

    @cached_property
    def library(self) -> Library:
        named = self._roots or not self._more  # with skills made in code, no default places
        roots = all_roots(self.places, self.loaded, self.trust, self._roots) if named else []
        return Library(
            [*roots, *self._more],
            modes=self.config.skills.modes,
            bounds=self.bounds,
            cache_dir=self.places.cache_dir,
            accepts=self.trust.accepts_url,
            accepted=self.trust.accepted_skills,
            refuse_angle_brackets=self.config.security.block_angle_brackets_in_frontmatter,
        )

    @property
    def bounds(self) -> Bounds:
        """Bounds of the search for skills, from flags or the configuration."""
        return self._bounds._replace(nested=self._bounds.nested or self.config.skills.nested)

    @property
    def still_trusted(self) -> Trust:
        """Trust from the start that was not revoked since: `trust` itself, as long as nothing was revoked."""
        now = self.trust_file.current()
        if now is not self._trusted[0]:
            self._trusted = (now, still_trusted(self.trust, now))
        return self._trusted[1]

    @property
    def trusts_project(self) -> bool:
        """True when the project was trusted at the start and still is."""
        loaded = self.loaded
        return loaded.for_this_call or (
            loaded.project_trusted and self.still_trusted.trusts_folder(self.places.project)
        )

    @property
    def trusted_config(self) -> Config:
        """Configuration without the settings that depend on revoked trust."""
        accepted = self.loaded.accepted
        if accepted is None or self.loaded.for_this_call or self.still_trusted is self.trust:
            return self.config
        holds = self.trusts_project and self.still_trusted.accepts_file(accepted.path, accepted.sha256)
        return self.config if holds else accepted.otherwise

    @property
    def catalog(self) -> Catalog:
        """Catalog of every skill. A revoked trust and a denied digest count from the next access on."""
        whole, trust, denied = now = (self.library.catalog, self.still_trusted, self.denied_digests)
        if trust is self.trust and not denied:
            return whole
        if self._restricted is None or not all(map(is_, now, self._restricted[0])):
            found = whole if trust is self.trust else whole.distrusting(self._find_taken_back(whole))
            if denied:
                from prowess.runtime.policy_files import note_denied

                found = note_denied(found, denied)
            self._restricted = (now, found)
        return self._restricted[1]

    @property
    def denied_digests(self) -> Mapping[str, str]:
        """Path of the policy by each digest that it denies. A broken policy is an error where a skill is loaded."""
        seen = tuple(map(file_signature, rule_paths(self)))
        if seen == self._denied[0]:
            return self._denied[1]
        found: Mapping[str, str] = {}
        if any(isinstance(each, tuple) for each in seen):  # an int says why there is no file
            from prowess.runtime.policy_files import find_denied_digests

            with suppress(ConfigError):
                found = find_denied_digests(self)
        self._denied = (seen, found)
        return found

    def _find_taken_back(self, catalog: Catalog) -> Callable[[Entry], bool]:
        """Returns a test for skills whose trust was revoked: their root, or the accepted content of their address."""
        from prowess._internal.urls import shown_url

        trust = self.still_trusted
        loaded = self.loaded._replace(config=self.trusted_config, project_trusted=self.trusts_project)
        roots = all_roots(self.places, loaded, trust, self._roots)
        places = {os.path.realpath(root.path) for root in roots if root.trusted and not root.url}
        lost = {record.url for record in self.trust.urls} - {record.url for record in trust.urls}
        urls = {shown_url(root.url) for root in roots if root.url} - {*map(shown_url, lost)}
        far = {os.path.realpath(root.path) for root in catalog.roots if root.url and root.url.partition("#")[0] in urls}
        began = {os.path.realpath(root.path) for root in catalog.roots if root.trusted}
        accepted, left = self.trust.accepted_skills, trust.accepted_skills

        def is_taken_back(entry: Entry) -> bool:
            if catalog.memory_skill(entry) is not None:
                return entry.id in lost
            if entry.root not in began:  # it was trusted for its content
                return entry.trusted and left.get(entry.real_path) != accepted.get(entry.real_path)
            return entry.trusted and entry.root not in places and entry.root not in far

        return is_taken_back

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings about trust and configuration, then about the library."""
        return (*self.setup_findings, *self._lock_findings(), *self.catalog.findings)

    def _lock_findings(self) -> list[Finding]:
        """Returns a finding when the project's lock has skills that are not installed, as after a clone."""
        agent = os.path.join(self.places.project, ".agent")
        lock = os.path.join(agent, "skills.lock")
        if self._roots or self._more or not os.path.isfile(lock):
            return []
        from prowess.skills.locked_names import read_locked_names

        there: set[str] = set()
        with suppress(OSError):
            there.update(os.listdir(os.path.join(agent, "skills")))
        missing = [name[:80] for name in read_locked_names(lock) if name not in there]
        if not missing:
            return []
        count = "1 skill" if len(missing) == 1 else f"{len(missing)} skills"
        names = [*missing[:5], *(["…"] if len(missing) > 5 else [])]
        return [make_finding(Note("locked-missing", None, {"count": count, "names": names}), lock)]

    @property
    def setup_findings(self) -> tuple[Finding, ...]:
        """Findings that are known before the library is read."""
        unused = [
            make_finding(Note("config-not-in-use", None, {"field": name}), origin)
            for name, origin in self.loaded.origins.items()
            if origin != "default" and name in DOCS and name not in IN_USE
        ]
        return (*self._findings, *self.trust.findings, *self.loaded.findings, *unused, *self._policy_findings())

    def _policy_findings(self) -> Sequence[Finding]:
        """Returns findings about the project's policy. A broken policy of a trusted folder is an error elsewhere."""
        if not os.path.lexists(os.path.join(self.places.project, ".agent", "policy.toml")):
            return ()
        from prowess.runtime.policy_files import find_problems

        return find_problems(self)

    def accepts(self, path: str, text: str) -> bool:
        """True when a file of the project is trusted with exactly this content."""
        from prowess._internal.digest import content_sha256

        if not self.trusts_project:
            return False
        return self.loaded.for_this_call or self.still_trusted.accepts_file(path, content_sha256(text.encode()))

    def open_kit(self, **options: Any) -> AbstractAsyncContextManager[Toolkit]:
        """Opens skills for an agent, with an executor, stores and policy behind them. See `KitOptions`."""
        from prowess.runtime.factories import KitOptions, open_kit

        return open_kit(self, KitOptions(**options))

    def open_session(self, **options: Any) -> AbstractAsyncContextManager[Session]:
        """Opens an agent with skills, and its conversation so far. See `SessionOptions`."""
        from prowess.runtime.factories import SessionOptions, open_session

        return open_session(self, SessionOptions(**options))

    def current_plan(self, budget_tokens: int) -> CatalogPlan:
        """Returns the plan that the model is shown now. Planned once per catalog, because every turn asks for it."""
        planned = self._planned
        if planned is None or planned[0] is not self.catalog or planned[1].tokens.budget != budget_tokens:
            self._planned = planned = (self.catalog, self.plan(budget_tokens=budget_tokens))
        return planned[1]

    def budget(self, model: Model | None = None) -> CatalogBudget:
        """Returns the tokens for the catalog: the setting, else a share of the window of this or the configured model.

        A recording keeps the budget that it was made with.
        """
        from prowess.core.ports import describe_model
        from prowess.models.model_info import configured_window
        from prowess.skills.catalog_budget import CatalogBudget, find_budget

        config = self.config
        if config.skills.budget is not None:
            return CatalogBudget(config.skills.budget, f"skills.budget, {self.loaded.origins['skills.budget']}")
        if model is not None:
            info = describe_model(model)
            if info.catalog_tokens is not None:
                return CatalogBudget(info.catalog_tokens, "as it was recorded")
            return find_budget(model.name, info.context_tokens)
        name = config.model.provider or "offline"
        return find_budget(name, configured_window(name, config.model.params))

    def offer(self, plan: CatalogPlan) -> CatalogPlan:
        """Returns the plan without the skills that policy files deny: the catalog that a model really sees."""
        from prowess.agent.prompt import plan_offer
        from prowess.runtime.policy_files import find_surroundings, load_rules

        return plan_offer(self.catalog, plan, find_surroundings(self.config), load_rules(self))

    def open_artifacts(self) -> ArtifactStore | None:
        """Opens the store that `artifacts` names: a folder, a bucket, `memory:` or `none`.

        Unset: the project's folder, else the user's, whatever the store is.
        """
        from prowess._internal.state_folder import artifacts_folder, ensure_ignored, state_folder
        from prowess.stores.artifacts import FolderArtifacts, MemoryArtifacts

        wanted, places = self.config.artifacts, self.places
        if wanted is None:
            folder = state_folder(places.project, places.state_dir)
            if folder == places.state_dir:
                return FolderArtifacts(os.path.join(folder, "artifacts"))
            # A project can contain links; they must not decide where we write.
            return FolderArtifacts(inside(places.project, ".agent/artifacts"), prepare=lambda: ensure_ignored(folder))
        if wanted == "none":
            return None
        if wanted == "memory:":
            return MemoryArtifacts()
        if wanted.startswith(("s3://", "gs://", "az://")):
            from prowess.stores.object_artifacts import ObjectArtifacts

            return ObjectArtifacts(wanted, environ=self.environ)
        of_user = self.loaded.origins["artifacts"].startswith(places.state_dir + os.sep)
        return FolderArtifacts(artifacts_folder(wanted, places.home if of_user else places.project, places.home))

    def plan(self, *, budget_tokens: int | None = None, counter: TokenCounter | None = None) -> CatalogPlan:
        from prowess.skills.catalog_budget import plan_catalog

        budget = self.budget().tokens if budget_tokens is None else budget_tokens
        if counter is None:
            return plan_catalog(self.catalog, budget_tokens=budget)
        return plan_catalog(self.catalog, budget_tokens=budget, count=counter, exact=counter.exact)

    def load(self, ref: str, *, source: str | None = None, trigger: Trigger = "caller") -> Skill:
        from prowess.skills.load import load

        limit = self.config.security.max_skill_body_lines
        skill = self.check_digest(load(self.catalog, ref, source=source, trigger=trigger, max_body_lines=limit))
        self.catalog.allow(skill.entry, trigger=trigger)  # its content may have changed since the catalog was read
        return skill

    def check_digest(self, skill: Skill) -> Skill:
        """Returns a loaded skill. Refuses content that policy denies, and distrusts content that nobody accepted."""
        from prowess.runtime.policy_files import find_denied_digests, if_denied

        denied = if_denied(skill.entry, skill.digest, find_denied_digests(self))
        if denied is not skill.entry:
            self.catalog.allow(denied)
        accepted = self.trust.accepted_skills.get(skill.entry.real_path)
        roots = {os.path.realpath(root.path) for root in self.catalog.roots if root.trusted}
        if not accepted or accepted == skill.digest or skill.entry.root in roots:
            return skill
        return skill._replace(entry=changed_since_accepted(skill.entry))

    def load_entry(self, entry: Entry) -> Skill:
        """Loads a skill of the catalog without a permission check."""
        from prowess.skills.load import load_entry

        return self.catalog.memory_skill(entry) or load_entry(entry)

    def search(
        self, query: str, *, limit: int = 10, keep: Callable[[Entry], bool] | None = None
    ) -> tuple[list[tuple[Entry, float]], list[Finding]]:
        """Returns hits among the skills the model may see (or `keep` keeps), best first, from an index per project."""
        from prowess.skills.search import search_catalog

        key = f"{crc32(self.places.project.encode('utf-8', 'surrogateescape')):08x}{'-all' if keep else ''}"
        path = os.path.join(self.places.cache_dir, "search", f"{key}.db")
        results, note = search_catalog(self.catalog, query, limit=limit, path=path, keep=keep)
        if note and os.path.isfile(path):
            os.unlink(path)  # it is our own cache: the next search makes it again
            note = "the search index was damaged and is made anew"
        return results, [make_finding(Note("cache-corrupt", None, {"reason": note.rstrip(".")}), path)] if note else []


SYSTEM_POLICY = "/etc/prowess/policy.toml"


def rule_paths(runtime: Runtime) -> list[str]:
    """Returns the paths of the policy files. The managed file is first: the path of the variable, else the system's."""
    managed = runtime.environ.get("PROWESS_MANAGED_POLICY") or SYSTEM_POLICY
    return [managed, os.path.join(runtime.places.project, ".agent", "policy.toml")]


def check_model(name: str | None) -> None:
    """Raises ConfigError when the name, such as `openai:gpt-5`, means no model. None means the configured one."""
    from prowess.models.registry import check_spec

    check_spec(name)


VARIABLES = (
    "PROWESS_CACHE_DIR",
    "PROWESS_HOME",
    "PROWESS_MANAGED_POLICY",
    "PROWESS_RUN_ALLOWED_COMMANDS",
    "PROWESS_RUN_DENIED_COMMANDS",
    "PROWESS_SKILLS_ROOT",
    "PROWESS_TRUST",
    "PROWESS_WORKSPACE_DIR",
)


OLDER_NAMES = (
    "SKILLS_CACHE_DIR",
    "SKILLS_ROOT",
    "TRPC_AGENT_SKILL_RUN_ALLOWED_COMMANDS",
    "TRPC_AGENT_SKILL_RUN_DENIED_COMMANDS",
)


def unknown_variables(environ: Mapping[str, str]) -> list[Finding]:
    """Returns findings for variables that look like ours but are not: most likely a typing mistake."""
    unknown = [name for name in environ if name.startswith("PROWESS_") and name not in VARIABLES]
    if not unknown:
        return []
    import difflib

    found = []
    for name in sorted(unknown):
        near = difflib.get_close_matches(name, VARIABLES, n=1)
        remedy = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(VARIABLES)}"
        found.append(make_finding(Note("environment-unknown", None, {"name": name, "remedy": remedy}), name))
    return found


def all_roots(places: ConfigPlaces, loaded: LoadedConfig, trust: Trust, flags: Sequence[str]) -> list[Root]:
    """Returns the roots from flags, the environment and the configuration, or the default ones, in that order."""

    def trusts(folder: str) -> bool:
        in_project = is_inside(os.path.realpath(places.project), os.path.realpath(folder))
        return (loaded.project_trusted and in_project) or trust.trusts_folder(folder)

    found = [named_root(place, origin="flag", base=places.cwd, home=places.home) for place in flags]
    found += [
        named_root(place, origin="environment", base=places.cwd, home=places.home) for place in loaded.extra_roots
    ]
    if flags:
        return found
    if loaded.config.skill_roots is not None:
        return found + [
            named_root(
                place,
                origin="configuration",
                base=places.project,
                home=places.home,
                project=places.project,
                trusts=trusts,
                by_location=True,
            )
            for place in loaded.config.skill_roots
        ]
    top = places.git_root or places.project
    return found + default_roots(cwd=places.cwd, top=top, home=places.home, trusts=trusts)
