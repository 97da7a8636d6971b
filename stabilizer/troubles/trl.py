"""TRL, Open-R1 and Unsloth."""

from __future__ import annotations

from math import prod

from stabilizer.troubles.arithmetic import by_nearness, divisors, listed, not_whole, whole
from stabilizer.troubles.trouble import Trouble, Values


def _groups(values: Values) -> dict[str, object]:
    """Completions that are no whole number of groups; they are given as one number or as factors."""
    total = prod(whole(values[name]) for name in ("size", "a", "b", "c") if name in values)
    fits = by_nearness(whole(values["unit"]), divisors(total, 2))
    lower = f"to a divisor of {total}: {listed(fits)}" if fits else "lower"
    return {**not_whole(values, total), "total": total, "divisors": lower}


TROUBLES = (
    Trouble(
        id="trl/server-unreachable",
        shows=("The vLLM server can't be reached at {host:w} after {s} seconds",),
        cause="no vLLM server answers at {host}: none was started, it is still loading, it listens elsewhere, or a proxy is "
        "in between; a notebook that uses Unsloth's fast inference needs none at all",
        fix="start `trl vllm-serve --model ...` first on GPUs of its own and wait for it (vllm_server_timeout), give "
        "vllm_server_host and vllm_server_port, unset http_proxy. Without a server: vllm_mode='colocate' or use_vllm=False; "
        "with Unsloth update it (fast_inference=True then replaces the server)",
        source="unslothai/unsloth#2173", certainty="certain", kind="config-error",
        example="ConnectionError: The vLLM server can't be reached at 0.0.0.0:8000 after 120.0 seconds. Make sure the server "
        "is running by running `trl vllm-serve`.",
    ),
    Trouble(
        id="trl/reward-length",
        shows=("expand(torch.FloatTensor{[{got}]}, size=[{want}])",
               "shape mismatch: value tensor of shape [{got}] cannot be broadcast to indexing result of shape [{want}]"),
        cause="a reward function returned {got} rewards for {want} completions",
        fix="return one number for each completion, in their order (None for one that the function does not judge)",
        source="huggingface/trl: custom rewards", certainty="likely",
        example="RuntimeError: shape mismatch: value tensor of shape [4] cannot be broadcast to indexing result of shape [8]",
    ),
    Trouble(
        id="trl/reward-model-unbound",
        shows=("cannot access local variable 'reward_model' where it is not associated with a value",
               "local variable 'reward_model' referenced before assignment"),
        cause="the grpo script of this TRL release passes the reward model where only reward functions were given "
        "(--reward_funcs)",
        fix="upgrade TRL to a release after 0.19, where it is fixed, or call GRPOTrainer(reward_funcs=[...]) from your own "
        "script",
        source="huggingface/trl#3455", certainty="certain",
        example="UnboundLocalError: cannot access local variable 'reward_model' where it is not associated with a value",
    ),
    Trouble(
        id="trl/rewards-all-none",
        shows=("All reward functions returned None for the following kwargs",),
        cause="no reward function judged this completion: all returned None, so its reward is NaN",
        fix="let at least one function return a number for every completion",
        source="huggingface/trl: trainer/grpo_trainer.py", severity="warn", certainty="certain",
        example="UserWarning: All reward functions returned None for the following kwargs: {'prompt': '1+1='}. Please ensure "
        "that at least one reward function returns a valid reward.",
    ),
    Trouble(
        id="trl/reward-weights",
        shows=("Number of reward weights ({weights}) must match number of reward functions ({functions})",),
        cause="{weights} reward weights for {functions} reward functions",
        fix="give reward_weights with exactly {functions} numbers",
        source="huggingface/trl: trainer/grpo_trainer.py", certainty="certain", kind="config-error",
        example="ValueError: Number of reward weights (2) must match number of reward functions (3)",
    ),
    Trouble(
        id="trl/server-client-dead-group",
        shows=("Weight update group already initialized. Call close_communicator first",),
        cause="the vLLM server still holds the communicator of a client that crashed",
        fix="restart `trl vllm-serve` together with the training",
        source="huggingface/trl#3408", certainty="certain", kind="infrastructure",
        example="RuntimeError: Weight update group already initialized. Call close_communicator first.",
    ),
    Trouble(
        id="trl/server-request-failed",
        shows=("Request failed: {code}, ",),
        cause="the vLLM server refused a request (HTTP {code}): server and trainer are of different TRL releases, or the "
        "engine behind the server failed",
        fix="run the server from the same TRL release as the trainer, and look at the server's own log for the first error",
        source="huggingface/trl: extras/vllm_client.py", certainty="possible", kind="infrastructure",
        example='Exception: Request failed: 404, {"detail":"Not Found"}',
    ),
    Trouble(
        id="transformers/pads-right",
        shows=("padding_side...must be set to 'left'", "The tokenizer's padding side must be 'left'", "You are attempting to perform batched generation with padding_side='right'"),
        cause="prompts must be padded on the left for generation, and the tokenizer pads on the right",
        fix="tokenizer.padding_side = 'left' before the trainer is built and prompts are tokenised (AutoTokenizer.from_pretrained(..., padding_side='left'))",
        source="huggingface/trl", certainty="certain", kind="config-error",
        example="ValueError: The tokenizer's padding side must be 'left' for generation",
    ),
    Trouble(
        id="trl/iterable-dataset",
        shows=("Iterable datasets are not yet supported in GRPOTrainer", "Iterable datasets require `dispatch_batches=False`"),
        cause="a streamed data set is not taken by this release, or is dealt out by rank 0, which breaks the groups of a prompt",
        fix="load it without streaming=True, or take a part: Dataset.from_list(list(stream.take(n))); where the message names dispatch_batches: accelerator_config={{'dispatch_batches': False}} "
        "in the config",
        source="huggingface/trl: trainer/grpo_trainer.py", certainty="certain", kind="config-error",
        example="NotImplementedError: Iterable datasets are not yet supported in GRPOTrainer. Please use a standard dataset instead.",
    ),
    Trouble(
        id="trl/vllm-missing",
        shows=("vLLM is not available and `use_vllm` is set to True", "vLLM is not available and use_vllm is set to True",
               "Unsloth: Please install vLLM before enabling `fast_inference`", "Unsloth: vLLM is not installed"),
        cause="generation with vLLM is asked for (use_vllm, fast_inference), and vLLM is not installed or not importable here",
        fix="pip install 'trl[vllm]' (a vLLM that this TRL supports; in Colab before unsloth is imported, then restart), or use_vllm=False, fast_inference=False",
        source="huggingface/trl: trainer/grpo_trainer.py", certainty="certain", kind="config-error",
        example="ImportError: vLLM is not available and `use_vllm` is set to True. Please install vLLM with `pip install trl[vllm]` to use it.",
    ),
    Trouble(
        id="trl/vllm-unsupported-version",
        shows=("TRL currently supports vLLM versions: {versions:t}. You have version {have:w} installed",
               "TRL currently only supports vLLM version `{versions:w}`. You have version {have:w} installed"),
        cause="vLLM {have} is installed, and this TRL was tested with {versions}",
        fix="install one of those versions, or a newer TRL, if generation or the weight update fails",
        source="huggingface/trl: import_utils.py", severity="warn", certainty="certain",
        example="UserWarning: TRL currently supports vLLM versions: 0.10.0, 0.10.1, 0.10.2. You have version 0.11.1 installed.",
    ),
    Trouble(
        id="trl/dataset-no-prompt",
        shows=("KeyError: 'prompt'",),
        cause="the data set has no column `prompt`, which TRL's online trainers read",
        fix="dataset = dataset.rename_column('question', 'prompt') (or map to chat messages under `prompt`); other columns are "
        "passed to the reward functions",
        source="huggingface/trl: dataset formats", certainty="likely", kind="config-error",
        example="KeyError: 'prompt'",
    ),
    Trouble(
        id="trl/liger-missing",
        shows=("Liger is required to use", "Liger Kernel is not installed", "requires `liger-kernel`"),
        cause="the Liger loss is asked for, and liger-kernel is not installed",
        fix="pip install liger-kernel, or switch use_liger_loss (use_liger_kernel) off",
        source="huggingface/trl", certainty="certain", kind="config-error",
        example="ImportError: Liger is required to use `use_liger_loss` as the GRPO loss. Run `pip install liger-kernel`.",
    ),
    Trouble(
        id="trl/generation-batch",
        shows=("'generation_batch_size' and 'steps_per_generation' can not be both configured at the same time",),
        cause="generation_batch_size and steps_per_generation say the same thing twice",
        fix="set one of the two: generation_batch_size = per_device_train_batch_size x processes x steps_per_generation",
        source="huggingface/trl: trainer/grpo_config.py", certainty="certain", kind="config-error",
        example="ValueError: 'generation_batch_size' and 'steps_per_generation' can not be both configured at the same time",
    ),
    Trouble(
        id="unsloth/import-first",
        shows=("Unsloth should be imported before",),
        cause="Unsloth patches transformers, TRL and PEFT when it is imported, and these came first",
        fix="put `import unsloth` on the first line of the script",
        source="unslothai/unsloth", severity="warn", certainty="certain",
        example="UserWarning: WARNING: Unsloth should be imported before trl, transformers, peft to ensure all optimizations "
        "are applied.",
    ),
    Trouble(
        id="unsloth/compiled-cache",
        shows=("unsloth_compiled_cache/UnslothGRPOTrainer.py...", "in unsloth_compiled_cache"),
        cause="the error arose in code that Unsloth generated for another release of TRL or transformers",
        fix="delete the folder unsloth_compiled_cache, and update unsloth and unsloth_zoo together (pip install -U unsloth "
        "unsloth_zoo)",
        source="unslothai/unsloth: updating", certainty="possible", severity="info",
        example='  File "/content/unsloth_compiled_cache/UnslothGRPOTrainer.py", line 1024, in _get_per_token_logps',
    ),
    Trouble(
        id="unsloth/other-lengths",
        shows=("The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {d}", "shape mismatch: value tensor of shape [{shape:t}] cannot be"),
        frames=("unsloth_compiled_cache", "unsloth_zoo"), innermost=True,
        cause="Unsloth's generated trainer combines tensors of other lengths than it made: a mask or log-probabilities are cut by another release's rule. It is a fault of the pair of releases, "
        "not of your data",
        fix="update unsloth and unsloth_zoo together and delete unsloth_compiled_cache, or pin both (and the TRL they name) to the release that last worked",
        source="unslothai/unsloth#4181", certainty="likely",
        example='  File "/content/unsloth_compiled_cache/UnslothGRPOTrainer.py", line 3297, in compute_loss\n'
        "RuntimeError: The size of tensor a (25) must match the size of tensor b (24) at non-singleton dimension 1",
    ),
    Trouble(
        id="unsloth/fast-inference-missing",
        shows=("'{name:w}' object has no attribute 'vllm_engine'", "object has no attribute 'fast_generate'"),
        cause="the model was loaded without fast_inference=True, so it has no vLLM engine inside",
        fix="FastLanguageModel.from_pretrained(..., fast_inference=True), or use_vllm=False",
        source="unslothai/unsloth", certainty="likely", kind="config-error",
        example="AttributeError: 'Qwen2ForCausalLM' object has no attribute 'vllm_engine'",
    ),
    Trouble(
        id="trl/ratio-over-threshold",
        shows=("The average ratio of batch ({ratio}) exceeds threshold {limit}. Skipping batch",),
        cause="the new policy has moved too far from the one that wrote the answers: the average ratio of a minibatch is {ratio}, "
        "above {limit}, and it is skipped",
        fix="lower the learning rate, fewer ppo_epochs, larger batches; sample plainly (top_k 0, top_p 1, no min_length tricks), "
        "so that what is sampled is what is scored",
        source="huggingface/trl#1857", severity="warn", certainty="likely",
        example="UserWarning: The average ratio of batch (14.81) exceeds threshold 10.00. Skipping batch.",
    ),
    Trouble(
        id="trl/negative-kl",
        shows=("KL divergence is starting to become negative: -{kl}",),
        cause="the KL estimate is -{kl}, below 0: text is sampled with other settings (top_k, top_p, min_length, padding, an "
        "adapter) than it is scored with, or training diverges",
        fix="generate plainly (top_k 0, top_p 1.0, do_sample True, no min_length, eos_token_id -1 only if lengths are fixed), pad on "
        "the left, then lower the learning rate",
        source="huggingface/trl#1857", severity="warn", certainty="likely",
        example="UserWarning: KL divergence is starting to become negative: -3.18 - this might be a precursor for failed training.",
    ),
    Trouble(
        id="trl/compute-loss-items",
        shows=("compute_loss() got an unexpected keyword argument 'num_items_in_batch'",
               "compute_loss() got an unexpected keyword argument 'return_outputs'",
               "_get_train_sampler() takes 1 positional argument but 2 were given", "training_step() takes 3 positional arguments "
               "but 4 were given", "log() takes 2 positional arguments but 3 were given", "log() takes from 2 to 3 positional "
               "arguments but 4 were given", "_prepare_inputs() missing", "evaluation_loop() got an unexpected keyword"),
        cause="transformers is newer than this trainer: its Trainer passes an argument that the trainer's method does not take",
        fix="upgrade the trainer (pip install -U trl; unsloth and unsloth_zoo together, and delete unsloth_compiled_cache), or "
        "install the transformers that it names; in a method of your own accept **kwargs (num_items_in_batch=None)",
        source="huggingface/trl: release notes", certainty="certain", kind="config-error",
        example="TypeError: compute_loss() got an unexpected keyword argument 'num_items_in_batch'",
    ),
    Trouble(
        id="trl/ppo-interface",
        shows=("PPOTrainer.__init__() got an unexpected keyword argument '{key:w}'",
               "PPOConfig.__init__() got an unexpected keyword argument '{key:w}'",
               "PPOTrainer.__init__() missing {n} required positional argument", "'PPOTrainer' object has no attribute 'generate'",
               "'PPOTrainer' object has no attribute 'step'", "module 'trl' has no attribute 'PPOTrainer'",
               "cannot import name 'AutoModelForCausalLMWithValueHead' from 'trl'", "cannot import name 'PPOTrainer' from 'trl'"),
        cause="the script was written for TRL's old PPOTrainer (up to 0.11, with generate() and step()); 0.12 replaced it, and "
        "later releases moved it to trl.experimental.ppo",
        fix="pip install 'trl==0.11.4' 'transformers<4.47' for the old script; or rewrite it: PPOTrainer(args=PPOConfig(...), "
        "processing_class=..., model=..., ref_model=..., reward_model=..., value_model=..., train_dataset=...)",
        source="huggingface/trl: migration of PPO", certainty="certain", kind="config-error",
        example="TypeError: PPOTrainer.__init__() got an unexpected keyword argument 'config'",
    ),
    Trouble(
        id="transformers/renamed-argument",
        shows=("Trainer.__init__() got an unexpected keyword argument 'tokenizer'",
               "TrainingArguments.__init__() got an unexpected keyword argument 'evaluation_strategy'",
               "__init__() got an unexpected keyword argument 'evaluation_strategy'",
               "__init__() got an unexpected keyword argument 'tokenizer'"),
        cause="transformers renamed it: tokenizer became processing_class (5.0), evaluation_strategy became eval_strategy (4.46)",
        fix="rename it in the script (processing_class=, eval_strategy=), or install the transformers of the script",
        source="huggingface/transformers: migration guide", certainty="certain", kind="config-error",
        example="TypeError: Seq2SeqTrainer.__init__() got an unexpected keyword argument 'tokenizer'",
    ),
    Trouble(
        id="trl/model-kwargs-not-used",
        shows=("The following `model_kwargs` are not used by the model: {names:t}] (note",),
        cause="columns of the data set reach generate(): {names}",
        fix="keep them for the reward functions alone: a newer trainer does so, or remove them before generation "
        "(remove_unused_columns, the collator); typos in generation settings look the same",
        source="modelscope/ms-swift#5157", certainty="certain", kind="config-error",
        example="ValueError: The following `model_kwargs` are not used by the model: ['nums', 'target'] (note: typos in the "
        "generate arguments will also show up in this list)",
    ),
    Trouble(
        id="trl/eval-generations",
        shows=("The global eval batch size ({a} x {b}) must be evenly divisible by the number of generations per prompt ({n})",),
        cause="{a} x {b} evaluation answers cannot be cut into groups of {n}",
        fix="set per_device_eval_batch_size so that processes x per_device_eval_batch_size is a multiple of {n}, or "
        "eval_strategy='no'",
        source="huggingface/trl: trainer/grpo_trainer.py", certainty="certain", kind="config-error",
        example="ValueError: The global eval batch size (1 x 2) must be evenly divisible by the number of generations per prompt (8).",
    ),
    Trouble(
        id="trl/vllm-device",
        shows=("The requested device cuda:{n} is also being used for training", "The requested device {device:w} is also used for "
               "training", "vllm_device`...is also"),
        cause="vLLM's GPU is one of those that train: in TRL before 0.16 it wants one of its own",
        fix="start one process fewer than there are GPUs (accelerate launch --num_processes GPUs-1), or upgrade TRL and use "
        "vllm_mode='colocate' or a server",
        source="huggingface/trl: 0.15, vllm_device", severity="info", certainty="certain", kind="config-error",
        example="UserWarning: The requested device cuda:7 is also being used for training. For higher throughput and to avoid "
        "out-of-memory errors",
    ),
    Trouble(
        id="trl/vllm-device-missing",
        shows=("The requested device for vllm (cuda:{n}) is not available", "The requested device for vLLM (cuda:{n}) is not "
               "available"),
        cause="TRL keeps one GPU for vLLM, and every GPU has a training process: there is no cuda:{n}",
        fix="accelerate launch --num_processes {n} is one too many: leave one GPU to vLLM; with a single GPU upgrade TRL and use "
        "vllm_mode='colocate', or use_vllm=False",
        source="huggingface/trl: 0.15, vllm_device", certainty="certain", kind="config-error",
        example="ValueError: The requested device for vllm (cuda:8) is not available. You are likely using vLLM without restricting "
        "the number of GPUs for training.",
    ),
    Trouble(
        id="unsloth/patch-first",
        shows=("'{name:w}' object has no attribute '{attribute:w}'",), frames=("unsloth_compiled_cache", "unsloth_zoo", "unsloth/"),
        cause="Unsloth's patches and the installed TRL, transformers or vLLM are of different months: {name} has no {attribute}",
        fix="pip install -U --force-reinstall --no-deps unsloth unsloth_zoo, delete unsloth_compiled_cache, restart the notebook; "
        "if it is new, install the trl and transformers of unsloth's pyproject",
        source="unslothai/unsloth: updating", certainty="possible", kind="config-error",
        example='  File "/content/unsloth_compiled_cache/UnslothGRPOTrainer.py", line 1024, in f\n'
        "AttributeError: 'Qwen2ForCausalLM' object has no attribute '_unwrapped_old_generate'",
    ),
    Trouble(
        id="trl/generation-batch-groups",
        shows=("generation_batch_size ({size}) must be divisible by num_generations ({unit})",
               "The global train batch size ({a} x {b}) must be evenly divisible by the number of generations per prompt ({unit})",
               "The effective train batch size ({a} x {b} x {c}) must be evenly divisible by the number of generations per prompt ({unit})"),
        cause="{total} completions a step are no whole number of groups of {unit} (num_generations)",
        fix="make per_device_train_batch_size x processes x gradient_accumulation_steps (or generation_batch_size) {near}, or num_generations {divisors}",
        source="huggingface/trl: trainer/grpo_config.py", certainty="certain", kind="config-error", work=_groups,
        example="ValueError: generation_batch_size (12) must be divisible by num_generations (8).",
    ),
    Trouble(
        id="trl/one-generation",
        shows=("requires at least 2 generations per prompt to calculate the advantages. You provided {n}", "requires n_samples_per_prompt > 1",
               "n_samples_per_prompt must be greater than 1 when using", "RLOO needs rollout.n > 1"),
        cause="advantages compare the answers of one prompt with each other, and there is only one answer a prompt",
        fix="at least 2 and better 8 or 16 answers a prompt: num_generations in TRL, rollout.n in veRL and EasyR1, n_samples_per_prompt in OpenRLHF and slime",
        source="huggingface/trl: trainer/grpo_config.py", certainty="certain", kind="config-error",
        example="ValueError: GRPO requires at least 2 generations per prompt to calculate the advantages. You provided 1, which is less than the minimum "
        "required.",
    ),
    Trouble(
        id="trl/colocate-tensor-parallel",
        shows=("vllm_tensor_parallel_size ({size}) must divide world size ({world}) evenly",),
        cause="the {world} training processes cannot be dealt out to engines of {size} GPUs",
        fix="set vllm_tensor_parallel_size to {divisors} (a divisor of the {world} processes), or start another number of processes",
        source="huggingface/trl: generation/vllm_generation.py", certainty="certain", kind="config-error",
        work=lambda values: {"divisors": listed(divisors(whole(values["world"])))},
        example="ValueError: vllm_tensor_parallel_size (4) must divide world size (6) evenly.",
    ),
    Trouble(
        id="trl/given-twice",
        shows=("You passed a `PeftModel` instance together with a `peft_config`", "You passed `model_init_kwargs` to the ", "You passed model_init_kwargs to the",
               "You passed model_kwargs to the", "You passed a model_id to the...ref_model...peft", "Please pass `ref_model=None` in case you want to train PEFT"),
        cause="the same is given twice: adapters or a reference model beside peft_config (with adapters the reference is the model without them), or settings for loading beside a model that is "
        "loaded",
        fix="leave one out: peft_config to go on with an adapter (is_trainable=True, or merge it first: model = model.merge_and_unload()), ref_model where peft_config is given, model_init_kwargs "
        "where the model is no name (torch_dtype, attn_implementation go into from_pretrained)",
        source="huggingface/trl: trainers", certainty="certain", kind="config-error",
        example="ValueError: You passed a `PeftModel` instance together with a `peft_config` to the trainer.",
    ),
    Trouble(
        id="trl/response-schema",
        shows=("Unrecognized chat template, failed to add response schema",),
        cause="training with tools needs to parse the model's tool calls, and TRL knows no parser for this chat template",
        fix="use the chat template of a family that TRL knows (Qwen3 and others, see its documentation of tools), or set tokenizer.response_schema yourself",
        source="huggingface/trl: chat_template_utils.py", certainty="certain", kind="config-error",
        example="ValueError: Unrecognized chat template, failed to add response schema. Please manually set the response schema on the tokenizer or "
        "processor.",
    ),
    Trouble(
        id="trl/response-key",
        shows=("Could not find response key", "Could not find instruction key"),
        cause="the collator looks for the response template among the tokens and does not find it: the tokens depend on the text before them, or the text "
        "was cut before the answer. Such examples give no loss",
        fix="take the template as the chat template writes it (<|im_start|>assistant\\n), give its token ids from the middle of a tokenised example, raise "
        "max_length, or use completion_only_loss / assistant_only_loss",
        source="huggingface/trl: DataCollatorForCompletionOnlyLM", severity="warn", certainty="likely", kind="config-error",
        example="UserWarning: Could not find response key `[22478, 77091]` in the following instance: This instance will be ignored in loss calculation.",
    ),
    Trouble(
        id="trl/assistant-mask",
        shows=("chat template does not contain `{% generation %}` keyword", "at least one example has no assistant tokens",
               "The chat template is not training-compatible"),
        cause="the loss on assistant tokens alone needs marks of the answers (generation blocks) in the chat template, which this template lacks, so no token is trained",
        fix="use a template with {{% generation %}} ... {{% endgeneration %}} around the answer, assistant_only_loss=False, or prompt and completion columns "
        "with completion_only_loss=True",
        source="huggingface/trl: SFT", certainty="certain", kind="config-error",
        example="return_assistant_tokens_mask==True but chat template does not contain `{% generation %}` keyword.",
    ),
    Trouble(
        id="trl/prompt-prefix",
        shows=("Mismatch between tokenized prompt and the start of tokenized prompt+completion",),
        cause="the tokens of the prompt alone are not the beginning of the tokens of prompt and answer: the last prompt token joins with the answer, or the "
        "chat template adds something (an empty think block) only to one of both",
        fix="end the prompt where the template opens the answer (add_generation_prompt), keep a newline or special token at the seam, or give a "
        "conversational data set and let the trainer apply the template",
        source="huggingface/trl: sft_trainer.py", severity="warn", certainty="certain", kind="config-error",
        example="Mismatch between tokenized prompt and the start of tokenized prompt+completion. This may be due to unexpected tokenizer behavior.",
    ),
    Trouble(
        id="trl/padding-free-attention",
        shows=("Padding-free training is enabled, but the attention implementation is not set to", "packing, but the attention implementation is not set to"),
        cause="texts are packed into one row, and this attention lets them see each other",
        fix="attn_implementation='flash_attention_2' when the model is loaded, or packing=False and padding_free=False",
        source="huggingface/trl: sft_trainer.py", severity="warn", certainty="certain", kind="config-error",
        example="Padding-free training is enabled, but the attention implementation is not set to 'flash_attention_2'.",
    ),
    Trouble(
        id="trl/ppo-batch-size",
        shows=("Batch size ({want}) does not match number of examples - but got {got} for: {name:w}",),
        cause="PPOTrainer.step got {got} {name} and was configured for {want}: the last batch of the data is smaller, or several answers a query are passed",
        fix="drop_last=True for the data loader, and PPOConfig(batch_size=...) equal to the number of queries of each step",
        source="huggingface/trl: ppo_trainer.py before 0.12", certainty="certain", kind="config-error",
        example="ValueError: Batch size (16) does not match number of examples - but got 4 for: queries",
    ),
    Trouble(
        id="trl/ppo-batch-divides",
        shows=("`batch_size` must be a multiple of `mini_batch_size * gradient_accumulation_steps`", "`batch_size` must be a multiple of `num_mini_batches`, "
               "inexact division: {size} / {unit}", "inexact division: {size} / {unit} ="),
        cause="the batch cannot be divided into equal mini-batches",
        fix="make batch_size a multiple of mini_batch_size x gradient_accumulation_steps (of num_mini_batches from TRL 0.11 on), as 64 = 8 x 8",
        source="huggingface/trl: ppo_config.py", certainty="certain", kind="config-error",
        example="ValueError: `batch_size` must be a multiple of `mini_batch_size * gradient_accumulation_steps`",
    ),
    Trouble(
        id="trl/liger-unsupported",
        shows=("Liger Kernels don't currently support", "Liger loss does not support", "`use_liger_kernel=True` is incompatible with", "not supported with "
               "Liger kernel", "Liger kernel does not support"),
        cause="the fused Liger loss leaves out what another setting asks for",
        fix="use_liger_kernel=False (use_liger_loss=False), or leave out that setting: an entropy quantile or bonus, an adapter on lm_head, sequence masking",
        source="huggingface/trl: grpo_trainer.py", certainty="certain", kind="config-error",
        example="NotImplementedError: Liger Kernels don't currently support masking token positions based on entropy.",
    ),
    Trouble(
        id="trl/reward-labels",
        shows=("reward models require `num_labels=1`", "The model has `num_labels={n}`, but reward models"),
        cause="a reward model gives one number for a text, and this one was loaded with several labels",
        fix="AutoModelForSequenceClassification.from_pretrained(name, num_labels=1)",
        source="huggingface/trl: reward_trainer.py", certainty="certain", kind="config-error",
        example="ValueError: The model has `num_labels=2`, but reward models require `num_labels=1` to output a single scalar reward per sequence.",
    ),
    Trouble(
        id="trl/end-token-unknown",
        shows=("The specified `eos_token` ('{token:t}') is not found in the vocabulary", "The specified `pad_token` ('{token:t}') is not found in the "
               "vocabulary"),
        cause="the end or padding token {token} is no token of this tokenizer",
        fix="use the model's own (tokenizer.eos_token; Qwen chat models end turns with <|im_end|>), or add it and resize the embeddings",
        source="huggingface/trl: sft_trainer.py", certainty="certain", kind="config-error",
        example="ValueError: The specified `eos_token` ('<EOS_TOKEN>') is not found in the vocabulary of the given `processing_class` "
        "(Qwen2TokenizerFast).",
    ),
    Trouble(
        id="unsloth/untrained-tokens",
        shows=("Unsloth: Untrained tokens",),
        cause="the chat format uses special tokens whose embeddings were never trained in this base model, and neither embed_tokens nor lm_head is trained: "
        "the loss becomes NaN",
        fix="start from the instruct model, or train them: target_modules=[..., 'embed_tokens', 'lm_head']; or use a template of plain text",
        source="unslothai/unsloth: tokenizer_utils.py", certainty="certain", kind="config-error",
        example="ValueError: Unsloth: Untrained tokens of [[128009]] found, but embed_tokens & lm_head not trainable, causing NaNs.",
    ),
    Trouble(
        id="unsloth/precision",
        shows=("Unsloth: Model is in bfloat16 precision but you want to use float16 precision", "Unsloth: Model is in float16 precision but you want to use "
               "bfloat16 precision"),
        cause="the model was loaded in another half precision than the trainer's arguments ask for",
        fix="bf16=True, fp16=False for a bfloat16 model (is_bfloat16_supported()), fp16=True, bf16=False for a float16 one, as on a T4",
        source="unslothai/unsloth: models/_utils.py", certainty="certain", kind="config-error",
        example="TypeError: Unsloth: Model is in bfloat16 precision but you want to use float16 precision. Set fp16 to `False` and bf16 to `True`",
    ),
    Trouble(
        id="unsloth/both-configs-failed",
        shows=("Unsloth: Failed to load model. Both AutoConfig and PeftConfig loading failed", "Unsloth: No config file found - are you sure the `model_name` "
               "is correct"),
        cause="the name or folder is neither a model nor an adapter that this transformers can read: misspelled, gated, or newer than transformers",
        fix="check the name and your token (HF_TOKEN), and pip install -U transformers unsloth unsloth_zoo for a new model",
        source="unslothai/unsloth: models/loader.py", certainty="likely", kind="config-error",
        example="RuntimeError: Unsloth: Failed to load model. Both AutoConfig and PeftConfig loading failed.",
    ),
    Trouble(
        id="unsloth/batch-changed",
        shows=("Unsloth: We now expect `per_device_train_batch_size`",),
        cause="Unsloth raised the batch size to num_generations, so that a group of answers fits: memory and steps an epoch change with it",
        fix="set per_device_train_batch_size to a multiple of num_generations yourself; for less memory lower num_generations",
        source="unslothai/unsloth: models/rl.py", severity="info", certainty="certain",
        example="Unsloth: We now expect `per_device_train_batch_size` to be a multiple of `num_generations`. We will change the batch size of 1 to the "
        "`num_generations` of 8",
    ),
)  # fmt: skip
