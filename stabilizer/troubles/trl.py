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
        example="TypeError: GRPOTrainer.__init__() got an unexpected keyword argument 'tokenizer'",
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
)  # fmt: skip
