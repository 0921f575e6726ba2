"""Describe services in messages and answers. Pure."""

from bot.services.snippet import Service
from bot.slack.mrkdwn import code
from bot.text.wording import counted


def sizes(service: Service) -> str:
    """Return the image and what each replica gets."""
    gpus = counted(service.gpus, "GPU") if service.gpus else "no GPU"
    each = " each" if service.replicas > 1 else ""
    what = f"{gpus}, {service.cpu} CPU, and {service.memory} of memory{each}"
    return f"{code(service.image)}, {counted(service.replicas, 'replica')} with {what}"


def partly(service: Service, ready: int, step: str) -> str:
    """Return the state of a service of which some replicas aren't ready."""
    return f"Running, {ready} of {counted(service.replicas, 'replica')} ready: {step}"
