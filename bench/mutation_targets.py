"""Which files `bench.mutants` breaks, which tests then have to fail, and which mutants no test has to notice.

The targets decide something that stays unnoticed if it is wrong: a trial that isn't stopped, a GPU that isn't
freed or isn't billed, an action of the wrong person. Their tests are the quick ones, in memory.
"""

# Whole paths, because `make deletable` takes out those of a deleted feature.
PHASES = (
    "tests/bot/sweep/decisions/test_phases.py",
    "tests/bot/sweep/decisions/test_building.py",
    "tests/bot/sweep/decisions/test_ends.py",
)
DEADLINE = ("tests/bot/sweep/lifecycle/test_deadline.py",)
COMMANDS = ("tests/bot/sweep/decisions/test_commands.py",)
PAUSE = ("tests/bot/sweep/features/pause/test_pause.py",)
GATE = ("tests/bot/sweep/features/gate/test_gate.py",)
EXTENSION = ("tests/bot/sweep/features/extension/test_extension.py",)
LIVE_VALUES = ("tests/bot/sweep/features/live_values/test_live_values.py",)
FEATURE_QUEUE = ("tests/bot/sweep/features/queue/test_queue.py",)
ADMISSION = (
    "tests/bot/sweep/features/health/test_rules_experiment.py",
    "tests/bot/sweep/features/health/test_rules_admission.py",
)
SCHEDULING = ("tests/bot/sweep/features/health/test_rules_scheduling.py",)
STARTUP = (
    "tests/bot/sweep/features/health/test_rules_startup.py",
    "tests/bot/sweep/features/health/test_rules_katib.py",
)
TRAINING = (
    "tests/bot/sweep/features/health/test_rules_training.py",
    "tests/bot/sweep/features/health/test_rules_eviction.py",
    "tests/bot/sweep/features/health/test_rules_katib.py",
)
QUEUE = (
    "tests/bot/platform/storage/test_work_queue.py",
    "tests/bot/platform/storage/test_work_queue_leases.py",
    "tests/bot/platform/storage/test_work_queue_quarantine.py",
    "tests/bot/platform/storage/test_work_queue_versions.py",
)
SUPPLY = ("tests/bot/workspaces/elastic/test_supply.py",)
SCALER = (
    "tests/bot/workspaces/elastic/test_stories.py",
    "tests/bot/workspaces/elastic/test_message.py",
)
CAPACITY = ("tests/bot/measure/capacity/test_nodes.py", "tests/bot/measure/capacity/test_measure.py")
CLUSTERS = ("tests/bot/sweep/launch/test_cluster_choice.py",)
HOURS_BY_PURPOSE = (
    "tests/bot/workspaces/elastic/test_gpu_hours.py",
    "tests/bot/workspaces/environments/test_gpu_hours.py",
)
FIGURES = ("tests/bot/watch/digests/test_figures.py",)
BILL = ("tests/bot/measure/gpus/test_command.py",)
IDLE = (
    "tests/bot/watch/idle/test_detector.py",
    "tests/bot/watch/idle/test_alerts.py",
    "tests/bot/watch/idle/test_messages.py",
)
QUEUED = ("tests/scenarios/test_queues.py",)
ENVIRONMENTS = (
    "tests/bot/workspaces/environments/test_lifecycle.py",
    "tests/bot/workspaces/environments/test_denials.py",
    "tests/bot/workspaces/environments/test_services.py",
)
API = ("tests/handlers/api/test_sweeps.py",)
CI_TOKENS = ("tests/handlers/api/test_ci_tokens.py",)
SPEECH = ("tests/bot/test_phrasings.py", "tests/scenarios/test_any_wording.py")

