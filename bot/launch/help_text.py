"""The text of `/sweep help`."""

from bot.core.space import ALGORITHMS

EXAMPLE = "`/sweep branch=main gpus=1 space=lr`"
HELP = f"""*Start a sweep*
• `/sweep` opens a form.
• {EXAMPLE} builds the branch and runs the search in its `sweeps/lr.yaml`, one GPU per trial.
• `/sweep branch=main seeds=5 cmd="python train.py"` runs a command once with each seed, and reports mean \
and deviation.
*Options*
• Machines: `gpus=`, `nodes=` (machines per trial), `profile=` (machine type), `cluster=`
• Code: `branch=`, `space=`, `repo=` (name or URL), `image=` (prebuilt; skips the build), \
`cmd="python train.py --epochs=3"`, `flags=` (`a.b=1` for Hydra, `env`)
• Search: `trials=`, `parallel=` (a number, or `auto` to follow free GPUs), `max_hours=` (for the whole \
sweep), `gate=off` (don't run one trial first), `algorithm=` ({", ".join(ALGORITHMS)})
• Metric: `metric=`, `goal=`, `metrics=` (`stdout`, `push`, or a file)
• Queue: `queue=`, `priority=` (`low`, `normal`, or `high`)
• Messages: `name=`, `notify=` (`channel`, `dm`, or `none`: thread only)
*See results*
• `/sweep list`, `status`, `logs`, `results`, `curves` (learning curves)
• `compare A B`, and `history space=lr` (a space's best results by week)
*Change a sweep*
• `/sweep cancel`, `drain` (start no new trials), `pause` (until `resume`; `pause now` stops running trials)
• On hold after a failed first trial: `retry` runs it again, and `open` starts all trials.
• `extend trials=20` (new total), `rerun` (plus any option to change), `promote seeds=5` (the best \
parameters with several seeds)
• `/sweep queue` shows who waits for what; `queue raise`, `lower`, `move queue=NAME`, `hold`, and `release` \
change a sweep's place.
Name a sweep by its full name, or by a part of it: `/sweep logs otter`. `logs` and `cancel` also take a trial.
*More*
• In a sweep's thread, mention me: `@sweepbot logs`. I can't read direct messages.
• `/gpus` shows free GPUs; `/gpus help` lists all views.
• `/env help`: research environments, where an admin has configured them
• Admins: `/sweep doctor` checks the installation, `/sweep setup` sets a channel's repository and daily \
digest, `/sweep release NAME` retries what Sweepbot quarantined, and `/sweep admin inspect SWEEP` shows why \
a sweep doesn't continue (also `ps`, `retry`, and `recover`)."""
