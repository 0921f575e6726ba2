"""Resolve `budget=` to GPU-hours, at the highest price of the GPUs that the trials can get, or refuse it,
such as without GPUs or a price. Pure.
"""

from dataclasses import replace

from bot.core.budget import Budget, read_budget
from bot.core.errors import UserError
from bot.platform.commands.option_types import invalid
from bot.platform.config.policy import Config
from bot.platform.config.teams import Price, price_of, prices_for, team_of
from bot.sweep.launch.plan import Order
from k8s.katib.pod_shape import PodShape
from k8s.nodes.gpus import PROFILE, SLICE

MODEL_LABEL = "nvidia.com/gpu.product"  # of nodes: the model with dashes for spaces


def with_budget(order: Order, config: Config) -> Order:
    """Return the order with its price, and with its budget if it has one.

    Raises UserError if nothing can be counted.
    """
    prices = prices_for(config.prices, order.team or team_of(config.teams, order.namespace, order.owner))
    order = replace(order, price=_highest(prices, order.shape))
    text, price = order.space.budget, order.price
    if not text:
        return order
    if not order.request.gpus:
        raise UserError("budget= limits GPU-hours, and these trials have no GPUs. Remove it.", field="budget")
    try:
        amount, is_money = read_budget(text, config.currency)
    except ValueError as error:
        raise invalid("budget", str(error), text) from None
    if not is_money:
        return replace(order, budget=Budget(gpu_hours=amount))
    if not price:
        why = f"budget={text}: the configuration has no price of a GPU-hour"
        raise UserError(f"{why}. Set GPU-hours, for example budget=40.", field="budget")
    budget = Budget(gpu_hours=amount / price, price=price, currency=config.currency)
    return replace(order, budget=budget)


def _highest(prices: tuple[Price, ...], shape: PodShape) -> float:
    """Return the highest price of the GPUs on which the pods can run; of all, unless labels name them."""
    named = shape.node_choices.get(MODEL_LABEL, ()) or filter(None, [shape.nodes.get(MODEL_LABEL, "")])
    known = [price_of(prices, offered(label, shape.resource)) for label in named]
    if known and None not in known:
        return max(filter(None, known), default=0.0)
    of_all = (price_of((each,), offered(each.model, shape.resource)) or each.hourly for each in prices)
    return max(of_all, default=0.0)


def offered(model: str, resource: str) -> str:
    """Return the model of a node's label with the slice that the resource is, unless the label has it."""
    model, found = model.replace("-MIG-", SLICE), PROFILE.fullmatch(resource)
    return f"{model}{SLICE}{found[1]}" if model and found and SLICE not in model else model