TARGETS = {  # file -> the tests that must fail
    "bot/sweep/decisions/advance.py": (
        *PHASES,
        *PAUSE,
        "tests/bot/sweep/features/approval/test_approval.py",
        "tests/bot/sweep/features/auto_parallel/test_auto_parallel.py",
        *GATE,
    ),
    "bot/sweep/decisions/commands.py": (*COMMANDS, *PAUSE, *QUEUED),
    "bot/core/events.py": ("tests/bot/core/test_outbox.py", "tests/bot/sweep/decisions/test_messages.py"),
    "bot/sweep/decisions/required_changes.py": (
        "tests/bot/sweep/decisions/test_required_changes.py",
        "tests/bot/sweep/decisions/test_freshness.py",
        *PAUSE,
        *EXTENSION,
    ),
    "bot/sweep/lifecycle/building.py": (
        *PHASES,
        "tests/bot/sweep/decisions/test_required_changes.py",
        "tests/bot/sweep/lifecycle/test_texts.py",
    ),
    "bot/sweep/lifecycle/trials.py": (
        *PHASES,
        *DEADLINE,
        "tests/bot/sweep/decisions/test_required_changes.py",
        "tests/bot/sweep/lifecycle/test_texts.py",
    ),
    "bot/sweep/lifecycle/trouble.py": ("tests/bot/sweep/lifecycle/test_trouble.py",),
    "bot/sweep/model/time_left.py": LIVE_VALUES,
    "bot/sweep/model/progress.py": (*PHASES, "tests/bot/sweep/model/test_waiting.py"),
    "bot/sweep/model/experiment.py": (
        *PHASES,
        "tests/bot/sweep/decisions/test_required_changes.py",
        "tests/bot/sweep/features/auto_parallel/test_auto_parallel.py",
        *EXTENSION,
        *GATE,
    ),
    "bot/sweep/model/observation.py": (
        *PHASES,
        "tests/bot/sweep/decisions/test_required_changes.py",
        "tests/bot/sweep/features/interruptions/test_interruptions.py",
        "tests/bot/sweep/model/test_observation.py",
        "tests/bot/sweep/model/test_waiting.py",
        *LIVE_VALUES,
    ),
    "bot/sweep/features/auto_parallel/decide.py": (
        "tests/bot/sweep/features/auto_parallel/test_auto_parallel.py",
        "tests/scenarios/test_auto_parallel.py",
    ),
    "bot/sweep/features/approval/decide.py": ("tests/bot/sweep/features/approval/test_approval.py",),
    "bot/sweep/features/budget/decide.py": (
        "tests/bot/sweep/features/budget/test_budget.py",
        "tests/bot/sweep/features/budget/test_budget_kept.py",
    ),
    "bot/sweep/model/pace.py": (
        "tests/bot/sweep/features/auto_parallel/test_auto_parallel.py",
        "tests/bot/sweep/features/budget/test_budget_kept.py",
    ),
    "bot/sweep/features/branches/__init__.py": ("tests/bot/sweep/features/branches/test_verdict.py",),
    "bot/sweep/features/early_stopping/decide.py": (
        "tests/bot/sweep/features/early_stopping/test_early_stopping.py",
    ),
    "bot/sweep/features/extension/__init__.py": EXTENSION,
    "bot/sweep/features/gate/decide.py": GATE,
    "bot/sweep/features/health/decide.py": (
        "tests/bot/sweep/features/health/test_first_trials.py",
        "tests/bot/sweep/features/health/test_rules.py",
    ),
    "bot/sweep/features/health/rules_training.py": TRAINING,
    "bot/sweep/features/health/workers.py": ("tests/bot/sweep/features/health/test_workers.py", *TRAINING),
    "bot/sweep/features/interruptions/decide.py": (
        "tests/bot/sweep/features/interruptions/test_disruptions.py",
        "tests/bot/sweep/features/interruptions/test_interruptions.py",
    ),
    "bot/sweep/features/interruptions/causes.py": (
        "tests/bot/sweep/features/interruptions/test_interruptions.py",
        "tests/bot/sweep/features/interruptions/test_worker_interruptions.py",
    ),
    "bot/sweep/features/live_values/__init__.py": LIVE_VALUES,
    "bot/sweep/features/nodes/decide.py": (
        "tests/bot/sweep/features/nodes/test_start.py",
        "tests/bot/sweep/features/nodes/test_trial_objects.py",
    ),
    "bot/sweep/features/nodes/observe.py": ("tests/scenarios/test_nodes_of_two_sweeps.py",),
    "bot/sweep/features/pause/decide.py": PAUSE,
    "bot/sweep/features/queue/commands.py": (*FEATURE_QUEUE, *QUEUED),
    "bot/sweep/features/queue/decide.py": (*FEATURE_QUEUE, *QUEUED),
    "bot/sweep/features/search_lost/__init__.py": (
        "tests/bot/sweep/features/search_lost/test_search_lost.py",
    ),
    "bot/sweep/features/warm_start/__init__.py": ("tests/bot/sweep/features/warm_start/test_verdict.py",),
    "bot/sweep/features/webhooks/decide.py": ("tests/bot/sweep/features/webhooks/test_webhooks.py",),
    "bot/sweep/features/webhooks/deliver.py": ("tests/bot/sweep/features/webhooks/test_webhooks.py",),
    "bot/sweep/results/pairs.py": ("tests/bot/sweep/results/test_pairs.py",),
    "bot/sweep/results/ranking.py": ("tests/bot/sweep/results/test_ranking.py",),
    "bot/sweep/results/warm_start.py": ("tests/bot/sweep/results/test_warm_start.py",),
    "bot/core/stopping.py": (
        "tests/bot/core/test_stopping.py",
        "tests/bot/sweep/features/early_stopping/test_early_stopping.py",
        "tests/bot/sweep/spaces/test_early_stopping.py",
    ),
    "bot/text/masking.py": ("tests/bot/text/test_masking.py",),
    "bot/platform/config/permissions.py": (
        "tests/bot/platform/config/test_permissions.py",
        "tests/bot/platform/config/test_team_limits.py",
        "tests/bot/sweep/features/approval/test_approval.py",
    ),
    "bot/platform/config/teams.py": (
        "tests/bot/platform/config/test_teams.py",
        "tests/bot/platform/config/test_team_limits.py",
    ),
    "bot/platform/config/profiles.py": (
        "tests/bot/platform/config/test_profiles.py",
        "tests/bot/platform/config/test_trial_pods.py",
        "tests/bot/sweep/launch/test_pods.py",
    ),
    "bot/platform/config/queues.py": ("tests/bot/platform/config/test_queues.py",),
    "bot/platform/pod_health/rules_admission.py": ADMISSION,
    "bot/platform/pod_health/rules_scheduling.py": SCHEDULING,
    "bot/platform/pod_health/rules_startup.py": STARTUP,
    "bot/platform/pod_health/diagnosis.py": ("tests/bot/platform/test_diagnosis.py", *SCHEDULING),
    "bot/watch/digests/figures.py": (*FIGURES, *HOURS_BY_PURPOSE),
    "bot/measure/gpus/billing.py": (*BILL, *HOURS_BY_PURPOSE),
    "bot/measure/gpus/sums.py": (*FIGURES, *BILL, "tests/bot/watch/digests/test_clusters.py"),
    "bot/measure/gpus/overrequest.py": ("tests/bot/measure/gpus/test_overrequest.py",),
    "bot/measure/sources/shared_use.py": ("tests/bot/measure/sources/test_shared_gpus.py",),
    "bot/watch/idle/detector.py": IDLE,
    "bot/watch/idle/alerts.py": IDLE,
    "bot/workspaces/elastic/supply.py": (*SUPPLY, "tests/bot/workspaces/elastic/test_decision.py"),
    "bot/workspaces/elastic/preconditions.py": ("tests/bot/workspaces/elastic/test_preconditions.py",),
    "bot/workspaces/elastic/scaler.py": SCALER,
    "bot/measure/capacity/nodes.py": (*CAPACITY, "tests/bot/measure/capacity/test_measured_clusters.py"),
    "bot/measure/capacity/quotas.py": ("tests/bot/measure/capacity/test_quotas.py",),
    "bot/measure/capacity/measure.py": (*CAPACITY, "tests/bot/measure/capacity/test_measured_clusters.py"),
    "bot/sweep/launch/branches.py": ("tests/bot/sweep/launch/test_branches.py",),
    "bot/sweep/launch/budget.py": ("tests/bot/sweep/launch/test_budget.py",),
    "bot/sweep/launch/cluster_choice.py": CLUSTERS,
    "bot/sweep/launch/clusters.py": (*CLUSTERS, "tests/bot/sweep/launch/test_trial_kinds.py"),
    "bot/sweep/launch/capacity.py": (
        "tests/bot/sweep/launch/test_capacity.py",
        "tests/bot/sweep/launch/test_nodes.py",
    ),
    "bot/sweep/launch/pods.py": (
        "tests/bot/sweep/launch/test_pods.py",
        "tests/bot/sweep/launch/test_nodes.py",
        "tests/bot/sweep/spaces/test_flags.py",
    ),
    "bot/sweep/launch/queueing.py": (
        "tests/bot/platform/config/test_queues.py",
        "tests/bot/sweep/launch/test_nodes.py",
    ),
    "bot/sweep/launch/spending.py": (
        "tests/bot/sweep/launch/test_usual.py",
        "tests/bot/sweep/features/approval/test_approval.py",
        "tests/scenarios/test_approval.py",
        "tests/scenarios/test_budget.py",
        "tests/scenarios/test_limits_at_once.py",
    ),
    "bot/sweep/launch/user_limits.py": (
        "tests/bot/sweep/launch/test_user_limits.py",
        "tests/scenarios/test_one_person.py",
        "tests/scenarios/test_limits_at_once.py",
    ),
    "bot/sweep/sweeps/observe.py": (
        "tests/scenarios/test_one_person.py",
        "tests/scenarios/test_limits_at_once.py",
    ),
    "bot/sweep/sweeps/retention.py": ("tests/scenarios/test_retention.py",),
    "bot/sweep/sweeps/transient_errors.py": (
        "tests/scenarios/test_outages.py",
        "tests/scenarios/test_unreachable_hosts.py",
    ),
    "bot/sweep/questions/job.py": ("tests/bot/sweep/questions/test_job.py",),
    "bot/platform/commands/intents.py": SPEECH,
    "bot/platform/commands/speech.py": SPEECH,
    "handlers/api/callers.py": (
        "tests/handlers/api/test_tokens.py",
        "tests/handlers/api/test_rights.py",
        *API,
        *CI_TOKENS,
    ),
    "handlers/api/sweeps.py": (*API, *CI_TOKENS),
    "handlers/api/ci_tokens.py": CI_TOKENS,
    "handlers/middleware.py": ("tests/handlers/test_middleware.py", "tests/handlers/api/test_tokens.py"),
    "bot/remote/api.py": ("tests/bot/remote/test_api.py", "tests/bot/remote/test_client.py"),
    "bot/remote/ci.py": ("tests/bot/remote/test_ci.py",),
    "bot/remote/client.py": (
        "tests/bot/remote/test_api.py",
        "tests/bot/remote/test_client.py",
        "tests/bot/remote/test_credentials.py",
    ),
    "bot/workspaces/environments/idle.py": ("tests/bot/workspaces/environments/test_idle_decisions.py",),
    "bot/workspaces/environments/idle_job.py": ("tests/bot/workspaces/environments/test_idle.py",),
    "bot/workspaces/environments/permissions.py": ("tests/bot/workspaces/environments/test_permissions.py",),
    "bot/workspaces/environments/reconciler.py": (
        *ENVIRONMENTS,
        "tests/bot/workspaces/environments/test_informer.py",
        "tests/bot/workspaces/environments/test_machines.py",
    ),
    "bot/workspaces/environments/request_job.py": (
        *ENVIRONMENTS,
        "tests/bot/workspaces/environments/test_machines.py",
        "tests/bot/workspaces/environments/test_requests.py",
    ),
    "bot/operate/causes.py": ("tests/bot/operate/test_causes.py", "tests/bot/operate/test_inspect.py"),
    "bot/workspaces/reservations/models.py": (
        "tests/bot/workspaces/reservations/test_models.py",
        "tests/bot/workspaces/reservations/test_command.py",
        "tests/scenarios/test_reservations.py",
    ),
    "bot/workspaces/reservations/hold.py": ("tests/scenarios/test_reservations.py",),
    "bot/sweep/builds/image_gc.py": ("tests/bot/sweep/builds/test_image_gc.py",),
    "bot/platform/storage/work_queue.py": QUEUE,
    "bot/platform/storage/queue_scripts.py": (*QUEUE, "tests/bot/sweep/sweeps/test_wakes.py"),
    "bot/platform/storage/sweeps.py": ("tests/bot/platform/storage/test_sweeps.py",),
    "bot/platform/storage/requests.py": ("tests/bot/platform/storage/test_requests.py",),
    "bot/platform/storage/leader.py": ("tests/bot/platform/storage/test_leader.py",),
    "k8s/nodes/devices.py": ("tests/k8s/nodes/test_devices.py", *CLUSTERS),
    "k8s/nodes/scheduling.py": ("tests/k8s/nodes/test_scheduling.py",),
    "k8s/nodes/machines.py": ("tests/k8s/nodes/test_machines.py",),
    "k8s/nodes/gpu_pods.py": ("tests/k8s/nodes/test_gpu_pods.py", *CAPACITY),
    "k8s/nodes/gpus.py": ("tests/k8s/nodes/test_gpus.py", "tests/k8s/nodes/test_gpu_pods.py", *CAPACITY),
    "k8s/pods.py": (
        "tests/k8s/test_jobs_and_pods.py",
        "tests/k8s/test_trial_kinds.py",
        "tests/k8s/katib/test_train_job.py",
        "tests/bot/sweep/features/interruptions/test_interruptions.py",
        "tests/bot/sweep/features/interruptions/test_worker_interruptions.py",
        *STARTUP,
        *TRAINING,
    ),
    "k8s/api/outage.py": ("tests/k8s/api/test_outage.py", "tests/k8s/api/test_watch.py"),
    "k8s/api/errors.py": ("tests/k8s/api/test_errors.py",),
    "k8s/katib/device_claims.py": ("tests/k8s/katib/test_device_claims.py",),
    "k8s/katib/patches.py": (
        "tests/k8s/katib/test_paced_counts.py",
        "tests/k8s/katib/test_katib.py",
        "tests/bot/sweep/features/early_stopping/test_early_stopping.py",
        "tests/bot/sweep/features/interruptions/test_disruptions.py",
        *GATE,
        *EXTENSION,
        *PAUSE,
    ),
    "k8s/katib/status.py": (
        "tests/k8s/api/test_cache.py",
        "tests/k8s/katib/test_katib.py",
        "tests/k8s/katib/test_ending.py",
        "tests/k8s/katib/test_multi_node.py",
        "tests/bot/sweep/lifecycle/test_texts.py",
        *ADMISSION,
        *TRAINING,
    ),
    "k8s/kueue.py": (
        "tests/k8s/test_kueue.py",
        "tests/bot/measure/capacity/test_quotas.py",
        *ADMISSION,
        *QUEUED,
    ),
    "k8s/quantities.py": ("tests/k8s/test_quantities.py",),
}

