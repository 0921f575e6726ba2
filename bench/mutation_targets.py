"""Which files `bench.mutants` breaks, which tests then have to fail, and which mutants no test has to notice.

The targets decide something that stays unnoticed if it is wrong: a trial that isn't stopped, a GPU that isn't
freed or isn't billed, an action of the wrong person. Their tests are the quick ones, in memory.
"""

LIFECYCLE = "tests/bot/lifecycle"
PHASES = (
    f"{LIFECYCLE}/test_lifecycle_phases.py",
    f"{LIFECYCLE}/test_lifecycle_building.py",
    f"{LIFECYCLE}/test_lifecycle_ends.py",
)
PAUSE = (f"{LIFECYCLE}/test_pause.py",)
COMMANDS = (f"{LIFECYCLE}/test_commands.py",)
EARLY_STOPPING = (f"{LIFECYCLE}/test_early_stopping.py",)
HEALTH = "tests/bot/health"
ADMISSION = (f"{HEALTH}/test_rules_experiment.py", f"{HEALTH}/test_rules_admission.py")
SCHEDULING = (f"{HEALTH}/test_rules_scheduling.py",)
STARTUP = (f"{HEALTH}/test_rules_startup.py",)
TRAINING = (
    f"{HEALTH}/test_rules_training.py",
    f"{HEALTH}/test_rules_eviction.py",
    f"{HEALTH}/test_rules_katib.py",
)
QUEUE = (
    "tests/bot/storage/test_work_queue.py",
    "tests/bot/storage/test_work_queue_leases.py",
    "tests/bot/storage/test_work_queue_quarantine.py",
    "tests/bot/storage/test_work_queue_versions.py",
)
SUPPLY = ("tests/bot/elastic/test_supply.py",)
SCALER = ("tests/bot/elastic/test_stories.py",)
CAPACITY = ("tests/bot/capacity/test_nodes.py", "tests/bot/capacity/test_measure.py")
CLUSTERS = ("tests/bot/launch/test_cluster_choice.py",)
HOURS_BY_PURPOSE = ("tests/bot/elastic/test_gpu_hours.py", "tests/bot/environments/test_gpu_hours.py")
FIGURES = ("tests/bot/digests/test_figures.py",)
BILL = ("tests/bot/gpus/test_command.py",)
IDLE = ("tests/bot/idle/test_detector.py", "tests/bot/idle/test_alerts.py", "tests/bot/idle/test_messages.py")
KATIB = "tests/k8s/katib"
QUEUED = ("tests/scenarios/test_queues.py",)

