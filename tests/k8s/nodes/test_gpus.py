"""GPUs in objects and in dcgm-exporter's text."""

from datetime import UTC, datetime

import pytest

from k8s.nodes.dcgm import Load, Reading, Xid, is_exporter, read_errors, read_exporter
from k8s.nodes.gpu_pods import read_gpu_pod
from k8s.nodes.gpus import (
    NodeDevices,
    concerns_gpus,
    is_shared,
    node_sizes,
    read_node,
    read_usage,
    with_share,
)
from tests.cases import cases

# The labels that dcgm-exporter's sources give to a metric; the host's was renamed in 2026.
TEXT = """\
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-4dc0",pci_bus_id="00000000:65:00.0",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB",Hostname="n1",container="main",namespace="sweeps",pod="t-1-x"} 97
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-5ed1",pci_bus_id="00000000:66:00.0",device="nvidia1",modelName="NVIDIA A100-SXM4-80GB",Hostname="n1",container="",namespace="",pod=""} 0
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-4dc0",modelName="NVIDIA A100-SXM4-80GB",namespace="sweeps",pod="t-1-x"} 71680
DCGM_FI_DEV_FB_USED_PERCENT{gpu="0",UUID="GPU-4dc0",modelName="NVIDIA A100-SXM4-80GB",namespace="sweeps",pod="t-1-x"} 0.9
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-4dc0",modelName="NVIDIA A100-SXM4-80GB",namespace="sweeps",pod="t-1-x"} 101.5
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-4dc0",modelName="NVIDIA A100-SXM4-80GB",namespace="sweeps",pod="t-1-x"} 0.02
DCGM_FI_PROF_SM_ACTIVE{gpu="1",UUID="GPU-5ed1",modelName="NVIDIA A100-SXM4-80GB"} 140737488355328
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-5ed1",modelName="NVIDIA A100-SXM4-80GB"} 9223372036854775792
DCGM_FI_DEV_POWER_USAGE{gpu="2",UUID="GPU-6fe2",modelName="NVIDIA A100-SXM4-80GB",GPU_I_ID="1",namespace="vision",pod="nb-0"} 70
# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio of time the graphics engine is active.
# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-4dc0",modelName="NVIDIA A100-SXM4-80GB",Hostname="n1",container="main",namespace="sweeps",pod="t-1-x"} 0.903412
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="2",UUID="GPU-6fe2",modelName="NVIDIA A100-SXM4-80GB",GPU_I_PROFILE="3g.40gb",GPU_I_ID="1",hostname="n1",container="main",namespace="vision",pod="nb-0"} 0.000000
"""  # noqa: E501


def test_exporter_text_has_one_reading_per_gpu_and_slice() -> None:
    model = "NVIDIA A100-SXM4-80GB"
    found = sorted(read_exporter(TEXT), key=lambda each: each.device)
    assert found == [
        Reading(
            namespace="sweeps",
            pod="t-1-x",
            device="GPU-4dc0",
            model=model,
            share=0.903412,
            index="0",
            load=Load(sm=0.02, watts=101.5, memory=70),
        ),
        Reading(namespace="", pod="", device="GPU-5ed1", model=model, share=0.0, index="1"),
        Reading(
            namespace="vision",
            pod="nb-0",
            device="GPU-6fe2/1",
            model=f"{model} MIG 3g.40gb",
            share=0.0,
            index="2",
        ),
    ]


def test_xid_is_the_last_error_of_a_gpu() -> None:
    text = (
        'DCGM_FI_DEV_XID_ERRORS{UUID="GPU-4dc0",modelName="A100",err_code="79",namespace="a",pod="b"} 79\n'
        'DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-5ed1",modelName="A100",namespace="",pod=""} 0\n'
    )
    assert read_errors(TEXT, "n1") == []
    assert read_errors(text, "n1") == [
        Xid(node="n1", namespace="a", pod="b", device="GPU-4dc0", model="A100", code=79),
        Xid(node="n1", namespace="", pod="", device="GPU-5ed1", model="A100", code=0),
    ]


H100 = "NVIDIA H100"


