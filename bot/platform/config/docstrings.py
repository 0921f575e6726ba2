"""Read the docstrings of fields, which Python doesn't keep, when a reference, schema, or error shows them.

Pydantic would read them while it makes the class: at each start, also of processes that show none.
"""

import ast
import inspect
from functools import cache
from itertools import pairwise
from typing import cast


def docstrings(kind: type) -> dict[str, str]:
    """Return the docstrings of a class's fields, inherited ones too, each on one line."""
    return {name: text for base in reversed(kind.__mro__) for name, text in _own(base).items()}


@cache
def _own(kind: type) -> dict[str, str]:
    if not vars(kind).get("__annotations__"):
        return {}
    [definition] = ast.parse(inspect.getsource(kind)).body
    found = dict[str, str]()
    for field, text in pairwise(cast("ast.ClassDef", definition).body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                found[name] = " ".join(meaning.split())
    return found
