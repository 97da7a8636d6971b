"""OpenRLHF, SkyRL, NeMo-RL, Megatron and slime, ms-swift, LLaMA-Factory, prime-rl, SGLang, and Python itself."""

from __future__ import annotations

from stabilizer.troubles.arithmetic import divisors, listed, not_whole, whole
from stabilizer.troubles.trouble import Trouble, Values


def _named(values: Values) -> dict[str, object]:
    if "_" not in values["name"] + values["other"]:
        raise ValueError("no names of a program")
    return not_whole(values)


def _image_tokens(values: Values) -> dict[str, object]:
    """Fewer tokens than features are cut off; more were written by the model or belong to images that are not there."""
    if whole(values["tokens"]) < whole(values["features"]):
        how = "it was cut in the middle of an image"
        todo = (
            "raise the prompt limit (data.max_prompt_length, max_prompt_length) above text + image tokens, lower the image's max_pixels, or drop "
            "overlong prompts (data.filter_overlong_prompts=true)"
        )
    else:
        how = "the model generated an image token in an answer, or a placeholder has no image"
        todo = (
            "forbid the image token while sampling (bad_words, a logit bias) or replace it in the answers before their log-probabilities are "
            "computed; give each placeholder of a row one image, expanded once"
        )
    return {"how": how, "todo": todo}


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
        work=lambda v: not_whole({"size": v["size"], "unit": str(whole(v["micro"]) * whole(v["dp"]))})
        | {"unit": whole(v["micro"]) * whole(v["dp"])},
        example="AssertionError: global batch size (100) is not divisible by micro batch size (4) times data parallel size (8)",
    ),
    Trouble(
        id="megatron/world-size",
        shows=("world_size ({size}) is not divisible by {unit}", "world size ({size}) is not divisible by total_model_size (total_model_size={unit})",
               "world size ({size}) is not divisible by total_model_size (encoder_model_size={other} + decoder_model_size={unit})"),
        cause="{size} GPUs are no multiple of tensor x pipeline x context parallel size = {unit}",
        fix="use {near} GPUs, or other parallel sizes; a tool that converts a checkpoint sets the pipeline size itself, so give it no tensor parallel size",
        source="NVIDIA/Megatron-LM: parallel_state.py; modal-labs/multinode-training-guide#86", certainty="certain", kind="config-error", work=not_whole,
        example="RuntimeError: world_size (6) is not divisible by 4",
    ),
    Trouble(
        id="slime/overlap-twice",
        shows=("When overlap_grad_reduce is True, config.no_sync_func must be None",),
        cause="slime calls Megatron's training once a rollout, and with --overlap-grad-reduce the second call finds what the first one installed",
        fix="leave --overlap-grad-reduce and --overlap-param-gather out, or take a release with slime's PR 1857",
        source="THUDM/slime#1857", certainty="certain", kind="config-error",
        example="AssertionError: When overlap_grad_reduce is True, config.no_sync_func must be None; a custom no_sync_func is not supported",
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
               "{prompt}", "Input length ({prompt} tokens) exceeds the maximum allowed length ({length} tokens)"),
        cause="a request of {prompt} tokens exceeds the engine's context of {length}",
        fix="drop or cut prompts above it, lower the response limit (rollout_max_response_len), or raise --context-length to what the model "
        "has positions for",
        source="sgl-project/sglang: tokenizer_manager.py", certainty="certain", kind="config-error",
        example="ValueError: The input (9012 tokens) is longer than the model's context length (8192 tokens).",
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
        source="NVIDIA-NeMo/RL: algorithms/grpo.py", certainty="certain", kind="config-error", work=not_whole,
        example="AssertionError: Configuration error: (num_prompts_per_step * num_generations_per_prompt) = 100 must be "
        "divisible by data_parallel size 8.",
    ),
    Trouble(
        id="skyrl/inference-gpus",
        shows=("num_inference_engines * inference_engine_tensor_parallel_size should equal", "num_policy_gpus ({a}) and "
               "num_rollout_gpus ({b}) must be the same when colocating all models",
               "the number of bundles in the placement group must match world_size"),
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
        source="python: pickle", certainty="likely",
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
        id="reward/timed-out",
        shows=("Computing reward timeout after {s}s. Set reward to 0", "Computing reward timeout after {s}s"),
        cause="a reward took longer than {s} s and counts as 0, whatever the answer is worth. Calls wait for one another in a pool with more workers "
        "than free cores, or the function is slow on long answers",
        fix="fewer workers a process (AReaL: max_workers of AsyncRewardWrapper), a time limit above {s} s, a cheaper or bounded parser; count these lines: where "
        "they are more than a few per batch, the reward says little",
        source="areal-project/AReaL#579", severity="warn", certainty="likely", kind="infrastructure",
        example="Reward API WARNING: Computing reward timeout after 15s. Set reward to 0.",
    ),
    Trouble(
        id="engine/not-up",
        shows=("Waiting generation servers timeout", "server did not become ready", "Server not ready within {s} seconds", "server not ready within {s} seconds",
               "SGLang server not ready within", "Inference server did not become healthy"),
        cause="the server that generates did not come up in time: it failed at its start, or still loads, downloads or compiles",
        fix="the first error in that server's own log is the cause. Start it alone with the same model; another attention backend where its kernels fail or compile "
        "(SGLang: attention_backend=fa3 or triton instead of flashinfer); a longer limit where it was only slow",
        source="areal-project/AReaL#115", certainty="possible", kind="infrastructure",
        example="TimeoutError: Waiting generation servers timeout.",
    ),
    Trouble(
        id="reward/http-timeout",
        shows=("requests.exceptions.ReadTimeout", "httpx.ReadTimeout", "openai.APITimeoutError"),
        cause="a request to a reward model, a judge or a tool got no answer in time",
        fix="bound the number of requests at a time, retry with a pause, and give a missing answer no reward (None) instead of "
        "0; check that the server has free capacity",
        source="verl-project/verl#6673", certainty="possible", kind="infrastructure",
        example="requests.exceptions.ReadTimeout: HTTPConnectionPool(host='127.0.0.1', port=6000): Read timed out. (read "
        "timeout=60)",
    ),
    Trouble(
        id="sglang/health-check",
        shows=("Health check failed. Server couldn't get a response from detokenizer for last {s} seconds",),
        cause="the server is busy rather than dead: a long prefill or a full queue sent nothing back for {s} s, and the health check "
        "takes that for a failure",
        fix="raise SGLANG_HEALTH_CHECK_TIMEOUT (and the trainer's own time-out for engines), make prefill chunks smaller "
        "(--chunked-prefill-size), or send fewer long prompts at once; if token counts stand still in its log, it hangs",
        source="sgl-project/sglang#22511", severity="warn", certainty="likely", kind="infrastructure",
        example="[2026-05-17 11:02:43] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic "
        "start time: 11:02:23.",
    ),
    Trouble(
        id="sglang/flashinfer",
        shows=("Please install flashinfer", "flashinfer is not available", "No module named 'flashinfer'", "No module named "
               "'sgl_kernel'", "sgl_kernel...undefined symbol", "Could not load any common_ops library"),
        cause="SGLang's kernels (flashinfer, sgl-kernel) are missing or built for another torch or CUDA",
        fix="pip install -U 'sglang[all]' in the release that the trainer names, with its torch; else --attention-backend triton and "
        "--sampling-backend pytorch",
        source="sgl-project/sglang: installation", certainty="likely", kind="config-error",
        example="ImportError: Could not load any common_ops library!",
    ),
    Trouble(
        id="sglang/memory-saver",
        shows=("torch_memory_saver", "TORCH_MEMORY_SAVER"), frames=("sglang", "memory_saver"),
        cause="SGLang's memory saver, by which the engine gives its memory back during training, is missing or was not preloaded",
        fix="pip install torch-memory-saver and start through the trainer (it sets LD_PRELOAD), or switch the release of memory off",
        source="sgl-project/sglang: memory saver", certainty="possible", kind="config-error",
        example='  File "/x/sglang/srt/torch_memory_saver_adapter.py", line 40, in create\n'
        "RuntimeError: torch_memory_saver is not initialized",
    ),
    Trouble(
        id="sglang/capture-memory",
        shows=("Capture cuda graph failed", "Capture CUDA graph failed"),
        cause="recording CUDA graphs failed, most often for lack of GPU memory beside weights and cache",
        fix="lower --mem-fraction-static or --cuda-graph-max-bs (or --disable-cuda-graph), and keep the trainer off these GPUs while "
        "the engine starts",
        source="sgl-project/sglang: cuda_graph_runner.py", certainty="likely", kind="out-of-memory",
        example="Exception: Capture cuda graph failed: CUDA out of memory.",
    ),
    Trouble(
        id="sglang/update-weights",
        shows=("Failed to update weights", "Failed to update parameter online", "update_weights_from_distributed...failed",
               "Failed to initialize parameter update group"),
        cause="the engine did not take the trainer's weights: group, names or shapes differ, or the engine was restarted",
        fix="restart engine and trainer together, use the same model class and parallel sizes on both sides, and check that the "
        "master address is reachable from the engine",
        source="sgl-project/sglang: model_runner.py", certainty="possible", kind="infrastructure",
        example="RuntimeError: Failed to update parameter online: shape mismatch",
    ),
    Trouble(
        id="slime/routed-experts",
        shows=("rollout_routed_experts is required in rollout_data when use_rollout_routing_replay is set",),
        cause="routing replay needs the engine's chosen experts, and the engine did not return them",
        fix="give --sglang-enable-return-routed-experts to a SGLang that has it, and send the requests to its /generate (a router in "
        "between may drop the field); else leave --use-rollout-routing-replay out",
        source="THUDM/slime#1909", certainty="certain", kind="config-error",
        example="ValueError: rollout_routed_experts is required in rollout_data when use_rollout_routing_replay is set.",
    ),
    Trouble(
        id="nemo-rl/reference-not-built",
        shows=("object has no attribute 'reference_state_dict'", "object has no attribute 'reference_model_state_dict'",
               "object has no attribute 'reference_policy'", "object has no attribute 'ref_model'"),
        cause="the reference model was never built, because a KL of 0 or skip_reference_policy_logprobs_calculation leaves it out, "
        "and this release still reads its weights",
        fix="leave grpo.skip_reference_policy_logprobs_calculation false (a penalty of 0 is enough), or upgrade to a release where it "
        "is mended; elsewhere: set beta (kl coefficient) above 0 from the start if the reference is wanted",
        source="NVIDIA-NeMo/RL#1968", certainty="possible", kind="config-error",
        example="AttributeError: 'MegatronPolicyWorker' object has no attribute 'reference_state_dict'",
    ),
    Trouble(
        id="nemo-rl/submodule",
        shows=("No module named 'megatron.bridge'", "No module named 'nemo_automodel'", "does not appear to be a Python project, as "
               "neither `pyproject.toml` nor `setup.py` are present", "Distribution not found at: file://{path:w}"),
        cause="a git submodule of the project is empty, so a package that it holds cannot be built",
        fix="git submodule update --init --recursive, then start again with NRL_FORCE_REBUILD_VENVS=true (uv rebuilds the workers' "
        "environments)",
        source="NVIDIA-NeMo/RL: installation", certainty="likely", kind="config-error",
        example="ModuleNotFoundError: No module named 'megatron.bridge'",
    ),
    Trouble(
        id="skyrl/uv-ray",
        shows=("You have 'uv run' in your command", "The working_dir...exceeds the "
               "maximum size", "Package size ({size:t}) exceeds the maximum size of {most:t}. You can exclude"),
        cause="Ray packs the working folder for its workers, and it is too large or the hook for uv is not set",
        fix="start in a small folder, exclude data and checkpoints (runtime_env excludes, .gitignore), and export "
        "RAY_RUNTIME_ENV_HOOK=ray._private.runtime_env.uv_runtime_env_hook.hook",
        source="NovaSky-AI/SkyRL: installation", certainty="likely", kind="config-error",
        example="RuntimeError: Package size (612.10MiB) exceeds the maximum size of 512.00MiB. You can exclude large files",
    ),
    Trouble(
        id="ray/placement-bundle",
        shows=("placement group bundle index {n} is invalid", "Cannot schedule {name:w} with the placement group",
               "The following resource request cannot be scheduled right now"),
        cause="Ray has not enough free GPUs or CPUs for what the trainer asks, so it waits for them",
        fix="compare `ray status` with the sum of actor, reference, critic, reward and engine GPUs; colocate models, lower their "
        "numbers, or end jobs that hold GPUs (ray stop --force). In containers give ray start --num-cpus",
        source="OpenRLHF/OpenRLHF#728", severity="warn", certainty="likely", kind="config-error",
        example="ValueError: placement group bundle index 6 is invalid. Valid placement group indexes: 0-4",
    ),
    Trouble(
        id="ms-swift/device-map",
        shows=("GRPO with vLLM is not compatible with `device_map`", "GRPO with vLLM is not compatible with device_map"),
        cause="more GPUs are visible than processes were started, so ms-swift spreads one model over them with device_map",
        fix="NPROC_PER_NODE equal to the number of GPUs in CUDA_VISIBLE_DEVICES, or make only one GPU visible",
        source="modelscope/ms-swift#5592", certainty="certain", kind="config-error",
        example="ValueError: GRPO with vLLM is not compatible with `device_map`. Please set NPROC_PER_NODE equal to num_processes.",
    ),
    Trouble(
        id="settings/unknown-arguments",
        shows=("remaining_argv: {names:t}]", "unrecognized arguments: {names:t}$", "Some keys are not used by the "
               "HfArgumentParser: {names:t}]", "Some specified arguments are not used by the HfArgumentParser: {names:t}]"),
        cause="these settings are unknown to the installed release, belong to another stage, or are misspelt: {names}",
        fix="check their spelling with `stabilizer preflight CONFIG`, remove those of another stage or release, or upgrade",
        source="modelscope/ms-swift: command line parameters; hiyouga/LLaMA-Factory: hparams/parser.py", certainty="likely", kind="config-error",
        example="ValueError: remaining_argv: ['--vllm_max_lora_rnk', '8']",
    ),
    Trouble(
        id="axolotl/validation",
        shows=("{n} validation error for AxolotlInputConfig", "{n} validation errors for AxolotlInputConfig",
               "{n} validation error for AxolotlConfigWCapabilities", "{n} validation errors for AxolotlConfigWCapabilities"),
        cause="axolotl's schema rejects {n} of the settings; the lines that follow name each with the reason",
        fix="mend the key in the line below the message: rl-settings of GRPO belong under trl:, and `axolotl config-schema` prints "
        "what each key may be",
        source="axolotl-ai-cloud/axolotl: configuration", certainty="likely", kind="config-error",
        example="pydantic_core._pydantic_core.ValidationError: 1 validation error for AxolotlInputConfig",
    ),
    Trouble(
        id="config/pydantic",
        shows=("Extra inputs are not permitted", "Field required [type=missing", "Input should be a valid {kind:t} [type=",
               "{n} validation error for {name:w}", "{n} validation errors for {name:w}"),
        cause="a setting is unknown, missing or of the wrong type in this release's schema; the message names it",
        fix="rename or remove the key that it names (keys move between releases), give the missing one, and write numbers and lists "
        "as such; `stabilizer preflight` compares them with the trainer's keys",
        source="pydantic: validation errors", certainty="possible", kind="config-error",
        example="pydantic_core._pydantic_core.ValidationError: 2 validation errors for OrchestratorConfig",
    ),
    Trouble(
        id="prime-rl/token-prefix",
        shows=("token_prefix_with_turn[: len(token_prefix)] == token_prefix", "Tokenization mismatch between prefix",
               "prefix is not a prefix of the"),
        cause="in several turns the chat template writes earlier turns otherwise than they were generated (thinking removed, spaces), so "
        "the tokens of a turn are no prefix of the next",
        fix="use a template that keeps earlier turns as they are (preserve thinking), token-in token-out in the engine, or train each "
        "turn as a sample of its own",
        source="PrimeIntellect-ai/prime-rl#1334", certainty="likely", kind="config-error",
        example="    assert token_prefix_with_turn[: len(token_prefix)] == token_prefix, (",
    ),
    Trouble(
        id="verl/inconsistent-tokenisation",
        shows=("Inconsistent training and inference tokenization detected. This may lead to unexpected behavior",),
        cause="the text of several turns is tokenised otherwise as a whole than turn by turn",
        fix="actor_rollout_ref.rollout.multi_turn.tokenization_sanity_check_mode=ignore_strippable if only blanks differ; else use a "
        "template that keeps thinking and tool calls of earlier turns",
        source="verl-project/verl: multi-turn rollout", severity="warn", certainty="certain", kind="config-error",
        example="Inconsistent training and inference tokenization detected. This may lead to unexpected behavior during training.",
    ),
    Trouble(
        id="axolotl/bos-in-answers",
        shows=("CHOSEN RESPONSE: <|begin_of_text|>", "REJECTED RESPONSE: <|begin_of_text|>", "CHOSEN RESPONSE: <s>",
               "CHOSEN RESPONSE: <bos>"),
        cause="the start token (BOS) stands before the chosen and rejected answers too, so it appears in the middle of each sequence",
        fix="upgrade axolotl, or strip the token from chosen and rejected in the prompt strategy (add_special_tokens=False for answers)",
        source="axolotl-ai-cloud/axolotl#1616", severity="warn", certainty="certain", kind="config-error",
        example="[INFO] [axolotl.check_rl_example_labels:92] CHOSEN RESPONSE: <|begin_of_text|>(128000) The(791) Elbe(98182)",
    ),
    Trouble(
        id="trl/two-start-tokens",
        shows=("has two BOS tokens", "Found double BOS", "Found a BOS token in the text",
               "the tokenizer adds a BOS token and the prompt already"),
        cause="a prompt begins with two start tokens: the chat template writes one, and the tokenizer adds another",
        fix="tokenise templated text with add_special_tokens=False, or remove bos_token from the template",
        source="unslothai/unsloth: chat templates", severity="warn", certainty="likely",
        example="Unsloth: Found double BOS tokens - we shall remove one automatically.",
    ),
    Trouble(
        id="llama-factory/cutoff",
        shows=("Dropped invalid example", "Dropped lengthy example with length {n} > {most}", "Cannot find valid samples"),
        cause="examples are dropped because they do not fit cutoff_len or the expected columns",
        fix="raise cutoff_len, or check the columns in dataset_info.json (ranking: true with chosen and rejected for DPO and reward "
        "models)",
        source="hiyouga/LLaMA-Factory: data/README.md", severity="warn", certainty="likely", kind="config-error",
        example="RuntimeError: Cannot find valid samples, check `data/README.md` for the data format.",
    ),
    Trouble(
        id="peft/adapter-missing",
        shows=("Can't find 'adapter_config.json' at '{where:w}'",),
        cause="{where} holds no adapter: it is a full or merged model, or a folder above the adapter's",
        fix="give the folder with adapter_config.json; a merged model is loaded as a model and not as an adapter",
        source="huggingface/peft: loading", certainty="certain", kind="config-error",
        example="ValueError: Can't find 'adapter_config.json' at 'out/checkpoint-100'",
    ),
    Trouble(
        id="deepspeed/zero-grad-sync",
        shows=("has no attribute 'ds_grads_remaining'", "'DeepSpeedZeRoOffload' object has no attribute '{name:w}'"),
        cause="hooks of ZeRO-3 are run on a module whose sharding was removed and added again around generation (or a gathered model "
        "used twice)",
        fix="upgrade deepspeed and trl together; ds3_gather_for_generation=False avoids the removal, or ZeRO-2",
        source="microsoft/DeepSpeed: parameter_offload.py", certainty="likely",
        example="AttributeError: 'Embedding' object has no attribute 'ds_grads_remaining'",
    ),
    Trouble(
        id="deepspeed/optimizer-and-scheduler",
        shows=("You cannot specify an optimizer in the config file when", "Found `optimizer` configured in the DeepSpeed config, but no "
               "`scheduler`", "Please correct the following DeepSpeed config values that mismatch TrainingArguments values",
               "ZeroRuntimeException: You are using ZeRO-Offload with a client provided optimizer"),
        cause="the DeepSpeed file and the training arguments say different things about batch, optimizer or schedule",
        fix='write "auto" for these values in the DeepSpeed file (train_micro_batch_size_per_gpu, gradient_accumulation_steps, lr), or '
        "remove its optimizer and scheduler blocks",
        source="huggingface/transformers: DeepSpeed", certainty="certain", kind="config-error",
        example="ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:",
    ),
    Trouble(
        id="sglang/pool-out-of-memory",
        shows=("Prefill out of memory. Try to lower your batch size", "Decode out of memory. Try to lower your batch size", "out of memory. Try to lower your "
               "batch size"),
        cause="SGLang's KV cache has no room for the running requests, although it should have waited: too many tokens are held at once",
        fix="lower --max-running-requests and --chunked-prefill-size, raise --mem-fraction-static if the GPU has memory left, a higher "
        "--schedule-conservativeness (1.3), or fewer concurrent rollouts",
        source="sgl-project/sglang: hyperparameter tuning", certainty="certain", kind="out-of-memory",
        example="RuntimeError: Prefill out of memory. Try to lower your batch size.",
    ),
    Trouble(
        id="sglang/retracts",
        shows=("KV cache pool is full. Retract requests. #retracted_reqs: {n}", "Decode out of memory happened. #retracted_reqs: {n}"),
        cause="the KV cache is full, so {n} running requests were thrown out and will be computed again: generation slows down",
        fix="raise --mem-fraction-static, lower --max-running-requests, a higher --schedule-conservativeness, shorter answers, or more GPUs an engine",
        source="sgl-project/sglang: schedule_batch.py", severity="warn", certainty="certain",
        example="[2025-03-02 10:00:12] KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0.58 -> 0.72",
    ),
    Trouble(
        id="sglang/unbalanced-memory",
        shows=("The memory capacity is unbalanced...pre_model_load_memory={least}, local_gpu_memory={local}",
               "The memory capacity is unbalanced...min_per_gpu_memory={least}, local_gpu_memory={local}", "The memory capacity is unbalanced"),
        cause="the GPUs of one tensor-parallel engine have different free memory{how}: another process holds some of it on one of them, mostly a left-over "
        "engine",
        fix="nvidia-smi on all GPUs and end what is left over; wait for the old server to end before the next starts; for GPUs of different size "
        "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0 skips the check",
        source="sgl-project/sglang: model_runner.py", certainty="certain", kind="out-of-memory",
        work=lambda values: {"how": f" ({values['least']} and {values['local']} GB)" if "least" in values else ""},
        example="ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. pre_model_load_memory=16.28, "
        "local_gpu_memory=46.81, local_gpu_memory * 0.9=42.1",
    ),
    Trouble(
        id="model/parts-not-divisible",
        shows=("Total number of attention heads ({size}) must be divisible by tensor parallel size ({unit})",
               "num_heads ({size}) must be divisible by Ulysses sequence length({unit})", "num_query_groups ({size}) must be a multiple of tensor_model_parallel_size ({unit})",
               "num_attention_heads ({size}) must be a multiple of tensor_model_parallel_size ({unit})",
               "num_layers ({size}) must be divisible by pipeline_model_parallel_size ({unit})", "num_layers: {size} must be divisible by "
               "pipeline_model_parallel_size {unit}", "num_layers {size} must be divisible by pipeline_model_parallel_size {unit}"),
        cause="the model's {size} heads or layers cannot be divided over {unit} GPUs",
        fix="set that parallel size (tensor_parallel_size, ulysses_sequence_parallel_size, ...) to a divisor of {size}: {divisors}",
        source="NVIDIA/Megatron-LM: transformer_config.py; vllm-project/vllm: config.py", certainty="certain", kind="config-error",
        work=lambda values: {"divisors": listed(divisors(whole(values["size"])))},
        example="ValueError: num_query_groups (2) must be a multiple of tensor_model_parallel_size (4).",
    ),
    Trouble(
        id="megatron/first-dimension",
        shows=("First dimension of the tensor should be divisible by tensor parallel size",),
        cause="with sequence parallelism every row's length must be a multiple of the tensor-parallel size, and a packed or dynamic row was not padded to one",
        fix="pad to tensor (x 2 x context) parallel size (make_sequence_length_divisible_by in NeMo-RL), or switch sequence packing or sequence_parallel off",
        source="NVIDIA-NeMo/RL#2110", certainty="certain", kind="config-error",
        example="AssertionError: First dimension of the tensor should be divisible by tensor parallel size",
    ),
    Trouble(
        id="megatron/max-connections",
        shows=("require setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1",),
        cause="tensor or context parallelism in Megatron needs kernels to start in order",
        fix="export CUDA_DEVICE_MAX_CONNECTIONS=1 before the start (in Ray: runtime_env env_vars)",
        source="NVIDIA/Megatron-LM: arguments", certainty="certain", kind="config-error",
        example="RuntimeError: Using tensor model parallelism or context parallelism require setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1",
    ),
    Trouble(
        id="megatron/fused-missing",
        shows=("No module named 'apex'", "No module named 'amp_C'", "No module named 'transformer_engine", "No module named 'fused_layer_norm_cuda'"),
        cause="Megatron's fused kernels (apex, transformer-engine) are not installed",
        fix="use the trainer's Docker image, or build them for the installed torch: pip install --no-build-isolation transformer-engine[pytorch], apex with "
        "--cpp_ext --cuda_ext",
        source="NVIDIA/Megatron-LM: installation", certainty="likely", kind="config-error",
        example="ModuleNotFoundError: No module named 'transformer_engine'",
    ),
    Trouble(
        id="megatron/no-attention-backend",
        shows=("No dot product attention support for the provided inputs", "No dot product attention backend is available for the provided inputs"),
        cause="Transformer Engine finds no attention kernel for these inputs: flash-attn is missing or of another release, or the environment switches all off",
        fix="NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 prints why each was refused; install the flash-attn release it names, unset NVTE_FLASH_ATTN=0 and "
        "NVTE_FUSED_ATTN=0, or --attention-backend auto",
        source="NVIDIA/TransformerEngine: attention", certainty="likely", kind="config-error",
        example="ValueError: No dot product attention backend is available for the provided inputs. Please run with NVTE_DEBUG=1",
    ),
    Trouble(
        id="megatron/checkpoint-form",
        shows=("is not a distributed checkpoint", "_extra_state", "Unexpected key(s) in state_dict: {names:t}_extra_state"),
        frames=("megatron", "mcore", "dist_checkpointing", "state_dict"),
        cause="the folder is no Megatron checkpoint of this form: Hugging Face weights, another parallel layout, or another Transformer Engine",
        fix="convert the weights first (tools/convert_hf_to_torch_dist.py in slime, scripts/converter_hf_to_mcore.py in veRL, use_mbridge=True), and resume with "
        "the release that saved it",
        source="NVIDIA/Megatron-LM: dist_checkpointing", certainty="likely", kind="config-error",
        example='  File "/x/megatron/core/dist_checkpointing/serialization.py", line 95, in load\n'
        "megatron.core.dist_checkpointing.core.CheckpointingException: /ckpt/qwen is not a distributed checkpoint",
    ),
    Trouble(
        id="slime/global-batch",
        shows=("global_batch_size {have} is not equal to rollout_batch_size {prompts} * n_samples_per_prompt {answers} // num_steps_per_rollout {steps}",),
        cause="{prompts} prompts x {answers} answers in {steps} updates are {want} a batch, and --global-batch-size says {have}",
        fix="set --global-batch-size {want}, or leave it out and let --num-steps-per-rollout decide",
        source="THUDM/slime: utils/arguments.py", certainty="certain", kind="config-error",
        work=lambda values: {"want": whole(values["prompts"]) * whole(values["answers"]) // whole(values["steps"])},
        example="AssertionError: global_batch_size 100 is not equal to rollout_batch_size 16 * n_samples_per_prompt 8 // num_steps_per_rollout 2",
    ),
    Trouble(
        id="slime/context-lengths",
        shows=("args.rollout_max_prompt_len ({prompt}) must be smaller than args.rollout_max_context_len ({context})",),
        cause="prompts may take {prompt} tokens of a context of {context}, so no token of an answer is certain to fit",
        fix="lower --rollout-max-prompt-len, or raise --rollout-max-context-len to at least {prompt} plus the answer",
        source="THUDM/slime: utils/arguments.py", certainty="certain", kind="config-error",
        example="AssertionError: args.rollout_max_prompt_len (4096) must be smaller than args.rollout_max_context_len (4096) so that there is at least one "
        "generated token to compute loss.",
    ),
    Trouble(
        id="slime/over-sampling",
        shows=("over_sampling_batch_size {have} should be greater than or equal to rollout_batch_size {want}",),
        cause="the over-sampling batch of {have} is below the {want} prompts a rollout needs",
        fix="set it to {want} or more (1.5 to 2 times when groups are filtered)",
        source="THUDM/slime: utils/arguments.py", certainty="certain", kind="config-error",
        example="AssertionError: over_sampling_batch_size 16 should be greater than or equal to rollout_batch_size 32",
    ),
    Trouble(
        id="slime/checkpoint-missing",
        shows=("ref_load {path:w} does not exist, please check the path", "'--save' is required when save_interval is set"),
        cause="a path that slime needs is missing: the converted (torch_dist) weights of the reference, or a folder to save to",
        fix="convert first: python tools/convert_hf_to_torch_dist.py --hf-checkpoint M --save M_torch_dist, give --ref-load M_torch_dist and --save FOLDER",
        source="THUDM/slime: quick start", certainty="certain", kind="config-error",
        example="FileNotFoundError: ref_load /home/ada/Qwen3-4B_torch_dist does not exist, please check the path.",
    ),
    Trouble(
        id="slime/normalised-advantages",
        shows=("advantage estimators require advantage normalization. Please add `--normalize-advantages`", "Only one of kl_coef and kl_loss_coef can be set",
               "use_rollout_logprobs and use_tis cannot be set at the same time", "max_tokens_per_gpu must be set when use_dynamic_batch_size is set"),
        cause="two of slime's settings exclude or need each other, as the message says",
        fix="for REINFORCE++ add --normalize-advantages; choose --kl-coef (in the reward) or --kl-loss-coef (in the loss); --use-tis or "
        "--use-rollout-logprobs; with --use-dynamic-batch-size give --max-tokens-per-gpu",
        source="THUDM/slime: utils/arguments.py", certainty="certain", kind="config-error",
        example="AssertionError: use_rollout_logprobs and use_tis cannot be set at the same time.",
    ),
    Trouble(
        id="areal/rollouts-missing",
        shows=("Timed out waiting for {want} rollouts, only received {have}",),
        cause="within the time limit {have} of {want} rollouts came: episodes are slow, fail (a reward or tool that raises gives none), or the engine stands",
        fix="look for exceptions of the workflow and the reward above; test one episode alone; check the engine's log and its running requests; lower "
        "max_new_tokens, raise max_concurrent_rollouts or the time limit",
        source="areal-project/AReaL: api/workflow_api.py", certainty="possible", kind="infrastructure",
        example="TimeoutError: Timed out waiting for 256 rollouts, only received 12.",
    ),
    Trouble(
        id="areal/allocation",
        shows=("Failed to parse allocation: {mode:w}", "Unknown allocation mode: {mode:w}", "Invalid allocation mode{rest:t}$"),
        cause="allocation_mode is not in a form that this release of AReaL takes: it names the servers and the training, joined by +",
        fix="allocation_mode: sglang:d4p1t1+fsdp:d4p1t1 (older releases: sglang.d4p1t1+d4p1t1), d x p x t of each part being its GPUs; for servers alone "
        "update AReaL",
        source="areal-project/AReaL#266", certainty="likely", kind="config-error",
        example="NotImplementedError: Failed to parse allocation: sglang.d4p1t1",
    ),
    Trouble(
        id="prime-rl/batch-divides",
        shows=("batch_size must be divisible by rollouts_per_example", "Batch size must be divisible by the number of samples per problem"),
        cause="the batch is no whole number of groups of rollouts_per_example",
        fix="set batch_size to a multiple of rollouts_per_example (128 = 8 problems x 16)",
        source="PrimeIntellect-ai/prime-rl: orchestrator/config.py", certainty="certain", kind="config-error",
        example="  Value error, batch_size must be divisible by rollouts_per_example [type=value_error]",
    ),
    Trouble(
        id="openrlhf/too-few-batches",
        shows=("The number of sample batches must be greater than or equal to the effective number of actor processes", "Insufficient batch size for "
               "async_run_method_batch: total_length={have}, effective_actors={want}"),
        cause="there are fewer micro-batches of samples than actor processes, so some processes would get none",
        fix="make n_samples_per_prompt x rollout_batch_size / micro_rollout_batch_size at least actor_num_nodes x actor_num_gpus_per_node (divided by ring and "
        "tensor sizes): a larger rollout batch or a smaller --micro_rollout_batch_size",
        source="OpenRLHF/OpenRLHF: cli/train_ppo_ray.py", certainty="certain", kind="config-error",
        example="AssertionError: The number of sample batches must be greater than or equal to the effective number of actor processes.",
    ),
    Trouble(
        id="openrlhf/needs-both",
        shows=("Async RLHF is not supported with --vllm.enable_sleep", "Only support `--packing_samples` with vLLM", "remote_rm_url or agent_func_path must be "
               "specified when using dynamic filtering", "VLM training does not support", "packing_samples must be enabled when using ring attention"),
        cause="two of OpenRLHF's options exclude or need each other, as the message says",
        fix="asynchronous training without --vllm_enable_sleep; --packing_samples with vLLM engines and with ring attention; --dynamic_filtering with "
        "--remote_rm_url or --agent_func_path",
        source="OpenRLHF/OpenRLHF: cli/train_ppo_ray.py", certainty="certain", kind="config-error",
        example="AssertionError: remote_rm_url or agent_func_path must be specified when using dynamic filtering",
    ),
    Trouble(
        id="openrlhf/engine-gpus",
        shows=("must be equal to vllm_num_engines * vllm_tensor_parallel_size, got {have} and {want}",),
        cause="colocated models need as many engine GPUs as actor GPUs, and there are {have} actor GPUs and {want} engine GPUs",
        fix="choose --vllm_num_engines x --vllm_tensor_parallel_size equal to --actor_num_nodes x --actor_num_gpus_per_node",
        source="OpenRLHF/OpenRLHF: cli/train_ppo_ray.py", certainty="certain", kind="config-error",
        example="AssertionError: actor_num_nodes * actor_num_gpus_per_node must be equal to vllm_num_engines * vllm_tensor_parallel_size, got 8 and 4",
    ),
    Trouble(
        id="openrlhf/input-key",
        shows=("KeyError: 'context_messages'", "KeyError: 'input'$", "KeyError: 'prompt_key'"),
        frames=("openrlhf", "prompts_dataset", "preprocess"),
        cause="the data has no column of the name that --input_key asks for",
        fix="--input_key NAME with the column of your prompts (and --label_key for the answers), --apply_chat_template for chat messages",
        source="OpenRLHF/OpenRLHF: datasets", certainty="likely", kind="config-error",
        example='  File "/x/openrlhf/datasets/prompts_dataset.py", line 12, in preprocess_data\n' "KeyError: 'context_messages'",
    ),
    Trouble(
        id="ms-swift/row-too-long",
        shows=("Current length of row({have}) is larger than the max_length({limit})",),
        cause="a row of {have} tokens exceeds max_length = {limit}; with truncation_strategy delete such rows are dropped or replaced, with raise they end the run",
        fix="raise --max_length to at least {have}, lower the images' MAX_PIXELS, or --truncation_strategy left for text",
        source="modelscope/ms-swift: template/base.py", certainty="certain", kind="config-error", severity="warn",
        example="swift.template.base.MaxLengthError: Current length of row(2385) is larger than the max_length(2048).",
    ),
    Trouble(
        id="ms-swift/reward-unknown",
        shows=("reward_function {name:w} is not implemented in swift",),
        cause="ms-swift has no reward function called {name}: a plugin file was not loaded, or the name differs from the one registered in orms",
        fix="register it (orms['{name}'] = Class) in a file and pass --external_plugins FILE.py; built in are accuracy, format, cosine, repetition and others",
        source="modelscope/ms-swift: GRPO reward functions", certainty="certain", kind="config-error",
        example="ValueError: reward_function my_reward is not implemented in swift.llm.plugin",
    ),
    Trouble(
        id="llama-factory/processor",
        shows=("Processor was not found, please check and update your model file", "Processor was not found, please check and update your processor config"),
        cause="a vision data set or template is used, and the model's folder has no processor (preprocessor_config.json)",
        fix="copy preprocessor_config.json (and video_preprocessor_config.json) from the original model, take the template of the vision model, or upgrade "
        "transformers so that it can load it",
        source="hiyouga/LLaMA-Factory: data/mm_plugin.py", certainty="certain", kind="config-error",
        example="ValueError: Processor was not found, please check and update your model file.",
    ),
    Trouble(
        id="llama-factory/image-tags",
        shows=("The number of images does not match the number of <image> tokens", "Number of images provided ({have}) does not match number of image "
               "placeholders ({want})", "The number of videos does not match the number of <video> tokens"),
        cause="a row has another number of images than of <image> marks in its text",
        fix="one <image> in the text for each entry of `images`, in their order; drop or repair the rows where they differ",
        source="hiyouga/LLaMA-Factory: data/README.md", certainty="certain", kind="config-error",
        example="ValueError: The number of images does not match the number of <image> tokens in [{'role': 'user'}]",
    ),
    Trouble(
        id="llama-factory/launcher",
        shows=("Please launch distributed training with `llamafactory-cli` or `torchrun`", "Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training"),
        cause="several GPUs or DeepSpeed are used, and the program was started as one process",
        fix="FORCE_TORCHRUN=1 llamafactory-cli train CONFIG.yaml",
        source="hiyouga/LLaMA-Factory: README", certainty="certain", kind="config-error",
        example="ValueError: Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training.",
    ),
    Trouble(
        id="triton/libcuda",
        shows=("libcuda.so cannot found!", "libcuda.so cannot be found"),
        cause="Triton finds no libcuda.so to link: the driver's library is in a folder the linker does not search",
        fix="ldconfig -p | grep libcuda, then sudo ldconfig, or export LIBRARY_PATH and LD_LIBRARY_PATH with its folder (/usr/lib/wsl/lib under WSL)",
        source="triton-lang/triton: driver.py", certainty="certain", kind="config-error",
        example="AssertionError: libcuda.so cannot found!",
    ),
    Trouble(
        id="numbers/not-divisible",
        shows=("{name:w} ({size}) must be divisible by {other:t} ({unit})", "{name:w} ({size}) should be divisible by {other:t} ({unit})",
               "{name:w} ({size}) must be a multiple of {other:t} ({unit})", "{name:w} ({size}) is not divisible by {other:t} ({unit})",
               "{name:w}={size} must be divisible by {other:t}={unit}", "{name:w}={size} should be divisible by {other:t}={unit}",
               "{name:w}={size} is not divisible by {other:t}={unit}", "{name:w} {size} must be divisible by {other:w} {unit}",
               "{name:w} {size} should be divisible by {other:w} {unit}", "{name:w} {size} is not divisible by {other:w} {unit}"),
        cause="{name} = {size} is no multiple of {other} = {unit}",
        fix="set {name} to {near} instead of {size}, or {other} to {divisors} instead of {unit}",
        source="the message itself", certainty="likely", kind="config-error", work=_named,
        example="ValueError: rollout_num_gpus_per_engine (6) must be divisible by sglang_pipeline_parallel_size (4)",
    ),
    Trouble(
        id="trl/data-format",
        shows=("KeyError: 'pop from an empty set'", "Invalid keys in the example: {names:t}$"),
        cause="a row has none of the columns that tell TRL its form (prompt, completion, messages, chosen, rejected, text)",
        fix="rename your columns: dataset.rename_column('question', 'prompt'); chat data as lists of {{'role', 'content'}} under prompt or messages; print(dataset[0]) shows what is there",
        source="huggingface/trl: dataset formats", certainty="certain", kind="config-error",
        example="KeyError: 'pop from an empty set'",
    ),
    Trouble(
        id="trl/no-reference",
        shows=("No reference model and model is not a Peft model",),
        cause="preference training compares with a reference model, and none was given nor can be made by switching an adapter off",
        fix="ref_model=AutoModelForCausalLM.from_pretrained(same name), or leave ref_model out so that the trainer copies the model, or precompute_ref_log_probs=True",
        source="huggingface/trl: trainers", certainty="certain", kind="config-error",
        example="ValueError: No reference model and model is not a Peft model. Try setting `precompute_ref_log_probs=True`",
    ),
    Trouble(
        id="sb3/observation-shape",
        shows=("could not broadcast input array from shape ({have:t}) into shape ({want:t})",), frames=("vec_env", "gym", "buffers.py"),
        cause="the environment returns observations of shape ({have}), and its observation_space says ({want})",
        fix="make observation_space match what reset and step return (np.array(obs, dtype=np.float32) of one shape); reset must return (observation, info) in gymnasium; "
        "stable_baselines3.common.env_checker.check_env(env) names the place",
        source="DLR-RM/stable-baselines3: custom environments", certainty="certain", kind="config-error",
        example='  File "/x/site-packages/stable_baselines3/common/vec_env/dummy_vec_env.py", line 59, in step_wait\n'
        "ValueError: could not broadcast input array from shape (4,) into shape (3,)",
    ),
    Trouble(
        id="sb3/predict-tuple",
        shows=("You have passed a tuple to the predict() function",),
        cause="reset of gymnasium returns (observation, info), and both were given to predict",
        fix="obs, info = env.reset(); action, _ = model.predict(obs); with a VecEnv obs = env.reset() and four values from step",
        source="DLR-RM/stable-baselines3: policies.py", certainty="certain",
        example="ValueError: You have passed a tuple to the predict() function instead of a Numpy array or a Dict.",
    ),
    Trouble(
        id="data/ragged",
        shows=("setting an array element with a sequence. The requested array has an inhomogeneous shape",),
        cause="rows of different lengths are made into one array",
        fix="np.array(rows, dtype=object), or pad them to one length; in a reward function return one plain number an answer, and the same extra fields for every answer",
        source="numpy/numpy: ragged arrays", certainty="likely",
        example="ValueError: setting an array element with a sequence. The requested array has an inhomogeneous shape after 1 dimensions.",
    ),
    Trouble(
        id="tokenizers/decode-ids",
        shows=("argument 'ids': 'list' object cannot be interpreted as an integer", "out of range integral type conversion attempted", "argument 'ids': 'float' object cannot be "
               "interpreted as an integer", "can't convert negative int to unsigned"),
        cause="decode got something that is no token id: a list of lists, or -100, which marks ignored labels",
        fix="tokenizer.batch_decode for several texts; replace -100 first: np.where(labels != -100, labels, tokenizer.pad_token_id); take argmax of logits before decoding",
        source="huggingface/transformers: tokenization", certainty="certain",
        example="OverflowError: out of range integral type conversion attempted",
    ),
    Trouble(
        id="tokenizers/not-text",
        shows=("text input must be of type `str`", "TextEncodeInput must be Union[TextInputSequence", "TextInputSequence must be str", "Input is not valid. Should be a string, a list/tuple"),
        cause="a value given to the tokenizer is no text: None or a number in a row, or chat messages that were not rendered",
        fix="dataset.filter(lambda row: isinstance(row['prompt'], str)) and str(value) for numbers; tokenizer.apply_chat_template(messages, tokenize=False) for chat messages",
        source="huggingface/transformers: tokenization_utils_base.py", certainty="certain", kind="config-error",
        example="ValueError: text input must be of type `str` (single example), `list[str]` (batch or single pretokenized example)",
    ),
    Trouble(
        id="transformers/no-tokenizer",
        shows=("'NoneType' object has no attribute 'apply_chat_template'", "'NoneType' object has no attribute 'pad_token'", "'NoneType' object has no attribute 'eos_token",
               "'NoneType' object has no attribute 'tokenizer'", "'bool' object has no attribute 'apply_chat_template'"),
        cause="the tokenizer or processor is missing where the program uses it: it was not passed, or could not be loaded from the model's folder",
        fix="pass processing_class=AutoTokenizer.from_pretrained(name) to the trainer; save the tokenizer (and preprocessor_config.json) into the model's folder",
        source="huggingface/trl: trainers", certainty="likely", kind="config-error",
        example="AttributeError: 'NoneType' object has no attribute 'apply_chat_template'",
    ),
    Trouble(
        id="python/none",
        shows=("'NoneType' object has no attribute '{name:w}'", "'NoneType' object is not subscriptable", "'NoneType' object is not iterable", "'NoneType' object is not callable",
               "cannot unpack non-iterable NoneType object", "unsupported format string passed to NoneType.__format__", "and 'NoneType'$", "'NoneType' and '{name:w}'$", "object of type 'NoneType' has no len()", "expected str instance, NoneType found"),
        cause="a value that the program relies on is None here: a setting that was left out, a file or model that was not loaded, a search that found nothing, or a function without "
        "return",
        fix="the innermost lines of the traceback name it: print it there and follow it to where it is set; in a trainer's code it is mostly an optional setting that this path needs",
        source="python: None", certainty="possible",
        example="TypeError: 'NoneType' object is not subscriptable",
    ),
    Trouble(
        id="python/messages-for-text",
        shows=("can only concatenate list (not \"str\") to list", "can only concatenate str (not \"list\") to str", "can only concatenate str (not \"dict\") to str"),
        cause="text and a list are joined: in these trainers a prompt or an answer in the form of chat messages where text is expected",
        fix="make text of the messages first (tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True), or the trainer's switch "
        "for it: --apply-chat-template in slime), or take ['content'] of the last message",
        source="THUDM/slime: examples", certainty="likely",
        example='TypeError: can only concatenate list (not "str") to list',
    ),
    Trouble(
        id="python/unbound",
        shows=("local variable '{name:w}' referenced before assignment", "cannot access local variable '{name:w}' where it is not associated with a value"),
        cause="the line that sets {name} was not reached: it stands in a branch for another setting or model, in a loop over nothing, or in a try whose error was swallowed",
        fix="look in the innermost function for where {name} is set and which condition leads there; print what the condition or the loop depends on. In a trainer's code it is mostly a "
        "combination of settings that nobody tried, or an empty batch",
        source="python: local variables", certainty="likely",
        example="UnboundLocalError: cannot access local variable 'loss' where it is not associated with a value",
    ),
    Trouble(
        id="python/not-json",
        shows=("Object of type {kind:w} is not JSON serializable",),
        cause="a {kind} is written as JSON, which holds only numbers, text, lists and mappings: a metric, a sample or a setting that is none of these",
        fix="convert it where it is logged or saved: float(x) or x.item() for one number, x.tolist() for several, str(x) for a dtype or path",
        source="python: json", certainty="certain",
        example="TypeError: Object of type Tensor is not JSON serializable",
    ),
    Trouble(
        id="checkpoint/name-not-number",
        shows=("invalid literal for int() with base 10: '{text:t}'",), frames=("checkpoint", "ckpt"),
        cause="the folder of checkpoints holds a name with {text} where the trainer expects the number of a step: a converted, renamed or hand-made folder",
        fix="move it out of that folder (a converted model beside its checkpoint is enough to stop resuming and cleaning up), and restart",
        source="NVIDIA-NeMo/RL#1107", certainty="certain", kind="config-error",
        example='  File "/x/nemo_rl/utils/checkpoint.py", line 233, in get_latest_checkpoint_path\n'
        "ValueError: invalid literal for int() with base 10: '10-hf'",
    ),
    Trouble(
        id="python/assert-divides",
        shows=("^assert {one:t} % {other:t} == 0", "^assert {one:t} % {other:t} == 0,"),
        cause="the program requires that `{one}` is a multiple of `{other}`, and it is not",
        fix="print both. In these trainers it is a batch (prompts x answers) over GPUs, micro-batch or group size: make the batch a multiple of their product, or the micro-batch "
        "and the number of GPUs divisors of it; in Megatron's code also a length, heads or layers over a parallel size",
        source="OpenRLHF/OpenRLHF#760", certainty="possible", kind="config-error",
        example="    assert len(self) % chunks == 0",
    ),
    Trouble(
        id="python/assert",
        shows=("^assert {check:t}, ($", "^assert {check:t}, \\$", "^assert {check:t}, f\"", "^assert {check:t}, \"", "^assert {check:t}$"),
        cause="the program checks `{check}`, and it does not hold",
        fix="print the values in that line; the check's own names tell which setting or data they come from",
        source="the program's own check", certainty="possible",
        example="    assert torch.all(mask.sum(-1) > 0)",
    ),
    Trouble(
        id="python/fatal",
        shows=("Fatal Python error: {what:t}$",),
        cause="the interpreter itself stopped ({what}): compiled code of some package damaged memory or counted references wrongly",
        fix="the threads printed below it name the package (PYTHONFAULTHANDLER=1 prints them too): another release of it, mostly the engine, "
        "a tokenizer, pyarrow or an image library; until then continue from the newest checkpoint",
        source="modelscope/ms-swift#5231", certainty="possible", kind="infrastructure",
        example="Fatal Python error: none_dealloc: deallocating None: bug likely caused by a refcount error in a C extension",
    ),
    Trouble(
        id="python/relative-import",
        shows=("attempted relative import with no known parent package", "attempted relative import beyond top-level package"),
        cause="a file of a package is started as a script",
        fix="python -m package.module from the folder above, or pip install -e . first",
        source="python: import system", certainty="certain", kind="config-error",
        example="ImportError: attempted relative import with no known parent package",
    ),
    Trouble(
        id="torch/generator-device",
        shows=("Expected a '{want:w}' device type for generator but found '{have:w}'",),
        cause="random numbers for {want} are drawn with a generator of {have}: torch.set_default_device was set, and the data loader shuffles on the CPU",
        fix="remove torch.set_default_device('cuda') (or set_default_tensor_type), or give the data loader generator=torch.Generator(device='{want}')",
        source="pytorch/pytorch: random", certainty="certain", kind="config-error",
        example="RuntimeError: Expected a 'cuda' device type for generator but found 'cpu'",
    ),
    Trouble(
        id="cuda/cudnn",
        shows=("cuDNN error: CUDNN_STATUS_{status:w}", "Could not load library libcudnn{rest:w}", "Unable to load any of {libcudnn"),
        cause="cuDNN failed: most often no GPU memory is left for it, or another cuDNN than torch's is found first",
        fix="a smaller batch first; then unset LD_LIBRARY_PATH (torch brings its own cuDNN), pip uninstall a separate nvidia-cudnn package, and reinstall torch",
        source="pytorch/pytorch: cuDNN", certainty="possible", kind="infrastructure",
        example="RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
    ),
    Trouble(
        id="images/damaged",
        shows=("image file is truncated ({n} bytes not processed)", "cannot identify image file", "UnidentifiedImageError"),
        cause="an image of the data is cut or is no image",
        fix="find and drop it (try Image.open(path).load() over all rows); ImageFile.LOAD_TRUNCATED_IMAGES = True takes cut ones as they are",
        source="python-pillow/Pillow", certainty="certain", kind="config-error",
        example="OSError: image file is truncated (12 bytes not processed)",
    ),
    Trouble(
        id="images/size",
        shows=("height:{h} or width:{w} must be larger than factor:{factor}", "height:{h} and width:{w} must be larger than factor:{factor}", "absolute aspect ratio must be smaller than "
               "{factor}, got {h}"),
        cause="an image is smaller or narrower than the model's patches allow",
        fix="resize such images to at least 28 x 28 pixels (56 to be safe) and to an aspect ratio below 200, or drop those rows",
        source="QwenLM/Qwen2.5-VL: vision_process.py", certainty="certain", kind="config-error",
        example="ValueError: height:10 or width:300 must be larger than factor:28",
    ),
    Trouble(
        id="transformers/image-tokens-cut",
        shows=("Mismatch in `image` token count between text and `input_ids`", "Mismatch in `video` token count between text and `input_ids`"),
        cause="the text was cut in the middle of an image's tokens",
        fix="a larger max_length (None in TRL's SFT and DPO of vision models, a larger max_prompt_length in GRPO), or smaller images (max_pixels)",
        source="huggingface/transformers: processing", certainty="certain", kind="config-error",
        example="ValueError: Mismatch in `image` token count between text and `input_ids`. Got ids=[512] and text=[1024]. Likely due to `truncation='max_length'`.",
    ),
    Trouble(
        id="transformers/image-tokens",
        shows=("Image features and image tokens do not match: tokens: {tokens}, features {features}",
               "Image features and image tokens do not match, tokens: {tokens}, features: {features}",
               "Image features and image tokens do not match: tokens: {tokens}, features: {features}"),
        cause="the text holds {tokens} image tokens for {features} features: {how}",
        fix="{todo}",
        source="hiyouga/EasyR1: FAQ", certainty="likely", kind="config-error", work=_image_tokens,
        example="ValueError: Image features and image tokens do not match: tokens: 1020, features 1196",
    ),
    Trouble(
        id="bitsandbytes/no-gpu-build",
        shows=("The installed version of bitsandbytes was compiled without GPU support",),
        cause="bitsandbytes found no CUDA library, so 8-bit and 4-bit operations are missing",
        fix="pip install -U bitsandbytes in an environment whose torch sees the GPU; `python -m bitsandbytes` explains what it found",
        source="bitsandbytes-foundation/bitsandbytes", certainty="certain", kind="config-error", severity="warn",
        example="UserWarning: The installed version of bitsandbytes was compiled without GPU support.",
    ),
    Trouble(
        id="batch/mini-by-micro",
        shows=("normalized ppo_mini_batch_size {mini} should be divisible by ppo_micro_batch_size_per_gpu {micro}",
               "normalized ppo_mini_batch_size {mini} should be larger than ppo_micro_batch_size_per_gpu {micro}",
               "normalized policy_mini_batch_size_per_gpu {mini} should be divisible by micro_train_batch_size_per_gpu {micro}",
               "normalized policy_mini_batch_size_per_gpu {mini} should be larger than micro_train_batch_size_per_gpu {micro}",
               "per-DP-rank mini-batch ({mini}) must be divisible by train_micro_batch_size_per_gpu ({micro})"),
        cause="after division over the GPUs and times answers per prompt the mini-batch is {mini} answers a GPU, no multiple of the micro-batch of {micro}",
        fix="set the micro-batch (ppo_micro_batch_size_per_gpu, trainer.micro_train_batch_size_per_gpu) to a divisor of {mini}: {divisors}; "
        "veRL needs none with use_dynamic_bsz=True and ppo_max_token_len_per_gpu",
        source="NovaSky-AI/SkyRL: train/utils/utils.py", certainty="certain", kind="config-error",
        work=lambda values: {"divisors": listed(divisors(whole(values["mini"])))},
        example="AssertionError: normalized policy_mini_batch_size_per_gpu 6 should be divisible by micro_train_batch_size_per_gpu 4",
    ),
    Trouble(
        id="ms-swift/grpo-settings",
        shows=("GRPO requires `truncation_strategy 'left' or 'delete'`", "vllm_mode is required when use_vllm is true", "vllm_mode is not supported when use_vllm is false",
               "async generate require vllm_mode == server", "please set vllm_use_async_engine to True with multi-turn scheduler", "Packing and lazy_tokenize are incompatible"),
        cause="two of ms-swift's settings exclude or need each other, as the message says",
        fix="--truncation_strategy left or delete for GRPO; --use_vllm true with --vllm_mode colocate or server; --async_generate only with server; --vllm_use_async_engine true for several "
        "turns",
        source="modelscope/ms-swift: arguments/rlhf_args.py", certainty="certain", kind="config-error",
        example="ValueError: vllm_mode is required when use_vllm is true",
    ),
    Trouble(
        id="llama-factory/no-images",
        shows=("This model does not support image input", "This model does not support video input", "Cannot find sufficient samples, consider increasing dataset size", "The dataset is not "
               "applicable in the current training stage"),
        cause="data and template or stage do not go together: images for a text template, or a data set of another kind (preference, SFT) than the stage",
        fix="set template to the vision model's (qwen2_vl, llava, ...), and check `ranking` and the columns of the data set in dataset_info.json against the stage",
        source="hiyouga/LLaMA-Factory: data", certainty="certain", kind="config-error",
        example="ValueError: This model does not support image input. Please check whether the correct `template` is used.",
    ),
    Trouble(
        id="python/unpack",
        shows=("not enough values to unpack (expected {want}, got {got})", "not enough values to unpack (expected at least {want}, got {got})",
               "too many values to unpack (expected {want}"),
        cause="a line of code takes {want} values apart and gets another number of them",
        fix="print the right-hand side of that line. In a reward function it is an answer without the separator that split() "
        "looks for (return 0 for it); in a data function a row of another form; for a call, a function of another release that "
        "returns more or fewer values",
        source="python: assignment", certainty="possible", general=True,
        example="ValueError: not enough values to unpack (expected 2, got 1)",
    ),
    Trouble(
        id="python/no-json",
        shows=("Expecting value: line {line} column {column}", "Extra data: line {line} column {column}",
               "Expecting property name enclosed in double quotes", "Unterminated string starting at"),
        cause="a text that should be JSON is none",
        fix="print the text. 'Extra data' is a file of JSON lines that is read as one document; 'line 1 column 1' is an empty file or answer, "
        "or an error page of a server; an unterminated string is an answer that was cut. In a reward function catch it and return 0",
        source="python: json", certainty="possible", general=True,
        example="json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    ),
    Trouble(
        id="torch/labels-and-logits",
        shows=("Expected input batch_size ({a}) to match target batch_size ({b})",),
        cause="logits and labels have different lengths, {a} and {b} tokens: they were cut, shifted or padded differently",
        fix="take both from the same call: labels of the padded input_ids, logits without logits_to_keep (or labels cut to as many); shift "
        "both by one or neither; prompts and completions joined in both",
        source="pytorch/pytorch: cross_entropy", certainty="likely",
        example="ValueError: Expected input batch_size (2047) to match target batch_size (1023).",
    ),
    Trouble(
        id="linux/memory-error",
        shows=("^MemoryError$", "Unable to allocate {size} GiB for an array"),
        cause="the process asked for more main memory than the machine or its container gives",
        fix="read the data in pieces (streaming, memory-mapped), use fewer data workers, load the model with low_cpu_mem_usage and fewer "
        "copies a machine; `free -h` and the container's limit show what there is",
        source="python: MemoryError", certainty="likely", kind="out-of-memory",
        example="MemoryError",
    ),
    Trouble(
        id="llama-factory/reward-model-form",
        shows=("Reward model is not correctly loaded", "`reward_model` is necessary for PPO training"),
        cause="PPO needs a reward model, and none is given or its folder holds no value head in the form that this release reads",
        fix="train one with stage: rm of the same release (the same finetuning_type), and set reward_model to the folder it saved; older checkpoints must be trained again",
        source="hiyouga/LlamaFactory#857", kind="config-error",
        example="AssertionError: Reward model is not correctly loaded.",
    ),
    Trouble(
        id="transformers/older-than-trl",
        shows=("__init__() got an unexpected keyword argument 'processing_class'",),
        cause="TRL passes processing_class, which Trainer has from transformers 4.46 on: the installed transformers is older (or TRL is newer) than the other expects",
        fix="pip install -U transformers (4.46 or later), or the TRL release of your transformers (trl<0.12 for 4.45)",
        source="huggingface/transformers: release 4.46", certainty="certain", kind="config-error",
        example="TypeError: Trainer.__init__() got an unexpected keyword argument 'processing_class'",
    ),
    Trouble(
        id="versions/argument-missing",
        shows=("{name:w}.__init__() missing {n} required positional argument: '{key:w}'", "{name:w}.__init__() missing {n} required positional arguments: '{key:w}'",
               "{name:w}.__init__() missing {n} required keyword-only argument: '{key:w}'"),
        cause="{name} of the installed release wants {key}, which the call does not give: it was written for another release, or the argument was forgotten",
        fix="look {name} up in the documentation of the installed release (pip show), and pass {key}; GRPOTrainer always needs reward_funcs",
        source="python: calls", certainty="possible", kind="config-error",
        example="TypeError: GRPOTrainer.__init__() missing 1 required positional argument: 'reward_funcs'",
    ),
    Trouble(
        id="datasets/features-differ",
        shows=("The features can't be aligned because the key {key:w} of features",),
        cause="the data files are joined, and their column {key} has different types or fields in them",
        fix="write all files with the same type for {key} (one schema: dataset.cast_column, or json.dumps of nested values into text), or give only files of one source",
        source="huggingface/datasets: features.py", certainty="certain", kind="config-error",
        example="ValueError: The features can't be aligned because the key extra_info of features {'a': 1} has unexpected type",
    ),
    Trouble(
        id="data/nothing-left",
        shows=("stack expects a non-empty TensorList", "There were no tensor arguments to this function", "expected a non-empty list of Tensors", "need at least one array to concatenate"),
        cause="nothing is left to be joined into a batch: every sample was filtered, skipped or failed",
        fix="count the samples before this line: filters on length, groups dropped for equal rewards, answers that raised, images that did not load, or a last batch smaller than the GPUs",
        source="pytorch/pytorch: TensorShape.cpp", certainty="possible",
        example="RuntimeError: stack expects a non-empty TensorList",
    ),
    Trouble(
        id="numpy/broken",
        shows=("Unable to compare versions for {need:w}: need={n:w} found=None. This is unusual",),
        cause="the installation of a package is broken (its metadata are gone), mostly by two installers in one environment",
        fix="pip uninstall -y the package named until nothing is left, then install it once; or a fresh environment",
        source="huggingface/transformers: utils/versions.py", certainty="certain", kind="config-error",
        example="ValueError: Unable to compare versions for numpy>=1.17: need=1.17 found=None. This is unusual. Consider reinstalling numpy.",
    ),
    Trouble(
        id="python/database-locked",
        shows=("database is locked", "disk I/O error"),
        cause="several processes write to one SQLite file (a cache, MLflow, Optuna, outlines), or it lies on a network disk that cannot lock files",
        fix="put that file on a local disk (XDG_CACHE_HOME, OUTLINES_CACHE_DIR, MLFLOW_TRACKING_URI to a server), or let rank 0 alone write",
        source="sqlite: locking", certainty="likely", kind="infrastructure",
        example="sqlite3.OperationalError: database is locked",
    ),
    Trouble(
        id="torch/not-contiguous",
        shows=("Tensors must be contiguous", "view size is not compatible with input tensor's size and stride"),
        cause="a tensor is a view in another order than its memory, and this operation (an exchange between ranks, a view) wants it in order",
        fix="tensor.contiguous() before it (.reshape instead of .view); for weights: param.data = param.data.contiguous() before the model is wrapped or saved",
        source="pytorch/pytorch: tensor views", certainty="likely",
        example="RuntimeError: Tensors must be contiguous",
    ),
    Trouble(
        id="transformers/mask-size",
        shows=("Attention mask should be of size ({want:t}), but is {have:t}$",),
        cause="the attention mask covers another number of tokens than the text and the cache: a key-value cache is kept in training, or prompt and answer were joined without their masks",
        fix="model.config.use_cache=False in training, concatenate the masks with the texts, and install the transformers release the trainer names",
        source="huggingface/transformers: attention", certainty="possible",
        example="ValueError: Attention mask should be of size (1, 1, 512, 1024), but is torch.Size([1, 1, 512, 512])",
    ),
)  # fmt: skip
