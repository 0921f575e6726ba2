"""Save a checkpoint when Kubernetes stops the trial, and resume from it.

Kubernetes sends SIGTERM, waits `grace_seconds`, and then kills. The handler only sets a flag: the loop saves
between two steps, when the model is in one piece.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from tensorboardX import SummaryWriter

stopping = False


def stop(*_: object) -> None:
    global stopping  # noqa: PLW0603
    stopping = True


def main() -> None:
    signal.signal(signal.SIGTERM, stop)
    args = arguments()
    # Katib gives a trial the same name after a preemption, so its next pod finds what this one saved.
    checkpoint = Path(args.checkpoints, os.environ.get("KATIB_TRIAL_NAME", "local"), "last.json")
    state = load(checkpoint)
    writer = SummaryWriter(args.tensorboard_dir, flush_secs=10)
    while state["step"] < args.steps:
        state = train_step(state, args.lr)
        writer.add_scalar("loss", state["loss"], state["step"])
        if stopping:
            save(checkpoint, state)
            print(f"stopped at step {state['step']}, checkpoint saved", flush=True)
            sys.exit(1)
        time.sleep(args.pause)
    writer.close()
    print(f"loss={state['loss']:.4f}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pause", type=float, default=1, help="seconds that a step takes")
    parser.add_argument("--checkpoints", default="/scratch/checkpoints", help="a directory on a volume")
    parser.add_argument("--tensorboard_dir", default="/tmp/runs")
    return parser.parse_args()


def train_step(state: dict, lr: float) -> dict:
    """With PyTorch: forward, backward, optimizer.step()."""
    weight = state["weight"] - lr * 2 * state["weight"]
    return {"step": state["step"] + 1, "weight": weight, "loss": weight**2}


def load(checkpoint: Path) -> dict:
    """With PyTorch: torch.load, for the model, the optimizer, and the step."""
    if not checkpoint.exists():
        return {"step": 0, "weight": 1.0, "loss": 1.0}
    state = json.loads(checkpoint.read_text())
    print(f"resumed at step {state['step']}", flush=True)
    return state


def save(checkpoint: Path, state: dict) -> None:
    """Write a new file, then rename it: a kill in the middle leaves the old checkpoint whole."""
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    new = checkpoint.with_suffix(".new")
    new.write_text(json.dumps(state))
    new.rename(checkpoint)


if __name__ == "__main__":
    main()
