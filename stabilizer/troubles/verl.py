"""veRL and the trainers that grew out of it (EasyR1, Search-R1), and Hydra, which reads their settings."""

from __future__ import annotations

from stabilizer.troubles.arithmetic import by_nearness, divisors, listed, not_whole, whole
from stabilizer.troubles.trouble import Trouble, Values


def _over_mini(values: Values) -> dict[str, object]:
    batch, mini = whole(values["batch"]), whole(values["mini"])
    return {"near": listed([n for n in by_nearness(mini, divisors(batch)) if n <= batch][:4])}


def _none_kept(values: Values) -> dict[str, object]:
    if whole(values.get("kept", "0")):
        raise ValueError("rows are left")
    return {}


_NO_REWARD = (
    "veRL has no reward for the data_source of these rows: the column of that name chooses the function, and a local path, a mirror's name or "
    "an empty text is none that it knows"
)
_GIVE_REWARD = (
    "write data_source as veRL knows it (openai/gsm8k, lighteval/MATH, ...) when the parquet files are made, or set "
    "custom_reward_function.path=FILE and custom_reward_function.name=compute_score"
)
_SCORES = "verl-project/verl: utils/reward_score/__init__.py"

TROUBLES = (
    Trouble(
        id="verl/unequal-chunks",
        shows=("only support equal chunk. Got size of DataProto {size} and chunk {unit}.",),
        cause="a batch of {size} rows can't be divided equally over {unit} workers",
        fix="make the batch a multiple of {unit}: {near} instead of {size} (data.train_batch_size x rollout.n, data.batch_size "
        "for generation, data.val_batch_size), or use {divisors} GPUs (trainer.n_gpus_per_node)",
        source="verl-project/verl#473", certainty="certain", kind="config-error", work=not_whole,
        example="AssertionError: only support equal chunk. Got size of DataProto 3 and chunk 4.",
    ),
    Trouble(
        id="verl/real-batch",
        shows=("real_train_batch_size ({size}) must be divisible by total n_gpus ({unit})",
               "real_train_batch_size ({size}) must be divisible by minimal possible batch size ({unit})"),
        cause="train_batch_size x rollout.n = {size} is no multiple of {unit}",
        fix="make data.train_batch_size x rollout.n one of {near}",
        source="verl-project/verl: trainer/ppo/ray_trainer.py", certainty="certain", kind="config-error", work=not_whole,
        example="AssertionError: real_train_batch_size (300) must be divisible by total n_gpus (8).",
    ),
    Trouble(
        id="verl/mini-batch-larger",
        shows=("train_batch_size ({batch}) must be >= actor.ppo_mini_batch_size ({mini})",),
        cause="ppo_mini_batch_size = {mini} is larger than the {batch} prompts of a step",
        fix="set actor_rollout_ref.actor.ppo_mini_batch_size to a divisor of {batch}: {near}",
        source="verl-project/verl: utils/config.py", certainty="certain", kind="config-error", work=_over_mini,
        example="ValueError: train_batch_size (64) must be >= actor.ppo_mini_batch_size (256)",
    ),
    Trouble(
        id="verl/prompt-overlong",
        shows=("Prompt length {prompt} is longer than {limit}", "sequence_length={prompt} is larger than max_length={limit}"),
        cause="a prompt of {prompt} tokens is longer than data.max_prompt_length = {limit}, and data.truncation is 'error'",
        fix="set data.filter_overlong_prompts=True to drop such prompts, raise data.max_prompt_length, or data.truncation=left",
        source="verl-project/verl: utils/dataset/rl_dataset.py", certainty="certain", kind="config-error",
        example="RuntimeError: Prompt length 1311 is longer than 1024.",
    ),
    Trouble(
        id="verl/reward-source",
        shows=("Reward function is not implemented for data_source='{source_name:w}'",
               "Reward function is not implemented for data_source=''", "Reward function is not implemented for self.data_source"),
        cause=_NO_REWARD, fix=_GIVE_REWARD, source=_SCORES, certainty="certain", kind="config-error",
        example="NotImplementedError: Reward function is not implemented for data_source='mydata'",
    ),
    Trouble(
        id="verl/reward-source-unsaid",
        shows=("^NotImplementedError$",), frames=("reward_score/__init__.py", "compute_score"), innermost=True,
        cause=_NO_REWARD, fix=_GIVE_REWARD, source=_SCORES, certainty="certain", kind="config-error",
        example='  File "/home/user/verl/verl/utils/reward_score/__init__.py", line 48, in _default_compute_score\nNotImplementedError',
    ),
    Trouble(
        id="verl/reward-column",
        shows=("KeyError: 'reward_model'", "KeyError: 'ground_truth'", "KeyError: 'data_source'"),
        cause="the data file lacks a column that the reward manager reads (data_source, reward_model with ground_truth)",
        fix="write each row with data_source, prompt, ability, reward_model={{'style': 'rule', 'ground_truth': ...}} and "
        "extra_info, as examples/data_preprocess does",
        source="verl-project/verl#758", certainty="likely", kind="config-error",
        example="KeyError: 'reward_model'",
    ),
    Trouble(
        id="verl/log-prob-micro-batch",
        shows=("Please set at least one of '{one:w}.{rest:w}' or", "[{name:w}] Please set at least one of"),
        cause="veRL needs a micro-batch size for each part that computes log-probabilities, and one is missing",
        fix="set ..._micro_batch_size_per_gpu for actor (ppo_), rollout.log_prob_ and ref.log_prob_, or use_dynamic_bsz=True "
        "with ppo_max_token_len_per_gpu",
        source="verl-project/verl: utils/config.py", certainty="certain", kind="config-error",
        example="ValueError: [actor_rollout_ref.rollout] Please set at least one of "
        "'actor_rollout_ref.rollout.log_prob_micro_batch_size' or",
    ),
    Trouble(
        id="verl/max-token-length",
        shows=("max_token_len must be greater than the sequence length. Got max_token_len={limit} and max_seq_len=tensor({length}",
               "max_token_len must be greater than the sequence length. Got max_token_len={limit} and max_seq_len={length}"),
        cause="with use_dynamic_bsz one sequence of {length} tokens must fit in a micro-batch of {limit}",
        fix="raise ppo_max_token_len_per_gpu (and log_prob_max_token_len_per_gpu) to at least max_prompt_length + "
        "max_response_length, or ulysses_sequence_parallel_size",
        source="verl-project/verl: utils/seqlen_balancing.py", certainty="certain", kind="config-error",
        example="AssertionError: max_token_len must be greater than the sequence length. Got max_token_len=2048 and "
        "max_seq_len=tensor(3072)",
    ),
    Trouble(
        id="verl/key-not-in-struct",
        shows=("Key '{key:w}' is not in struct", "Could not override '{key:w}'"),
        cause="the configuration of this release has no key {key}: misspelled, moved, or new and not yet there",
        fix="run `stabilizer preflight SCRIPT`, which names the nearest key and the release that has it; to add a key on "
        "purpose, write +{key}=...",
        source="facebookresearch/hydra: override grammar", certainty="certain", kind="config-error",
        example="Could not override 'actor_rollout_ref.actor.entropy_coef'.",
    ),
    Trouble(
        id="hydra/append",
        shows=("To append to your config use +{key:w}=",),
        cause="{key} does not exist in the configuration, and Hydra adds keys only when asked to",
        fix="check the spelling first (`stabilizer preflight` proposes the nearest key); to add it on purpose write +{key}=...",
        source="facebookresearch/hydra: override grammar", certainty="certain", kind="config-error",
        example="To append to your config use +actor_rollout_ref.rollout.nn=8",
    ),
    Trouble(
        id="hydra/missing-value",
        shows=("Missing mandatory value: {key:w}",),
        cause="the setting {key} has no default and was not given",
        fix="give {key}=... on the command line",
        source="omry/omegaconf: errors", certainty="certain", kind="config-error",
        example="omegaconf.errors.MissingMandatoryValue: Missing mandatory value: data.train_files",
    ),
    Trouble(
        id="verl/vllm-tp-world",
        shows=("tensor parallel size {tp} should be less than or equal to world size {world}",
               "rollout world_size: {world} is not divisible by infer_tp: {tp}"),
        cause="tensor_model_parallel_size = {tp} does not divide the {world} GPUs of the rollout",
        fix="set actor_rollout_ref.rollout.tensor_model_parallel_size to a divisor of {world}",
        source="verl-project/verl: workers/fsdp_workers.py", certainty="certain", kind="config-error",
        example="AssertionError: rollout world_size: 6 is not divisible by infer_tp: 4",
    ),
    Trouble(
        id="verl/grouped-needs-answers",
        shows=("need `config.worker.rollout.n > 1`", "GRPO...needs rollout.n"),
        cause="GRPO and RLOO compare the answers of one prompt, and rollout.n is 1",
        fix="set worker.rollout.n (actor_rollout_ref.rollout.n in veRL) to 5 or more",
        source="hiyouga/EasyR1: trainer/ray_trainer.py", certainty="certain", kind="config-error",
        example="ValueError: GRPO and RLOO algorithm need `config.worker.rollout.n > 1`.",
    ),
    Trouble(
        id="verl/padding-free-attention",
        shows=("Current attention implementation... not support...remove_padding", "use_remove_padding=True requires flash"),
        cause="use_remove_padding needs flash attention, which this model or machine does not use",
        fix="install flash-attn, or set actor_rollout_ref.model.use_remove_padding=False",
        source="verl-project/verl", certainty="likely", kind="config-error",
        example="AssertionError: use_remove_padding=True requires flash_attention_2",
    ),
    Trouble(
        id="verl/checkpoint-world-size",
        shows=("model_world_size_{n}_rank_{rank}.pt",),
        frames=("fsdp_checkpoint_manager", "load_checkpoint"),
        cause="the checkpoint was saved by {n} processes, and this run has another number: FSDP shards are read rank by rank",
        fix="resume with {n} GPUs, or merge the checkpoint first (python -m verl.model_merger merge) and start from the merged "
        "model",
        source="verl-project/verl: checkpoints", certainty="likely", kind="config-error",
        example='  File "/x/verl/utils/checkpoint/fsdp_checkpoint_manager.py", line 92, in load_checkpoint\n'
        "FileNotFoundError: [Errno 2] No such file or directory: '/c/actor/model_world_size_8_rank_3.pt'",
    ),
    Trouble(
        id="search-r1/retriever",
        shows=("Max retries exceeded with url: /retrieve", "/retrieve (Caused by"),
        cause="the retrieval server does not answer",
        fix="start it first (bash retrieval_launch.sh) and give retriever.url with its host and port; unset http_proxy",
        source="PeterGriffinJin/Search-R1: README", certainty="certain", kind="config-error",
        example="requests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=8000): Max retries exceeded "
        "with url: /retrieve (Caused by NewConnectionError",
    ),
    Trouble(
        id="verl/normalised-to-zero",
        shows=("ppo_mini_batch_size {mini} should be larger than 0 after normalization",),
        cause="ppo_mini_batch_size x rollout.n is smaller than the number of data-parallel GPUs: {mini} after division",
        fix="raise actor_rollout_ref.actor.ppo_mini_batch_size (it counts prompts), or use fewer GPUs",
        source="verl-project/verl: fsdp_workers.py", certainty="certain", kind="config-error",
        example="AssertionError: ppo_mini_batch_size 0 should be larger than 0 after normalization",
    ),
    Trouble(
        id="verl/interpolation",
        shows=("Interpolation key '{key:w}' not found", "InterpolationKeyError", "InterpolationResolutionError",
               "Could not load 'verl.{name:w}'", "In '{where:w}': Could not find '{name:w}'$"),
        cause="the configuration refers to a key or a group that is not there: overrides and veRL are of different releases, or a "
        "line of the YAML was removed",
        fix="take the example script of the installed release (git checkout v0.x), or add the key it names; `stabilizer preflight` "
        "lists keys that moved",
        source="verl-project/verl: configuration", certainty="likely", kind="config-error",
        example="omegaconf.errors.InterpolationKeyError: Interpolation key 'data.prompt_len' not found",
    ),
    Trouble(
        id="verl/rollout-mode",
        shows=("Rollout {name:w} with mode {mode:w} not found", "mode=sync is not supported", "rollout mode {mode:w} is not supported"),
        cause="this release of veRL has no rollout of that engine and mode (sync was removed, hf has no async)",
        fix="actor_rollout_ref.rollout.name=vllm (or sglang) and mode=async; or the veRL release of your script",
        source="verl-project/verl: rollout configuration", certainty="certain", kind="config-error",
        example="AssertionError: Rollout hf with mode sync not found",
    ),
    Trouble(
        id="verl/kl-in-both",
        shows=("NOTICE: You have both enabled in-reward kl and kl loss",),
        cause="the KL is charged twice: algorithm.use_kl_in_reward and actor.use_kl_loss are both on",
        fix="keep one: use_kl_loss for GRPO, use_kl_in_reward for PPO",
        source="verl-project/verl: ray_trainer.py", severity="warn", certainty="certain", kind="config-error",
        example="NOTICE: You have both enabled in-reward kl and kl loss.",
    ),
    Trouble(
        id="verl/reward-dict-lengths",
        shows=("all keys should have the same length", "IndexError: index {a} is out of bounds for dimension 0 with size {b}"),
        frames=("reward", "naive", "dapo", "protocol", "process_validation_metrics"),
        cause="the reward function returns extra information for some answers and not for others, so the columns differ in length",
        fix="return the same keys for every answer ({{'score': ..., 'acc': ...}}), with a neutral value where one does not apply",
        source="verl-project/verl: reward_manager", certainty="possible",
        example='  File "/x/verl/workers/reward_manager/dapo.py", line 120, in __call__\n'
        "AssertionError: all keys should have the same length",
    ),
    Trouble(
        id="hydra/wrong-type",
        shows=("Value '{value:t}' of type '{have:w}' could not be converted to {want:w}", "Value '{value:t}' could not be converted to {want:w}"),
        cause="a setting wants {want} and got '{value}'",
        fix="give a value of that type (1e-6 as 0.000001 where a whole number is not meant, True or False without quotes, null for none); the line "
        "full_key below names the setting",
        source="omry/omegaconf: errors", certainty="certain", kind="config-error",
        example="omegaconf.errors.ValidationError: Value '1e3' of type 'str' could not be converted to Integer",
    ),
    Trouble(
        id="hydra/config-not-found",
        shows=("Primary config directory not found", "Cannot find primary config '{name:w}'", "Primary config module '{name:w}' not found"),
        cause="Hydra does not find the configuration file it starts from, seen from the program's folder",
        fix="give --config-path as an absolute folder (or relative to the script) and --config-name without .yaml; start from the folder the example "
        "script expects",
        source="facebookresearch/hydra: config search path", certainty="certain", kind="config-error",
        example="Cannot find primary config 'grpo_trainer'. Check that it's in your config search path.",
    ),
    Trouble(
        id="hydra/group",
        shows=("You must specify '{group:w}', e.g, {other:w}=<OPTION>", "Multiple values for {group:w}. To override a value use 'override"),
        cause="the configuration group {group} needs one choice, and has none or several",
        fix="write {group}=OPTION on the command line, or 'override {group}: OPTION' in the defaults list",
        source="facebookresearch/hydra: defaults list", certainty="certain", kind="config-error",
        example="You must specify 'model', e.g, model=<OPTION>",
    ),
    Trouble(
        id="hydra/grammar",
        shows=("no viable alternative at input '{text:t}'", "extraneous input '{text:t}' expecting", "token recognition error at: '{text:t}'",
               "mismatched input '{text:t}' expecting", "LexerNoViableAltException: {text:t}="),
        cause="Hydra cannot parse an override near '{text}': a character that has a meaning there, or a space, stands unquoted",
        fix="quote the whole override for the shell and the value for Hydra: '+data.prompt=\"a, b = c\"'; no spaces around =, and a backslash at the end "
        "of a line must be its last character",
        source="facebookresearch/hydra: override grammar", certainty="certain", kind="config-error",
        example="no viable alternative at input '[a'",
    ),
    Trouble(
        id="verl/rollout-log-probs",
        shows=("KeyError: 'rollout_log_probs'", "requires rollout_log_probs in batch", "rollout_log_probs must be provided for TIS"),
        cause="a correction between engine and trainer is switched on, and the engine does not return its log-probabilities",
        fix="actor_rollout_ref.rollout.calculate_log_probs=True in veRL (log-probabilities of the rollout in slime), or switch the correction off "
        "(algorithm.rollout_correction, tis_imp_ratio_cap)",
        source="verl-project/verl: trainer/ppo/rollout_corr_helper.py", certainty="certain", kind="config-error",
        example="KeyError: 'rollout_log_probs'",
    ),
    Trouble(
        id="verl/raw-prompt",
        shows=("KeyError: 'raw_prompt'", "KeyError: 'raw_prompt_ids'"),
        cause="the rollout works on chat messages and the data loader passes only tokens",
        fix="data.return_raw_chat=True (needed by asynchronous and multi-turn rollouts)",
        source="verl-project/verl: multi-turn rollout", certainty="likely", kind="config-error",
        example="KeyError: 'raw_prompt'",
    ),
    Trouble(
        id="verl/empty-data",
        shows=("Train dataloader is empty!", "Validation dataloader is empty!", "filter dataset len: {kept}$"),
        cause="no batch is left: the filter on prompt length dropped the rows, or there are fewer rows than one batch (the last, smaller one is dropped)",
        fix="raise data.max_prompt_length (compare 'dataset len' before and after the filter), lower data.train_batch_size to at most the number of rows, "
        "and check that data.prompt_key is the column of the prompts",
        source="verl-project/verl: trainer/ppo/ray_trainer.py", certainty="certain", kind="config-error", work=_none_kept,
        example="AssertionError: Train dataloader is empty!",
    ),
    Trouble(
        id="verl/batch-sizes-differ",
        shows=("Two tensor dict must have identical batch size. Got {a:t} and {b:t}$",),
        cause="the answers and the prompts they belong to differ in number ({a} and {b}): the engine returned another number of answers a prompt than "
        "rollout.n",
        fix="set the same n everywhere (actor_rollout_ref.rollout.n; val_kwargs.n with do_sample=True), let rewards and filters keep every row, and use the "
        "vLLM or SGLang release of veRL's requirements",
        source="verl-project/verl: protocol.py", certainty="likely", kind="config-error",
        example="AssertionError: Two tensor dict must have identical batch size. Got torch.Size([1024]) and torch.Size([5120])",
    ),
    Trouble(
        id="verl/same-key-twice",
        shows=("in tensor_dict1 and tensor_dict2 are not the same object", "in dict1 and dict2 are not the same object"),
        cause="two batches are joined that both hold the same key with other contents: a reward or rollout of your own writes a key that is already there",
        fix="return new keys only (pop the old one before union), and do not copy the prompt's tensors into the output",
        source="verl-project/verl: protocol.py", certainty="likely",
        example="AssertionError: input_ids in tensor_dict1 and tensor_dict2 are not the same object",
    ),
    Trouble(
        id="verl/generated-too-many",
        shows=("num_gen_batches={n} >= max_num_gen_batches={most}", "Generated too many. Please check if your data are too difficult",
               "num_try_make_batch={n} >= max_try_make_batch={most}", "No sample is kept after filtering"),
        cause="dynamic sampling drops every group whose answers earn the same, and too few groups are left after the allowed tries: the prompts are too "
        "hard or too easy for this model, or the reward is constant (a parser that never matches)",
        fix="look at rewards of a few answers first (all 0: answer format, truncation, data_source; all 1: harder prompts); then raise "
        "algorithm.filter_groups.max_num_gen_batches (0 is no limit) or gen_batch_size, or more answers a prompt",
        source="verl-project/verl: recipe/dapo", certainty="certain", kind="config-error",
        example="ValueError: num_gen_batches=10 >= max_num_gen_batches=10. Generated too many. Please check if your data are too difficult.",
    ),
    Trouble(
        id="verl/overlong-buffer",
        shows=("max_resp_len must be larger than overlong_buffer.len", "max_new_tokens ({most}) must be >= overlong_buffer_len ({buffer})",
               "overlong_buffer.len must be positive"),
        cause="the penalty for long answers begins overlong_buffer.len tokens before the limit, which is more than the whole answer may have",
        fix="overlong_buffer.len must be below max_response_length (DAPO: 4,096 of 20,480)",
        source="verl-project/verl: reward manager dapo", certainty="certain", kind="config-error",
        example="AssertionError: max_resp_len must be larger than overlong_buffer.len",
    ),
    Trouble(
        id="verl/sequences-below-workers",
        shows=("number of items:[{items}] < k_partitions:[{parts}]",),
        cause="{items} sequences cannot be dealt out to {parts} workers: a micro-batch or the last batch is smaller than the GPUs",
        fix="a batch of at least {parts} (train_batch_size x rollout.n, val_batch_size), use_dynamic_bsz=False, or fewer data-parallel GPUs",
        source="verl-project/verl: utils/seqlen_balancing.py", certainty="certain", kind="config-error",
        example="AssertionError: number of items:[6] < k_partitions:[8]",
    ),
    Trouble(
        id="verl/reward-file",
        shows=("Reward function file '{path:w}' not found", "Reward function file {path:w} not found", "Reward function '{name:w}' not found in",
               "does not have function {name:w}."),
        cause="the reward function that is configured is not there, as Ray's workers see it",
        fix="an absolute path in custom_reward_function.path (worker.reward.reward_function in EasyR1, FILE:NAME) on every node, and the function's exact name",
        source="verl-project/verl: trainer/ppo/reward.py", certainty="certain", kind="config-error",
        example="FileNotFoundError: Reward function file 'my_reward.py' not found.",
    ),
    Trouble(
        id="easyr1/batches",
        shows=("Rollout batch size must be divisible by actor global batch size", "Rollout batch size must be divisible by critic global batch size",
               "Rollout batch size * rollout.n must be divisible by actor micro batch size for experience",
               "global batch size * ulysses size must be larger than num gpus", "global batch size per device must be divisible by the micro batch size"),
        cause="EasyR1's batch sizes do not divide one another",
        fix="data.rollout_batch_size = k x worker.actor.global_batch_size; global_batch_size x rollout.n over the GPUs must be a multiple of "
        "micro_batch_size_per_device_for_update, and rollout_batch_size x rollout.n of micro_batch_size_per_device_for_experience",
        source="hiyouga/EasyR1: trainer/ray_trainer.py", certainty="certain", kind="config-error",
        example="ValueError: Rollout batch size must be divisible by actor global batch size.",
    ),
    Trouble(
        id="easyr1/offload-accumulation",
        shows=("cannot use FSDP's CPU offload when gradient accumulation is enabled",),
        cause="FSDP's own CPU offload does not keep gradients between micro-batches",
        fix="worker.actor.fsdp.enable_cpu_offload=false with worker.actor.offload.offload_params=true and offload_optimizer=true, or a micro-batch as large as "
        "the batch of a device",
        source="hiyouga/EasyR1: workers/fsdp_workers.py", certainty="certain", kind="config-error",
        example="ValueError: actor cannot use FSDP's CPU offload when gradient accumulation is enabled.",
    ),
    Trouble(
        id="verl/gradient-not-finite",
        shows=("grad_norm is not finite",),
        cause="the gradient was infinite or NaN, so the trainer left updates out and the weights stayed as they were",
        fix="a few such updates do no harm. If they go on: lower the learning rate (actor.optim.lr) by 3 to 10, train in bfloat16 and "
        "not in float16, read the samples of the first such step (very long, empty or odd answers, failed tool results), and go on from a "
        "checkpoint before it",
        source="EvolvingLMMs-Lab/multimodal-search-r1#19", severity="warn", certainty="likely",
        example="WARN: rank 0 grad_norm is not finite: inf",
    ),
    Trouble(
        id="verl/vision-prompt-long",
        shows=("Multimodal prompt produced {have} tokens, exceeding rollout.prompt_length={limit}", "VLM prompt length ({have}) exceeds max_initial_length "
               "({limit})", "VLM prompt length ({have}) exceeds max_prompt_length ({limit})"),
        cause="text and images of a prompt take {have} tokens, above the limit of {limit}; cutting would separate image tokens from their images",
        fix="raise the prompt limit to at least {have}, lower the images' max_pixels (28 x 28 pixels are one token in Qwen2-VL), or drop such rows "
        "(filter_overlong_prompts)",
        source="verl-project/verl: agent_loop.py", certainty="certain", kind="config-error",
        example="ValueError: Multimodal prompt produced 5120 tokens, exceeding rollout.prompt_length=2048.",
    ),
)  # fmt: skip
