"""The operating system, containers and schedulers."""

from __future__ import annotations

from stabilizer.troubles.trouble import Trouble

ENDS_SILENTLY = "log/ends-without-error"
"""The id of the trouble of a log that only stops."""

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
        id="linux/killed-9",
        shows=("exitcode: -9", "exit code -9", "died with <Signals.SIGKILL: 9>", "Signal 9 (SIGKILL) received by PID"),
        cause="a process was killed with signal 9: nearly always by the kernel because main memory was full, else by the "
        "scheduler",
        fix="`dmesg -T | grep -i kill` or the scheduler's record of that minute tells which. For memory: no CPU offload, "
        "fewer workers, or more memory for the job",
        source="pytorch/pytorch: elastic error reports", certainty="likely", kind="out-of-memory",
        example="exitcode: -9 (pid: 3141) of binary: /usr/bin/python3",
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
        id="linux/data-loader-shm",
        shows=("DataLoader worker (pid{pid:t}) is killed by signal: Bus error", "It is possible that dataloader's workers are "
               "out of shared memory"),
        cause="the data-loader workers ran out of shared memory (/dev/shm)",
        fix="start the container with --shm-size=16g or --ipc=host, or set dataloader_num_workers to 0",
        source="pytorch/pytorch: data loading", certainty="certain", kind="infrastructure",
        example="RuntimeError: DataLoader worker (pid 3141) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.",
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
