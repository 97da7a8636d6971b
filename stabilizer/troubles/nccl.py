"""NCCL and torch.distributed."""

from __future__ import annotations

from stabilizer.troubles.trouble import Trouble

TROUBLES = (
    Trouble(
        id="nccl/watchdog-timeout",
        shows=(
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op:w}, ...Timeout(ms)={ms}",
            "Watchdog caught collective operation timeout",
        ),
        cause="a collective waited for a rank that never came, until the watchdog ended the process: another rank failed, "
        "hangs, or is still busy with a slow reward, a long answer, saving or compiling",
        fix="look for the rank that has no such line or an earlier error: its last phase is the cause (py-spy dump --pid "
        "there, or TORCH_NCCL_TRACE_BUFFER_SIZE=20000 with TORCH_NCCL_DUMP_ON_TIMEOUT=1). If it was only slow, raise "
        "ddp_timeout (transformers, TRL), actor_rollout_ref.nccl_timeout (veRL), or bound the reward's time",
        source="verl-project/verl#6673", consequence=True, certainty="possible", kind="infrastructure",
        example="[rank3]:[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=8123, OpType=ALLGATHER, NumelIn=1, NumelOut=8, Timeout(ms)=600000) ran for 600032 milliseconds "
        "before timing out.",
    ),
    Trouble(
        id="nccl/monitored-barrier",
        shows=("[Rank {rank}]: Ranks {missing:t} failed to pass monitoredBarrier in {ms} ms",),
        cause="ranks {missing} did not reach the barrier within {ms} ms",
        fix="look at the stack of rank {missing}: it died earlier, or waits in another collective or in data loading",
        source="pytorch/pytorch: ProcessGroupGloo.cpp", kind="infrastructure", consequence=True, certainty="possible",
        example="RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 30000 ms",
    ),
    Trouble(
        id="nccl/remote-gone",
        shows=("Connection closed by peer", "Connection reset by peer", "NCCL error: remote process exited", "Received a dump signal due to a collective timeout",
               "Some NCCL operations have failed or timed out", "ncclRemoteError: A call failed",
               "NCCL communicator was aborted on rank", "remote process has terminated or network error", "RendezvousClosedError", "RendezvousConnectionError",
               "The connection to the C10d store has failed"),
        cause="another process of the group failed, hangs or ended, and this one lost its connection; this line only reports it",
        fix="find the rank or node whose first error is earliest, in this log or another rank's (TORCH_NCCL_TRACE_BUFFER_SIZE and the flight recorder); if none has "
        "one, py-spy dump --pid PID on every rank shows which one is elsewhere. Nodes start together, with one --rdzv_id and the same --nnodes",
        source="pytorch/pytorch: ProcessGroupNCCL", consequence=True, certainty="possible", kind="infrastructure",
        example="RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
        "[10.0.0.2]:41234",
    ),
    Trouble(
        id="nccl/child-failed",
        shows=("torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "subprocess.CalledProcessError: Command '[", "CalledProcessError: Command '[",
               "exits with return code = {code}", "returned non-zero exit status {code}."),
        cause="a launcher reports that a program it started failed, and ends the others; this is not the error itself",
        fix="look above for the first traceback, of the rank that is named as root cause; without one the exit status tells: -9 or 137 was killed (memory, the scheduler), -11 or 139 crashed in "
        "compiled code, -6 aborted, 1 an exception. Run it with one process (python SCRIPT) to see the error at the end",
        source="pytorch/pytorch: torch/distributed/elastic", certainty="possible", consequence=True, kind="infrastructure",
        example="torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    ),
    Trouble(
        id="nccl/closing-signal",
        shows=("Sending process {pid} closing signal {signal:w}",),
        cause="torchrun ends process {pid}, because another one failed or it was stopped itself: no failure of that process",
        fix="look for the first traceback, and for the rank named as root cause at the end",
        source="pytorch/pytorch: torch/distributed/elastic", severity="info", certainty="certain", kind="infrastructure",
        example="W1126 10:00:00 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 77 closing signal SIGTERM",
    ),
    Trouble(
        id="nccl/address-in-use",
        shows=(
            "The server socket has failed to listen on any local network address", "Address already in use",
            "EADDRINUSE", "Tried to launch distributed communication on port `{port}`, but another process is utilizing it",
        ),
        cause="the rendezvous port is taken: another run on this machine uses it, or an old one still lives",
        fix="choose another port (--main_process_port or --master_port with a free one, MASTER_PORT; with accelerate 0 lets it choose), or end the old "
        "processes",
        source="pytorch/pytorch: TCPStore.cpp", certainty="certain", kind="config-error",
        example="torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    ),
    Trouble(
        id="nccl/shared-memory",
        shows=("Error while creating shared memory segment", "No space left on device ...shm",
               "failed to extend /dev/shm/nccl-{name:w} to {bytes} bytes", "shmutils.cc:{line} NCCL WARN",
               "DataLoader worker (pid{pid:t}) is killed by signal: Bus error",
               "It is possible that dataloader's workers are out of shared memory"),
        cause="the shared memory (/dev/shm) is too small for NCCL or the data loaders: containers get 64 MB of it by default",
        fix="start the container with more of it (docker run --shm-size=16g or --ipc=host; an emptyDir of medium Memory in "
        "Kubernetes), or set NCCL_SHM_DISABLE=1 at a cost in speed, "
        "or dataloader_num_workers to 0 where data loaders fail",
        source="NVIDIA/nccl: troubleshooting, Docker", certainty="certain", kind="infrastructure",
        example="NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Xk2JcT (size 9637888)",
    ),
    Trouble(
        id="nccl/wrong-interface",
        shows=("Bootstrap : no socket interface found", "socketStartConnect: Connect to ... failed"),
        cause="NCCL takes a network interface over which the machines can't reach one another",
        fix="set NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME) to the interface that `ip addr` shows for the machines' "
        "network",
        source="NVIDIA/nccl: environment variables", kind="infrastructure",
        example="NCCL WARN Bootstrap : no socket interface found",
    ),
    Trouble(
        id="nccl/rendezvous-timeout",
        shows=(
            "RendezvousTimeoutError", "The client socket has timed out after {ms}ms while trying to connect to ({address:t}",
            "Timed out after {s} seconds waiting for clients",
        ),
        cause="not all machines or processes joined within the time limit",
        fix="start the same command on every machine with the same MASTER_ADDR, MASTER_PORT and number of machines, and "
        "check that the port is open between them",
        source="pytorch/pytorch: elastic rendezvous", kind="infrastructure",
        example="torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
    ),
    Trouble(
        id="nccl/unused-parameters",
        shows=("Expected to have finished reduction in the prior iteration before starting a new one",),
        cause="DDP waits for gradients of parameters that this pass did not use: a rank without rows, a frozen or optional "
        "part of the model, or reentrant gradient checkpointing",
        fix="set ddp_find_unused_parameters=True, or use_reentrant=False in gradient_checkpointing_kwargs; give every rank "
        "rows",
        source="pytorch/pytorch: reducer.cpp", certainty="likely", kind="config-error",
        example="RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
    ),
    Trouble(
        id="nccl/marked-ready-twice",
        shows=("Expected to mark a variable ready only once",),
        cause="a parameter got its gradient twice in one pass: reentrant gradient checkpointing under DDP, often with LoRA",
        fix="set gradient_checkpointing_kwargs={{'use_reentrant': False}}, or ddp_find_unused_parameters=False",
        source="pytorch/pytorch: reducer.cpp", kind="config-error",
        example="RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the following "
        "reasons:",
    ),
    Trouble(
        id="nccl/no-p2p",
        shows=("Using RTX 4000 series doesn't support faster communication broadband via P2P or IB",),
        cause="consumer GPUs of this series have no peer-to-peer transfer, which NCCL tries by default",
        fix="set NCCL_P2P_DISABLE=1 and NCCL_IB_DISABLE=1, or start with accelerate launch, which does",
        source="huggingface/accelerate: state.py", certainty="certain", kind="config-error",
        example="NotImplementedError: Using RTX 4000 series doesn't support faster communication broadband via P2P or IB.",
    ),
    Trouble(
        id="nccl/invalid-device",
        shows=("invalid device ordinal", "device >= 0 && device < num_gpus"),
        cause="a process asks for a GPU that it can't see: more processes than visible GPUs, or CUDA_VISIBLE_DEVICES "
        "leaves some out, or Ray shows each actor its own GPU alone while the code counts all",
        fix="start as many processes as GPUs are visible (--num_processes, --nproc_per_node), less those a vLLM server has; "
        "under Ray the releases of Ray and engine that the trainer names, or RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1",
        source="pytorch/pytorch: c10/cuda", certainty="certain", kind="config-error",
        example="RuntimeError: CUDA error: invalid device ordinal",
    ),
    Trouble(
        id="nccl/unhandled-system-error",
        shows=("unhandled system error", "ncclSystemError: System call (e.g. socket, malloc) or external library call failed", "ncclInternalError: Internal check failed",
               "ncclInvalidArgument: Invalid value for an argument", "NCCL WARN Message truncated : received {a} bytes instead of {b}"),
        cause="NCCL failed in itself or in a system call: the network between the processes or its settings differ, shared memory, a GPU that fell off, or ranks that called different collectives",
        fix="run once with NCCL_DEBUG=INFO: the first NCCL WARN line names the reason. Check that every rank takes the same path (a branch, a batch skipped on one rank), one NCCL release "
        "everywhere, NCCL_SOCKET_IFNAME, and /dev/shm in containers; `dmesg | grep -i xid` shows a broken GPU",
        source="NVIDIA/nccl: troubleshooting", certainty="possible", kind="infrastructure",
        example="torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version "
        "2.21.5",
    ),
)  # fmt: skip
