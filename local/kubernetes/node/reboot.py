"""What the kubelet does about the pods of before its node lost power: no container of them is left.

containerd's recovery (internal/cri/server/restart.go) reports such a container as ended with code 255 and
reason Unknown, and a pod that must not restart has then failed.
"""

import shutil
from pathlib import Path

from local.kubernetes.apiserver.kinds import Object, timestamp
from local.kubernetes.apiserver.store import Store, place

CODE, REASON = 255, "Unknown"
ENDED = ("Succeeded", "Failed")


def recover(store: Store, pod: Object, folder: Path) -> None:
    """End a pod that ran, remove one that was terminating, and let any other start again in `folder`."""
    statuses = pod["status"].get("containerStatuses", [])
    if "deletionTimestamp" in pod["metadata"]:
        store.delete(*place(pod), grace=0)
    elif pod["status"].get("phase") in ENDED:
        return
    elif pod["spec"]["restartPolicy"] == "Never" and any("waiting" not in one["state"] for one in statuses):
        lost = [{**one, "state": _ended(one["state"]), "ready": False} for one in statuses]
        store.set_status(pod, {**pod["status"], "phase": "Failed", "containerStatuses": lost})
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _ended(state: Object) -> Object:
    if "terminated" in state:
        return state
    started = state.get("running", {}).get("startedAt", timestamp())
    end = {"exitCode": CODE, "reason": REASON, "startedAt": started, "finishedAt": timestamp()}
    return {"terminated": end}