@cases(
    ("counted", "resource", "total", "model"),
    [
        ({(H100, "0"): 1}, "nvidia.com/gpu", 1, H100),
        ({(H100, "0"): 1, (H100, "1"): 1}, "nvidia.com/gpu", 8, f"{H100} shared 1/4"),
        ({(H100, "0"): 1, (H100, "1"): 1}, "nvidia_com_gpu_shared", 8, f"{H100} shared 1/4"),
        ({(H100, "0"): 1, (H100, "1"): 1}, "nvidia.com/gpu", 1, H100),  # one is lost
        ({(H100, "0"): 1, (H100, "1"): 1}, "nvidia.com/gpu", 3, H100),  # one isn't exported
        ({(H100, "4"): 1, (H100, "6"): 1}, "nvidia.com/gpu", 8, H100),  # only allocated ones are exported
        ({(H100, "0"): 2}, "nvidia.com/gpu", 8, H100),  # exported without their indexes
        ({(f"{H100} MIG 1g.10gb", "0"): 7}, "nvidia.com/gpu", 7, f"{H100} MIG 1g.10gb"),
        ({(f"{H100} MIG 1g.10gb", "0"): 1}, "nvidia.com/gpu", 7, f"{H100} MIG 1g.10gb"),
        ({(f"{H100} MIG 1g.10gb", "0"): 7, (H100, "0"): 1}, "nvidia.com/gpu", 7, f"{H100} MIG 1g.10gb"),
        ({(f"{H100} MIG 1g.10gb", "0"): 7, (H100, "1"): 1}, "nvidia.com/gpu", 1, H100),
        ({(f"{H100} MIG 1g.10gb+me", "0"): 1}, "nvidia_com_mig_1g_10gb_me", 1, f"{H100} MIG 1g.10gb+me"),
        (
            {(f"{H100} MIG 3g.40gb", "0"): 2},
            "nvidia.com/mig-3g.40gb.shared",
            4,
            f"{H100} MIG 3g.40gb shared 1/2",
        ),
        (
            {(H100, "0"): 1, ("NVIDIA A100", "1"): 1, ("NVIDIA A100", "2"): 1},
            "nvidia.com/gpu",
            3,
            "NVIDIA A100",
        ),
        ({(H100, "0"): 1}, "nvidia.com/mig-3g.40gb", 2, ""),
        ({}, "nvidia.com/gpu", 8, ""),
    ],
)
def test_model_of_a_resource_has_its_profile_and_share(counted, resource, total, model) -> None:
    assert NodeDevices.of(counted).model(resource, total) == model
    share = "".join(model.partition(" shared 1/")[1:])
    assert (with_share("A100", model), is_shared(model)) == (f"A100{share}", bool(share))


def util(value: str = "97", *more: str, index: int = 0, labels: str = 'UUID="GPU-1",') -> str:
    own = f'{{{labels}gpu="{index}",modelName="A100",Hostname="n1",namespace="a",pod="b"}}'
    return "\n".join([f"DCGM_FI_DEV_GPU_UTIL{own} {value}", *more])


@cases(
    ("text", "shares"),
    [
        (util("NaN"), []),
        (util("+Inf"), []),
        (util("-1"), []),
        (util("much"), []),
        (util("97 1763800000000"), [0.97]),
        (util().replace("} ", "}\t"), [0.97]),
        (util().replace("} ", "}   "), [0.97]),
        (util().replace('",', '" , ').replace("{", "{ "), [0.97]),
        (
            util(
                "5", 'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-2', 'DCGM_FI_DEV_GPU_UTIL{a="1", ="2"} 3', "\x00", "}{"
            ),
            [0.05],
        ),
        (util("5", "DCGM_FI_DEV_GPU_UTIL_MAX 3", "DCGM_FI_DEV_GPU_UTIL"), [0.05]),
        (util("5").replace("UTIL{", "UTIL {"), [0.05]),
        (util("9" * 5000), []),
    ],
)
def test_invalid_line_hides_no_other(text: str, shares: list[float]) -> None:
    assert [reading.share for reading in read_exporter(text)] == pytest.approx(shares)


@pytest.mark.parametrize("value", ["NaN", "0.000000", "140737488355328.0"])
def test_engine_that_reads_no_use_is_read_from_the_other_metric(value: str) -> None:
    engine = util(value).replace("DEV_GPU_UTIL", "PROF_GR_ENGINE_ACTIVE")
    assert [reading.share for reading in read_exporter(util("50", engine))] == [0.5]
    assert [reading.share for reading in read_exporter(util("218322032", util("40")))] == [0.4]


def test_label_escapes_are_decoded() -> None:
    [reading] = read_exporter(util().replace("A100", r"A \"100\" \\ , } x"))
    assert reading.model == r'A "100" \ , } x'


def test_gpus_without_uuid_are_distinguished_by_index() -> None:
    text = util("5", util("7", index=1, labels=""), labels="")
    assert {(each.device, each.share) for each in read_exporter(text)} == {("n1:0", 0.05), ("n1:1", 0.07)}
    errors = read_errors(text.replace("DEV_GPU_UTIL", "DEV_XID_ERRORS"), "n1")
    assert {error.device for error in errors} == {"n1:0", "n1:1"}


def test_xid_that_is_no_number_is_none() -> None:
    assert read_errors(util("NaN").replace("DEV_GPU_UTIL", "DEV_XID_ERRORS"), "n1") == []


def test_hostile_line_is_parsed_in_linear_time() -> None:
    hostile = util(labels='a="' + r"\"" * 2**20 + '",')
    assert [reading.share for reading in read_exporter(f"{hostile}\n{util()}")] == [0.97]


def pod(phase="Running", node="n1", since="2026-11-20T10:00:00Z", **resources):
    sizes = {"cpu": "500m", "memory": "4Gi", "nvidia.com/gpu": "2", **resources}
    state = {"running": {"startedAt": since}} if since else {"waiting": {"reason": "ImagePullBackOff"}}
    return {
        "metadata": {"namespace": "sweeps", "name": "t-1-x", "labels": {"a": "b"}},
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": "main", "resources": {"requests": sizes}},
                {"name": "metrics-collector", "resources": {"requests": {"cpu": "1"}}},
            ],
        },
        "status": {"phase": phase, "containerStatuses": [{"name": "main", "state": state}]},
    }