TARGETS = {  # file -> the tests that must fail
    "bot/lifecycle/phases.py": (*PHASES, *PAUSE),
    "bot/lifecycle/events.py": (f"{LIFECYCLE}/test_events.py",),
    "bot/lifecycle/required_changes.py": (f"{LIFECYCLE}/test_required_changes.py",),
    "bot/lifecycle/commands.py": (*COMMANDS, *PAUSE, *QUEUED),
    "bot/lifecycle/gate.py": (f"{LIFECYCLE}/test_gate.py",),
    "bot/lifecycle/pause.py": PAUSE,
    "bot/lifecycle/deadline.py": (f"{LIFECYCLE}/test_deadline.py",),
    "bot/lifecycle/extension.py": (f"{LIFECYCLE}/test_extension.py", *COMMANDS),
    "bot/lifecycle/early_stopping.py": EARLY_STOPPING,
    "bot/lifecycle/pace.py": (f"{LIFECYCLE}/test_pace.py", "tests/scenarios/test_auto_parallel.py"),
    "bot/lifecycle/queueing.py": (f"{LIFECYCLE}/test_queueing.py", *QUEUED),
    "bot/lifecycle/first_trials.py": (f"{LIFECYCLE}/test_first_trials.py",),
    "bot/lifecycle/disruptions.py": (f"{LIFECYCLE}/test_disruptions.py",),
    "bot/lifecycle/freshness.py": (f"{LIFECYCLE}/test_freshness.py",),
    "bot/lifecycle/live_values.py": (f"{LIFECYCLE}/test_live_values.py",),
    "bot/lifecycle/time_left.py": (f"{LIFECYCLE}/test_live_values.py",),
    "bot/lifecycle/trouble.py": (f"{LIFECYCLE}/test_trouble.py",),
    "bot/lifecycle/waiting.py": (f"{LIFECYCLE}/test_waiting.py",),
    "bot/sweeps/observe_nodes.py": ("tests/scenarios/test_nodes_of_two_sweeps.py",),
    "bot/core/stopping.py": ("tests/bot/core/test_stopping.py", "tests/bot/spaces/test_early_stopping.py"),
    "bot/text/masking.py": ("tests/bot/text/test_masking.py",),
    "bot/config/permissions.py": ("tests/bot/config/test_permissions.py",),
    "bot/config/teams.py": ("tests/bot/config/test_teams.py", "tests/bot/config/test_team_limits.py"),
    "bot/health/rules_admission.py": ADMISSION,
    "bot/health/rules_scheduling.py": SCHEDULING,
    "bot/health/rules_startup.py": STARTUP,
    "bot/health/rules_training.py": TRAINING,
    "bot/health/workers.py": (f"{HEALTH}/test_workers.py", *TRAINING),
    "bot/health/diagnosis.py": (f"{HEALTH}/test_diagnosis.py", *SCHEDULING),
    "bot/health/suggestion_restart.py": (f"{HEALTH}/test_suggestion_restart.py",),
    "bot/digests/figures.py": (*FIGURES, *HOURS_BY_PURPOSE),
    "bot/gpus/billing.py": (*BILL, *HOURS_BY_PURPOSE),
    "bot/gpus/sums.py": (*FIGURES, *BILL, "tests/bot/digests/test_clusters.py"),
    "bot/gpus/overrequest.py": ("tests/bot/gpus/test_overrequest.py",),
    "bot/idle/detector.py": IDLE,
    "bot/idle/alerts.py": IDLE,
    "bot/elastic/decision.py": ("tests/bot/elastic/test_decision.py",),
    "bot/elastic/supply.py": SUPPLY,
    "bot/elastic/preconditions.py": ("tests/bot/elastic/test_preconditions.py",),
    "bot/elastic/scaler.py": SCALER,
    "bot/capacity/nodes.py": (*CAPACITY, "tests/bot/capacity/test_measured_clusters.py"),
    "bot/capacity/quotas.py": ("tests/bot/capacity/test_quotas.py",),
    "bot/capacity/measure.py": (*CAPACITY, "tests/bot/capacity/test_measured_clusters.py"),
    "bot/launch/cluster_choice.py": CLUSTERS,
    "bot/launch/clusters.py": CLUSTERS,
    "bot/launch/capacity.py": ("tests/bot/launch/test_capacity.py", "tests/bot/launch/test_nodes.py"),
    "bot/launch/user_limits.py": (
        "tests/bot/launch/test_user_limits.py",
        "tests/scenarios/test_one_person.py",
        "tests/scenarios/test_limits_at_once.py",
    ),
    "bot/sweeps/observe_limits.py": (
        "tests/scenarios/test_one_person.py",
        "tests/scenarios/test_limits_at_once.py",
    ),
    "bot/environments/activity.py": ("tests/bot/environments/test_idle_decisions.py",),
    "bot/environments/idle.py": ("tests/bot/environments/test_idle_decisions.py",),
    "bot/environments/idle_job.py": ("tests/bot/environments/test_idle.py",),
    "bot/environments/permissions.py": ("tests/bot/environments/test_permissions.py",),
    "bot/operator/causes.py": ("tests/bot/operator/test_causes.py",),
    "bot/reservations/models.py": (
        "tests/bot/reservations/test_models.py",
        "tests/bot/reservations/test_until.py",
        "tests/scenarios/test_reservations.py",
    ),
    "bot/reservations/hold.py": ("tests/scenarios/test_reservations.py",),
    "bot/builds/image_gc.py": ("tests/bot/builds/test_image_gc.py",),
    "bot/storage/work_queue.py": QUEUE,
    "bot/storage/queue_scripts.py": QUEUE,
    "bot/storage/sweeps.py": ("tests/bot/storage/test_sweeps.py",),
    "bot/storage/leader.py": ("tests/bot/storage/test_leader.py",),
    "k8s/nodes/scheduling.py": ("tests/k8s/nodes/test_scheduling.py",),
    "k8s/nodes/machines.py": ("tests/k8s/nodes/test_machines.py",),
    "k8s/nodes/node_matching.py": ("tests/k8s/nodes/test_machines.py",),
    "k8s/nodes/gpu_pods.py": ("tests/k8s/nodes/test_gpu_pods.py", *CAPACITY),
    "k8s/api/outage.py": ("tests/k8s/api/test_outage.py", "tests/k8s/api/test_watch.py"),
    "k8s/api/errors.py": ("tests/k8s/api/test_errors.py",),
    "k8s/katib/patches.py": (
        f"{KATIB}/test_paced_counts.py",
        f"{KATIB}/test_katib.py",
        f"{LIFECYCLE}/test_gate.py",
        f"{LIFECYCLE}/test_extension.py",
        *PAUSE,
    ),
    "k8s/katib/status.py": (
        f"{KATIB}/test_katib.py",
        f"{KATIB}/test_ending.py",
        f"{KATIB}/test_multi_node.py",
    ),
    "k8s/kueue.py": ("tests/k8s/test_kueue.py", "tests/bot/capacity/test_quotas.py", *ADMISSION, *QUEUED),
    "k8s/quantities.py": ("tests/k8s/test_quantities.py",),
}

