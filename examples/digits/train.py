"""A small network learns to read handwritten digits: real training, in seconds, on one core.

It does what Sweepbot needs of a training program: each parameter is a flag, and the metric of the space file
is logged to `--tensorboard_dir`. MLflow is optional; its run gets the trial's name from the environment.
"""

import os

# Several trials share a machine, and numpy would start a thread per core in each of them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import importlib.util
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from tensorboardX import SummaryWriter

PLACES = {"tensorboard_dir", "wait"}  # flags that are no parameters

Array = np.ndarray
Update = Callable[[list[Array], list[Array]], None]


def main() -> None:
    args = arguments()
    time.sleep(args.wait)
    rng = np.random.default_rng(args.seed)
    weights = network(rng, [64, *[args.hidden] * args.layers, 10])
    update = optimizer(args.optimizer, args.lr, weights)
    inputs, labels = digits()
    order = rng.permutation(len(labels))
    train, held_out = order[:-400], order[-400:]
    log = Log(args)
    for epoch in range(1, args.epochs + 1):
        for batch in np.array_split(rng.permutation(train), len(train) // 32):
            update(weights, gradients(weights, inputs[batch], labels[batch]))
        loss, accuracy = evaluate(weights, inputs[held_out], labels[held_out])
        print(f"epoch {epoch}/{args.epochs} val_loss={loss:.4f} val_accuracy={accuracy:.4f}", flush=True)
        log.metrics(epoch, {"val_loss": loss, "val_accuracy": accuracy})
    log.close()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tensorboard_dir", default="/tmp/runs")
    parser.add_argument("--wait", type=float, default=0, help="seconds before it begins, its GPU idle")
    return parser.parse_args()


def digits() -> tuple[Array, Array]:
    """1797 pictures of 8 × 8 dots from scikit-learn's wheel; importing scikit-learn itself takes seconds."""
    package = importlib.util.find_spec("sklearn")
    folder = package.submodule_search_locations[0]
    table = np.loadtxt(Path(folder, "datasets", "data", "digits.csv.gz"), delimiter=",")
    return table[:, :-1] / 16, table[:, -1].astype(int)


def network(rng: np.random.Generator, sizes: list[int]) -> list[Array]:
    """Weights and biases, alternating."""
    return [part for i, o in pairwise(sizes) for part in (rng.normal(0, (2 / i) ** 0.5, (i, o)), np.zeros(o))]


def forward(weights: list[Array], inputs: Array) -> tuple[list[Array], Array]:
    """What each layer sees, and the logarithms of the ten probabilities."""
    seen = [inputs]
    for matrix, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
        seen.append(np.maximum(seen[-1] @ matrix + bias, 0))
    scores = seen[-1] @ weights[-2] + weights[-1]
    scores -= scores.max(axis=1, keepdims=True)
    return seen, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def gradients(weights: list[Array], inputs: Array, labels: Array) -> list[Array]:
    seen, logs = forward(weights, inputs)
    error = (np.exp(logs) - np.eye(10)[labels]) / len(labels)
    found: list[Array] = []
    for layer in reversed(range(len(seen))):
        found = [seen[layer].T @ error, error.sum(axis=0), *found]
        error = (error @ weights[2 * layer].T) * (seen[layer] > 0)
    return found


def evaluate(weights: list[Array], inputs: Array, labels: Array) -> tuple[float, float]:
    _, logs = forward(weights, inputs)
    return float(-logs[np.arange(len(labels)), labels].mean()), float((logs.argmax(axis=1) == labels).mean())


def optimizer(name: str, lr: float, weights: list[Array]) -> Update:
    makers = {"adam": adam, "sgd": sgd}
    if name not in makers:
        raise ValueError(f"unknown optimizer {name!r}; choose {' or '.join(makers)}")
    return makers[name](lr, weights)


def sgd(lr: float, weights: list[Array]) -> Update:
    """With momentum."""
    speeds = [np.zeros_like(weight) for weight in weights]

    def update(weights: list[Array], slopes: list[Array]) -> None:
        for i, slope in enumerate(slopes):
            speeds[i] = 0.9 * speeds[i] - lr * slope
            weights[i] += speeds[i]

    return update


def adam(lr: float, weights: list[Array]) -> Update:
    means = [np.zeros_like(weight) for weight in weights]
    squares = [np.zeros_like(weight) for weight in weights]
    steps = 0

    def update(weights: list[Array], slopes: list[Array]) -> None:
        nonlocal steps
        steps += 1
        for i, slope in enumerate(slopes):
            means[i] = 0.9 * means[i] + 0.1 * slope
            squares[i] = 0.999 * squares[i] + 0.001 * slope**2
            mean, square = means[i] / (1 - 0.9**steps), squares[i] / (1 - 0.999**steps)
            weights[i] -= lr * mean / (np.sqrt(square) + 1e-8)

    return update


class Log:
    """TensorBoard always, because Katib reads it; MLflow where there is a server."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.writer = SummaryWriter(args.tensorboard_dir, flush_secs=10)  # its default is 120
        self.mlflow = None
        if os.environ.get("MLFLOW_TRACKING_URI"):
            import mlflow  # noqa: PLC0415, it takes seconds

            self.mlflow = mlflow
            mlflow.log_params({key: value for key, value in vars(args).items() if key not in PLACES})

    def metrics(self, epoch: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, epoch)
        if self.mlflow:
            self.mlflow.log_metrics(values, step=epoch)

    def close(self) -> None:
        self.writer.close()
        if self.mlflow:
            self.mlflow.end_run()


if __name__ == "__main__":
    main()
