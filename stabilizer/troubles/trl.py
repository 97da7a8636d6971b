"""TRL, Open-R1 and Unsloth."""

from __future__ import annotations

from stabilizer.troubles.trouble import Trouble

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
        id="trl/reward-signature",
        shows=("reward_func() takes {n} positional argument but {m} were given",
               "reward() takes {n} positional argument but {m} were given",
               "reward_func() takes {n} positional arguments but {m} were given",
               "reward_func() got an unexpected keyword argument '{key:w}'",
               "reward() got an unexpected keyword argument '{key:w}'",
               "reward_func() missing {n} required positional argument: '{key:w}'"),
        cause="TRL calls reward functions differently from how this one is written: releases before 0.14 pass prompts and "
        "completions by position, later ones pass everything by keyword, with every data set column",
        fix="write def reward_func(completions, **kwargs), and install the TRL release the script was written for (newer: "
        "pip install -U trl)",
        source="huggingface/open-r1#13", kind="config-error",
        example="TypeError: format_reward_func() takes 1 positional argument but 2 were given",
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
        id="trl/reward-not-string",
        shows=("string indices must be integers", "list indices must be integers or slices, not str"),
        frames=("reward",),
        cause="the reward function expects text where it gets chat messages, or the other way round: the form of completions "
        "follows that of the prompts",
        fix="for chat prompts read completion[0]['content']; for text prompts use the completion itself",
        source="huggingface/trl: custom rewards",
        example='  File "/x/rewards.py", line 8, in reward_accuracy\nTypeError: string indices must be integers, not \'str\'',
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
        shows=("Request failed: {code}, {text:t}\"}", "Request failed: 404, {text:t}}"),
        cause="the vLLM server refused a request (HTTP {code}): server and trainer are of different TRL releases, or the "
        "engine behind the server failed",
        fix="run the server from the same TRL release as the trainer, and look at the server's own log for the first error",
        source="huggingface/trl: extras/vllm_client.py", certainty="possible", kind="infrastructure",
        example='Exception: Request failed: 404, {"detail":"Not Found"}',
    ),
    Trouble(
        id="trl/padding-side",
        shows=("padding_side...must be set to 'left'", "The tokenizer's padding side must be 'left'"),
        cause="prompts must be padded on the left for generation",
        fix="tokenizer.padding_side = 'left' before the trainer is built",
        source="huggingface/trl", certainty="certain", kind="config-error",
        example="ValueError: The tokenizer's padding side must be 'left' for generation",
    ),
    Trouble(
        id="trl/iterable-dataset",
        shows=("Iterable datasets are not yet supported in GRPOTrainer",),
        cause="GRPOTrainer of this release takes no streaming data set",
        fix="load it without streaming=True, or take a part: Dataset.from_list(list(stream.take(n)))",
        source="huggingface/trl: trainer/grpo_trainer.py", certainty="certain", kind="config-error",
        example="NotImplementedError: Iterable datasets are not yet supported in GRPOTrainer. Please use a standard dataset "
        "instead.",
    ),
    Trouble(
        id="trl/vllm-missing",
        shows=("vLLM is not available and `use_vllm` is set to True", "vLLM is not available and use_vllm is set to True"),
        cause="use_vllm=True, and vLLM is not installed or not importable here",
        fix="pip install 'trl[vllm]' (a vLLM that this TRL supports), or use_vllm=False",
        source="huggingface/trl: trainer/grpo_trainer.py", certainty="certain", kind="config-error",
        example="ImportError: vLLM is not available and `use_vllm` is set to True. Please install vLLM with `pip install "
        "trl[vllm]` to use it.",
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
        id="trl/peft-reference",
        shows=("You passed a model_id to the...ref_model...peft", "Please pass `ref_model=None` in case you want to train PEFT"),
        cause="with adapters the reference is the model without them, and another one was passed as well",
        fix="leave ref_model out when peft_config is given",
        source="huggingface/trl", certainty="certain", kind="config-error",
        example="ValueError: Please pass `ref_model=None` in case you want to train PEFT adapters",
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
        id="trl/old-argument",
        shows=("GRPOConfig.__init__() got an unexpected keyword argument '{key:w}'",
               "GRPOTrainer.__init__() got an unexpected keyword argument '{key:w}'",
               "RLOOConfig.__init__() got an unexpected keyword argument '{key:w}'"),
        cause="the installed TRL does not know {key}: it was renamed or removed in a later release, or comes from a newer one",
        fix="run `stabilizer preflight SCRIPT --version $(pip show trl)`, which names the release of each key; `tokenizer` became "
        "`processing_class`, `max_prompt_length` and others were removed, or pip install -U trl",
        source="huggingface/trl: release notes", certainty="likely", kind="config-error",
        example="TypeError: GRPOConfig.__init__() got an unexpected keyword argument 'max_prompt_length'",
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
        id="unsloth/fast-inference-missing",
        shows=("'{name:w}' object has no attribute 'vllm_engine'", "object has no attribute 'fast_generate'"),
        cause="the model was loaded without fast_inference=True, so it has no vLLM engine inside",
        fix="FastLanguageModel.from_pretrained(..., fast_inference=True), or use_vllm=False",
        source="unslothai/unsloth", certainty="likely", kind="config-error",
        example="AttributeError: 'Qwen2ForCausalLM' object has no attribute 'vllm_engine'",
    ),
    Trouble(
        id="open-r1/wandb-required",
        shows=("wandb_entity", ), frames=("open_r1",),
        cause="the recipe logs to W&B with an entity of its own",
        fix="set report_to: none in the recipe, or your own wandb_entity and wandb_project",
        source="huggingface/open-r1", certainty="possible", severity="info",
        example='  File "/x/open_r1/utils/wandb_logging.py", line 9, in init\nKeyError: wandb_entity',
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
        id="trl/sft-interface",
        shows=("SFTTrainer.__init__() got an unexpected keyword argument '{key:w}'",
               "DPOTrainer.__init__() got an unexpected keyword argument '{key:w}'",
               "SFTConfig.__init__() got an unexpected keyword argument '{key:w}'",
               "DPOConfig.__init__() got an unexpected keyword argument '{key:w}'",
               "RewardTrainer.__init__() got an unexpected keyword argument '{key:w}'"),
        cause="TRL moved {key} between releases: from the trainer into its config, under a new name, or out",
        fix="put it into SFTConfig/DPOConfig (max_seq_length became max_length, tokenizer became processing_class, dataset_text_"
        "field, packing, beta and max_prompt_length live in the config), or install the TRL of the script",
        source="huggingface/trl: release notes", certainty="certain", kind="config-error",
        example="TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'max_seq_length'",
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
        source="unslothai/unsloth: updating", certainty="likely", kind="config-error",
        example='  File "/content/unsloth_compiled_cache/UnslothGRPOTrainer.py", line 1024, in f\n'
        "AttributeError: 'Qwen2ForCausalLM' object has no attribute '_unwrapped_old_generate'",
    ),
)  # fmt: skip
