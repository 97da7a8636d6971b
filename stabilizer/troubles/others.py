"""OpenRLHF, SkyRL, NeMo-RL, Megatron and slime, ms-swift, LLaMA-Factory, prime-rl, SGLang, and Python itself."""

from __future__ import annotations

from stabilizer.troubles.arithmetic import listed, nearest_multiples, whole
from stabilizer.troubles.trouble import Trouble, Values


def _near(values: Values) -> dict[str, object]:
    size, unit = whole(values["size"]), whole(values["unit"])
    if size % unit == 0:
        raise ValueError("it divides")
    return {"near": listed(nearest_multiples(size, unit))}


TROUBLES = (
    Trouble(
        id="openrlhf/rollout-batch",
        shows=("rollout_batch_size ...must be divisible by micro_rollout_batch_size",
               "rollout_batch_size must be divisible by micro_rollout_batch_size"),
        cause="the rollout batch is no multiple of the rollout micro-batch",
        fix="make --rollout_batch_size a multiple of --micro_rollout_batch_size (x actor GPUs)",
        source="OpenRLHF/OpenRLHF: cli/train_ppo_ray.py", certainty="certain", kind="config-error",
        example="AssertionError: rollout_batch_size must be divisible by micro_rollout_batch_size",
    ),
    Trouble(
        id="openrlhf/colocate-sizes",
        shows=("num_nodes and num_gpus_per_node must be the same when colocate",),
        cause="models that share GPUs (--colocate_all_models, --colocate_actor_ref) must have the same number of them",
        fix="give actor, reference, critic and reward the same *_num_nodes and *_num_gpus_per_node, and vllm_num_engines x "
        "vllm_tensor_parallel_size equal to them",
        source="OpenRLHF/OpenRLHF: cli/train_ppo_ray.py", certainty="certain", kind="config-error",
        example="AssertionError: num_nodes and num_gpus_per_node must be the same when colocate actor and ref model.",
    ),
    Trouble(
        id="megatron/global-batch",
        shows=("global batch size ({size}) is not divisible by micro batch size ({micro}) times data parallel size ({dp})",),
        cause="global batch {size} is no multiple of micro batch {micro} x data-parallel size {dp} = {unit}",
        fix="set the global batch to {near}, or change micro batch or parallel sizes",
        source="NVIDIA/Megatron-LM: num_microbatches_calculator.py", certainty="certain", kind="config-error",
        work=lambda v: _near({"size": v["size"], "unit": str(whole(v["micro"]) * whole(v["dp"]))})
        | {"unit": whole(v["micro"]) * whole(v["dp"])},
        example="AssertionError: global batch size (100) is not divisible by micro batch size (4) times data parallel size (8)",
    ),
    Trouble(
        id="megatron/world-size",
        shows=("world_size ({size}) is not divisible by {unit}",),
        cause="{size} GPUs are no multiple of tensor x pipeline x context parallel size = {unit}",
        fix="use {near} GPUs, or other parallel sizes",
        source="NVIDIA/Megatron-LM: parallel_state.py", certainty="certain", kind="config-error", work=_near,
        example="RuntimeError: world_size (6) is not divisible by 4",
    ),
    Trouble(
        id="megatron/heads",
        shows=("num_attention_heads ({size}) must be a multiple of tensor_model_parallel_size ({unit})",),
        cause="{size} attention heads can't be divided over tensor_model_parallel_size = {unit}",
        fix="set a tensor parallel size that divides {size}",
        source="NVIDIA/Megatron-LM: transformer_config.py", certainty="certain", kind="config-error",
        example="ValueError: num_attention_heads (14) must be a multiple of tensor_model_parallel_size (4).",
    ),
    Trouble(
        id="slime/router-unhealthy",
        shows=("Failed to connect to router", "No healthy workers available", "No available workers (all circuits open or unhealthy)"),
        cause="the SGLang router has no healthy engine behind it: engines are still loading, crashed, or a proxy is in "
        "between",
        fix="look into the engines' logs for the first error, unset http_proxy, and allow more time for loading",
        source="THUDM/slime#1058", kind="infrastructure", consequence=True,
        example="httpx.HTTPStatusError: 503: No available workers (all circuits open or unhealthy)",
    ),
    Trouble(
        id="sglang/memory-pool",
        shows=("Not enough memory. Please try to increase --mem-fraction-static", "Loading weights...mem-fraction-static"),
        cause="after the weights SGLang has no memory left for its KV cache within mem_fraction_static",
        fix="raise --mem-fraction-static (--sglang-mem-fraction-static in slime), use more GPUs a model (tp), or free what the "
        "trainer holds on the same GPU",
        source="sgl-project/sglang: hyperparameter tuning", certainty="certain", kind="out-of-memory",
        example="RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    ),
    Trouble(
        id="sglang/context-length",
        shows=("The input ({prompt} tokens) is longer than the model's context length ({length} tokens)",
               "Requested token count exceeds the model's maximum context length of {length} tokens. You requested a total of "
               "{prompt}"),
        cause="a request of {prompt} tokens exceeds the engine's context of {length}",
        fix="drop long prompts, lower the response limit (rollout_max_response_len), or raise the engine's context length",
        source="sgl-project/sglang: tokenizer_manager.py", certainty="certain", kind="config-error",
        example="ValueError: The input (9012 tokens) is longer than the model's context length (8192 tokens).",
    ),
    Trouble(
        id="sglang/scheduler-died",
        shows=("Scheduler hit an exception", "Rank {rank} scheduler is dead", "SIGQUIT received. ...It usually means one child failed"),
        cause="SGLang's scheduler process failed; the exception below this line is the cause",
        fix="read the traceback after it: most often GPU memory, a model it cannot load, or attention and sampling backends "
        "that do not fit the GPU",
        source="sgl-project/sglang: scheduler.py", consequence=True, kind="infrastructure",
        example="[2025-03-02 10:00:12] Scheduler hit an exception: Traceback (most recent call last):",
    ),
    Trouble(
        id="sglang/watchdog",
        shows=("Watchdog timeout (self.watchdog_timeout={s})",),
        cause="SGLang's scheduler made no progress for {s} s: a hang in a collective or a kernel, or compiling",
        fix="raise --watchdog-timeout if it was compiling; else look at the stacks it prints and at the other ranks",
        source="sgl-project/sglang: scheduler.py", kind="infrastructure",
        example="[2025-03-02 10:00:12] Watchdog timeout (self.watchdog_timeout=300)",
    ),
    Trouble(
        id="nemo-rl/uv-venv",
        shows=("nemo_rl.distributed.virtual_cluster.ResourceInsufficientError", "Maximum number of retries reached ({n}). "
               "Cluster resources may be insufficient"),
        cause="the cluster has fewer free GPUs than the policy and the generation together ask for",
        fix="lower cluster.gpus_per_node x cluster.num_nodes (or policy.generation.colocated.resources), or end the runs that "
        "hold GPUs (ray status)",
        source="NVIDIA-NeMo/RL: virtual_cluster.py", certainty="likely", kind="config-error",
        example="nemo_rl.distributed.virtual_cluster.ResourceInsufficientError: Maximum number of retries reached (6). Cluster "
        "resources may be insufficient or cluster itself is highly unstable.",
    ),
    Trouble(
        id="nemo-rl/generation-batch",
        shows=("num_prompts_per_step * num_generations_per_prompt ({size}) must be divisible by ...({unit})",
               "Configuration error: (num_prompts_per_step * num_generations_per_prompt) = {size} must be divisible by "
               "data_parallel size {unit}"),
        cause="{size} completions a step can't be divided over {unit}",
        fix="make grpo.num_prompts_per_step x grpo.num_generations_per_prompt one of {near}",
        source="NVIDIA-NeMo/RL: algorithms/grpo.py", certainty="certain", kind="config-error", work=_near,
        example="AssertionError: Configuration error: (num_prompts_per_step * num_generations_per_prompt) = 100 must be "
        "divisible by data_parallel size 8.",
    ),
    Trouble(
        id="skyrl/policy-mini-batch",
        shows=("train_batch_size ({size}) should be divisible by policy_mini_batch_size ({unit})",
               "policy_train_batch_size {size} should be divisible by policy_mini_batch_size {unit}"),
        cause="trainer.train_batch_size = {size} is no multiple of trainer.policy_mini_batch_size = {unit}",
        fix="set trainer.train_batch_size to {near}, or policy_mini_batch_size to a divisor of {size}",
        source="NovaSky-AI/SkyRL: utils/utils.py", certainty="certain", kind="config-error", work=_near,
        example="AssertionError: train_batch_size (100) should be divisible by policy_mini_batch_size (64)",
    ),
    Trouble(
        id="skyrl/inference-gpus",
        shows=("num_inference_engines * inference_engine_tensor_parallel_size should equal", "num_policy_gpus ({a}) and "
               "num_rollout_gpus ({b}) must be the same when colocating all models"),
        cause="with colocated models the engines must use exactly the policy's GPUs",
        fix="make generator.num_inference_engines x inference_engine_tensor_parallel_size equal to policy_num_gpus_per_node x "
        "policy_num_nodes",
        source="NovaSky-AI/SkyRL: utils/utils.py", certainty="certain", kind="config-error",
        example="AssertionError: num_policy_gpus (4) and num_rollout_gpus (8) must be the same when colocating all models",
    ),
    Trouble(
        id="ms-swift/template-missing",
        shows=("template_type: None", "Please specify --model_type", "model_type...not in MODEL_MAPPING"),
        cause="ms-swift can't tell the model's type from its files",
        fix="give --model_type and --template (swift's list of supported models names both)",
        source="modelscope/ms-swift: supported models", certainty="likely", kind="config-error",
        example="ValueError: Please explicitly pass the model_type. Please specify --model_type",
    ),
    Trouble(
        id="ms-swift/generations-batch",
        shows=("global_batch_size...must be divisible by num_generations",),
        cause="the completions of a step can't be divided into whole groups of num_generations",
        fix="make per_device_train_batch_size x processes x gradient_accumulation_steps a multiple of num_generations; "
        "`stabilizer plan --trainer ms-swift` lists the valid ones",
        source="modelscope/ms-swift: GRPO", certainty="certain", kind="config-error",
        example="ValueError: global_batch_size (6) must be divisible by num_generations (4).",
    ),
    Trouble(
        id="llama-factory/template-unknown",
        shows=("Template {name:w} does not exist",),
        cause="LLaMA-Factory has no template {name}",
        fix="give --template with a name of its list (qwen, llama3, default, ...), or upgrade it for a newer model",
        source="hiyouga/LLaMA-Factory: data/template.py", certainty="certain", kind="config-error",
        example="ValueError: Template qwen9 does not exist.",
    ),
    Trouble(
        id="llama-factory/dataset-undefined",
        shows=("Undefined dataset {name:w} in dataset_info.json", "Cannot open data/dataset_info.json"),
        cause="the data set is not described in dataset_info.json",
        fix="add it there (file_name, columns), and set --dataset_dir to the folder that holds the file",
        source="hiyouga/LLaMA-Factory: data/README.md", certainty="certain", kind="config-error",
        example="ValueError: Undefined dataset my_rl in dataset_info.json.",
    ),
    Trouble(
        id="llama-factory/unknown-arguments",
        shows=("Some specified arguments are not used by the HfArgumentParser: {names:t}]",),
        cause="these settings are unknown to this release, or belong to another stage: {names}",
        fix="check their spelling with `stabilizer preflight CONFIG`; remove those of another stage",
        source="hiyouga/LLaMA-Factory: hparams/parser.py", certainty="certain", kind="config-error",
        example="ValueError: Some specified arguments are not used by the HfArgumentParser: ['--ppo_epoch', '4']",
    ),
    Trouble(
        id="prime-rl/orchestrator-waits",
        shows=("Waiting for inference server to be ready", "Inference pool is not ready", "Timeout waiting for weight checkpoint"),
        cause="a part of prime-rl waits for another that is not there: the inference server is loading, or died",
        fix="look into the log of the inference server (logs/inference.*): its first error is the cause",
        source="PrimeIntellect-ai/prime-rl", severity="warn", certainty="possible", kind="infrastructure",
        example="WARNING Waiting for inference server to be ready (120s)",
    ),
    Trouble(
        id="python/no-module",
        shows=("No module named '{name:w}'",),
        cause="the package {name} is not installed in the Python that runs the training, or a file of the project is not on "
        "its path",
        fix="install it in that environment (python -m pip install ...; in Ray on every node, runtime_env), or set PYTHONPATH to "
        "the project's folder",
        source="python: importlib", certainty="likely", kind="config-error",
        example="ModuleNotFoundError: No module named 'math_verify'",
    ),
    Trouble(
        id="python/pickle-lambda",
        shows=("Can't pickle local object '{name:w}", "cannot pickle '{name:w}' object", "Can't pickle <function <lambda>"),
        cause="an object is sent to another process that can't be pickled: a lambda or a function inside a function",
        fix="define reward and data functions at the top level of a module, and pass names instead of open files or models",
        source="python: pickle", certainty="certain",
        example="AttributeError: Can't pickle local object 'build.<locals>.reward'",
    ),
    Trouble(
        id="python/json-line",
        shows=("json.decoder.JSONDecodeError: Extra data: line 2 column 1", "JSONDecodeError: Extra data: line 2"),
        cause="a JSON-lines file was read as one JSON document",
        fix="name it .jsonl, or load it with datasets.load_dataset('json', data_files=...)",
        source="python: json", certainty="likely", kind="config-error",
        example="json.decoder.JSONDecodeError: Extra data: line 2 column 1 (char 128)",
    ),
    Trouble(
        id="pyarrow/list-of-mixed",
        shows=("ArrowInvalid: cannot mix list and non-list, non-null values", "ArrowInvalid: Could not convert {what:t} with type"),
        cause="a column holds values of different types (text in one row, a list in another)",
        fix="write the column with one type in every row; ground truths as text",
        source="apache/arrow", certainty="certain", kind="config-error",
        example="pyarrow.lib.ArrowInvalid: cannot mix list and non-list, non-null values",
    ),
    Trouble(
        id="reward/http-timeout",
        shows=("requests.exceptions.ReadTimeout", "httpx.ReadTimeout", "openai.APITimeoutError"),
        cause="a request to a reward model, a judge or a tool got no answer in time",
        fix="bound the number of requests at a time, retry with a pause, and give a missing answer no reward (None) instead of "
        "0; check that the server has free capacity",
        source="verl-project/verl#6673", certainty="likely", kind="infrastructure",
        example="requests.exceptions.ReadTimeout: HTTPConnectionPool(host='127.0.0.1', port=6000): Read timed out. (read "
        "timeout=60)",
    ),
    Trouble(
        id="reward/rate-limit",
        shows=("openai.RateLimitError", "Error code: 429"),
        cause="the judge's service refuses requests: too many at a time",
        fix="limit the requests at a time, retry with growing pauses, or serve the judge yourself",
        source="openai/openai-python: errors", certainty="certain", kind="infrastructure",
        example="openai.RateLimitError: Error code: 429 - {'error': {'message': 'Rate limit reached'}}",
    ),
)  # fmt: skip
