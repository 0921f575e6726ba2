"""What a sweep's picture and its alternative text show. Pure."""

from bot.charts.axes import Scale
from bot.charts.importances import importances
from bot.results.models import SweepResults
from bot.results.ranking import ranked


class Content:
    """What the picture and its alternative text show."""

    def __init__(self, results: SweepResults) -> None:
        self.results, self.space = results, results.space
        timed = sorted(results.trials, key=lambda t: (t.started is None, str(t.started), t.name))
        self.finite = [trial for trial in timed if trial.value is not None]
        self.values = [trial.value for trial in self.finite if trial.value is not None]
        self.best = ranked(self.space.goal, self.finite, results.best)[0] if self.finite else None
        self.importances = {} if self.space.seed else importances(results)
        scales = [] if self.space.seed else [Scale(p, self.finite) for p in self.space.parameters]
        varied = [scale for scale in scales if scale.varies]
        weight = self.importances
        self.scales = sorted(varied, key=lambda scale: -weight.get(scale.name, 0.0))
        self.curves = {name: curve for name, curve in results.curves.items() if len(curve) > 1}
