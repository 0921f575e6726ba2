"""Katib's controllers: an Experiment requests suggestions, each becomes a Trial, each Trial runs a Job.

A port of the real reconcilers with their surprises: a deleted Trial is recreated, running trials outlive
their Experiment's end, conditions set by clients are respected, and a failed reconcile writes no status.
"""

import asyncio
import logging
from functools import partial

from local.katib import early_stopping, trials
from local.katib.algorithm_validation import objection
from local.katib.metrics import MetricsStore
from local.katib.progress import conclude, count_of, summarize
from local.katib.search_service import NAME, SearchService, ServiceError
from local.katib.status import begin, finalizing, finish, is_true, mark, unmark
from local.katib.suggestions import Suggestions
from local.katib.templates import TRIAL_KINDS, ReconcileError
from local.katib.webhooks import restartable
from local.kubernetes.apiserver.kinds import Object, Refused, clone
from local.kubernetes.apiserver.store import Store, owner
from local.kubernetes.controllers.retries import Retries

KINDS = ("Experiment", "Suggestion", "Trial")
FINISHED = ("Succeeded", "Failed")
logger = logging.getLogger(__name__)


class Controller:
    """Reconcile each changed object, once for several changes. Reconciling is idempotent."""

    def __init__(self, store: Store, metrics: MetricsStore) -> None:
        self._store, self._metrics = store, metrics
        self.search = SearchService(self._search_is_ready)
        self._services = Suggestions()
        metrics.on_report = self._reported
        metrics.on_early_stop = self._stopped_early
        self._due: dict[tuple[str, str, str], None] = {}
        self._retries = {kind: Retries(partial(self._add, kind)) for kind in KINDS}
        self._woken = asyncio.Event()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch())
                group.create_task(self.search.run())
                while await self._woken.wait():
                    self._woken.clear()
                    while self._due:
                        self._due.pop(first := next(iter(self._due)))
                        self._turn(*first)
                        await asyncio.sleep(0)
        finally:
            for each in self._retries.values():
                each.close()

    def _search_is_ready(self) -> None:
        """Follow the change of the Deployments' status: Katib calls again at once."""
        for each in self._store.peek("Suggestion"):
            self._add("Suggestion", each["metadata"]["namespace"], each["metadata"]["name"])

    def _add(self, kind: str, namespace: str, name: str) -> None:
        self._due[kind, namespace, name] = None
        self._woken.set()

    async def _watch(self) -> None:
        async for _, obj in self._store.subscribe(*KINDS, *TRIAL_KINDS):
            meta = obj["metadata"]
            affected = [(obj["kind"], meta["name"])]
            for above in meta.get("ownerReferences", []):
                affected += [("Suggestion", above["name"])] if above["kind"] == "Experiment" else []
                affected.append((above["kind"], above["name"]))
            for kind, name in affected:
                if kind in KINDS:
                    self._add(kind, meta["namespace"], name)

    def _reported(self, trial: str) -> None:
        for namespace in self._namespaces_of(trial):
            self._turn("Trial", namespace, trial)

    def _stopped_early(self, trial: str) -> None:
        for namespace in self._namespaces_of(trial):
            if obj := self._store.get("Trial", namespace, trial):
                trials.stop_early(self._store, obj)

    def _namespaces_of(self, trial: str) -> list[str]:
        found = [obj["metadata"] for obj in self._store.peek("Trial")]
        return [meta["namespace"] for meta in found if meta["name"] == trial]

    def _turn(self, kind: str, namespace: str, name: str) -> None:
        found = self._store.find(kind, namespace, name)
        if found is None:
            return
        obj = {**found, "status": clone(found.get("status", {}))}  # of which a turn changes only the status
        try:
            if kind == "Trial":
                trials.reconcile(self._store, self._metrics, obj)
            elif kind == "Suggestion":
                self._suggestion(obj)
            else:
                self._experiment(obj)
        except (ReconcileError, ServiceError, Refused) as error:
            message = str(error) if kind == "Suggestion" else f"Failed to reconcile: {error}"
            self._store.record_event(obj, "Warning", "ReconcileError", message, f"{kind.lower()}-controller")
            self._retries[kind].refused(obj)
        except Exception:
            logger.exception("The turn of %s %s/%s failed.", kind, namespace, name)
        else:
            self._retries[kind].accepted(obj)

    def _experiment(self, exp: Object) -> None:
        spec, status = exp["spec"], exp["status"]
        if finalizing(self._store, exp, "update-prometheus-metrics"):
            return
        if is_true(exp, *FINISHED):
            if spec["resumePolicy"] == "Never":
                self._close_suggestion(exp)
            most, made = spec.get("maxTrialCount"), status.get("trials", 0)
            if made and (most is None or (restartable(exp) and most > made)):
                unmark(exp, *FINISHED)
                mark(exp, "Restarting", "ExperimentRestarting", "Experiment is restarted")
            elif not status.get("trialsRunning"):
                return
        if is_true(exp, "Created"):
            self._follow(exp)
        else:
            status["currentOptimalTrial"] = {"observation": {}}
            begin(exp)
        self._store.set_status(exp, exp["status"])

    def _follow(self, exp: Object) -> None:
        made = self._trials(exp)
        if made:
            reached = summarize(exp, made)
            if not is_true(exp, *FINISHED):
                conclude(exp, reached)
        if not is_true(exp, *FINISHED):
            self._balance(exp, made)

    def _trials(self, named: Object) -> list[Object]:
        """Return the store's own objects: don't change them."""
        meta = named["metadata"]
        return [*self._store.peek("Trial", meta["namespace"], {trials.EXPERIMENT: meta["name"]})]

    def _balance(self, exp: Object, made: list[Object]) -> None:
        """Katib counts MetricsUnavailable as active here, so it can start too many trials."""
        spec, status = exp["spec"], exp["status"]
        parallel, most = spec["parallelTrialCount"], spec.get("maxTrialCount")
        active = count_of(status, "Pending") + count_of(status, "Running")
        ended = sum(count_of(status, end) for end in ("Succeeded", "Failed", "Killed", "EarlyStopped"))
        wanted = parallel if most is None else min(parallel, most - ended)
        if wanted > active:
            self._create_trials(exp, made, wanted - active)

    def _create_trials(self, exp: Object, made: list[Object], count: int) -> None:
        suggestion = self._suggestion_of(exp)
        if suggestion is None:
            self._create_suggestion(exp, len(made) + count)
        elif is_true(suggestion, "Failed"):
            finish(exp, "Failed", "ExperimentFailed", "Suggestion has failed")
        else:
            self._request(suggestion, len(made) + count)
            known = {trial["metadata"]["name"] for trial in made}
            given = suggestion["status"].get("suggestions", [])
            for assignment in given if len(given) > len(made) else []:
                if assignment["name"] not in known:
                    self._store.create(trials.trial_of(exp, assignment))

    def _suggestion_of(self, exp: Object) -> Object | None:
        suggestion = self._store.get("Suggestion", exp["metadata"]["namespace"], exp["metadata"]["name"])
        return suggestion and {"status": {}, **suggestion}

    def _create_suggestion(self, exp: Object, requests: int) -> None:
        meta, spec = exp["metadata"], exp["spec"]
        copied = {key: meta[key] for key in ("name", "namespace", "labels", "annotations") if key in meta}
        head = {"apiVersion": exp["apiVersion"], "kind": "Suggestion"}
        kept = {key: spec[key] for key in ("algorithm", "resumePolicy", "earlyStopping") if key in spec}
        metadata = {**copied, "ownerReferences": [owner(exp)]}
        self._store.create({**head, "metadata": metadata, "spec": {**kept, "requests": requests}})

    def _request(self, suggestion: Object, requests: int) -> None:
        meta = suggestion["metadata"]
        self._store.patch("Suggestion", meta["namespace"], meta["name"], {"spec": {"requests": requests}})

    def _close_suggestion(self, exp: Object) -> None:
        suggestion = self._suggestion_of(exp)
        if suggestion is None or is_true(suggestion, *FINISHED):
            return
        why = "Suggestion is succeeded"
        if is_true(suggestion, "Running"):
            mark(suggestion, "Running", why, "Suggestion is not running", "False")
        if is_true(suggestion, "DeploymentReady"):
            mark(suggestion, "DeploymentReady", why, "Deployment is not ready", "False")
        mark(suggestion, "Succeeded", "Experiment is succeeded", f"{why}, can't be restarted")
        self._store.set_status(suggestion, suggestion["status"])

    def _suggestion(self, suggestion: Object) -> None:
        meta, status = suggestion["metadata"], suggestion["status"]
        exp = self._store.find("Experiment", meta["namespace"], meta["name"])
        if exp is None or is_true(suggestion, *FINISHED):
            return
        if not is_true(suggestion, "Created"):
            begin(suggestion)
            self._store.set_status(suggestion, suggestion["status"])
            return
        if exp["spec"]["algorithm"]["algorithmName"] == NAME and not self.search.is_ready():
            mark(suggestion, "DeploymentReady", "DeploymentNotReady", "Deployment is not ready", "False")
            self._store.set_status(suggestion, suggestion["status"])
            return
        mark(suggestion, "DeploymentReady", "DeploymentReady", "Deployment is ready")
        text = None if is_true(suggestion, "Running") else self._invalid(exp)
        if text is not None:
            finish(suggestion, "Failed", "SuggestionFailed", text)
            self._store.set_status(suggestion, suggestion["status"])
            return
        mark(suggestion, "Running", "SuggestionRunning", "Suggestion is running")
        self._store.set_status(suggestion, suggestion["status"])
        given = status.get("suggestions", [])
        if (missing := suggestion["spec"]["requests"] - len(given)) > 0:
            service = self.search if exp["spec"]["algorithm"]["algorithmName"] == NAME else self._services
            made = service.next(suggestion, exp, self._trials(exp), missing)
            rules = early_stopping.rules(exp["spec"], self._trials(exp), self._metrics)
            given += [one | ({"earlyStoppingRules": rules} if rules else {}) for one in made]
            status |= {"suggestions": given, "suggestionCount": len(given)}
        self._store.set_status(suggestion, suggestion["status"])

    def _invalid(self, exp: Object) -> str | None:
        """Return why a service rejects the settings; None if it doesn't. Raises ServiceError."""
        spec = exp["spec"]
        is_own = spec["algorithm"]["algorithmName"] == NAME
        if (why := self.search.objection(exp) if is_own else objection(spec)) is not None:
            return f"Validation failed: ValidateAlgorithmSettings Error: {why}"
        if why := early_stopping.objection(spec):
            return f"Validation failed: ValidateEarlyStoppingSettings Error: {why}"
        return None
