"""GPU errors: reported once to the admins, with their meaning."""

from bot.gpus.models import Xid
from bot.gpus.xid import message, news


def xid(code: int, device: str = "GPU-1", **more: str) -> Xid:
    return Xid(device=device, node="n1", model="NVIDIA A100", code=code, **more)


def test_only_what_changes_is_news() -> None:
    new, known = news({}, [xid(79), xid(0, "GPU-2")])
    assert ([each.code for each in new], known) == ([79], {"GPU-1": 79, "GPU-2": 0})
    assert news(known, [xid(79), xid(0, "GPU-2")])[0] == []
    assert [each.code for each in news(known, [xid(31)])[0]] == [31]


def test_a_new_exporter_begins_at_none_and_then_it_is_news_again() -> None:
    known = news({"GPU-1": 79}, [xid(0)])[1]
    assert [each.code for each in news(known, [xid(79)])[0]] == [79]


def test_a_gpu_that_is_not_seen_keeps_what_was_known() -> None:
    assert news({"GPU-1": 79}, []) == ([], {"GPU-1": 79})


def test_the_slices_of_one_gpu_are_one_error() -> None:
    assert len(news({}, [xid(94), xid(94), xid(0)])[0]) == 1


def test_it_says_whose_matter_it_is() -> None:
    text = message([xid(79, namespace="sweeps", pod="lr-x"), xid(31), xid(999)]).text
    machine = "Hardware fault: check the node, and cordon it with `kubectl cordon n1`."
    assert text.splitlines() == [
        ":warning: GPU errors:",
        f"• `n1` `GPU-1` NVIDIA A100, allocated to `sweeps/lr-x`: Xid 79, fallen off the bus. {machine}",
        "• `n1` `GPU-1` NVIDIA A100: Xid 31, memory page fault. Usually caused by the program.",
        "• `n1` `GPU-1` NVIDIA A100: Xid 999, unknown. See NVIDIA's Xid catalog.",
    ]


def test_a_free_gpu_is_not_its_exporters() -> None:
    text = message([xid(79, namespace="gpu-operator", pod="nvidia-dcgm-exporter-x7")]).text
    assert "allocated to" not in text


def test_many_stay_short_and_call_nobody() -> None:
    text = message([xid(79, f"GPU-{'<!here>' * 20}{n}") for n in range(500)]).text
    assert len(text) < 4000
    assert "<!here>" not in text
    assert text.endswith("… and 485 more")
