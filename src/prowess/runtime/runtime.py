"""Composition root: makes one Runtime from places, configuration and trust. Every surface uses it.

Nothing here decides anything; each part gets what it needs. The environment is an argument, so nothing below reads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from prowess._internal.files import file_signature
from prowess.core.catalog_values import CatalogPlan, Finding, Trigger
from prowess.core.findings import Note, make_finding
from prowess.errors import ConfigError
from prowess.policy.trust import Trust, TrustFile, still_trusted
from prowess.runtime.config import (
    Config,
    ConfigPlaces,
    LoadedConfig,
    find_places,
    load_config,
    own_config_folder,
    unknown_variables,
)
from prowess.runtime.default_places import all_roots
from prowess.runtime.library import Library
from prowess.runtime.settings import DOCS, IN_USE
from prowess.skills.catalog import Catalog
from prowess.skills.discover import changed_since_accepted
from prowess.skills.scanner import Bounds
from prowess.skills.skill import Entry, Root, RootReport, Skill

if TYPE_CHECKING:
    from typing import Unpack

    from prowess._internal.tokens import TokenCounter
    from prowess.agent.session import Session
    from prowess.agent.toolkit import Toolkit
    from prowess.core.ports import ArtifactStore, Model
    from prowess.runtime.factories import KitKeywords, SessionKeywords
    from prowess.runtime.library import KnownPlace
    from prowess.skills.render import CatalogBudget


@contextmanager
def open_runtime(
    *,
    cwd: str,
    environ: Mapping[str, str],
    roots: Sequence[str] = (),
    config_file: str | None = None,
    without_files: bool = False,
    flags: Mapping[str, object] | None = None,
    bounds: Bounds = Bounds(),
    skills: Sequence[KnownPlace] | None = None,
    policy_files: Sequence[str] = (),
) -> Iterator[Runtime]:
    """Reads the configuration, once. `roots` (flags) replace the default places, and so do `skills`, even if empty.
    `policy_files` hold besides the managed and the project's policy."""
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
    findings = unknown_variables(environ)
    yield Runtime(places, loaded, file, roots, bounds, findings, environ, skills, policy_files)


