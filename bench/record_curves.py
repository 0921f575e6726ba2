"""Record learning curves by training: `python -m bench.record_curves [SET ...]` writes bench/curves/SET.json.

Five small trainings of scikit-learn on what it brings along, with settings drawn at random: networks that
classify digits, tumors, and the next character of a text, and that paint a photo; trees that predict
diabetes. A line is one trial: the validation loss after each epoch, null if it isn't finite, and the mean
seconds of CPU that an epoch took on the machine that recorded. The losses are the same on every run, the
times are not.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler

FOLDER = Path(__file__).parent / "curves"
TRIALS, EPOCHS, SEED = 64, 81, 0
CONTEXT, EXAMPLES = 4, 600  # characters before the predicted one; characters, and pixels
TREES = 4  # of an epoch

Draw = np.random.Generator


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    warnings.simplefilter("ignore")  # a diverging network overflows; its loss is recorded as null
    for name in sys.argv[1:] or SETS:
        lines = ",\n".join(json.dumps(trial, separators=(",", ":")) for trial in recorded(name))
        (FOLDER / f"{name}.json").write_text(f"[\n{lines}\n]\n")


def recorded(name: str) -> list[dict[str, Any]]:
    load, settings, train = SETS[name]
    inputs, test, targets, test_targets = train_test_split(*load(), test_size=0.3, random_state=SEED)
    scaler = StandardScaler().fit(inputs)
    data = scaler.transform(inputs), targets, scaler.transform(test), test_targets
    draw = np.random.default_rng(SEED)
    return [_trial(train, settings(draw), data) for _ in range(TRIALS)]


def _trial(train: "Train", chosen: dict[str, Any], data: "Data") -> dict[str, Any]:
    began = time.process_time()
    losses = train(chosen, *data)
    seconds = (time.process_time() - began) / EPOCHS
    shown = [float(f"{loss:.4g}") if np.isfinite(loss) else None for loss in losses]
    return {"seconds": float(f"{seconds:.3g}"), "loss": shown}


def text() -> tuple[Any, Any]:
    """Return the characters before some places of the data sets' descriptions, and the character there."""
    words = " ".join(getattr(datasets, f"load_{name}")().DESCR for name in ("diabetes", "iris", "wine"))
    letters = np.array([ord(letter) for letter in words.lower()])
    places = np.random.default_rng(SEED).choice(len(letters) - CONTEXT, EXAMPLES, replace=False)
    known = letters[places[:, None] + np.arange(CONTEXT)]
    return (known[:, :, None] == np.unique(letters)).reshape(EXAMPLES, -1), letters[places + CONTEXT]


def photo() -> tuple[Any, Any]:
    """Return waves at some pixels' coordinates, and the pixels' colors."""
    picture = datasets.load_sample_image("china.jpg") / 255
    draw = np.random.default_rng(SEED)
    at = draw.random((EXAMPLES, 2))
    colors = picture[tuple((at * picture.shape[:2]).astype(int).T)]
    waves = at @ draw.normal(0, 10, (2, 16))
    return np.hstack([np.sin(waves), np.cos(waves)]), colors


def network(draw: Draw) -> dict[str, Any]:
    return {
        "learning_rate_init": float(f"{10 ** draw.uniform(-5, 0):.3g}"),
        "alpha": float(f"{10 ** draw.uniform(-6, 0):.3g}"),
        "batch_size": int(draw.choice([16, 32, 64, 128])),
        "hidden_layer_sizes": [int(draw.choice([8, 16, 32, 64]))] * int(draw.integers(1, 4)),
        "solver": str(draw.choice(["adam", "sgd"])),
    }


def classifier(chosen: dict[str, Any], train: Any, labels: Any, test: Any, test_labels: Any) -> list[float]:
    network = MLPClassifier(**chosen, random_state=SEED)
    classes = np.unique(np.append(labels, test_labels))

    def epoch() -> float:
        network.partial_fit(train, labels, classes=classes)
        return float(log_loss(test_labels, network.predict_proba(test), labels=classes))

    return [_finite(epoch) for _ in range(EPOCHS)]


def regressor(chosen: dict[str, Any], train: Any, targets: Any, test: Any, test_targets: Any) -> list[float]:
    network = MLPRegressor(**chosen, random_state=SEED)

    def epoch() -> float:
        network.partial_fit(train, targets)
        return float(mean_squared_error(test_targets, network.predict(test)))

    return [_finite(epoch) for _ in range(EPOCHS)]


def _finite(epoch: Callable[[], float]) -> float:
    try:
        return epoch()
    except ValueError:  # the network's weights aren't finite any more
        return float("nan")


def ensemble(draw: Draw) -> dict[str, Any]:
    return {
        "learning_rate": 10 ** draw.uniform(-3, 0),
        "max_depth": int(draw.integers(1, 7)),
        "min_samples_leaf": int(draw.integers(1, 20)),
        "subsample": draw.uniform(0.3, 1),
        "max_features": draw.uniform(0.2, 1),
    }


def trees(chosen: dict[str, Any], train: Any, targets: Any, test: Any, test_targets: Any) -> list[float]:
    boosting = GradientBoostingRegressor(**chosen, n_estimators=EPOCHS * TREES, random_state=SEED)
    boosting.fit(train, targets)
    predicted = list(boosting.staged_predict(test))[TREES - 1 :: TREES]
    return [float(mean_squared_error(test_targets, each)) for each in predicted]


Data = tuple[Any, Any, Any, Any]
Train = Callable[..., list[float]]
SETS: dict[str, tuple[Callable[[], tuple[Any, Any]], Callable[[Draw], dict[str, Any]], Train]] = {
    "digits": (lambda: datasets.load_digits(return_X_y=True), network, classifier),
    "breast-cancer": (lambda: datasets.load_breast_cancer(return_X_y=True), network, classifier),
    "diabetes": (lambda: datasets.load_diabetes(return_X_y=True), ensemble, trees),
    "text": (text, network, classifier),
    "photo": (photo, network, regressor),
}

if __name__ == "__main__":
    main()
