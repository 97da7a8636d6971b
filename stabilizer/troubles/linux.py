"""The operating system, containers and schedulers."""

from __future__ import annotations

from stabilizer.troubles.trouble import Trouble

ENDS_SILENTLY = "log/ends-without-error"
"""The id of the trouble of a log that only stops."""
ENDS_WITH = "the log ends without an error, with the line: ..."
"""The sentence that is looked up for such a log, before a part of its last line."""

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
    Trouble(
        id="log/ends-waits-for-processes",
        shows=tuple(ENDS_WITH + sign for sign in ('NCCL INFO', 'ncclCommInitRank', 'init_process_group', 'Rendezvous')),
        cause='the processes are joining one communicator, and it never completes: a rank is missing, or the GPUs or nodes cannot reach one another',
        fix='count the ranks that printed this line; the missing one has the cause. If all did: NCCL_P2P_DISABLE=1 (GPUs without direct access, IOMMU or ACS on), NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME set to the interface the nodes share, NCCL_IB_DISABLE=1 without InfiniBand, open ports between nodes',
        source="py-spy and the program's own last line", severity="warn", certainty="possible", kind="infrastructure",
        example=ENDS_WITH.replace("...", "") + 'node1:3141:3141 [0] NCCL INFO ncclCommInitRank comm 0x55 rank 0 nranks 4 - Init START',
    ),
    Trouble(
        id="log/ends-builds-extension",
        shows=tuple(ENDS_WITH + sign for sign in ('torch_extensions', 'Detected CUDA files, patching ldflags', 'Emitting ninja build file', 'Building extension module')),
        cause='a compiled extension is being built, or the process waits for the lock of a build that was interrupted',
        fix='rm -rf ~/.cache/torch_extensions (it holds a stale lock), then start once with one process; a first build takes some minutes and needs ninja and nvcc',
        source="py-spy and the program's own last line", severity="warn", certainty="possible", kind="infrastructure",
        example=ENDS_WITH.replace("...", "") + 'Using /home/ada/.cache/torch_extensions/py310_cu121 as PyTorch extensions root...',
    ),
    Trouble(
        id="log/ends-first-step",
        shows=tuple(ENDS_WITH + sign for sign in ('0%|          | 0/',)),
        cause='the first step has begun and does not end: the first generation, the first reward, or the first collective',
        fix='with ZeRO-3 and no engine every token gathers all weights (use vLLM or ds3_gather_for_generation=True); with a vLLM server look into its log for requests; a reward function without time limit; with several GPUs the first exchange between them hangs where IOMMU or ACS is on (NCCL_P2P_DISABLE=1 shows it); else py-spy dump --pid PID on every rank: the one that stands elsewhere has the cause',
        source="py-spy and the program's own last line", severity="warn", certainty="possible", kind="infrastructure",
        example=ENDS_WITH.replace("...", "") + '  0%|          | 0/500 [00:00<?, ?it/s]',
    ),
    Trouble(
        id="log/ends-engine-compiles",
        shows=tuple(ENDS_WITH + sign for sign in ('Capturing CUDA graph', 'torch.compile', 'Compiling a graph', 'Graph capturing', 'Using FLASH_ATTN backend', 'Using Flash Attention backend', 'Start compiling')),
        cause='the engine compiles and captures its graphs, which takes from one to some ten minutes the first time',
        fix='wait once, or enforce_eager=True to see whether this is it; VLLM_LOGGING_LEVEL=DEBUG names the stage; clear ~/.cache/vllm/torch_compile_cache if an interrupted compilation left it broken',
        source="py-spy and the program's own last line", severity="warn", certainty="possible", kind="infrastructure",
        example=ENDS_WITH.replace("...", "") + "INFO 07-21 13:02:44 [backends.py:430] Using cache directory for vLLM's torch.compile",
    ),
    Trouble(
        id="log/ends-loads-weights",
        shows=tuple(ENDS_WITH + sign for sign in ('Loading checkpoint shards', 'Loading safetensors checkpoint shards', 'Starting to load model')),
        cause='weights are being read: slow from a network disk, or main memory is full and the machine swaps',
        fix='iostat and free -h show it; copy the model to a local disk; several ranks that each read the whole model need that much main memory each (low_cpu_mem_usage, fsdp_cpu_ram_efficient_loading)',
        source="py-spy and the program's own last line", severity="warn", certainty="possible", kind="infrastructure",
        example=ENDS_WITH.replace("...", "") + 'Loading checkpoint shards:  25%|##5       | 1/4 [00:10<00:30, 10.00s/it]',
    ),
    Trouble(
        id="log/ends-ray-starts",
        shows=tuple(ENDS_WITH + sign for sign in ('Started a local Ray instance', 'Connecting to existing Ray cluster', 'Connected to Ray cluster')),
        cause='Ray has started, and the next part waits for its workers: free GPUs, or a first import of all packages in every worker',
        fix='`ray status` shows whether requests are pending (ask for fewer GPUs or processors); ray stop --force for an old cluster; in a container give Ray the processors it really has (num_cpus), and look into /tmp/ray/session_latest/logs',
        source="py-spy and the program's own last line", severity="warn", certainty="possible", kind="infrastructure",
        example=ENDS_WITH.replace("...", "") + '2025-03-02 10:00:12,123 INFO worker.py:1852 -- Started a local Ray instance.',
    ),
    Trouble(
        id="log/ends-server-ready",
        shows=tuple(ENDS_WITH + sign for sign in ('Application startup complete', 'Uvicorn running on')),
        cause='the server is up and waits for requests: no request reaches it, or the caller hangs',
        fix="curl its /health and /v1/models from the trainer's machine; the trainer's host and port must be this server's (and no_proxy set); look into the trainer's log, not this one",
        source="py-spy and the program's own last line", severity="warn", certainty="possible", kind="infrastructure",
        example=ENDS_WITH.replace("...", "") + 'INFO:     Application startup complete.',
    ),
    Trouble(
        id="log/ends-weights-sent",
        shows=tuple(ENDS_WITH + sign for sign in ('update_named_param', 'Updating weights', 'init_communicator', 'weight sync', 'update_weights')),
        cause="weights are being sent to the engine, and one side waits: a rank does not take part, or the engine's workers died",
        fix="look into the engine's log for its first error; every rank must walk over all parameters (FSDP and ZeRO-3 gather together); trainer and server need different GPUs and one NCCL release; after a crash of either side restart both",
        source="py-spy and the program's own last line", severity="warn", certainty="possible", kind="infrastructure",
        example=ENDS_WITH.replace("...", "") + 'INFO:     127.0.0.1:41234 - "POST /update_named_param/ HTTP/1.1" 200 OK',
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
            "Memory cgroup out of memory: Killed process {pid} ({name:w})", "oom_kill event in StepId",
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
