"""Readable sweep ids, such as lr-brave-otter: their words, their length (27 characters, for Katib's derived
names), and which parts of one can be typed.
"""

import hashlib
import re
from collections.abc import Iterator

from k8s.objects import name

MAX_ID = 27
SWEEP_ID = re.compile(r"[a-z][a-z0-9-]{1,26}")
ADJECTIVES = """
    able agile amber ample apt azure bold brave brief bright brisk calm cheery clean clear clever
    cool coral cosmic cosy crisp daring dear deft eager early easy epic fair famous fancy fast fine
    firm fleet fluent fond free fresh frosty gentle giant glad golden good grand great green happy
    hardy hearty honest humble ideal jade jolly keen kind large late light lively loyal lucid lucky
    lunar magic mellow merry mighty mild modest neat nimble noble novel opal open patient plucky
    polite prime proud pure quick quiet rapid rare ready regal robust rosy royal ruby rustic sage
    serene sharp shiny silent silver simple sleek smart smooth snowy solar solid sonic spry stable
    steady still strong sunny super sure swift tidy true upbeat urban valid vast vivid warm wise
    witty young zesty
""".split()  # noqa: SIM905  two hundred quotes would hide the words
ANIMALS = """
    adder alpaca ant badger bat bear beaver bee beetle bison boar bobcat camel caribou cat cheetah
    civet cobra cod condor coot cougar crab crane cricket crow cuckoo deer dingo dodo dolphin dove
    duck eagle eel egret elk emu falcon ferret finch fox frog gannet gecko gibbon goat goose gopher
    grouse gull hare hawk hedgehog heron hippo hornet horse hyena ibex ibis iguana impala jackal
    jaguar jay kestrel kite kiwi koala koi lark lemur leopard lion lizard llama lobster lynx macaw
    magpie mamba marmot marten mink mole moose moth mouse mule newt ocelot octopus okapi orca oriole
    osprey ostrich otter owl ox oyster panda panther parrot pelican penguin perch pigeon pike plover
    pony puffin puma python quail rabbit raccoon ram raven robin rook salmon seal shark sheep shrew
    shrimp skunk sloth snail sole sparrow spider squid stork swan tapir tern tiger toad toucan trout
    tuna turtle viper vole walrus wasp weasel whale wolf wombat wren yak zebra
""".split()  # noqa: SIM905  two hundred quotes would hide the words


def candidates(head: str, seed: str, count: int = 8) -> Iterator[str]:
    """Return ids to try in order, the same for the same seed: a repeated delivery is the same sweep."""
    return (_id(head, f"{seed}/{n}") for n in range(count))


def is_meant(sweep: str, typed: str) -> bool:
    """Return whether a typed name is the start, the end, or a whole word of the sweep's name."""
    return sweep.startswith(typed) or sweep.endswith(typed) or f"-{typed}-" in sweep


def _id(head: str, seed: str) -> str:
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")
    number, adjective = divmod(number, len(ADJECTIVES))
    words = f"{ADJECTIVES[adjective]}-{ANIMALS[number % len(ANIMALS)]}"
    short = name(head)[: MAX_ID - len(words) - 2].strip("-")
    # Katib's names start with a letter.
    return f"{short if short[0].isalpha() else 's' + short}-{words}"
