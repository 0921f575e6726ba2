"""What the API server fills in and what it refuses."""

from local.kubernetes.kinds import KINDS, Kind, Object, clone


def kind_of(obj: Object) -> Kind:
    return KINDS[obj["kind"]]


def decoded(_kind: Kind, obj: Object) -> Object:
    return clone(obj)


def complete(kind: Kind, obj: Object) -> None:
    if kind.name == "Pod":
        obj.setdefault("status", {"phase": "Pending", "qosClass": "BestEffort"})


def check_new(kind: Kind, obj: Object) -> None:
    pass


def check_update(kind: Kind, old: Object, new: Object) -> None:
    pass
