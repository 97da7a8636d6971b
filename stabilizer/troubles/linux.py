"""The operating system, containers and schedulers."""

from __future__ import annotations

from stabilizer.troubles.trouble import Trouble

ENDS_SILENTLY = "log/ends-without-error"
"""The id of the trouble of a log that only stops."""
ENDS_WITH = "the log ends without an error, with the line: ..."
"""The sentence that is looked up for such a log, before a part of its last line."""


def _ends(what: str, signs: tuple[str, ...], cause: str, fix: str, last: str) -> Trouble:
    """A log that stops without an error after one of these signs; `last` is such a line."""
    return Trouble(
        id=f"log/ends-{what}", shows=tuple(ENDS_WITH + sign for sign in signs), cause=cause, fix=fix,
        source="py-spy and the program's own last line", severity="warn", certainty="possible", kind="infrastructure",
        example=ENDS_WITH.replace("...", "") + last,
    )  # fmt: skip


TROUBLES = (
    Trouble(
        id=ENDS_SILENTLY,
        shows=("the log ends without an error, with the line: {last:t}$",),
        cause="the log holds no metrics and no error; its last line is: {last}. If the process still lives, it waits in what "
        "follows that line: loading or compiling, the first generation, a server that does not answer, or a collective in "
        "which one rank is missing",
        fix="see where each rank is: py-spy dump --pid PID (or kill -ABRT with PYTHONFAULTHANDLER=1). Ranks in a collective "
        "(all_gather, barrier, broadcast) wait for the one that is elsewhere; a rank in requests or vllm_client waits for the "
        "server: look into its log. nvidia-smi at 100 % on all GPUs and no progress is a collective; at 0 % it is data, a "
        "reward function or the server. If the process is gone, `dmesg -T | grep -i kill` tells why",
        source="marin-community/marin#8870", severity="warn", certainty="possible", kind="infrastructure",
        example="the log ends without an error, with the line: INFO 07-21 13:02:44 Waiting for workers",
    ),
    _ends(
        "waits-for-processes", ('NCCL INFO', 'ncclCommInitRank', 'init_process_group', 'Rendezvous'),
        'the processes are joining one communicator, and it never completes: a rank is missing, or the GPUs or nodes cannot reach one another',
        'count the ranks that printed this line; the missing one has the cause. If all did: NCCL_P2P_DISABLE=1 (GPUs without direct access, IOMMU or ACS on), NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME set to the interface the nodes share, NCCL_IB_DISABLE=1 without InfiniBand, open ports between nodes',
        'node1:3141:3141 [0] NCCL INFO ncclCommInitRank comm 0x55 rank 0 nranks 4 - Init START',
    ),
    _ends(
        "builds-extension", ('torch_extensions', 'Detected CUDA files, patching ldflags', 'Emitting ninja build file', 'Building extension module'),
        'a compiled extension is being built, or the process waits for the lock of a build that was interrupted',
        'rm -rf ~/.cache/torch_extensions (it holds a stale lock), then start once with one process; a first build takes some minutes and needs ninja and nvcc',
        'Using /home/ada/.cache/torch_extensions/py310_cu121 as PyTorch extensions root...',
    ),
    _ends(
        "first-step", ('0%|          | 0/',),
        'the first step has begun and does not end: the first generation, the first reward, or the first collective',
        'with ZeRO-3 and no engine every token gathers all weights (use vLLM or ds3_gather_for_generation=True); with a vLLM server look into its log for requests; a reward function without time limit; with several GPUs the first exchange between them hangs where IOMMU or ACS is on (NCCL_P2P_DISABLE=1 shows it); else py-spy dump --pid PID on every rank: the one that stands elsewhere has the cause',
        '  0%|          | 0/500 [00:00<?, ?it/s]',
    ),
    _ends(
        "engine-compiles", ('Capturing CUDA graph', 'torch.compile', 'Compiling a graph', 'Graph capturing', 'Using FLASH_ATTN backend', 'Using Flash Attention backend', 'Start compiling'),
        'the engine compiles and captures its graphs, which takes from one to some ten minutes the first time',
        'wait once, or enforce_eager=True to see whether this is it; VLLM_LOGGING_LEVEL=DEBUG names the stage; clear ~/.cache/vllm/torch_compile_cache if an interrupted compilation left it broken',
        "INFO 07-21 13:02:44 [backends.py:430] Using cache directory for vLLM's torch.compile",
    ),
    _ends(
        "loads-weights", ('Loading checkpoint shards', 'Loading safetensors checkpoint shards', 'Starting to load model'),
        'weights are being read: slow from a network disk, or main memory is full and the machine swaps',
        'iostat and free -h show it; copy the model to a local disk; several ranks that each read the whole model need that much main memory each (low_cpu_mem_usage, fsdp_cpu_ram_efficient_loading)',
        'Loading checkpoint shards:  25%|##5       | 1/4 [00:10<00:30, 10.00s/it]',
    ),
    _ends(
        "ray-starts", ('Started a local Ray instance', 'Connecting to existing Ray cluster', 'Connected to Ray cluster'),
        'Ray has started, and the next part waits for its workers: free GPUs, or a first import of all packages in every worker',
        '`ray status` shows whether requests are pending (ask for fewer GPUs or processors); ray stop --force for an old cluster; in a container give Ray the processors it really has (num_cpus), and look into /tmp/ray/session_latest/logs',
        '2025-03-02 10:00:12,123 INFO worker.py:1852 -- Started a local Ray instance.',
    ),
    _ends(
        "server-ready", ('Application startup complete', 'Uvicorn running on'),
        'the server is up and waits for requests: no request reaches it, or the caller hangs',
        "curl its /health and /v1/models from the trainer's machine; the trainer's host and port must be this server's (and no_proxy set); look into the trainer's log, not this one",
        'INFO:     Application startup complete.',
    ),
    _ends(
        "weights-sent", ('update_named_param', 'Updating weights', 'init_communicator', 'weight sync', 'update_weights'),
        "weights are being sent to the engine, and one side waits: a rank does not take part, or the engine's workers died",
        "look into the engine's log for its first error; every rank must walk over all parameters (FSDP and ZeRO-3 gather together); trainer and server need different GPUs and one NCCL release; after a crash of either side restart both",
        'INFO:     127.0.0.1:41234 - "POST /update_named_param/ HTTP/1.1" 200 OK',
    ),
    Trouble(
        id="log/ends-with-summary",
        shows=(ENDS_WITH + "'train_loss': {loss}",),
        cause="training ran to its end (mean loss {loss}), and the text holds its summary alone",
        fix="set logging_steps=1 and paste some rows. A loss of 0 is expected in GRPO with one update a batch; in SFT, DPO or with transformers it means "
        "that no label counted (all masked: the prompt fills max_length, a template that is not found) or that NaN was printed as 0 (float16). Too few "
        "steps: rows / (batch size x accumulation x processes) x epochs",
        source="huggingface/transformers: Trainer.train", severity="info", certainty="possible",
        example=ENDS_WITH.replace("...", "") + "{'train_runtime': 12.3, 'train_steps_per_second': 1.0, 'train_loss': 0.0, 'epoch': 1.0}",
    ),
    Trouble(
        id="linux/oom-kill",
        shows=(
            "oom-kill:constraint=", "Out of memory: Killed process {pid} ({name:w})", "Detected {n} oom-kill event",
            "Memory cgroup out of memory: Killed process {pid} ({name:w})", "oom_kill event in StepId", "OOMKilled", "OUT_OF_ME", "OOMKilling",
        ),
        cause="the kernel killed a process because the machine's main memory (not the GPU's) was full",
        fix="give the job more main memory, or use less: no CPU offload of weights or optimizer, a lower vLLM swap_space and "
        "sleep level, fewer data-loader and reward workers, checkpoints gathered on rank 0 one at a time",
        source="verl-project/verl: FAQ", certainty="certain", kind="out-of-memory",
        example="[12345.678] Out of memory: Killed process 3141 (ray::WorkerDict) total-vm:91234567kB",
    ),
    Trouble(
        id="linux/disk-full",
        shows=("No space left on device", "Disk quota exceeded", "file write failed"),
        cause="the disk is full",
        fix="free space where checkpoints, the cache (HF_HOME) and Ray's files (/tmp/ray) go; keep fewer checkpoints "
        "(save_total_limit in TRL, trainer.max_actor_ckpt_to_keep in veRL). The newest checkpoint may be cut off",
        source="pytorch/pytorch: inline_container.cc", kind="infrastructure",
        example="RuntimeError: [enforce fail at inline_container.cc:626] . unexpected pos 7516192768 vs 7516192662: file "
        "write failed",
    ),
    Trouble(
        id="linux/too-many-files",
        shows=("Too many open files",),
        cause="the process reached its limit of open files",
        fix="raise it before the start (ulimit -n 65535; --ulimit nofile=65535:65535 for docker), or share tensors through "
        "files: torch.multiprocessing.set_sharing_strategy('file_system')",
        source="ray-project/ray: configuring limits", certainty="certain", kind="infrastructure",
        example="OSError: [Errno 24] Too many open files",
    ),
    Trouble(
        id="linux/slurm-time-limit",
        shows=("DUE TO TIME LIMIT",),
        cause="the scheduler ended the job at its time limit",
        fix="continue from the newest checkpoint; save before the limit (#SBATCH --signal=B:USR1@300), or ask for more time",
        source="SchedMD: slurm", certainty="certain", kind="infrastructure",
        example="slurmstepd: error: *** JOB 4711 ON node01 CANCELLED AT 2025-03-02T10:00:12 DUE TO TIME LIMIT ***",
    ),
    Trouble(
        id="linux/preempted",
        shows=("DUE TO PREEMPTION", "DUE TO NODE FAILURE"),
        cause="the scheduler took the machine away",
        fix="continue from the newest checkpoint; let the job requeue itself (#SBATCH --requeue)",
        source="SchedMD: slurm", certainty="certain", kind="infrastructure",
        example="slurmstepd: error: *** STEP 4711.0 ON node01 CANCELLED AT 2025-03-02T10:00:12 DUE TO PREEMPTION ***",
    ),
    Trouble(
        id="docker/no-gpu",
        shows=('could not select device driver "" with capabilities: [[gpu', "nvidia-container-cli: initialization error", "unknown or invalid runtime name: nvidia"),
        cause="Docker cannot give GPUs to a container here: the NVIDIA container toolkit is missing or the driver does not work",
        fix="nvidia-smi on the machine itself first; then install nvidia-container-toolkit, `nvidia-ctk runtime configure --runtime=docker` and restart docker",
        source="NVIDIA: container toolkit", certainty="certain", kind="config-error",
        example='docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
    ),
    Trouble(
        id="linux/old-glibc",
        shows=("version `GLIBC_{version:w}' not found", "version `GLIBCXX_{version:w}' not found",
               "version `CXXABI_{version:w}' not found"),
        cause="a compiled package wants a newer C or C++ library ({version}) than this system loads",
        fix="use a newer image, or in conda: conda install -c conda-forge libstdcxx-ng, and put its lib folder first in "
        "LD_LIBRARY_PATH",
        source="conda-forge: libstdcxx", certainty="certain", kind="config-error",
        example="ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.30' not found",
    ),
)  # fmt: skip