HELD = {"namespace": "sweeps", "name": "t-1-x", "node": "n1", "labels": {"a": "b"}, "gpus": 2}
HELD |= {"cpu_requested": 0.5, "ram_requested": 4.0 * 2**30, "started": None, "pod_started": None}


def held(made):
    return {name: value for name, value in vars(read_gpu_pod(made)).items() if name in HELD}


def test_pod_allocates_gpus_while_it_runs_or_pulls_its_image() -> None:
    started = datetime(2026, 11, 20, 10, tzinfo=UTC)
    assert held(pod()) == HELD | {"started": started}
    assert held(pod(phase="Pending", since=None)) == HELD


def test_pod_whose_container_has_restarted_has_its_own_start() -> None:
    restarted = pod(since=None)
    restarted["status"]["startTime"] = "2026-11-20T08:00:00Z"
    restarted["status"]["containerStatuses"][0]["restartCount"] = 7
    began = datetime(2026, 11, 20, 8, tzinfo=UTC)
    assert held(restarted) == HELD | {"pod_started": began}


def test_holders_are_pods_with_gpus_and_their_exporters() -> None:
    exporter = pod(**{"nvidia.com/gpu": "0"})
    assert not concerns_gpus(exporter)
    exporter["metadata"]["labels"] = {"app": "nvidia-dcgm-exporter"}
    assert concerns_gpus(exporter)
    assert concerns_gpus(pod(phase="Pending", node=""))


def test_limits_count_as_requests_and_slices_as_gpus() -> None:
    asked = pod()
    limits = {"nvidia.com/mig-3g.40gb": "1", "nvidia.com/gpu": "2"}
    asked["spec"]["containers"][0]["resources"] = {"limits": limits}
    found = read_gpu_pod(asked)
    assert (found.gpus, found.cpu_requested) == (3, None)


def node(**changes):
    sizes = {"cpu": "64", "nvidia.com/gpu": "8"}
    ready = [{"type": "Ready", "status": changes.get("ready", "True")}]
    left = sizes | {"nvidia.com/gpu": "7"}
    status = {"capacity": sizes, "allocatable": left, "conditions": ready}
    return {"metadata": {"name": "n1"}, "spec": changes.get("spec", {}), "status": status}


def test_node_has_unavailable_gpus() -> None:
    found = read_node(node())
    assert (found.physical, found.allocatable, found.ready, found.cordoned) == (8, 7, True, False)
    assert node_sizes(node()) == {"nvidia.com/gpu": (8, 7)}
    gone = node()
    del gone["status"]["allocatable"]["nvidia.com/gpu"]
    assert (read_node(gone).allocatable, node_sizes(gone)) == (0, {"nvidia.com/gpu": (8, 0)})
    assert read_node(node(ready="Unknown")).ready is False
    assert read_node(node(spec={"unschedulable": True})).cordoned is True
    assert read_node({"metadata": {"name": "cpu"}, "spec": {}, "status": {"capacity": {"cpu": "4"}}}) is None


@pytest.mark.parametrize(
    ("labels", "phase", "is_one"),
    [
        ({"app": "nvidia-dcgm-exporter"}, "Running", True),
        ({"app.kubernetes.io/name": "dcgm-exporter"}, "Running", True),
        ({"app.kubernetes.io/name": "gke-managed-dcgm-exporter"}, "Running", True),
        ({"app": "nvidia-dcgm-exporter"}, "Pending", False),
        ({"app": "other"}, "Running", False),
    ],
)
def test_exporters_are_found_by_their_labels(labels, phase, is_one) -> None:
    assert is_exporter({"metadata": {"labels": labels}, "status": {"phase": phase}}) is is_one


def test_requests_exclude_katibs_sidecar() -> None:
    main = {"name": "main", "usage": {"cpu": "1500123456n", "memory": "2097152Ki"}}
    sidecar = {"name": "metrics-collector", "usage": {"cpu": "1", "memory": "1Gi"}}
    assert read_usage({"containers": [main, sidecar]}) == (pytest.approx(1.500123456), 2.0 * 2**30)


@cases(
    ("text", "number"),
    [("0", 0), ("4", 4), ("500m", 0.5), ("12345678n", 0.012345678), ("20u", 2e-5), ("1k", 1000), ("2M", 2e6),
     ("1.5Gi", 1.5 * 2**30), ("128974848", 128974848), ("129e6", 129e6), ("1Ki", 1024), ("3E", 3e18)],
)  # fmt: skip
def test_quantity_is_parsed(text, number) -> None:
    assert read_usage(using(text)) == (pytest.approx(number), 0)


@pytest.mark.parametrize("text", ["", "four", "1ki", "NaN", "Infinity"])
def test_quantity_that_is_invalid_is_an_error(text) -> None:
    with pytest.raises(ValueError, match=f"{text} is not a quantity"):
        read_usage(using(text))


def using(cpu):
    return {"containers": [{"name": "main", "usage": {"cpu": cpu, "memory": "0"}}]}