class _RestrictedCatalog(NamedTuple):
    """Catalog without what is not trusted or denied, and what it was made from."""

    whole: Catalog
    trust: Trust
    denied: Mapping[str, str]
    catalog: Catalog


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
        skills: Sequence[KnownPlace] | None = None,
        policy_files: Sequence[str] = (),
    ) -> None:
        self.places = places
        self.policy_files: tuple[str, ...] = tuple(policy_files)  # that a program named, and so trusts
        self.loaded = loaded
        self.trust_file = trust
        self.trust: Trust = trust.current()
        self.environ: Mapping[str, str] = environ or {}
        self._findings = tuple(findings)
        self._roots = tuple(roots)
        self._bounds = bounds
        self._skills = skills
        self._trusted: tuple[Trust, Trust] = (self.trust, self.trust)  # the file now, and our part of it
        self._restricted: _RestrictedCatalog | None = None
        self._denied: tuple[object, Mapping[str, str]] = (None, {})  # signatures of the policy files, denied digests
        self._planned: tuple[Catalog, CatalogPlan] | None = None

    @property
    def config(self) -> Config:
        return self.loaded.config

    @cached_property
    def library(self) -> Library:
        config = self.config
        return Library(
            self._find_skills(self.loaded, self.trust),
            modes=config.skills.modes,
            bounds=self.bounds,
            cache_dir=self.places.cache_dir,
            accepts=self.trust.accepts_url,
            accepted=self.trust.accepted_skills,
            refuse_angle_brackets=config.security.block_angle_brackets_in_frontmatter,
        )

    def describe_skills(self) -> str:
        """Returns `, skills=3`, or nothing as long as nobody has read them."""
        return f", skills={len(self.library.catalog)}" if "library" in vars(self) else ""

    def _find_skills(self, loaded: LoadedConfig, trust: Trust) -> list[KnownPlace]:
        """Returns the places of skills under this configuration and trust."""
        default = partial(all_roots, self.places, loaded, trust)
        if self._skills is None:
            return [*default(self._roots)]
        found: list[KnownPlace] = []
        for place in self._skills:
            found += default(()) if place == "default" else [place]
        return found

    @property
    def bounds(self) -> Bounds:
        """Bounds of the search for skills, from flags or the configuration."""
        nested = self._bounds.nested or self.config.skills.nested
        return self._bounds._replace(nested=nested)

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
        if self.loaded.for_this_call:
            return True
        return self.loaded.project_trusted and self.still_trusted.trusts_folder(self.places.project)

    @property
    def trusted_config(self) -> Config:
        """Configuration without the settings that depend on revoked trust."""
        accepted = self.loaded.accepted
        if accepted is None or self.loaded.for_this_call:
            return self.config
        trust = self.still_trusted
        if trust is self.trust:
            return self.config
        if self.trusts_project and trust.accepts_file(accepted.path, accepted.sha256):
            return self.config
        return accepted.otherwise

    @property
    def catalog(self) -> Catalog:
        """Catalog of every skill. A revoked trust and a denied digest count from the next access on."""
        whole = self.library.catalog
        trust = self.still_trusted
        denied = self.denied_digests
        if trust is self.trust and not denied:
            return whole
        made = self._restricted
        if made is None or made.whole is not whole or made.trust is not trust or made.denied is not denied:
            made = self._restricted = _RestrictedCatalog(whole, trust, denied, self._restrict(whole, trust, denied))
        return made.catalog

    def _restrict(self, catalog: Catalog, trust: Trust, denied: Mapping[str, str]) -> Catalog:
        if trust is not self.trust:
            catalog = catalog.distrusting(self._find_taken_back(catalog))
        if not denied:
            return catalog
        from prowess.runtime.policy_files import note_denied

        return note_denied(catalog, denied)

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
        trust = self.still_trusted
        loaded = self.loaded._replace(config=self.trusted_config, project_trusted=self.trusts_project)
        roots = [place for place in self._find_skills(loaded, trust) if isinstance(place, Root)]
        own = [place for place in self._find_skills(self.loaded, self.trust) if isinstance(place, Root)]
        ours = {_shown_url(root.url) if root.url else os.path.realpath(root.path) for root in own}
        lost = {record.url for record in self.trust.urls}
        lost.difference_update(record.url for record in trust.urls)
        urls = {_shown_url(root.url) for root in roots if root.url}
        urls.difference_update(map(_shown_url, lost))
        trusted = {os.path.realpath(root.path) for root in roots if root.trusted and not root.url}
        began: set[str] = set()
        for root in catalog.roots:
            path = os.path.realpath(root.path)
            if root.trusted:
                began.add(path)
            place = root.url.partition("#")[0] if root.url else path
            is_given = place not in ours  # it came with a catalog
            if place in urls or (is_given and self._is_left(root, lost)):
                trusted.add(path)
        accepted = self.trust.accepted_skills
        left = trust.accepted_skills

        def is_taken_back(entry: Entry) -> bool:
            if catalog.memory_skill(entry) is not None:
                return entry.id in lost
            if not entry.trusted:
                return False
            if entry.root in began:
                return entry.root not in trusted
            path = entry.real_path  # it was trusted for its content
            return left.get(path) != accepted.get(path)

        return is_taken_back

    def _is_left(self, root: RootReport, lost: Collection[str]) -> bool:
        """True while no trust was revoked that the root of a given catalog had. `lost` are addresses."""
        if root.url:
            return root.url.partition("#")[0] not in map(_shown_url, lost)
        had_trust = root.source == "project" and self.trust.trusts_folder(root.path)
        return not had_trust or self.still_trusted.trusts_folder(root.path)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings about trust and configuration, then about the library."""
        return (*self.setup_findings, *self._lock_findings(), *self.catalog.findings)

    def _lock_findings(self) -> list[Finding]:
        """Returns a finding when the project's lock has skills that are not installed, as after a clone."""
        agent = os.path.join(self.places.project, ".agent")
        lock = os.path.join(agent, "skills.lock")
        given = self._roots if self._skills is None else self._skills
        is_default = "default" in given or (self._skills is None and not self._roots)
        if not is_default or not os.path.isfile(lock):
            return []
        from prowess.skills.locked_names import read_locked_names

        there: set[str] = set()
        with suppress(OSError):
            there.update(os.listdir(os.path.join(agent, "skills")))
        missing = [name[:80] for name in read_locked_names(lock) if name not in there]
        if not missing:
            return []
        count = "1 skill" if len(missing) == 1 else f"{len(missing)} skills"
        names = missing[:5]
        if len(missing) > 5:
            names.append("…")
        note = Note("locked-missing", None, {"count": count, "names": names})
        return [make_finding(note, lock)]

    @property
    def setup_findings(self) -> tuple[Finding, ...]:
        """Findings that are known before the library is read."""
        unused: list[Finding] = []
        for name, origin in self.loaded.origins.items():
            if origin != "default" and name in DOCS and name not in IN_USE:
                note = Note("config-not-in-use", None, {"field": name})
                unused.append(make_finding(note, origin))
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
        if self.loaded.for_this_call:
            return True
        sha256 = content_sha256(text.encode())
        return self.still_trusted.accepts_file(path, sha256)

    def open_kit(self, **options: Unpack[KitKeywords]) -> AbstractAsyncContextManager[Toolkit]:
        """Opens skills for an agent, with an executor, stores and policy behind them. See `KitOptions`."""
        from prowess.runtime.factories import KitOptions, open_kit

        return open_kit(self, KitOptions(**options))

    def open_session(self, **options: Unpack[SessionKeywords]) -> AbstractAsyncContextManager[Session]:
        """Opens an agent with skills, and its conversation so far. See `SessionOptions`."""
        from prowess.runtime.factories import SessionOptions, open_session

        return open_session(self, SessionOptions(**options))

    async def check_model(self, **options: Unpack[SessionKeywords]) -> None:
        """Raises the error with which `open_session` would fail because of its model."""
        from prowess.runtime.factories import SessionOptions, check_model

        await check_model(self, SessionOptions(**options))

    def current_plan(self, budget_tokens: int) -> CatalogPlan:
        """Returns the plan that the model is shown now. Planned once per catalog, because every turn asks for it."""
        catalog = self.catalog
        if self._planned is not None:
            planned, plan = self._planned
            if planned is catalog and plan.tokens.budget == budget_tokens:
                return plan
        plan = self.plan(budget_tokens=budget_tokens)
        self._planned = (catalog, plan)
        return plan

    def budget(self, model: Model | None = None) -> CatalogBudget:
        """Returns the tokens for the catalog: the setting, else a share of the window of this or the configured model.

        A recording keeps the budget that it was made with.
        """
        from prowess.core.values import describe_model
        from prowess.models.model_info import configured_window
        from prowess.skills.render import CatalogBudget, find_budget

        config = self.config
        if config.skills.budget is not None:
            origin = self.loaded.origins["skills.budget"]
            return CatalogBudget(config.skills.budget, f"skills.budget, {origin}")
        if model is not None:
            info = describe_model(model)
            if info.catalog_tokens is not None:
                return CatalogBudget(info.catalog_tokens, "as it was recorded")
            return find_budget(model.name, info.context_tokens)
        name = config.model.provider or "offline"
        window = configured_window(name, config.model.params)
        return find_budget(name, window)

    def offer(self, plan: CatalogPlan) -> CatalogPlan:
        """Returns the plan without the skills that policy files deny: the catalog that a model really sees."""
        from prowess.agent.prompt import plan_offer
        from prowess.runtime.policy_files import find_surroundings, load_rules

        context = find_surroundings(self.config)
        return plan_offer(self.catalog, plan, context, load_rules(self))

    def open_artifacts(self) -> ArtifactStore | None:
        """Opens the store that `artifacts` names: a folder, a bucket, `memory:` or `none`.

        Unset: a folder of the project's state, whatever the store is.
        """
        from prowess._internal.state_folder import artifacts_folder
        from prowess.runtime.project_state import ARTIFACTS, make_state, state_path
        from prowess.stores.artifacts import FolderArtifacts

        wanted, places = self.config.artifacts, self.places
        if wanted is None:
            path = os.path.join(state_path(places), ARTIFACTS)
            return FolderArtifacts(path, prepare=partial(make_state, places))
        if wanted == "none":
            return None
        if wanted == "memory:":
            from prowess.stores.memory import MemoryArtifacts

            return MemoryArtifacts()
        if wanted.startswith(("s3://", "gs://", "az://")):
            from prowess.stores.object_artifacts import ObjectArtifacts

            return ObjectArtifacts(wanted, environ=self.environ)
        of_user = self.loaded.origins["artifacts"].startswith(own_config_folder(places) + os.sep)
        base = places.home if of_user else places.project
        return FolderArtifacts(artifacts_folder(wanted, base, places.home))

    def plan(self, *, budget_tokens: int | None = None, counter: TokenCounter | None = None) -> CatalogPlan:
        from prowess.skills.render import plan_catalog

        budget = self.budget().tokens if budget_tokens is None else budget_tokens
        if counter is None:
            return plan_catalog(self.catalog, budget_tokens=budget)
        return plan_catalog(self.catalog, budget_tokens=budget, count=counter, exact=counter.exact)

    def load(self, ref: str, *, source: str | None = None, trigger: Trigger = "caller") -> Skill:
        from prowess.skills.load import load

        limit = self.config.security.max_skill_body_lines
        skill = load(self.catalog, ref, source=source, trigger=trigger, max_body_lines=limit)
        skill = self.check_digest(skill)
        self.catalog.allow(skill.entry, trigger=trigger)  # its content may have changed since the catalog was read
        return skill

    def check_digest(self, skill: Skill) -> Skill:
        """Returns a loaded skill. Refuses content that policy denies, and distrusts content that nobody accepted."""
        from prowess.runtime.policy_files import find_denied_digests, if_denied

        entry = skill.entry
        denied = if_denied(entry, skill.digest, find_denied_digests(self))
        if denied is not entry:
            self.catalog.allow(denied)
        accepted = self.trust.accepted_skills.get(entry.real_path)
        if not accepted or accepted == skill.digest:
            return skill
        trusted = {os.path.realpath(root.path) for root in self.catalog.roots if root.trusted}
        if entry.root in trusted:
            return skill
        return skill._replace(entry=changed_since_accepted(entry))

    def load_entry(self, entry: Entry) -> Skill:
        """Loads a skill of the catalog without a permission check."""
        from prowess.skills.load import load_entry

        return self.catalog.memory_skill(entry) or load_entry(entry)

    def search(
        self, query: str, *, limit: int = 10, keep: Callable[[Entry], bool] | None = None
    ) -> tuple[list[tuple[Entry, float]], list[Finding]]:
        """Returns hits among the skills the model may see (or `keep` keeps), best first, from an index per project."""
        from prowess.skills.search import search_catalog

        project = self.places.project.encode("utf-8", "surrogateescape")
        among = "-all" if keep else ""
        path = os.path.join(self.places.cache_dir, "search", f"{crc32(project):08x}{among}.db")
        results, problem = search_catalog(self.catalog, query, limit=limit, path=path, keep=keep)
        if not problem:
            return results, []
        if os.path.isfile(path):
            os.unlink(path)  # it is our own cache: the next search makes it again
            problem = "the search index was damaged and is made anew"
        note = Note("cache-corrupt", None, {"reason": problem.rstrip(".")})
        return results, [make_finding(note, path)]


SYSTEM_POLICY = "/etc/prowess/policy.toml"


def rule_paths(runtime: Runtime) -> list[str]:
    """Returns the paths of the policy files: the managed one (of the variable, else the system's), the project's, and
    those that a program named."""
    managed = runtime.environ.get("PROWESS_MANAGED_POLICY") or SYSTEM_POLICY
    own = os.path.join(runtime.places.project, ".agent", "policy.toml")
    return [managed, own, *runtime.policy_files]


def _shown_url(url: str) -> str:
    from prowess._internal.urls import shown_url

    return shown_url(url)


def shown_store(store: str) -> str:
    """Returns the name of a store for a command that is shown: an address without user and password."""
    return _shown_url(store) if "://" in store else store


def check_model(name: str | None) -> None:
    """Raises ConfigError when the name, such as `openai:gpt-5`, means no model. None means the configured one."""
    from prowess.models.registry import check_spec

    check_spec(name)
