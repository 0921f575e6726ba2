"""A curve is fitted to noisy points: a minimal training, in a second.

It needs nothing of Sweepbot and no Dockerfile: `pyproject.toml` and `uv.lock` list its dependencies.
"""

import argparse

import numpy as np
from tensorboardX import SummaryWriter


def main() -> None:
    args = arguments()
    rng = np.random.default_rng(args.seed)
    x = np.linspace(-1, 1, 200)
    y = np.sin(4 * x) + rng.normal(0, 0.1, x.size)
    powers = np.vander(x, args.degree + 1, increasing=True)
    weights = np.zeros(args.degree + 1)
    with SummaryWriter(args.tensorboard_dir) as log:
        for step in range(1, args.steps + 1):
            error = powers @ weights - y
            weights -= args.lr * powers.T @ error / x.size
            if step % 50 == 0:
                loss = float(np.mean((powers @ weights - np.sin(4 * x)) ** 2))
                print(f"step {step}/{args.steps} val_loss={loss:.5f}", flush=True)
                log.add_scalar("val_loss", loss, step)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--degree", type=int, default=7)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tensorboard_dir", default="/tmp/runs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