# (file, the mutated line) -> why no test has to distinguish it from the original
EQUIVALENT = {
    (
        "bot/sweeps/observe_limits.py",
        "first = (one for one in others if (one.created, one.id) <= (sweep.created, sweep.id))",
    ): "the sweep itself isn't among the others",
    (
        "bot/digests/figures.py",
        "return next(((*kind, number) for kind, number in partly.most_common(2)), None)",
    ): "next() takes the first of them",
    (
        "bot/lifecycle/live_values.py",
        "sign = -1 if sweep.plan.space.goal is Goal.MAXIMIZE else 2",
    ): "any positive factor keeps the order",
    (
        "bot/lifecycle/live_values.py",
        "sign = -2 if sweep.plan.space.goal is Goal.MAXIMIZE else 1",
    ): "any negative factor reverses the order",
    (
        "bot/storage/work_queue.py",
        "await self._sleep(min(left, float(found) - 0.001, MAX_BLOCK_SECONDS, self._lease / 4))",
    ): "wakes 2 ms earlier and looks once more",
    (
        "bot/lifecycle/pause.py",
        "pause = now - sweep.paused_at if sweep.paused_at else timedelta(1)",
    ): "only paused sweeps are resumed",
    (
        "bot/health/diagnosis.py",
        "rank = {GPU: 3, TAINT: 0, LABELS: 0}",
    ): "any rank above the others' 1 is first",
    (
        "bot/health/suggestion_restart.py",
        "if since is None and born is None or born > since:",
    ): "the API server sets both times",
    (
        "bot/environments/idle_job.py",
        "PARALLEL = 17  # servers asked at once; one that doesn't answer takes 10 seconds",
    ): "a limit of about this size",
    (
        "bot/environments/idle_job.py",
        "while part := await response.content.read(MAX_ANSWER + 2 - len(body)):",
    ): "an answer above the limit is refused anyway",
    (
        "bot/environments/idle_job.py",
        "if len(body) >= MAX_ANSWER:",
    ): "a limit of about this size",
    (
        "bot/lifecycle/pace.py",
        "GROW_AFTER = timedelta(minutes=3)  # since the last change, so that the number doesn't swing",
    ): "a time of about this length",
    (
        "bot/elastic/scaler.py",
        'replicas = found["spec"].get("replicas", 2)',
    ): "the API server sets it",
    (
        "bot/storage/leader.py",
        "async with renewing(ttl, lambda: renew([name], [token, round(ttl * 1001)])):",
    ): "a thousandth longer",
    (
        "bot/elastic/scaler.py",
        "for victim in found.victims if after <= before else ():",
    ): "it is called only for another number",
    (
        "bot/gpus/billing.py",
        "return begin, (begin + timedelta(days=33)).replace(day=1)",
    ): "33 days after a month's first are in the next month, too",
    (
        "bot/core/stopping.py",
        (
            "for _, rung, trial, value in "
            "sorted(_arrivals(rule, objective, rungs, curves), key=lambda each: each[:4]):"
        ),
    ): "a trial reaches a rung once, so the first three differ",
    (
        "bot/lifecycle/live_values.py",
        "if sweep.plan is None and sweep.plan.space.seed or seen.reading is None or seen.reading.failures:",
    ): "a running sweep has a plan",
    (
        "bot/environments/idle_job.py",
        "while part := await response.content.read(MAX_ANSWER - 1 - len(body)):",
    ): "an answer that is cut off is unknown, too",
    (
        "bot/storage/work_queue.py",
        "await asyncio.sleep(ttl / 4)",
    ): "renews more often",
    (
        "bot/storage/work_queue.py",
        "since: float = 1  # milliseconds, by Redis' clock",
    ): "the default of a lease that only tests use",
    (
        "bot/storage/sweeps.py",
        "async with self._redis.pipeline(transaction=False) as all_:",
    ): "each removal stands alone",
    (
        "bot/core/stopping.py",
        "MAX_RUNGS = 13  # of one trial",
    ): "a limit of about this size",
    ("k8s/nodes/scheduling.py", "priority: int = 1"): "`read_scheduled` sets it",
    (
        "k8s/kueue.py",
        'return sum(gpus_of(each) for each in containers) * int(pods.get("count", 2))',
    ): "the API server sets it",
}
