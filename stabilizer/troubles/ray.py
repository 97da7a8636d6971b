"""Ray."""

from __future__ import annotations

from stabilizer.troubles.trouble import Trouble

TROUBLES = (
    Trouble(
        id="ray/node-memory",
        shows=("due to the node running low on memory", "Memory on the node (IP: {ip:w}...) was",
               "Workers (tasks / actors) killed due to memory pressure (OOM)"),
        cause="the node's main memory (RAM of the host, not the GPU's) was nearly full and Ray killed a worker: weights and "
        "optimizer offloaded to the CPU, sleeping engines and reward workers fill it, or something leaks step by step",
        fix="switch CPU offload off (param_offload, optimizer_offload, offload_params), fewer data and reward workers, a lower vLLM "
        "swap_space and sleep level, or give the node more RAM; if it grows with each step, update vLLM, and save and restart "
        "until then. RAY_memory_usage_threshold=0.98 moves the limit",
        source="ray-project/ray: out of memory prevention", certainty="certain", kind="out-of-memory",
        example="ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
    ),
    Trouble(
        id="ray/actor-died",
        shows=(
            "The actor died unexpectedly before finishing this task", "The actor is dead because its worker process has died",
            "ActorDiedError", "ActorUnavailableError", "WorkerCrashedError", "The worker died unexpectedly", "ActorPlacementGroupRemoved",
            "GetTimeoutError: Get timed out", "OwnerDiedError", "ObjectLostError", "Placement group is removed", "ray.exceptions.NodeDiedError",
        ),
        cause="a Ray worker, actor or node that this call needed ended, or is too slow; this line only reports it",
        fix="look for what happened before in that worker: an exception in its log (/tmp/ray/session_latest/logs/worker-*), "
        "`dmesg -T | grep -i kill` for main memory (the most common), a segmentation fault",
        source="ray-project/ray: fault tolerance", consequence=True, certainty="possible", kind="infrastructure",
        example="ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    ),
    Trouble(
        id="ray/no-resources",
        shows=(
            "No available node types can fulfill resource request {what:t}.",
            "Error: No available node types can fulfill resource request",
            "cannot be scheduled right now: it requires", "ActorUnschedulableError", "The actor is not schedulable",
            "is infeasible. Resources required", "Error: Insufficient resources",
        ),
        cause="no node has what was asked for, so Ray waits for ever or gives up",
        fix="compare `ray status` with trainer.n_gpus_per_node x trainer.nnodes (and CPUs, custom resources): lower the request, or add nodes. "
        "In a container, start ray with --num-gpus and --num-cpus",
        source="verl-project/verl: multinode", kind="config-error",
        example="(autoscaler +14s) Error: No available node types can fulfill resource request {'GPU': 8.0, 'CPU': 24.0}. "
        "Add suitable node types to this cluster to resolve this issue.",
    ),
    Trouble(
        id="ray/total-gpus",
        shows=(
            "Total available GPUs {have} is less than total desired GPUs {want}",
            "Total available GPUs {have} is less than total desired NPUs {want}",
        ),
        cause="{want} GPUs are configured and Ray has {have}",
        fix="set trainer.n_gpus_per_node x trainer.nnodes to at most {have}, or start Ray with the others (ray start on each "
        "node, --num-gpus)",
        source="verl-project/verl: trainer/ppo/ray_trainer.py", certainty="certain", kind="config-error",
        example="ValueError: Total available GPUs 4.0 is less than total desired GPUs 8",
    ),
    Trouble(
        id="ray/object-store",
        shows=("ObjectStoreFullError", "The object store is full", "OutOfDiskError: Local disk is full"),
        cause="Ray's object store (shared memory, then disk) is full of batches that pass between workers",
        fix="give it more (ray start --object-store-memory), a larger /dev/shm (--shm-size) and disk under /tmp/ray, or use "
        "smaller batches",
        source="ray-project/ray: object spilling", certainty="certain", kind="infrastructure",
        example="ray.exceptions.ObjectStoreFullError: Failed to put object in object store because it is full.",
    ),
    Trouble(
        id="ray/version-mismatch",
        shows=("Version mismatch: The cluster was started with:",),
        cause="the cluster runs another version of Ray or Python than this process",
        fix="install the same versions of ray and python on all nodes, and restart the cluster (ray stop)",
        source="ray-project/ray: utils.py", certainty="certain", kind="config-error",
        example="RuntimeError: Version mismatch: The cluster was started with:",
    ),
    Trouble(
        id="ray/gcs-gone",
        shows=("Failed to connect to GCS", "Failed to get cluster ID from GCS server",
               "The node with node id: {node:w}...has been marked dead because the detector has missed too many heartbeats"),
        cause="the head node of the Ray cluster can't be reached: it ended, is overloaded, or the address is an old one",
        fix="ray stop on all nodes, start the head again, unset RAY_ADDRESS, and look into "
        "/tmp/ray/session_latest/logs/gcs_server.out",
        source="ray-project/ray: fault tolerance", kind="infrastructure",
        example="[2025-03-02 10:00:12,123 E 3141 3141] gcs_client.cc:184: Failed to connect to GCS at address 10.0.0.1:6379",
    ),
    Trouble(
        id="ray/task-error",
        shows=("ray.exceptions.RayTaskError",),
        cause="a remote function raised an exception; the one below it is the cause",
        fix="read the last exception of the traceback: it is the worker's own",
        source="ray-project/ray: exceptions", consequence=True, certainty="possible",
        example="ray.exceptions.RayTaskError(ValueError): ray::main_task() (pid=3141, ip=10.0.0.3)",
    ),
    Trouble(
        id="ray/no-instance",
        shows=("Could not find any running Ray instance", "Ray has not been started yet", "Failed to connect to Ray at"),
        cause="the program joins a Ray cluster, and none runs at the address",
        fix="ray start --head --num-gpus N first (and ray start --address=HEAD:6379 on the other nodes), unset RAY_ADDRESS to let the program start its own, or "
        "check the address and firewall",
        source="ray-project/ray: starting Ray", certainty="certain", kind="config-error",
        example="ConnectionError: Could not find any running Ray instance. Please specify the one to connect to by setting `--address` flag or `RAY_ADDRESS` "
        "environment variable.",
    ),
    Trouble(
        id="ray/existing-cluster",
        shows=("When connecting to an existing cluster, num_cpus and num_gpus must not be provided", "Maybe you called ray.init twice by accident"),
        cause="a Ray cluster is already there, and the program wants to start its own",
        fix="ray stop --force for a left-over one; or leave num_cpus out (ray_init.num_cpus=null in veRL) to use it; call ray.init once "
        "(ignore_reinit_error=True)",
        source="ray-project/ray: ray.init", certainty="certain", kind="config-error",
        example="ValueError: When connecting to an existing cluster, num_cpus and num_gpus must not be provided.",
    ),
    Trouble(
        id="ray/disk-nearly-full",
        shows=("is over {share}% full, available space: {free} GB; capacity: {total} GB", "is over {share}% full, available space: {free}; capacity: {total}"),
        cause="the disk of Ray's files is over {share} % full ({free} GB of {total} GB are left); spilled objects will soon fail",
        fix="free the disk, or put Ray's files on a larger one: ray start --temp-dir /big/ray, or RAY_TMPDIR",
        source="ray-project/ray: object spilling", severity="warn", certainty="certain", kind="infrastructure",
        example="(raylet) file_system_monitor.cc:111: /tmp/ray/session_1 is over 95% full, available space: 8.1 GB; capacity: 200.0 GB. Object creation will fail if "
        "spilling is required.",
    ),
    Trouble(
        id="ray/exception-not-readable",
        shows=("Failed to unpickle serialized exception", "Can't get attribute '{name:w}' on <module"),
        cause="a worker raised an exception that this process cannot read back, because a package or a file is missing here or its release differs",
        fix="install the same packages on driver and workers (runtime_env), make the file importable everywhere (PYTHONPATH), and read the worker's own log "
        "(/tmp/ray/session_latest/logs/worker-*.err) for the real error",
        source="ray-project/ray: serialization", certainty="likely", kind="infrastructure",
        example="ray.exceptions.RaySystemError: System error: Failed to unpickle serialized exception",
    ),
)  # fmt: skip
