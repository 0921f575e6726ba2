"""Record learning curves by training: `python -m bench.record_curves` writes bench/curves/*.json.

Small networks of scikit-learn on its bundled data sets, with settings drawn at random: the validation loss
after each epoch, and the seconds of CPU that the epoch took on the machine that recorded. The losses are the
same on every run, the times are not.
"""

import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

FOLDER = Path(__file__).parent / "curves"
DATA = {"digits": load_digits, "breast-cancer": load_breast_cancer}
TRIALS, EPOCHS, SEED = 64, 81, 0


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    warnings.simplefilter("ignore")  # a diverging network overflows; its loss is recorded as null
    for name in DATA:
        lines = ",\n".join(json.dumps(trial) for trial in recorded(name))
        (FOLDER / f"{name}.json").write_text(f"[\n{lines}\n]\n")


def recorded(name: str) -> list[dict[str, Any]]:
    inputs, labels = DATA[name](return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(
        inputs, labels, test_size=0.3, random_state=SEED
    )
    scaler = StandardScaler().fit(train)
    data = scaler.transform(train), train_labels, scaler.transform(test), test_labels
    draw = np.random.default_rng(SEED)
    return [trained(settings(draw), *data) for _ in range(TRIALS)]


def settings(draw: np.random.Generator) -> dict[str, Any]:
    return {
        "learning_rate_init": float(f"{10 ** draw.uniform(-5, 0):.3g}"),
        "alpha": float(f"{10 ** draw.uniform(-6, 0):.3g}"),
        "batch_size": int(draw.choice([16, 32, 64, 128])),
        "hidden_layer_sizes": [int(draw.choice([8, 16, 32, 64]))] * int(draw.integers(1, 4)),
        "solver": str(draw.choice(["adam", "sgd"])),
    }


def trained(chosen: dict[str, Any], train: Any, labels: Any, test: Any, test_labels: Any) -> dict[str, Any]:
    """Train one network. Return its settings, and by epoch its validation loss and its seconds."""
    network, classes = MLPClassifier(**chosen, random_state=SEED), np.unique(labels)
    losses, seconds = [], []
    for _ in range(EPOCHS):
        began = time.process_time()
        try:
            network.partial_fit(train, labels, classes=classes)
            loss = float(log_loss(test_labels, network.predict_proba(test), labels=classes))
        except ValueError:  # the network's weights aren't finite any more
            loss = float("nan")
        seconds.append(round(time.process_time() - began, 4))
        losses.append(float(f"{loss:.5g}") if np.isfinite(loss) else None)
    return {"settings": chosen, "loss": losses, "seconds": seconds}


if __name__ == "__main__":
    main()
