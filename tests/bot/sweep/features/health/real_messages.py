"""Messages of the real systems, verbatim, each with its source: a report, or the code with the format.

Where only a format is known (`%s`), its values are filled in here.
"""
# ruff: noqa: E501  their lines are as long as they are

# kube-scheduler: a recorded pod (tests/recordings/04-pod-unschedulable), and pkg/scheduler/framework/types.go
UNSCHEDULABLE = (
    "0/4 nodes are available: 4 Insufficient nvidia.com/gpu. "
    "preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod."
)
# kube-scheduler, tainttoleration, before and after kubernetes#134740 (1.35) took the taints out of it
TAINTED = (
    "0/5 nodes are available: 3 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint {dedicated: gpu}, "
    "1 node(s) were unschedulable. preemption: 0/5 nodes are available: 5 No preemption victims found for "
    "incoming pod."
)
TAINTED_NOW = (
    "0/39 nodes are available: 1 Insufficient cpu, 34 node(s) had untolerated taint(s), 4 node(s) didn't match "
    "Pod's node affinity/selector."
)
TAINTED_GPUS = (
    "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint(s). no new claims to "
    "deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
)
# kube-scheduler: nodeaffinity (aws-samples/eks-workshop-v2), noderesources/fit.go, nodeunschedulable
UNMATCHED = (
    "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: 0/3 nodes are "
    "available: 3 Preemption is not helpful for scheduling."
)
NO_MEMORY = (
    "0/1 nodes are available: 1 Insufficient memory. preemption: 0/1 nodes are available: 1 No preemption victims "
    "found for incoming pod."
)
TAINTED_AND_FULL = (
    "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu, 2 Insufficient memory. no new "
    "claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
)
CORDONED = "0/1 nodes are available: 1 node(s) were unschedulable. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
# kube-scheduler, volumebinding, since 1.35; tainttoleration before it
OTHER_ZONE = (
    "0/6 nodes are available: 2 Insufficient nvidia.com/gpu, 4 node(s) didn't match PersistentVolume's node affinity. no "
    "new claims to deallocate, preemption: 0/6 nodes are available: 6 Preemption is not helpful for scheduling."
)
NODES_NOT_READY = (
    "0/5 nodes are available: 5 node(s) had untolerated taint {node.kubernetes.io/not-ready: }. preemption: 0/5 nodes are "
    "available: 5 Preemption is not helpful for scheduling."
)
# GKE's autoscaler, about the pod
NO_CAPACITY = (
    "Node scale up in zones us-central1-a associated with this pod failed: GCE out of resources. Pod is at risk of not "
    "being scheduled."
)
# kube-scheduler, schedulinggates plugin
GATED = "Scheduling is blocked due to non-empty scheduling gates"
# cluster-autoscaler
SCALE_UP = "pod triggered scale-up: [{eks-40bd16d2-ecbd-df8a-2040-7bb5b1508a43 2->3 (max: 5)}]"
# kube-scheduler, volumebinding plugin
UNBOUND = (
    "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/3 nodes are "
    "available: 3 Preemption is not helpful for scheduling."
)
NO_CLAIM = (
    '0/3 nodes are available: persistentvolumeclaim "rc-definitely-missing-pvc" not found. preemption: 0/3 nodes '
    "are available: 3 No preemption victims found for incoming pod.."
)
# kube-controller-manager, pkg/controller/volume/persistentvolume/pv_controller.go
NO_CLASS = "no persistent volumes available for this claim and no storage class is set"
# Kueue, pkg/scheduler/flavorassigner; pkg/controller/core/workload_controller.go
NO_QUOTA = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor gpu-a100, "
    "2 more needed"
)
BYPASSED = "Bypassed scheduling evaluation because an equivalent workload recently failed"
NO_QUEUE = "LocalQueue research-lq doesn't exist"
STOPPED_QUEUE = "ClusterQueue team-cq is inactive"
TOPOLOGY = 'topology "default" doesn\'t allow to fit any of 1 pod(s). Total nodes: 4; excluded: resource "nvidia.com/gpu": 4'
# Kueue, flavorassigner.go:1354; until 0.13 the second form, here of two flavors (SageMaker HyperPod's documentation)
TOO_MUCH = (
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor gpu-a100, previously "
    "considered podsets requests (0) + current podset request (16) > maximum capacity (8)"
)
TOO_MUCH_BEFORE = (
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor gpu-flavor, request > "
    "maximum capacity (24 > 16)"
)
ONE_FLAVOR_TOO_SMALL = (
    "couldn't assign flavors to pod set llama3-2-1b-fsdp-hpto-pods-podset: insufficient quota for nvidia.com/gpu in "
    "flavor ml.m5.12xlarge, request > maximum capacity (8 > 0), insufficient unused quota for nvidia.com/gpu in "
    "flavor ml.g5.8xlarge, 1 more needed"
)
# kube-apiserver, plugin/pkg/admission/resourcequota
QUOTA = (
    'pods "{pod}" is forbidden: exceeded quota: team-quota, requested: requests.nvidia.com/gpu=8, '
    "used: requests.nvidia.com/gpu=56, limited: requests.nvidia.com/gpu=60"
)
SMALL_QUOTA = (
    'pods "{pod}" is forbidden: exceeded quota: team-quota, requested: requests.nvidia.com/gpu=8, '
    "used: requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=4"
)
MEMORY_QUOTA = (
    'pods "t1-abcde" is forbidden: exceeded quota: team, requested: limits.memory=512Gi,requests.cpu=4, '
    "used: limits.memory=0,requests.cpu=64, limited: limits.memory=256Gi,requests.cpu=64"
)
# kube-apiserver: rancher/k3k#294; plugin/pkg/admission/limitranger; Gatekeeper's library, containerlimits
POD_SECURITY = (
    'pods "t1-abcde" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false '
    '(container "main" must set securityContext.allowPrivilegeEscalation=false)'
)
LIMIT_RANGE = (
    'pods "t1-abcde" is forbidden: [maximum memory usage per Container is 16Gi, but limit is 64Gi, maximum cpu usage '
    "per Container is 8, but limit is 16]"
)
GATEKEEPER = (
    'admission webhook "validation.gatekeeper.sh" denied the request: [container-limits] container <main> memory limit '
    "<64Gi> is higher than the maximum allowed of <32Gi>"
)
# Katib, pkg/webhook/v1beta1/pod (katib#1544)
NO_PRIMARY = (
    'admission webhook "mutator.pod.katib.kubeflow.org" denied the request: Unable to find primary container '
    "training-container in mutated pod containers [main]"
)
# kube-apiserver with the Job controller's prefix: a recorded create (tests/recordings/14-webhook-down-500)
KATIB_AWAY = (
    'Error creating: Internal error occurred: failed calling webhook "mutator.pod.katib.kubeflow.org": failed to call '
    'webhook: Post "https://katib-controller.kubeflow.svc:443/mutate-pod?timeout=10s": dial tcp 10.96.20.3:443: connect: '
    "connection refused"
)
# The same by Katib's event, for a Job: kueue#4163
KUEUE_AWAY = (
    'Internal error occurred: failed calling webhook "mjob.kb.io": failed to call webhook: Post '
    '"https://kueue-webhook-service.kueue-system.svc:443/mutate-batch-v1-job?timeout=10s": no endpoints available for '
    'service "kueue-webhook-service"'
)
# kube-apiserver, RBAC: apiserver/pkg/endpoints/handlers/responsewriters
NO_RIGHT = (
    'jobs.batch is forbidden: User "system:serviceaccount:kubeflow:katib-controller" cannot create resource '
    '"jobs" in API group "batch" in the namespace "sweeps"'
)
# kube-apiserver, registry/generic/registry/store.go, as Katib's events quote it
CONFLICT = (
    'Failed to reconcile: Operation cannot be fulfilled on trials.kubeflow.org "t1": the object has been modified; please '
    "apply your changes to the latest version and try again"
)
# kubelet, pkg/volume/util/operationexecutor: tmforum-oda/oda-canvas#24
NO_SECRET = 'MountVolume.SetUp failed for volume "secret-volume" : secret "compcrdwebhook-secret" not found'
# kube-controller-manager, attachdetach: UffizziCloud/uffizzi_controller#82
MULTI_ATTACH = (
    'Multi-Attach error for volume "pvc-8837384d-69d7-40b2-b2e6-5df86943eef9" Volume is already exclusively '
    "attached to one node and can't be attached to another"
)
# kubelet, pkg/kubelet/volumemanager: aws-efs-csi-driver#262
UNMOUNTED = (
    "Unable to attach or mount volumes: unmounted volumes=[persistent-storage], unattached volumes=[persistent-storage "
    "default-token-sjfzc]: timed out waiting for the condition"
)
ATTACHED = 'AttachVolume.Attach succeeded for volume "pvc-8837384d-69d7-40b2-b2e6-5df86943eef9"'
OTHER_ATTACHED = 'AttachVolume.Attach succeeded for volume "pvc-600fced1-bc07-49c9-ba69-4d33622583ce"'
PULLING = 'Pulling image "reg.example/lab/x:1"'
# kubelet and containerd: kodekloud's triton lab; NVIDIA gpu-operator's troubleshooting page
NO_NETWORK = (
    "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "
    '"7fa2130083825d3ad4a29ad855d149fda68dc172e55d0114248e667e202f0982": plugin type="bridge" name="kubernetes" '
    "failed (add): no IP ranges specified"
)
NO_RUNTIME = (
    "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime "
    'for "nvidia" is configured'
)
# kubelet, cm/devicemanager: openshift/instaslice-operator#140; NVIDIA/k8s-device-plugin#231; lifecycle/predicate.go
UNHEALTHY_GPU = (
    "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
    "nvidia.com/gpu, which is unexpected"
)
LOST_GPU = (
    "Pod Allocate failed due to device plugin GetPreferredAllocation rpc failed with err: rpc error: code = "
    "Unknown desc = Unable to retrieve list of available devices: error creating nvml.Device 3: nvml: GPU == "
    "lost, which is unexpected"
)
OUT_OF_GPU = (
    "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 1, used: 8, capacity: 8"
)
# containerd through the kubelet: pfnet/image-pull-secrets-provisioner#31, kubernetes#110678, cnoe-io/idpbuilder#520,
# namespacelabs/foundation#846, ciiiii/cloudflare-docker-proxy#79, a recorded pod (04-pod-errimagepull)
PULL = 'failed to pull and unpack image "reg.example/lab/x:1": failed to resolve reference "reg.example/lab/x:1": '
PULLS = {
    "image-missing": 'failed to pull and unpack image "gcr.io/kaniko-project/executor:v1.23.2": not found',
    "image-login": (
        f"rpc error: code = Unknown desc = {PULL}pull access denied, repository does not exist or may require "
        "authorization: server message: insufficient_scope: authorization failed"
    ),
    "image-login ": (
        f"rpc error: code = Unknown desc = {PULL}pulling from host reg.example failed with status code [manifests "
        "GitActionsNew-2e7e78f7bb157128f1853b0dc06bf7ccd13156d7]: 401 Unauthorized"
    ),
    "image-tls": (
        f'{PULL}failed to do request: Head "https://registry.k8s.io/v2/coredns/coredns/manifests/v1.11.1": '
        "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    ),
    "image-platform": 'failed to pull and unpack image "reg.example/lab/x:1": no match for platform in manifest: not found',
    "image-name": (
        'Failed to inspect image "": rpc error: code = Unknown desc = short name mode is enforcing, but image name lab/x:1 '
        "returns ambiguous list"
    ),
    "image-disk": (
        'failed to pull and unpack image "reg.example/lab/x:1": failed to extract layer sha256:ab: write '
        "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs/x.so: no space left on device: unknown"
    ),
    "image-dns": (
        f'{PULL}failed to do request: Head "https://reg.example/v2/lab/x/manifests/1": dial tcp: lookup '
        "reg.example on 192.168.5.1:53: no such host"
    ),
    "image-limit": (
        'rpc error: code = Unknown desc = failed to pull and unpack image "docker.io/jaegertracing/all-in-one:1": '
        "failed to copy: httpReadSeeker: failed open: unexpected status code "
        "https://registry-1.docker.io/v2/jaegertracing/all-in-one/manifests/1: 429 Too Many Requests - Server "
        "message: toomanyrequests: You have reached your pull rate limit. You may increase the limit by "
        "authenticating and upgrading: https://www.docker.com/increase-rate-limit"
    ),
    "image-pull": (
        f"{PULL}failed to authorize: failed to fetch anonymous token: Get "
        '"https://auth.docker.io/token?scope=repository%3Alibrary%2Fnginx%3Apull&service=registry.docker.io": '
        "dial tcp 199.59.149.230:443: connect: connection refused"
    ),
}
# kubelet, pkg/kubelet/images/image_manager.go
BACK_OFF = 'Back-off pulling image "reg.example/lab/x:1"'
NEVER_PULL = 'Container image "reg.example/lab/x:1" is not present with pull policy of Never'
# kubelet: reportportal/kubernetes#178; shieldworks/aegis#293
NO_ENV_SECRET = 'secret "secretpostgresql" not found'
NO_KEY = "couldn't find key VALUE in Secret default/aegis-secret-aegis-workload-demo"
# runc through containerd
NO_COMMAND = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
    'failed: unable to start container process: exec: "curl": executable file not found in $PATH: unknown'
)
# the same in CRI-O; NVIDIA's hook and CDI: nvidia-docker#1648, nvidia-container-toolkit#1239; libnvidia-container
CRIO_NO_COMMAND = (
    'container create failed: time="2026-01-02T03:04:05Z" level=error msg="runc create failed: unable to start '
    'container process: exec: \\"curl\\": executable file not found in $PATH"'
)
_HOOK = (
    "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
    "error during container init: error running hook #0: error running hook: exit status 1, stdout: , stderr: "
    "Auto-detected mode as 'legacy'\nnvidia-container-cli: "
)
NO_GPU_HOOK = f"{_HOOK}initialization error: driver rpc error: timed out: unknown"
NEW_CUDA = (
    f"{_HOOK}requirement error: unsatisfied condition: cuda>=12.6, please update your driver to a newer version, or use "
    "an earlier cuda container: unknown"
)
NO_CDI = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: could not apply required "
    "modification to OCI specification: error modifying OCI spec: failed to inject CDI devices: unresolvable CDI devices "
    "management.nvidia.com/gpu=GPU-e78e68c0-4e6a-737e-f9cc-4223fe50aead"
)
# dash, busybox
NO_PYTHON = "sh: 1: python: not found"
# kubelet, pkg/kubelet/kuberuntime
CRASH_LOOP = (
    "back-off 5m0s restarting failed container=app pod=rc-oomkilled-memory-limit-b6d999d-m8sl8_aiops-e2e"
    "(837f1b14-9cec-4f6f-8f5b-c89f5b397ca5)"
)
# Python 3.11
TRACEBACK = """\
Traceback (most recent call last):
  File "/app/train.py", line 31, in <module>
    optimizer = OPTIMIZERS[args.optimizer]
                ~~~~~~~~~~^^^^^^^^^^^^^^^^
KeyError: 'adamw'"""
# What torchrun logs after a process has failed: PyTorch 2.3+, 2.0, and 1.13
TORCHRUN_NAMES = (
    "E1122 10:00:00.000000 12 torch/distributed/elastic/multiprocessing/api.py:874]",
    "[2023-11-22 10:00:00,000] torch.distributed.elastic.multiprocessing.api: [ERROR]",
    "ERROR:torch.distributed.elastic.multiprocessing.api:",
)
TORCHRUN_STOPS = "{name} Sending process 46 closing signal SIGTERM"
TORCHRUN_FAILED = """\
{name} failed (exitcode: 1) local_rank: 0 (pid: 45) of binary: /usr/local/bin/python
Traceback (most recent call last):
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "/usr/local/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 355, \
in wrapper
    return f(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^
  File "/usr/local/lib/python3.11/site-packages/torch/distributed/run.py", line 918, in main
    run(args)
  File "/usr/local/lib/python3.11/site-packages/torch/distributed/run.py", line 909, in run
    elastic_launch(
  File "/usr/local/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 138, in __call__
    return launch_agent(self._config, self._entrypoint, list(args))
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/local/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 269, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_10:00:00
  host      : lr-brave-otter-4c2kq
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 45)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================"""
# torch/csrc/DataLoader.cpp and torch/utils/data/_utils/signal_handling.py: NVIDIA/Megatron-LM#878
SHM = """\
ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).
Traceback (most recent call last):
  File "/usr/local/lib/python3.10/dist-packages/torch/utils/data/_utils/signal_handling.py", line 66, in handler
    _error_if_any_worker_fails()
RuntimeError: DataLoader worker (pid 56811) is killed by signal: Bus error. It is possible that dataloader's \
workers are out of shared memory. Please try to raise your shared memory limit."""
KILLED_LOADER = """\
  File "/opt/conda/lib/python3.11/site-packages/torch/utils/data/_utils/signal_handling.py", line 66, in handler
    _error_if_any_worker_fails()
RuntimeError: DataLoader worker (pid 61138) is killed by signal: Killed. """
# kubelet, pkg/kubelet/eviction: sustainable-computing-io/susql-operator#140; nodeshutdown_manager_linux.go
EVICTED = (
    "The node was low on resource: ephemeral-storage. Threshold quantity: 24068434671, available: 23201836Ki. "
    "Container manager was using 106848Ki, request is 0, has larger consumption of ephemeral-storage. "
)
EVICTED_MEMORY = (
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52640Ki. Container sidecar was using "
    "90Mi, request is 10Mi, has larger consumption of memory. Container main was using 61440000Ki, request is 8Gi, has "
    "larger consumption of memory. "
)
# kubelet, pkg/kubelet/eviction/eviction_manager.go
OVER_DISK = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "
OVER_CONTAINER_DISK = 'Container main exceeded its local ephemeral storage limit "2Gi". '
OVER_VOLUME = 'Usage of EmptyDir volume "cache" exceeds the limit "3Gi". '
# kubelet, pkg/kubelet/active_deadline.go
OVER_TIME = "Pod was active on the node longer than the specified deadline"
SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
# kube-scheduler, preemption (kubernetes#114914); kube-controller-manager, tainteviction
PREEMPTED = "default-scheduler: preempting to accommodate a higher priority pod"
TAINT = "Taint manager: deleting due to NoExecute taint"
# torch: pytorch#16417
CUDA_OOM = """\
Traceback (most recent call last):
  File "/app/train.py", line 58, in <module>
    loss.backward()
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of \
23.65 GiB of which 11.06 MiB is free. Including non-PyTorch memory, this process has 23.60 GiB memory in use. \
Of the allocated memory 22.90 GiB is allocated by PyTorch, and 194.87 MiB is reserved by PyTorch but \
unallocated. If reserved but unallocated memory is large try setting \
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory \
Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"""
# torch before 2.1: pytorch#16417
OLD_CUDA_OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; 8.57 MiB "
    "already allocated; 9.28 GiB free; 4.68 MiB cached)"
)
# torch/csrc/cuda: detectron2#3104; the CUDA runtime's text for error 35; torch/cuda/__init__.py
NO_DRIVER = (
    "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed "
    "a driver from http://www.nvidia.com/Download/index.aspx"
)
OLD_DRIVER = "RuntimeError: CUDA driver version is insufficient for CUDA runtime version"
# torch/serialization.py; what trainings print themselves (RunPod's CLIP worker, a Korean and a Jetson guide)
NOT_AVAILABLE = (
    "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you "
    "are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your "
    "storages to the CPU."
)
NOT_AVAILABLE_PRINTED = "torch.cuda.is_available(): False"
NOT_AVAILABLE_EQUALS = "torch 2.10.0+cpu        torch.cuda.is_available() = False"
NO_MPS = (
    "torch.backends.mps.is_available(): False\ntorch.cuda.is_available(): True, mps.is_available() = False"
)
# torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp: NVIDIA/nccl#1381
NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, "
    "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3\n"
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error."
)
HUNG = (
    "[rank0]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=131072000, NumelOut=131072000, Timeout(ms)=600000) ran "
    "for 600081 milliseconds before timing out."
)
# Nobody's standard: what a plain training loop prints
NAN = "epoch 3/10  step 1200  lr 0.1  loss: nan  acc: 0.098"
# Katib, suggestion_controller.go, suggestionclient.go:230 and suggestion/v1beta1/skopt/service.py:132
VALIDATION = (
    "Validation failed: ValidateAlgorithmSettings Error: n_initial_points should be great or equal than zero"
)
NOT_READY = "Deployment is not ready"
# Katib, trial_controller_util.go:70
NO_METRICS = "Metrics are not available"
# Katib, pkg/metricscollector/v1beta1/common/pns.py and pns.go, as its two collectors log them
NO_MAIN_PID = [
    "Exception: Unable to find main pid from the process list set()",
    "Failed to wait for worker container: unable to find main pid from the process list [1 12]",
]
# Katib's own cmd/metricscollector/v1beta1/tfevent-metricscollector/main.py with grpcio 1.85.1, run where nothing listens
NO_DB = """\
In t1 1 metrics will be reported.
Traceback (most recent call last):
  File "/opt/katib/cmd/metricscollector/v1beta1/tfevent-metricscollector/main.py", line 79, in <module>
    stub.ReportObservationLog(
  File "/usr/local/lib/python3.11/site-packages/grpc/_channel.py", line 1168, in __call__
    return _end_unary_response_blocking(state, call, False, None)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/local/lib/python3.11/site-packages/grpc/_channel.py", line 999, in _end_unary_response_blocking
    raise _InactiveRpcError(state)  # pytype: disable=not-instantiable
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:
	status = StatusCode.UNAVAILABLE
	details = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:6789: Failed to connect to remote host: Connection refused"
	debug_error_string = "UNAVAILABLE:failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:6789: Failed to connect to remote host: Connection refused"
>"""
# kube-controller-manager, pkg/controller/util/node/controller_utils.go and nodelifecycle
NODE_NOT_READY = "Node is not ready"
NO_KUBELET = "Kubelet stopped posting node status."
# Kueue, about a queue with a quota for GPUs and none for CPU
NO_RESOURCE = "couldn't assign flavors to pod set main: resource cpu unavailable in ClusterQueue"
NO_DEVICE_CLASS = (  # Kueue 0.19, pkg/dra/claims.go
    'spec.podSets[0].template.spec.resourceClaims[0].resourceClaimTemplateName: Not found: "DeviceClass gpu.nvidia.com '
    'is not mapped in DRA configuration for podset main"'
)
NO_TOPOLOGY = (
    'couldn\'t assign flavors to pod set main: Flavor "a100" does not support TopologyAwareScheduling'
)

# Kubeflow Trainer v2.3.0, pkg/controller/trainjob_controller.go; jobset v0.12, pkg/webhooks/jobset_webhook.go
JOBSET_REFUSED = """TrainJob resources reconciliation failed: admission webhook "vjobset.kb.io" denied the \
request: JobSet.jobset.x-k8s.io "lr-otter-x1y2z3a4" is invalid: JobSet name is too long, pod names generated \
for this JobSet will exceed 63 characters"""
JOBSET_AWAY = """TrainJob resources reconciliation failed: Internal error occurred: failed calling webhook \
"vjobset.kb.io": failed to call webhook: Post "https://jobset-webhook-service.kubeflow-system.svc:443/validate\
-jobset-x-k8s-io-v1alpha2-jobset?timeout=10s": dial tcp 10.96.36.14:443: connect: connection refused"""