# (file, the mutated line) -> why no test has to distinguish it from the original
EQUIVALENT = {
    ("bot/remote/api.py", "PAGE = 201  # sweeps in one answer"): "a limit of about this size",
    (
        "bot/sweep/launch/capacity.py",
        'open_to, key=lambda each: (each.resources.get(shape.resource, 0), each.resources.get("cpu", 1))',
    ): "each node has CPUs",
    (
        "k8s/api/outage.py",
        "return self._over > called_at or await self._probed()",
    ): "two readings of the clock are hardly ever equal",
    (
        "bot/sweep/sweeps/observe.py",
        "first = (one for one in others if (one.created, one.id) <= (sweep.created, sweep.id))",
    ): "the sweep itself isn't among the others",
    (
        "bot/watch/digests/figures.py",
        "return next(((*kind, number) for kind, number in partly.most_common(2)), None)",
    ): "next() takes the first of them",
    (
        "bot/sweep/features/live_values/__init__.py",
        'shown.append(f"Up to {time_text(left)} left" if left > 6 else "Less than 5 min left")',
    ): "the minutes are multiples of 5",
    (
        "bot/sweep/features/live_values/__init__.py",
        "sign = -1 if sweep.plan.space.goal is Goal.MAXIMIZE else 2",
    ): "any positive factor keeps the order",
    (
        "bot/sweep/features/live_values/__init__.py",
        "sign = -2 if sweep.plan.space.goal is Goal.MAXIMIZE else 1",
    ): "any negative factor reverses the order",
    (
        "bot/platform/storage/work_queue.py",
        "seconds = max(min(seconds, self._again - now) - 0.001, 0.01)  # until after it is due; 0: for ever",
    ): "wakes 2 ms earlier and looks once more",
    ("bot/platform/storage/work_queue.py", "if left <= 1:"): "the worker asks again at once",
    ("bot/platform/storage/work_queue.py", "if left < 0:"): "a call to Redis takes some time",
    (
        "bot/platform/storage/work_queue.py",
        "if self._again < monotonic():",
    ): "two readings of the clock are hardly ever equal",
    ("bot/platform/storage/work_queue.py", "self._due = monotonic() - float(pause)"): "looks once more",
    (
        "bot/platform/storage/work_queue.py",
        "return str(lease.item), lease.token, due - now, is_odd, int(self._looks < due - 0.01)",
    ): "wakes a worker that wakes in that moment anyway",
    (
        "bot/platform/storage/work_queue.py",
        "return str(lease.item), lease.token, due - now, is_odd, int(self._looks <= due + 0.01)",
    ): "two readings of the clock are hardly ever equal",
    (
        "bot/workspaces/environments/reconciler.py",
        "POLL = timedelta(seconds=11)  # while it starts or stops: events aren't watched",
    ): "a time of about this length",
    (
        "bot/sweep/features/pause/decide.py",
        "pause = now - state.at if state.at else timedelta(1)",
    ): "only paused sweeps are resumed",
    (
        "bot/platform/pod_health/diagnosis.py",
        "rank = {GPU: 3, TAINT: 0, LABELS: 0, VOLUME: 0}",
    ): "any rank above the others' 1 is first",
    (
        "bot/workspaces/environments/idle_job.py",
        "PARALLEL = 17  # servers asked at once; one that doesn't answer takes 10 seconds",
    ): "a limit of about this size",
    (
        "bot/workspaces/environments/idle_job.py",
        "while part := await response.content.read(MAX_ANSWER + 2 - len(body)):",
    ): "an answer above the limit is refused anyway",
    (
        "bot/workspaces/environments/idle_job.py",
        "if len(body) >= MAX_ANSWER:",
    ): "a limit of about this size",
    (
        "bot/sweep/features/auto_parallel/decide.py",
        "GROW_AFTER = timedelta(minutes=3)  # since the last change, so that the number doesn't swing",
    ): "a time of about this length",
    (
        "bot/workspaces/elastic/scaler.py",
        'replicas = found["spec"].get("replicas", 2)',
    ): "the API server sets it",
    (
        "bot/platform/storage/leader.py",
        "async with renewing(ttl, lambda: renew([name], [token, round(ttl * 1001)])):",
    ): "a thousandth longer",
    (
        "bot/workspaces/elastic/scaler.py",
        "for victim in found.victims if after <= before else ():",
    ): "it is called only for another number",
    (
        "bot/measure/gpus/billing.py",
        "return begin, (begin + timedelta(days=33)).replace(day=1)",
    ): "33 days after a month's first are in the next month, too",
    (
        "bot/measure/gpus/billing.py",
        "begin = (this - timedelta(days=2)).replace(day=1)",
    ): "two days before a month's first are in the month before, too",
    (
        "bot/core/stopping.py",
        "arrivals = sorted(_arrivals(rule, objective, rungs, curves), key=lambda each: each[:4])",
    ): "a trial reaches a rung once, so the first three differ",
    (
        "bot/sweep/features/live_values/__init__.py",
        (
            "if sweep.plan is None and not sweep.plan.space.names_best "
            "or seen.reading is None or seen.reading.failures:"
        ),
    ): "a running sweep has a plan",
    (
        "bot/workspaces/environments/idle_job.py",
        "while part := await response.content.read(MAX_ANSWER - 1 - len(body)):",
    ): "an answer that is cut off is unknown, too",
    (
        "bot/platform/storage/work_queue.py",
        "pause = ttl / 4",
    ): "renews more often",
    ("bot/sweep/results/pairs.py", "RESAMPLES = 2001"): "a number of about this size",
    (
        "bot/sweep/results/pairs.py",
        (
            "if found.difference > 11 * base or "
            "any(min(each.better, each.other) <= 0 for each in found.pairs):"
        ),
    ): "a limit of about this size",
    (
        "bot/remote/ci.py",
        'state = "Passed" if high <= max_percent else "Worse" if low >= max_percent else "Undecided"',
    ): "an interval hardly ever begins exactly there",
    (
        "bot/sweep/features/pause/decide.py",
        "return sweep.to(state.phase or Phase.BUILDING, now, event)",
    ): "a paused sweep has the phase before",
    (
        "k8s/katib/status.py",
        '"spec": {"parameterAssignments": {"name": False, "value": True}},',
    ): "texts are copied either way",
    (
        "k8s/katib/status.py",
        '"spec": {"parameterAssignments": {"name": True, "value": False}},',
    ): "texts are copied either way",
    (
        "k8s/quantities.py",
        "MAX_POWER = 100  # of ten: what is larger is beyond the limits, whatever stands before it",
    ): "a limit of about this size",
    (
        "bot/workspaces/environments/idle_job.py",
        "CALL_TIMEOUT = aiohttp.ClientTimeout(total=6)",
    ): "a time of about this length",
    (
        "bot/measure/gpus/overrequest.py",
        "if ram is not None and ram >= need.ram_requested:",
    ): "sets the value that it has",
    (
        "bot/workspaces/elastic/scaler.py",
        "async with asyncio.timeout(TICK + self._pause):",
    ): "a time of about this length",
    (
        "bot/workspaces/environments/idle_job.py",
        "async with self.redis.pipeline(transaction=False) as steps:",
    ): "the next measurement sets the expiry, too",
    (
        "bot/platform/storage/work_queue.py",
        "since: float = 1  # milliseconds, by Redis' clock",
    ): "the default of a lease that only tests use",
    (
        "bot/platform/storage/sweeps.py",
        "async with self._redis.pipeline(transaction=False) as all_:",
    ): "each removal stands alone",
    (
        "bot/core/stopping.py",
        "MAX_RUNGS = 13  # of one trial",
    ): "a limit of about this size",
    ("k8s/nodes/scheduling.py", "priority: int = 1"): "`read_scheduled` sets it",
    (
        "k8s/kueue.py",
        'count = int(pods.get("count", 2))',
    ): "the API server sets it",
    (
        "bot/sweep/features/pause/decide.py",
        "is_late = state.now and now - since >= stuck_timeout(sweep)",
    ): "a time of about this length",
    (
        "bot/platform/commands/intents.py",
        "near = get_close_matches(word, heads, 2, SIMILARITY) if is_compared else []",
    ): "no slip of one letter makes a command's name like two",
    (
        "bot/sweep/features/webhooks/deliver.py",
        'return f"{ITEM}/{hook.name} {why} {hashlib.sha256(hook.url.encode()).hexdigest()[:17]}"',
    ): "a length of about this size",
    (
        "bot/watch/idle/alerts.py",
        "if _same_group(one, alert) and len(one.items) > 2 and one.open:",
    ): "a group alert has more than three",
    (
        "bot/watch/idle/detector.py",
        "old_enough = now - allocation.started > window * SETTLING",
    ): "a time of about this length",
    (
        "bot/watch/idle/detector.py",
        "if age <= measurement_window(thresholds) * SETTLING:",
    ): "a time of about this length",
    (
        "bot/workspaces/elastic/scaler.py",
        'return str(latest.get("manager", ""))[:101] if latest else ""',
    ): "a limit of about this size",
    (
        "bot/workspaces/elastic/scaler.py",
        'changes = {"raised_at": now} if after >= before else {"lowered_at": now}',
    ): "it is called only for another number",
    (
        "bot/workspaces/elastic/scaler.py",
        "replica = read_replica(found, priority or 1)",
    ): "one whose priority isn't below 0 has returned before",
    (
        "bot/sweep/features/early_stopping/decide.py",
        "MAX_TEXT = 2501  # characters",
    ): "a limit of about this size",
    (
        "bot/workspaces/elastic/scaler.py",
        "if after >= before:",
    ): "it is called only for another number",
    (
        "bot/sweep/launch/cluster_choice.py",
        'return placed(order, choose(candidates, 1)[0], "") if known else order',
    ): "no candidate is measured here, so all have 0 GPUs free",
    (
        "bot/platform/storage/work_queue.py",
        "await self._sleep(min(left, due - monotonic(), MAX_BLOCK_SECONDS, self._lease / 5))",
    ): "looks more often",
    (
        "bot/platform/storage/work_queue.py",
        "called_at, pause = clock(), ttl / 31",
    ): "tries again a moment earlier",
    (
        "bot/platform/storage/work_queue.py",
        "async with asyncio.timeout(ttl / 7):  # redis-py would try longer than the lease lasts",
    ): "gives up a call a moment earlier",
    (
        "bot/platform/storage/leader.py",
        "if await redis.set(name, token, nx=True, px=round(ttl * 1001)):",
    ): "a thousandth longer",
    (
        "bot/sweep/decisions/advance.py",
        'return ended(sweep, sweep.ending or Phase.CANCELLED, now, ". ".join(saved))',
    ): "a sweep without an ending has returned before",
    (
        "bot/platform/storage/leader.py",
        (
            "await asyncio.sleep(ttl / 4 * random.uniform(0.8, 1.2))"
            "  # noqa: S311 - spreads load, guards nothing"
        ),
    ): "asks more often",
    (
        "bot/platform/storage/leader.py",
        (
            "await asyncio.sleep(ttl / 3 / random.uniform(0.8, 1.2))"
            "  # noqa: S311 - spreads load, guards nothing"
        ),
    ): "spreads as much",
    (
        "bot/sweep/model/time_left.py",
        "step = next((step for limit, step in ROUNDING if minutes < limit), COARSE)",
    ): "each limit is a multiple of both steps beside it",
    (
        "bot/sweep/model/time_left.py",
        "ROUNDING = ((60, 5), (4 * 61, 15), (24 * 60, 60))",
    ): "a limit of about this size",
    (
        "bot/platform/pod_health/diagnosis.py",
        "lasting: bool = True  # stays true, such as a failure",
    ): "`Evidence.found` sets it, and only its diagnoses are asked",
    (
        "bot/sweep/features/webhooks/deliver.py",
        "return timedelta(0) if monotonic() >= until else None",
    ): "the clock doesn't stop at that moment",
    (
        "bot/text/masking.py",
        "MAX_RENEWED = 51  # secrets that replaced others while a process runs; older ones have ended",
    ): "a limit of about this size",
    (
        "bot/remote/api.py",
        "if not (TYPE_CHECKING):",
    ): "imports more",
    ("k8s/nodes/scheduling.py", "gpus: int = 1"): "`read_scheduled` sets it",
    (
        "k8s/nodes/scheduling.py",
        "preempts: bool = False  # by itself: the scheduler nominates a node when that helps",
    ): "`read_scheduled` sets it",
    ("bot/platform/storage/work_queue.py", "if due < monotonic():"): "the clock doesn't stop at that moment",
    (
        "bot/sweep/features/interruptions/decide.py",
        "nodes = sweep.plan.nodes if sweep.plan else 2",
    ): "a running sweep has a plan",
    (
        "k8s/nodes/devices.py",
        'unit=(driver, pool, max(counters, default=each["name"])),',
    ): "any of a GPU's counter sets identifies it",
    (
        "bot/sweep/model/time_left.py",
        "ROUNDING = ((60, 5), (4 * 60, 15), (25 * 60, 60))",
    ): "a limit of about this size",
    (
        "bot/sweep/features/budget/decide.py",
        "return math.floor(left / longest) + 1 if left >= 0 and seconds > 1 else 0",
    ): "a time of about this length",
    ("bot/remote/client.py", "MAX_ANSWER = 65 * 2**20  # bytes"): "a limit of about this size",
    (
        "bot/platform/pod_health/diagnosis.py",
        "failed: bool = True  # the trial has failed",
    ): "`Evidence.found` sets it, and only its diagnoses are asked",
    (
        "bot/sweep/features/queue/decide.py",
        "first = [w for w in unequal if w.priority <= state.value or not waiting]",
    ): "equal ones aren't among them",
    (
        "bot/sweep/features/nodes/observe.py",
        "AGAIN = timedelta(seconds=21)  # until a waiting sweep decides again",
    ): "a time of about this length",
    (
        "bot/sweep/features/nodes/observe.py",
        (
            "measured = free is not None and now - free.at <= MEASURED_WITHIN and ahead.keys() <= "
            "set(free.beside)"
        ),
    ): "a time of about this length",
    (
        "bot/sweep/features/nodes/observe.py",
        (
            "MEASURED_WITHIN = timedelta(seconds=76)  # two measurements; other sweeps may have grown since "
            "an older one"
        ),
    ): "a time of about this length",
    (
        "bot/sweep/features/nodes/observe.py",
        "before = sorted(each for each in waiting if each <= (sweep.since, sweep.id))",
    ): "the sweep itself isn't among them",
    (
        "bot/sweep/features/nodes/observe.py",
        "listed = [one.id for one in summaries if one.starts_together or one.live and one.id != sweep.id]",
    ): "more records are read, and don't compete",
    (
        "bot/sweep/launch/spending.py",
        "if same and _known(each) and (latest is None or each.ended >= latest.ended):",
    ): "of two that ended at the same moment, either is the latest",
    (
        "bot/sweep/features/queue/decide.py",
        "value: int = 1  # of the changed priority's class",
    ): "read only after a change of the priority, which sets it",
    ("bot/workspaces/elastic/scaler.py", "NODES_STALE = timedelta(minutes=4)"): "a time of about this length",
    (
        "bot/platform/storage/queue_scripts.py",
        '_BLOCK = f"local BLOCK = {MAX_BLOCK_SECONDS * 1001:g}"',
    ): "a thousandth longer",
    (
        "handlers/api/callers.py",
        'return f"api/{sha256(about.encode()).hexdigest()[:33]}"',
    ): "a length of about this size",
    (
        "bot/platform/storage/work_queue.py",
        'return str(lease.item), lease.token, "", is_odd, 1',
    ): "counts only for an item that is to be ready again",
    (
        "bot/platform/storage/requests.py",
        'return self._key("handled", blake2b(b"%b %b" % (to.encode(), request), digest_size=17).hexdigest())',
    ): "a length of about this size",
    (
        "bot/sweep/features/webhooks/deliver.py",
        "TIMEOUT = aiohttp.ClientTimeout(total=16)  # seconds of one request",
    ): "a time of about this length",
    ("bot/workspaces/environments/idle_job.py", "TTL = timedelta(days=2)"): "a time of about this length",
    (
        "bot/platform/storage/requests.py",
        'return max(await self._redis.pttl(self._key("held", to)), 0) / 1001',
    ): "a thousandth shorter",
    (
        "bot/platform/storage/requests.py",
        'await self._redis.set(self._key("held", to), "1", px=max(int(seconds * 1000), 2))',
    ): "a millisecond longer",
    (
        "bot/measure/gpus/overrequest.py",
        "if cpu is not None and cpu >= need.cpu_requested:",
    ): "sets the value that it has",
    (
        "bot/platform/config/teams.py",
        "return start.end() if start else 1",
    ): "no other pattern matches one character only",
    (
        "bot/sweep/features/budget/decide.py",
        "return timedelta(seconds=max(1.0, left / pods)) if left >= 0 and pods else None",
    ): "what is left is hardly ever exactly nothing",
    (
        "bot/sweep/results/warm_start.py",
        "if best is None or rank >= best:",
    ): "of two that ended at the same moment, either is the latest",
    (
        "bot/measure/capacity/nodes.py",
        "MAX_WAITING = 301  # pods, the oldest; more of them change no decision",
    ): "a limit of about this size",
    (
        "bot/sweep/features/nodes/decide.py",
        "if jobs and not any(at and now - at >= LATE for at in started):",
    ): "a time of about this length",
    (
        "bot/sweep/sweeps/retention.py",
        "return sweep_configmap.read(config_map).since < self.clients.now() - kept",
    ): "two readings of the clock are hardly ever equal",
    ("handlers/api/ci_tokens.py", "LEEWAY = 31  # seconds between the clocks"): "a time of about this length",
    (
        "bot/sweep/sweeps/retention.py",
        (
            "SUGGESTION_TTL = EXTENDABLE_FOR + timedelta(hours=2)"
            "  # a command that was just accepted still finds it"
        ),
    ): "a time of about this length",
    (
        "bot/platform/config/permissions.py",
        "MAX_NAMED = 6  # people in one sentence",
    ): "a limit of about this size",
    ("handlers/api/ci_tokens.py", "TIMEOUT = ClientTimeout(total=6)"): "a time of about this length",
    (
        "handlers/api/ci_tokens.py",
        "while part := await answer.content.read(MAX_SIZE + 2 - len(content)):",
    ): "an answer above the limit is refused anyway",
    (
        "handlers/api/ci_tokens.py",
        "while part := await answer.content.read(MAX_SIZE - 1 - len(content)):",
    ): "an answer of about this size",
    ("handlers/api/callers.py", "if len(self._known) > MAX_CACHED:"): "a limit of about this size",
    ("bot/remote/ci.py", "MAX_CELL = 81  # characters"): "a limit of about this size",
    (
        "bot/platform/config/profiles.py",
        "least = Fraction(1) if profile.whole_cpus else Fraction(1, 1001)",
    ): "less by less than a thousandth",
    ("handlers/api/ci_tokens.py", "MAX_TOKEN = 16 * 1025  # characters"): "a limit of about this size",
    (
        "handlers/api/ci_tokens.py",
        "MAX_LIFETIME = 25 * 3600  # seconds from a token's issue to its expiry",
    ): "a time of about this length",
    (
        "handlers/api/ci_tokens.py",
        "if monotonic() - self._read_at >= KEPT:",
    ): "two readings of the clock are hardly ever equal",
    (
        "bot/sweep/model/time_left.py",
        "ROUNDING = ((60, 5), (5 * 60, 15), (24 * 60, 60))",
    ): "a limit of about this size",
    (
        "bot/workspaces/reservations/models.py",
        "MAX_GPUS = 257  # of all reservations together: each GPU is one Job",
    ): "a limit of about this size",
}
