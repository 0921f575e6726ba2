"""GPU errors: reported once to the admins, with their meaning."""

from bot.measure.gpus.xid import message, news
from k8s.nodes.dcgm import Xid


def xid(code: int, device: str = "GPU-1", **more: str) -> Xid:
    return Xid(device=device, node="n1", model="NVIDIA A100", code=code, **more)


def test_new_errors_are_changes_and_one_per_gpu() -> None:
    new, known = news({}, [xid(79), xid(0, "GPU-2")])
    assert ([each.code for each in new], known) == ([79], {"GPU-1": 79, "GPU-2": 0})
    assert news(known, [xid(79), xid(0, "GPU-2")])[0] == []
    assert [each.code for each in news(known, [xid(31)])[0]] == [31]
    known = news({"GPU-1": 79}, [xid(0)])[1]
    assert [each.code for each in news(known, [xid(79)])[0]] == [79]
    assert news({"GPU-1": 79}, []) == ([], {"GPU-1": 79})
    assert len(news({}, [xid(94), xid(94), xid(0)])[0]) == 1


def test_error_names_who_must_act_without_mentions() -> None:
    text = message([xid(79, namespace="sweeps", pod="lr-x"), xid(31), xid(999)]).text
    machine = "Hardware fault: check the node, and cordon it with `kubectl cordon n1`."
    assert text.splitlines() == [
        ":warning: GPU errors:",
        f"• `n1` `GPU-1` NVIDIA A100, allocated to `sweeps/lr-x`: Xid 79, fallen off the bus. {machine}",
        "• `n1` `GPU-1` NVIDIA A100: Xid 31, memory page fault. Usually caused by the program.",
        "• `n1` `GPU-1` NVIDIA A100: Xid 999, unknown. See NVIDIA's Xid catalog.",
    ]
    text = message([xid(79, namespace="gpu-operator", pod="nvidia-dcgm-exporter-x7")]).text
    assert "allocated to" not in text
    text = message([xid(79, f"GPU-{'<!here>' * 20}{n}") for n in range(500)]).text
    assert len(text) < 4000
    assert "<!here>" not in text
    assert text.endswith("… and 485 more")
