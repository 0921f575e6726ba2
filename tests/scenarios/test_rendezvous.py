"""A trial on two machines, with real processes that find each other by torchrun's variables.

The second one of the first trial is drained once: both start again.
"""

import pytest
import pytest_asyncio

from k8s.pods import is_trial_pod
from k8s.trial_kinds import INDEX_LABEL, TRIAL_LABEL, pod_index
from local import trainer, training_operator
from tests.scenarios.evictions import evict
from tests.scenarios.local_world import APART, Instance, Sweep, instance

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

# As torchrun: the first worker listens, the others connect. Only the first one ends by itself.
TRAINING = """
import argparse, os, socket, time
options = argparse.ArgumentParser()
options.add_argument("--width", type=int)
options.add_argument("--tensorboard_dir")
options = options.parse_args()
rank, nodes = int(os.environ["PET_NODE_RANK"]), int(os.environ["PET_NNODES"])
first = os.environ["PET_MASTER_ADDR"], int(os.environ["PET_MASTER_PORT"])
print("worker", rank, "on", os.environ["HOSTNAME"])
from tensorboardX import SummaryWriter
log = SummaryWriter(options.tensorboard_dir)
if rank:
    while True:
        try:
            connection = socket.create_connection(first)
            break
        except OSError:
            time.sleep(0.2)
    connection.sendall(b"%d\\n" % rank)
    print("sum from the first worker:", connection.makefile().readline().strip())
    log.add_scalar("loss", -1, 1)
    time.sleep(3600)
server = socket.create_server(first)
others = [server.accept()[0] for _ in range(nodes - 1)]
total = sum(int(each.makefile().readline()) for each in others)
for each in others:
    each.sendall(b"%d\\n" % total)
print("joined by", len(others))
while os.path.exists(os.environ["HOLD"]):
    time.sleep(0.2)
log.add_scalar("loss", total + options.width, 1)
log.close()
"""
SPACE = """\
command: python together.py
objective: {metric: loss, goal: minimize}
algorithm: grid
trials: {parallel: 2}
parameters:
  width: {min: 1, max: 2}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory, mlflow_url):
    async with instance(tmp_path_factory.mktemp("instance"), mlflow_url, APART) as made:
        program = TRAINING.replace('os.environ["HOLD"]', repr(str(made.hold)))
        made.commit("Train on two machines", {"together.py": program, "sweeps/together.yaml": SPACE})
        yield made


async def test_workers_find_each_other_and_the_first_ends_the_trial(here: Instance):
    sweep = await finished(here)
    assert {pod["metadata"]["labels"][INDEX_LABEL] for pod in sweep.objects("Pod")} >= {"0"}


async def test_workers_of_a_pytorch_job_find_each_other_as_well(here: Instance):
    training_operator.install(here.here.store)
    await uses(here, "pytorchjob")
    sweep = await finished(here)
    assert sweep.conditions("PyTorchJob") == [{"Created", "Succeeded"}] * 2
    labels = [pod["metadata"]["labels"] for pod in sweep.objects("Pod")]
    assert "master" in {each.get("training.kubeflow.org/job-role") for each in labels}


async def test_workers_of_a_train_job_find_each_other_as_well(here: Instance):
    trainer.install(here.here.store)
    await uses(here, "trainjob")
    sweep = await finished(here)
    assert sweep.conditions("TrainJob") == [{"Complete"}] * 2
    [runtime] = here.here.store.list("TrainingRuntime")
    assert [each["kind"] for each in runtime["metadata"]["ownerReferences"]] == ["Experiment"]


async def drained(here: Instance, sweep: Sweep) -> tuple[str, set[str]]:
    """Evict the second worker of the first trial. Return the trial, and the UIDs of its pods."""
    await sweep.shows("First trial started")
    pods = {pod_index(pod): pod for pod in sweep.objects("Pod") if is_trial_pod(pod)}
    trial = pods[1]["metadata"]["labels"][TRIAL_LABEL]
    evict(here.here.store, pods[1])
    again = "This isn't a failure: all of its 2 workers start again once 2 nodes have room"
    await sweep.posts(f"Trial `{trial}` stopped running: ", "worker 2", "drained", again)
    return trial, {pod["metadata"]["uid"] for pod in pods.values()}


async def uses(here: Instance, kind: str) -> None:
    """Set the kind of the trials; the worker reads it as it starts."""
    config = here.here.folder / "config.yaml"
    async with here.without_worker():
        others = [line for line in config.read_text().splitlines() if not line.startswith("trials:")]
        config.write_text("\n".join([*others, f"trials: {{multi_node: {kind}}}\n"]))


async def finished(here: Instance) -> Sweep:
    """Run the sweep to its end, and check what its trials reported."""
    here.hold.touch()
    sweep = await here.sweep("branch=main gpus=1 nodes=2 space=together")
    await sweep.shows("✓ Submitted", "2 nodes × 1 GPU per trial, 1 in parallel")
    await sweep.posts("one trial runs at a time")
    trial, before = await drained(here, sweep)
    here.hold.unlink()
    await sweep.posts("Finished:", "2 trials done")
    after = [pod for pod in sweep.objects("Pod") if pod["metadata"]["labels"][TRIAL_LABEL] == trial]
    assert after
    assert not before & {pod["metadata"]["uid"] for pod in after}
    assert sweep.conditions("Trial") == [{"Created", "Succeeded"}] * 2
    values = [obj["status"]["observation"]["metrics"] for obj in sweep.objects("Trial")]
    # The other worker's -1 isn't read.
    assert sorted(float(each["latest"]) for [each] in values) == [2.0, 3.0]
    assert sweep.pods_alive() == []
    answer = await here.answer(f"logs {sweep.id}")
    assert "worker 1 of 2" in answer
    assert "joined by 1" in answer
    return sweep
