"""transformers, accelerate, PEFT, datasets, tokenizers and the hub."""

from __future__ import annotations

import re

from stabilizer.troubles.arithmetic import listed, nearest_multiples, whole
from stabilizer.troubles.trouble import Trouble, Values

CLASSES = {
    "axolotl": "Axolotl", "unsloth": "Unsloth", "vllm": "LLM|EngineArgs|SamplingParams", "peft": "Lora|Peft", "accelerate": "Accelerator",
    "trl": "GRPO|RLOO|PPO|SFT|DPO|KTO|ORPO|Reward", "transformers": "Trainer|TrainingArguments",
}  # fmt: skip
"""Package -> parts of its classes' names, the more particular first."""
RENAMED = {
    "tokenizer": "processing_class", "max_seq_length": "max_length, in the config", "dataset_text_field": "the same, in the config",
    "packing": "the same, in the config", "beta": "the same, in the config", "evaluation_strategy": "eval_strategy",
    "vllm_device": "a server (trl vllm-serve) or vllm_mode",
}  # fmt: skip
"""Arguments of transformers' and TRL's trainers that became something else (their release notes)."""


def _package(values: Values) -> dict[str, object]:
    """The package of a class, and what became of an argument."""
    name, key = values.get("name", ""), values["key"]
    package = next(
        (package for package, parts in CLASSES.items() if re.search(parts, name)), "the package of this class"
    )
    return {"package": package, "renamed": f"{key} became {RENAMED[key]}; else " if key in RENAMED else ""}


def _saved(values: Values) -> dict[str, object]:
    return {"near": listed(nearest_multiples(whole(values["save"]), whole(values["evaluation"])))}


ROUND = 256
"""What limits of tokens are multiples of."""
LIMITS = range(ROUND, 40_961)
"""Limits of tokens that users set; larger numbers are vocabularies."""
BEYOND = 1.02
"""How far a length is above a limit, at least: one token more has other causes."""


def _limit(values: Values) -> dict[str, object]:
    """A limit of tokens, and a length above it that is no such number."""
    limit, length = sorted((whole(values["a"]), whole(values["b"])))
    if limit not in LIMITS or limit % ROUND or not length % ROUND or length < BEYOND * limit:
        raise ValueError("no limit")
    return {"limit": limit, "length": length}


TROUBLES = (
    Trouble(
        id="transformers/probabilities-not-finite",
        shows=("probability tensor contains either `inf`, `nan` or element < 0",),
        cause="the logits held inf or NaN when a token was sampled: float16 overflows in models that were made for bfloat16, "
        "or the weights are damaged by a diverged update",
        fix="load the model in bfloat16 or float32 (torch_dtype, bf16=True). If it happens after some steps, return to a "
        "checkpoint before the gradient norm or the loss rose, and lower the learning rate",
        source="LianjiaTech/BELLE#412",
        example="RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
    ),
    Trouble(
        id="transformers/no-grad-fn",
        shows=("element 0 of tensors does not require grad and does not have a grad_fn",),
        cause="nothing in the loss has a gradient: with adapters and reentrant gradient checkpointing the embeddings give "
        "none, or all parameters are frozen",
        fix="set gradient_checkpointing_kwargs={{'use_reentrant': False}}, or call model.enable_input_require_grads() before "
        "the trainer is built; upgrade TRL, which does so for PEFT models",
        source="huggingface/trl#3089",
        example="RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
    ),
    Trouble(
        id="transformers/inputs-without-grad",
        shows=("None of the inputs have requires_grad=True. Gradients will be None",),
        cause="gradient checkpointing in its reentrant form got inputs without a gradient, so the checkpointed layers learn "
        "nothing",
        fix="set gradient_checkpointing_kwargs={{'use_reentrant': False}}, or call model.enable_input_require_grads()",
        source="huggingface/trl#3089", severity="warn",
        example="UserWarning: None of the inputs have requires_grad=True. Gradients will be None",
    ),
    Trouble(
        id="remarks/harmless",
        shows=("xFormers can't load C++/CUDA extensions", "xFormers wasn't build with CUDA support", "`use_cache=True` is incompatible with gradient checkpointing", "The current process just got forked, after parallelism has already been used",
               "couldn't be hashed properly, a random hash was used instead", "destroy_process_group() was not called before program exit",
               "Attempting to register factory for plugin cu", "Unable to register cuDNN factory", "TF-TRT Warning: Could not find TensorRT",
               "Ignore import error when loading sglang.srt.models", "async_io requires the dev libaio .so object and headers but these were not found",
               "Please specify the CUTLASS repo directory as environment variable $CUTLASS_PATH", "sparse_attn requires a torch version", "using untested triton version",
               "Invalidate trace cache @ step {step}", "The client socket cannot be initialized to connect to [{host:w}]:{port}",
               "The IPv6 network addresses of ({host:w}, {port}) cannot be retrieved", "RAY_EXPERIMENTAL_NOSET_", "Ray will no longer override accelerator visible devices env var"),
        cause="a remark that healthy runs print too: about speed, about a part or a package that is not used, about IPv6, or about the exit. It ends nothing",
        fix="nothing to repair; look for the first error above or below it. model.config.use_cache=False, TOKENIZERS_PARALLELISM=false and USE_TF=0 silence some. What a line calls missing is "
        "needed only if you use it (libaio-dev for NVMe offload, your own model's package)",
        source="huggingface/transformers", certainty="certain", severity="info",
        example="`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.",
    ),
    Trouble(
        id="transformers/no-chat-template",
        shows=(
            "Cannot use chat template functions because tokenizer.chat_template is not set",
            "Cannot use apply_chat_template() because tokenizer.chat_template is not set",
        ),
        cause="the data set holds chat messages, and this tokenizer has no chat template: it belongs to a base model",
        fix="use the instruct model's tokenizer, set tokenizer.chat_template (TRL: clone_chat_template, chat_template_path), or "
        "give prompts as plain text",
        source="huggingface/transformers: chat templating", certainty="certain", kind="config-error",
        example="ValueError: Cannot use chat template functions because tokenizer.chat_template is not set and no template "
        "argument was passed!",
    ),
    Trouble(
        id="transformers/template-roles",
        shows=("Conversation roles must alternate user/assistant/user/assistant", "System role not supported"),
        cause="the chat template of this model refuses the conversation: a system message, or two messages of one role in a "
        "row",
        fix="put the system text into the first user message, and join messages of the same role",
        source="huggingface/transformers: chat templating", certainty="certain", kind="config-error",
        example="jinja2.exceptions.TemplateError: Conversation roles must alternate user/assistant/user/assistant/...",
    ),
    Trouble(
        id="transformers/no-pad-token",
        shows=("Asking to pad but the tokenizer does not have a padding token",
               "Cannot handle batch sizes > 1 if no padding token is defined"),
        cause="the tokenizer has no padding token, which a batch of several texts needs",
        fix="set tokenizer.pad_token = tokenizer.eos_token (and model.config.pad_token_id for a reward model)",
        source="huggingface/transformers: padding", certainty="certain", kind="config-error",
        example="ValueError: Asking to pad but the tokenizer does not have a padding token.",
    ),
    Trouble(
        id="transformers/right-padding",
        shows=("A decoder-only architecture is being used, but right-padding was detected",),
        cause="prompts are padded on the right, so generation continues after padding: answers are wrong",
        fix="set tokenizer.padding_side = 'left' before the trainer is built",
        source="huggingface/transformers: generation", severity="warn", certainty="certain",
        example="A decoder-only architecture is being used, but right-padding was detected! For correct generation results, "
        "please set `padding_side='left'` when initializing the tokenizer.",
    ),
    Trouble(
        id="transformers/sequence-longer",
        shows=("Token indices sequence length is longer than the specified maximum sequence length for this model ({has} > {most})",),
        cause="a text of {has} tokens is longer than the {most} the tokenizer names; the model may still take it",
        fix="drop or cut long prompts (max_prompt_length, data.filter_overlong_prompts), if {most} is the model's real limit",
        source="huggingface/transformers: tokenization", severity="info", certainty="certain",
        example="Token indices sequence length is longer than the specified maximum sequence length for this model (5120 > "
        "4096). Running this sequence through the model will result in indexing errors",
    ),
    Trouble(
        id="transformers/unknown-model-type",
        shows=("The checkpoint you are trying to load has model type `{name:w}` but Transformers does not recognize this",),
        cause="this release of transformers does not know models of type {name}",
        fix="upgrade transformers to a release that has {name} (pip install -U transformers), and the engine with it",
        source="huggingface/transformers: auto classes", certainty="certain", kind="config-error",
        example="ValueError: The checkpoint you are trying to load has model type `qwen3` but Transformers does not recognize "
        "this architecture.",
    ),
    Trouble(
        id="transformers/mismatched-devices",
        shows=("Expected all tensors to be on the same device, but found at least two devices, {one:w} and {two:w}",),
        cause="one operation got tensors of {one} and {two}: device_map='auto' spreads the model over GPUs of one process, or "
        "a tensor of one's own was not moved",
        fix="train with one device per process (no device_map='auto'; accelerate launch), and move own tensors with "
        ".to(model.device)",
        source="huggingface/transformers", kind="config-error",
        example="RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:1 and "
        "cuda:0!",
    ),
    Trouble(
        id="transformers/device-map-training",
        shows=("You can't train a model that has been loaded with `device_map='auto'` in any distributed mode",
               "You can't train a model that has been loaded in 8-bit or 4-bit precision on a different device"),
        cause="the model was placed over several GPUs by device_map, and each process of the training wants its own copy",
        fix="leave device_map out, or set it to {{'': PartialState().process_index}}",
        source="huggingface/accelerate", certainty="certain", kind="config-error",
        example="ValueError: You can't train a model that has been loaded with `device_map='auto'` in any distributed mode.",
    ),
    Trouble(
        id="transformers/torch-load",
        shows=("Due to a serious vulnerability issue in `torch.load`",),
        cause="transformers refuses to load pickled weights (.bin) with this torch",
        fix="upgrade torch to 2.6 or newer, or use a model with safetensors weights",
        source="huggingface/transformers: import_utils.py", certainty="certain", kind="config-error",
        example="ValueError: Due to a serious vulnerability issue in `torch.load`, even with `weights_only=True`, we now "
        "require users to upgrade torch to at least v2.6",
    ),
    Trouble(
        id="transformers/weights-only",
        shows=("Weights only load failed",),
        cause="torch 2.6 and newer load checkpoints without arbitrary objects by default, and this one holds some (random "
        "states, arguments)",
        fix="upgrade transformers or the trainer, which allow their own objects; for a checkpoint you trust: "
        "torch.serialization.add_safe_globals, or TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1",
        source="huggingface/transformers: trainer resume", certainty="certain",
        example="_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have two "
        "options",
    ),
    Trouble(
        id="transformers/hub-unreachable",
        shows=("We couldn't connect to 'https://huggingface.co' to load the files", "LocalEntryNotFoundError",
               "Connection to huggingface.co timed out", "HTTPSConnectionPool(host='huggingface.co', port=443)", "Failed to resolve 'huggingface.co'"),
        cause="the files are neither on this machine nor reachable on the hub: no network from the compute nodes, a proxy, the hub is down, a "
        "misspelled name, or a path that does not exist here",
        fix="check the name or path; without a network download it elsewhere and set HF_HUB_OFFLINE=1 with the folder's path, "
        "or set HF_ENDPOINT to a mirror, or https_proxy",
        source="huggingface/huggingface_hub: offline mode", kind="infrastructure",
        example="OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the "
        "cached files.",
    ),
    Trouble(
        id="service/rate-limit",
        shows=("429 Client Error: Too Many Requests", "openai.RateLimitError", "Error code: 429"),
        cause="a service (the hub, a judge) refuses further requests: too many at a time",
        fix="of the hub: download once on one process before the start (huggingface-cli download), then HF_HUB_OFFLINE=1. Of a judge: limit the requests at a time, retry with growing pauses, or "
        "serve it yourself",
        source="huggingface/huggingface_hub", certainty="certain", kind="infrastructure",
        example="requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api/models",
    ),
    Trouble(
        id="versions/unknown-argument",
        shows=("{name:w}.__init__() got an unexpected keyword argument '{key:w}'", "__init__() got an unexpected keyword argument '{key:w}'"),
        cause="{package} as installed does not know the argument {key}: it was renamed, moved or removed in another release than "
        "the one this code was written for",
        fix="{renamed}pip install -U {package} if the code is newer than it, else the release that the code names, or leave {key} "
        "out. Packages that call each other (trl, transformers, accelerate, peft) are upgraded together; `stabilizer preflight SCRIPT "
        "--version X` names the release of each key of the trainers it knows",
        source="huggingface/trl: release notes", kind="config-error", work=_package,
        example="TypeError: GRPOConfig.__init__() got an unexpected keyword argument 'use_ipex_bf32'",
    ),
    Trouble(
        id="accelerate/older-than-transformers",
        shows=("unwrap_model() got an unexpected keyword argument 'keep_torch_compile'", "Using the `Trainer` with `PyTorch` requires "
               "`accelerate>={need:w}", "Accelerator.__init__() got an unexpected keyword argument 'dataloader_config'"),
        cause="the installed accelerate is older than transformers needs, or missing",
        fix="pip install -U accelerate, then restart the process (in a notebook the kernel)",
        source="huggingface/transformers: trainer.py", certainty="certain", kind="config-error",
        example="TypeError: Accelerator.unwrap_model() got an unexpected keyword argument 'keep_torch_compile'",
    ),
    Trouble(
        id="transformers/some-weights-new",
        shows=("Some weights of {name:w} were not initialized from the model checkpoint at {where:w} and are newly initialized",),
        cause="parts of the model have random weights: expected for a new value or reward head, a fault for a language model",
        fix="if it is the score or value head of a fresh critic, nothing; else check that the class fits the checkpoint",
        source="huggingface/transformers", severity="info", certainty="likely",
        example="Some weights of LlamaForSequenceClassification were not initialized from the model checkpoint at "
        "/models/base and are newly initialized: ['score.weight']",
    ),
    Trouble(
        id="flash-attn/wrong-binary",
        shows=("flash_attn_2_cuda...undefined symbol", "flash_attn...undefined symbol: {symbol:w}"),
        cause="the installed flash-attn was compiled for another torch than the one installed",
        fix="install the flash-attn wheel for exactly this torch, CUDA and Python (its release page lists them), or rebuild "
        "it: pip install flash-attn --no-build-isolation --no-cache-dir; after every change of torch",
        source="Dao-AILab/flash-attention#950", certainty="certain", kind="config-error",
        example="ImportError: flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: "
        "_ZN3c104impl3cow11cow_deleterEPv",
    ),
    Trouble(
        id="flash-attn/missing",
        shows=("FlashAttention2 has been toggled on, but it cannot be used due to the following error",
               "No module named 'flash_attn'", "the package flash_attn seems to be not installed", "No module named 'flash_attn.bert_padding'",
               "cannot import name 'index_first_axis' from 'flash_attn", "No module named 'flash_attn_2_cuda'", "NameError: name 'flash_attn_varlen_func' is not defined"),
        cause="flash attention is asked for, and the package flash-attn is not installed or not built for this torch",
        fix="pip install flash-attn --no-build-isolation (the wheel for your torch, CUDA and ABI), or attn_implementation='sdpa' and packing off "
        "(use_remove_padding=False in veRL)",
        source="huggingface/transformers: attention", certainty="certain", kind="config-error",
        example="ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error: the "
        "package flash_attn seems to be not installed.",
    ),
    Trouble(
        id="flash-attn/old-gpu",
        shows=("FlashAttention only supports Ampere GPUs or newer",),
        cause="this GPU is older than Ampere, which flash attention 2 needs",
        fix="set attn_implementation='sdpa' (or VLLM_ATTENTION_BACKEND=XFORMERS for the engine)",
        source="Dao-AILab/flash-attention", certainty="certain", kind="config-error",
        example="RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
    ),
    Trouble(
        id="flash-attn/dtype",
        shows=("FlashAttention only support fp16 and bf16 data type",),
        cause="flash attention got float32: the model or its adapters are in float32 without autocast",
        fix="load the model with torch_dtype=torch.bfloat16 and train with bf16=True",
        source="Dao-AILab/flash-attention", certainty="certain", kind="config-error",
        example="RuntimeError: FlashAttention only support fp16 and bf16 data type",
    ),
    Trouble(
        id="peft/no-target-modules",
        shows=("Target modules {names:t} not found in the base model",
               "No `target_modules` passed but also no `target_parameters` found",
               "Please specify `target_modules` in `peft_config`"),
        cause="the adapter's target_modules fit no layer of this model",
        fix="set target_modules='all-linear' (lora_target: all for LLaMA-Factory), or the names that model.named_modules() prints (q_proj, k_proj, v_proj, o_proj, "
        "gate_proj, up_proj, down_proj for Llama-like models)",
        source="huggingface/peft: troubleshooting", certainty="certain", kind="config-error",
        example="ValueError: Target modules {'c_attn'} not found in the base model. Please check the target modules and try "
        "again.",
    ),
    Trouble(
        id="peft/purely-quantised",
        shows=("You cannot perform fine-tuning on purely quantized models",),
        cause="a quantised model can't be trained itself, and no adapter was given",
        fix="pass peft_config=LoraConfig(...), or load the model unquantised",
        source="huggingface/transformers", certainty="certain", kind="config-error",
        example="ValueError: You cannot perform fine-tuning on purely quantized models. Please attach trainable adapters on "
        "top of the quantized model",
    ),
    Trouble(
        id="peft/adapter-shape",
        shows=("size mismatch for base_model.model.{name:w}.lora_",),
        cause="the adapter was trained with another rank, other target layers or another vocabulary than the model it is "
        "loaded into",
        fix="load it with its own adapter_config.json (PeftModel.from_pretrained), into the base model and tokenizer it was "
        "trained on",
        source="huggingface/peft#137", certainty="likely", kind="config-error",
        example="RuntimeError: Error(s) in loading state_dict: size mismatch for base_model.model.model.layers.0.lora_A.weight",
    ),
    Trouble(
        id="bitsandbytes/missing",
        shows=("Using `bitsandbytes` 4-bit quantization requires the latest version of bitsandbytes",
               "Using `bitsandbytes` 8-bit quantization requires", "No package metadata was found for bitsandbytes"),
        cause="quantised loading needs bitsandbytes, which is missing or too old",
        fix="pip install -U bitsandbytes (with a CUDA build of torch), or load the model without load_in_4bit",
        source="huggingface/transformers: quantization", certainty="certain", kind="config-error",
        example="ImportError: Using `bitsandbytes` 4-bit quantization requires the latest version of bitsandbytes",
    ),
    Trouble(
        id="datasets/no-column",
        shows=("Column name {names:t} not in the dataset. Current columns in the dataset:{columns:t}]",
               "Column {names:t} doesn't exist", "Column to remove {names:t} not in the dataset"),
        cause="the data set has no column {names}",
        fix="rename the column (dataset.rename_column), or set the trainer's key for it: `prompt` in TRL, data.prompt_key in "
        "veRL and EasyR1, --input_key in OpenRLHF",
        source="huggingface/datasets: arrow_dataset.py", certainty="certain", kind="config-error",
        example="ValueError: Column name ['prompt'] not in the dataset. Current columns in the dataset: ['question', 'answer']",
    ),
    Trouble(
        id="datasets/cast",
        shows=("DatasetGenerationCastError", "Couldn't cast"),
        cause="the rows of the data files have different columns or types",
        fix="give every row the same fields and types (null for a missing one), or load the files apart",
        source="huggingface/datasets: table.py", certainty="certain", kind="config-error",
        example="datasets.exceptions.DatasetGenerationCastError: An error occurred while generating the dataset",
    ),
    Trouble(
        id="datasets/scripts-gone",
        shows=("Dataset scripts are no longer supported",),
        cause="datasets 4 runs no loading scripts any more, and this data set is one",
        fix="use a copy of the data set in Parquet (its auto-converted branch: revision='refs/convert/parquet'), or "
        "datasets < 4",
        source="huggingface/datasets: release 4.0", certainty="certain", kind="config-error",
        example="RuntimeError: Dataset scripts are no longer supported, but found gsm8k.py",
    ),
    Trouble(
        id="datasets/empty",
        shows=("num_samples should be a positive integer value, but got num_samples=0", "batch_size should be a positive "
               "integer value, but got batch_size=0"),
        cause="no prompt is left to train on: the data set is empty, or the filter on length dropped every row",
        fix="raise the prompt limit (data.max_prompt_length, max_prompt_length), or check the data file; `stabilizer "
        "preflight` compares the limits",
        source="pytorch/pytorch: sampler.py", certainty="likely", kind="config-error",
        example="ValueError: num_samples should be a positive integer value, but got num_samples=0",
    ),
    Trouble(
        id="math-verify/main-thread",
        shows=("signal only works in main thread of the main interpreter",),
        cause="math_verify sets its time limit with a signal, which Python allows in the main thread only, and the reward runs "
        "in another thread: the verifier raises an exception, and where that is swallowed every answer scores 0",
        fix="pass parsing_timeout=None to parse and timeout_seconds=None to verify (math-verify 0.8 or newer) and bound the "
        "time yourself, or compute rewards in processes; newer releases of veRL do",
        source="huggingface/Math-Verify#55", certainty="likely",
        example="ValueError: signal only works in main thread of the main interpreter",
    ),
    Trouble(
        id="math-verify/antlr",
        shows=("Could not deserialize ATN with version {name:t} (expected {want})", "requires antlr4-python3-runtime",
               "Unsupported ANTLR version"),
        cause="two packages want different releases of antlr4-python3-runtime: LaTeX parsing in math-verify or sympy, and "
        "Hydra",
        fix="pip install 'latex2sympy2_extended[antlr4_9_3]' beside Hydra (antlr4-python3-runtime==4.9.3)",
        source="huggingface/Math-Verify: installation", certainty="likely", kind="config-error",
        example="ImportError: Unsupported ANTLR version 4.13.2, only 4.9.3 and 4.11.0 runtime versions are supported.",
    ),
    Trouble(
        id="wandb/unreachable",
        shows=("wandb.errors.CommError", "Network error (ConnectTimeout), entering retry loop",
               "Network error (ConnectionError), entering retry loop"),
        cause="W&B can't be reached from this machine",
        fix="export WANDB_MODE=offline and sync later (wandb sync), or allow api.wandb.ai in the proxy",
        source="wandb/wandb", severity="info", certainty="certain", kind="infrastructure",
        example="wandb: Network error (ConnectTimeout), entering retry loop.",
    ),
    Trouble(
        id="accelerate/uneven-batch",
        shows=("You can't use same `Accelerator()` instance with multiple models when using DeepSpeed",),
        cause="DeepSpeed holds one model per Accelerator, and the script prepares two (a policy and a reward or value model)",
        fix="let the trainer prepare the second one for inference (prepare_deepspeed), or load it without DeepSpeed",
        source="huggingface/accelerate", certainty="certain", kind="config-error",
        example="AssertionError: You can't use same `Accelerator()` instance with multiple models when using DeepSpeed",
    ),
    Trouble(
        id="torch/fsdp-mixed-dtypes",
        shows=("Must flatten tensors with uniform dtype but got {one:w} and {two:w}",),
        cause="FSDP joins the tensors of a layer, and they are in {one} and {two}: adapters or norms have another precision",
        fix="load everything in one precision; with LoRA: autocast_adapter_dtype=False or FSDP2; QLoRA: "
        "bnb_4bit_quant_storage of the same type",
        source="huggingface/peft: FSDP", certainty="certain", kind="config-error",
        example="ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32",
    ),
    Trouble(
        id="torch/fsdp-uniform-grad",
        shows=("Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`",),
        cause="FSDP joins frozen and trained tensors of one layer, as adapters make them",
        fix="set fsdp_use_orig_params: true, or wrap adapters apart (fsdp_auto_wrap_policy of PEFT)",
        source="huggingface/peft: FSDP", certainty="certain", kind="config-error",
        example="ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`",
    ),
    Trouble(
        id="torch/inplace-modified",
        shows=("one of the variables needed for gradient computation has been modified by an inplace operation",),
        cause="a tensor of the forward pass was changed before its gradient was computed: a second forward of a DDP model "
        "with buffers, or weights updated in between",
        fix="set broadcast_buffers=False for DDP, and make no update between forward and backward; "
        "torch.autograd.set_detect_anomaly(True) names the operation",
        source="pytorch/pytorch: autograd", certainty="possible",
        example="RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation",
    ),
    Trouble(
        id="torch/backward-twice",
        shows=("Trying to backward through the graph a second time",),
        cause="the same graph was used for two backward passes: a loss kept from the step before, or values that were not "
        "detached",
        fix="detach what is kept between updates (.detach()), and compute the loss again for every update",
        source="pytorch/pytorch: autograd", certainty="certain",
        example="RuntimeError: Trying to backward through the graph a second time",
    ),
    Trouble(
        id="torch/inference-tensor",
        shows=("Inference tensors cannot be saved for backward", "Inplace update to inference tensor outside InferenceMode"),
        cause="a tensor made under torch.inference_mode came into a pass with gradients: log-probabilities or embeddings of "
        "the generation",
        fix="clone it outside inference mode, or use torch.no_grad there",
        source="pytorch/pytorch: inference mode", certainty="certain",
        example="RuntimeError: Inference tensors cannot be saved for backward. To work around you can make a clone",
    ),
    Trouble(
        id="data/longer-than-limit",
        shows=("The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {d}",
               "The expanded size of the tensor ({a}) must match the existing size ({b}) at non-singleton dimension {d}"),
        cause="one side has {limit}, a round number as limits are, and the other {length}: most likely a text of {length} tokens meets a model, mask or buffer made for {limit}",
        fix="raise that limit above {length} (max_seq_length where Unsloth loads the model, else max_length, max_model_len or max_prompt_length), or leave out rows above {limit} "
        "tokens (`stabilizer preflight CONFIG --data FILE` counts them)",
        source="unslothai/unsloth#1717", certainty="possible", work=_limit,
        example="RuntimeError: The size of tensor a (2048) must match the size of tensor b (4241) at non-singleton dimension 1",
    ),
    Trouble(
        id="torch/shapes",
        shows=("The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {d}",
               "Sizes of tensors must match except in dimension {d}. Expected size {a} but got size {b}",
               "The expanded size of the tensor ({a}) must match the existing size ({b}) at non-singleton dimension {d}", "shape '[{shape:t}]' is invalid for input of size {a}"),
        cause="two tensors do not fit each other. In this kind of training mostly a mask or log-probabilities that were cut differently (prompt against completion, "
        "a token appended by the tokenizer), texts of one batch padded to different lengths, images of different sizes, or rewards of another number of answers",
        fix="print both shapes at the innermost line; compare the completion's length with that of its mask and log-probabilities, pad to the longest in the collator, "
        "and give every row the same fields (an image or none)",
        source="pytorch/pytorch", certainty="possible", general=True,
        example="RuntimeError: The size of tensor a (512) must match the size of tensor b (511) at non-singleton dimension 1",
    ),
    Trouble(
        id="torch/triton-shared-memory",
        shows=("out of resource: shared memory, Required: {need}, Hardware limit: {has}",),
        cause="a Triton kernel wants {need} bytes of shared memory, and this GPU has {has}",
        fix="upgrade triton and the kernel's package, or switch the kernel off (Liger, the attention backend)",
        source="triton-lang/triton", certainty="certain",
        example="triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 180224, Hardware limit: "
        "101376.",
    ),
    Trouble(
        id="torch/recompile-limit",
        shows=("torch._dynamo hit config.cache_size_limit ({limit})", "torch._dynamo hit config.recompile_limit ({limit})"),
        cause="a compiled function was compiled {limit} times for different shapes, and now runs uncompiled",
        fix="pad lengths to a few sizes or compile with dynamic=True; without need, switch torch.compile off",
        source="pytorch/pytorch: dynamo", severity="warn", certainty="certain",
        example="W0302 10:00:12.123 torch._dynamo hit config.recompile_limit (8)",
    ),
    Trouble(
        id="transformers/eval-dataset",
        shows=("You have set `args.eval_strategy` to {strategy:t} but you didn't pass an `eval_dataset` to", "Trainer: evaluation requires an "
               "eval_dataset"),
        cause="evaluation is switched on, and the trainer got no data to evaluate on",
        fix="pass eval_dataset=... to the trainer (dataset.train_test_split(test_size=0.05) makes one), or set eval_strategy='no'",
        source="huggingface/transformers: trainer.py", certainty="certain", kind="config-error",
        example="ValueError: You have set `args.eval_strategy` to steps but you didn't pass an `eval_dataset` to `Trainer`.",
    ),
    Trouble(
        id="transformers/best-model-steps",
        shows=("requires the saving steps to be a round multiple of the evaluation steps, but found {save}, which is not a round multiple of "
               "{evaluation}.",),
        cause="load_best_model_at_end needs an evaluation at every checkpoint, and save_steps = {save} is no multiple of eval_steps = "
        "{evaluation}",
        fix="set save_steps to {near}, or load_best_model_at_end=False",
        source="huggingface/transformers: training_args.py", certainty="certain", kind="config-error", work=_saved,
        example="ValueError: --load_best_model_at_end requires the saving steps to be a round multiple of the evaluation steps, but found 500, "
        "which is not a round multiple of 200.",
    ),
    Trouble(
        id="transformers/best-model-strategy",
        shows=("--load_best_model_at_end requires the save and eval", "--load_best_model_at_end requires the saving and evaluation"),
        cause="load_best_model_at_end needs checkpoints and evaluations at the same times, and the two strategies differ",
        fix="set save_strategy and eval_strategy to the same value (and save_steps to a multiple of eval_steps), or "
        "load_best_model_at_end=False",
        source="huggingface/transformers: training_args.py", certainty="certain", kind="config-error",
        example="ValueError: --load_best_model_at_end requires the save and eval strategy to match, but found",
    ),
    Trouble(
        id="transformers/best-model-metric",
        shows=("The `metric_for_best_model` training argument is set to '{name:w}', which is not found in the evaluation metrics", "KeyError: 'eval_reward"),
        cause="the best model is to be chosen by a metric that the evaluation does not return. TRL before 1.5 logs rewards and preference metrics, and keeps them out of that check",
        fix="upgrade TRL to 1.5 or later, or leave metric_for_best_model and load_best_model_at_end out, keep several checkpoints (save_total_limit) and choose by the logged eval_ metrics. "
        "For other names: the message lists those that exist",
        source="huggingface/trl#3384", certainty="likely", kind="config-error",
        example="KeyError: \"The `metric_for_best_model` training argument is set to 'eval_reward', which is not found in the evaluation metrics.",
    ),
    Trouble(
        id="transformers/no-checkpoint",
        shows=("Can't find a valid checkpoint at {path:w}", "No valid checkpoint found in output directory ({path:w})"),
        cause="resume_from_checkpoint was asked for, and {path} holds no whole checkpoint",
        fix="give the folder checkpoint-N itself (with model files and trainer_state.json), or start without resume_from_checkpoint on the first "
        "run: resume_from_checkpoint=get_last_checkpoint(output_dir), which is None when there is none",
        source="huggingface/transformers: trainer.py", certainty="certain", kind="config-error",
        example="ValueError: No valid checkpoint found in output directory (out)",
    ),
    Trouble(
        id="transformers/shared-tensors",
        shows=("Some tensors share memory, this will lead to duplicate memory on disk", "The weights trying to be saved contained shared tensors"),
        cause="two weights are one tensor (tied embeddings or wrapped layers), which safetensors refuses to write twice",
        fix="save_safetensors=False, or keep the tie known to transformers (model.config.tie_word_embeddings, _tied_weights_keys); under "
        "DeepSpeed or FSDP upgrade transformers and accelerate",
        source="huggingface/safetensors: shared tensors", certainty="certain", kind="config-error",
        example="RuntimeError: The weights trying to be saved contained shared tensors [{'lm_head.weight', 'model.embed_tokens.weight'}] that are "
        "mismatching the transformers base configuration.",
    ),
    Trouble(
        id="transformers/temperature-zero",
        shows=("`temperature` (={value}) has to be a strictly positive float", "Greedy methods without beam search do not support "
               "`num_return_sequences` different than 1 (got {value})", "num_return_sequences has to be 1 when doing greedy search"),
        cause="several or sampled answers are asked for, and generation is greedy (temperature 0 or do_sample=False)",
        fix="temperature=1.0 (0.7 to 1.0) and do_sample=True for training; for a greedy evaluation do_sample=False with one answer and no "
        "temperature",
        source="huggingface/transformers: generation", certainty="certain", kind="config-error",
        example="ValueError: `temperature` (=0.0) has to be a strictly positive float, otherwise your next token scores will be invalid.",
    ),
    Trouble(
        id="transformers/generation-config-invalid",
        shows=("The generation config instance is invalid -- `.validate()` throws warnings and/or exceptions", "GenerationConfig is invalid"),
        cause="the model's generation_config contradicts itself, mostly a temperature or top_p beside do_sample=False, and is refused when the "
        "model is saved",
        fix="model.generation_config.do_sample = True (or temperature = None and top_p = None) before training",
        source="huggingface/transformers: generation/configuration_utils.py", certainty="certain", kind="config-error",
        example="ValueError: The generation config instance is invalid -- `.validate()` throws warnings and/or exceptions. Fix these issues to "
        "save the configuration.",
    ),
    Trouble(
        id="transformers/no-loss",
        shows=("The model did not return a loss from the inputs, only the following keys: {keys:t}. For reference",),
        cause="the batch has no labels the model knows, so it returned {keys} and no loss: the columns were dropped or never made",
        fix="use the trainer's own data preparation (for text: a column `text`, `messages` or prompt and completion), a collator that makes "
        "labels (DataCollatorForLanguageModeling(mlm=False)), or remove_unused_columns=False",
        source="huggingface/transformers: trainer.py", certainty="certain", kind="config-error",
        example="ValueError: The model did not return a loss from the inputs, only the following keys: logits. For reference, the inputs it "
        "received are input_ids,attention_mask.",
    ),
    Trouble(
        id="transformers/columns-dropped",
        shows=("No columns in the dataset match the model's forward method signature",),
        cause="the trainer dropped every column of the data, because none is an argument of model.forward",
        fix="tokenise the data first (input_ids, attention_mask, labels), or remove_unused_columns=False with your own collator",
        source="huggingface/transformers: trainer.py", certainty="certain", kind="config-error",
        example="ValueError: No columns in the dataset match the model's forward method signature: (input_ids, labels).",
    ),
    Trouble(
        id="transformers/no-language-head",
        shows=("is not compatible with `.generate()`, as it doesn't have a language model",),
        cause="the model was loaded without its head for text (AutoModel, a reward or sequence-classification class)",
        fix="load it with AutoModelForCausalLM (AutoModelForImageTextToText for vision models), or give its name to the trainer",
        source="huggingface/transformers: generation/utils.py", certainty="certain", kind="config-error",
        example="TypeError: The current model class (Qwen2Model) is not compatible with `.generate()`, as it doesn't have a language model head.",
    ),
    Trouble(
        id="transformers/sentencepiece",
        shows=("requires the SentencePiece library but it was not found", "you need to have sentencepiece installed", "you need to have "
               "sentencepiece or tiktoken installed", "requires the protobuf library but it was not found", "Cannot instantiate this tokenizer "
               "from a slow version"),
        cause="the tokenizer's files need sentencepiece, tiktoken or protobuf to be read",
        fix="pip install sentencepiece tiktoken protobuf, then restart the process",
        source="huggingface/transformers: convert_slow_tokenizer.py", certainty="certain", kind="config-error",
        example="ValueError: Cannot instantiate this tokenizer from a slow version. If it's based on sentencepiece, make sure you have "
        "sentencepiece installed.",
    ),
    Trouble(
        id="transformers/rope-scaling",
        shows=("`rope_scaling` must be a dictionary with with two fields", "`rope_scaling` must be a dictionary with two fields",
               "rope_scaling should have a 'rope_type' key", "KeyError: 'rope_type'"),
        cause="the model's configuration describes rope_scaling in a form that the installed transformers (or engine) does not know: the model "
        "is newer",
        fix="pip install -U transformers (4.43 or later for Llama 3.1), and an engine of the same time",
        source="huggingface/transformers: modeling_rope_utils.py", certainty="certain", kind="config-error",
        example="ValueError: `rope_scaling` must be a dictionary with two fields, `type` and `factor`, got {'factor': 8.0, 'rope_type': 'llama3'}",
    ),
    Trouble(
        id="transformers/cache-interface",
        shows=("'DynamicCache' object has no attribute '{name:w}'", "'HybridCache' object has no attribute '{name:w}'",
               "'NoneType' object has no attribute 'get_seq_length'", "'tuple' object has no attribute 'get_seq_length'",
               "'DynamicCache' object is not subscriptable"),
        cause="the model's own code (trust_remote_code) or an older package uses the key-value cache of an older transformers; {named} is gone",
        fix="load the model without trust_remote_code if transformers has its class; else install the transformers named in the model's "
        "config.json (transformers_version), or update the model's repository",
        source="huggingface/transformers: cache_utils.py", certainty="likely", kind="config-error",
        work=lambda values: {"named": values.get("name", "what it reads")},
        example="AttributeError: 'DynamicCache' object has no attribute 'get_max_length'",
    ),
    Trouble(
        id="transformers/logits-to-keep",
        shows=("forward() got an unexpected keyword argument 'logits_to_keep'", "forward() got an unexpected keyword argument "
               "'num_logits_to_keep'"),
        cause="the trainer asks the model for the logits of the answer alone, and this model's forward has no such argument: an older "
        "transformers, or a model with its own code",
        fix="pip install -U transformers (4.48.3 or later has logits_to_keep); for own code add logits_to_keep=0 to forward and slice the hidden "
        "states, or load without trust_remote_code",
        source="huggingface/trl", certainty="likely", kind="config-error",
        example="TypeError: Phi3ForCausalLM.forward() got an unexpected keyword argument 'num_logits_to_keep'",
    ),
    Trouble(
        id="transformers/forward-arguments",
        shows=("forward() got an unexpected keyword argument '{key:w}'",),
        cause="the batch holds {key}, which this model's forward does not take: an image or extra column for a text model, or a model class of "
        "another release",
        fix="drop the column (remove_unused_columns=True, dataset.remove_columns), load the class that takes it (vision models: "
        "AutoModelForImageTextToText), or upgrade transformers",
        source="huggingface/transformers: trainer.py", certainty="possible", kind="config-error",
        example="TypeError: Qwen2ForCausalLM.forward() got an unexpected keyword argument 'pixel_values'",
    ),
    Trouble(
        id="transformers/parallel-styles",
        shows=("argument of type 'NoneType' is not iterable",), frames=("modeling_utils.py", "post_init"), innermost=True,
        cause="transformers 4.50 to 4.52 ask torch for its parallel styles, and the installed torch (below 2.5, or a build without distributed) "
        "has none",
        fix="pip install -U torch (2.5 or later), or a transformers release from 4.53 on or below 4.50",
        source="huggingface/transformers", certainty="likely", kind="config-error",
        example='  File "/x/site-packages/transformers/modeling_utils.py", line 1970, in post_init\n'
        "TypeError: argument of type 'NoneType' is not iterable",
    ),
    Trouble(
        id="transformers/file-missing",
        shows=("does not appear to have a file named {name:w}", "Can't load the configuration of '{name:w}'",
               "Can't load tokenizer for '{name:w}'", "Can't load the model for '{name:w}'", "Unrecognized model in {name:w}"),
        cause="the folder or repository lacks a file that makes it a model ({name}): a checkpoint of shards or of an adapter alone, a folder one "
        "level too high or too deep, or a misspelled name",
        fix="look into the folder: it must hold config.json, tokenizer files and *.safetensors. Merge sharded checkpoints (verl.model_merger, "
        "zero_to_fp32.py), load adapters with PeftModel, save the tokenizer beside the model, and give the right path",
        source="huggingface/transformers: utils/hub.py", certainty="likely", kind="config-error",
        example="OSError: out/checkpoint-500 does not appear to have a file named config.json. Checkout 'https://huggingface.co/out/tree/main' for "
        "available files.",
    ),
    Trouble(
        id="transformers/not-a-model-name",
        shows=("{name:w} is not a local folder and is not a valid model identifier",),
        cause="there is no folder {name} here, and no model of that name on the hub: misspelled, private without a login, or a relative path from another folder (Ray "
        "workers start elsewhere)",
        fix="give an absolute path, check the name on the hub, and `huggingface-cli login` (HF_TOKEN) for a private or gated one",
        source="huggingface/transformers: utils/hub.py", certainty="certain", kind="config-error",
        example="OSError: ./models/qwen is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
    ),
    Trouble(
        id="transformers/remote-code",
        shows=("requires you to execute the configuration file in that repo", "contains custom code which must be executed to correctly load",
               "Please pass the argument `trust_remote_code=True`"),
        cause="the model or data set brings code of its own, which is not run without consent",
        fix="set trust_remote_code=True where the model and its tokenizer are loaded (model_init_kwargs in TRL, "
        "actor_rollout_ref.model.trust_remote_code and the engine's in veRL) after reading that code",
        source="huggingface/transformers: dynamic_module_utils.py", certainty="certain", kind="config-error",
        example="ValueError: The repository for x/y contains custom code which must be executed to correctly load the model.",
    ),
    Trouble(
        id="transformers/input-at-limit",
        shows=("Input length of input_ids is {length}, but `max_length` is set to {limit}", "Input length of input_ids is {length}, but "
               "`max_length` is set to {limit}. This can lead"),
        cause="the prompt of {length} tokens already fills max_length = {limit}, so hardly a token is generated",
        fix="set max_new_tokens (the answer alone) instead of max_length, or max_length to at least {length} plus the answer",
        source="huggingface/transformers: generation/utils.py", severity="warn", certainty="certain", kind="config-error",
        example="Input length of input_ids is 512, but `max_length` is set to 20. This can lead to unexpected behavior.",
    ),
    Trouble(
        id="transformers/pad-is-end",
        shows=("Setting `pad_token_id` to `eos_token_id`:{n} for open-end generation",),
        cause="no padding token is set, so the end token ({n}) pads too; where padding is masked by its id, the model never learns to stop",
        fix="give the tokenizer a padding token of its own (Qwen: <|endoftext|> beside <|im_end|>; Llama: <|finetune_right_pad_id|>); for "
        "generation alone the message is harmless",
        source="huggingface/transformers: generation/utils.py", severity="info", certainty="certain",
        example="Setting `pad_token_id` to `eos_token_id`:151645 for open-end generation.",
    ),
    Trouble(
        id="transformers/new-special-tokens",
        shows=("The tokenizer has new PAD/BOS/EOS tokens that differ from the model config and generation config",),
        cause="the trainer set the model's padding, start and end tokens to the tokenizer's: expected, and worth a look if answers never end",
        fix="nothing, if the end token is the one the chat template writes; else set tokenizer.eos_token to it",
        source="huggingface/transformers: trainer.py", severity="info", certainty="certain",
        example="The tokenizer has new PAD/BOS/EOS tokens that differ from the model config and generation config. The model config and generation "
        "config were aligned accordingly, being updated with the tokenizer's values.",
    ),
    Trouble(
        id="transformers/need-package",
        shows=("To fix: run `pip install {need:w}`", "requires the {need:w} library but it was not found in your environment", "Please run `pip "
               "install {need:w}`", "Callback requires {need:w} to be installed"),
        cause="the package {need} is missing or of another release than this program needs",
        fix="pip install '{need}' in the environment that runs the training (report_to='none' needs no tracker), then restart the process (in a notebook the kernel)",
        source="huggingface/transformers: import_utils.py", certainty="likely", kind="config-error",
        example="ImportError: jinja2 is required. To fix: run `pip install jinja2>=3.1`.",
    ),
    Trouble(
        id="transformers/output-exists",
        shows=("Output directory ({path:w}) already exists and is not empty", "Output directory already exists and is not empty"),
        cause="the output folder holds an earlier run, and the program does not overwrite it unasked",
        fix="another output_dir, overwrite_output_dir (it deletes nothing but overwrites checkpoints), or resume_from_checkpoint",
        source="huggingface/transformers: examples", certainty="certain", kind="config-error",
        example="ValueError: Output directory (out) already exists and is not empty. Use --overwrite_output_dir to overcome.",
    ),
    Trouble(
        id="transformers/wrong-regex",
        shows=("with an incorrect regex pattern", "fix_mistral_regex=True"),
        cause="the tokenizer's files split text by a pattern known to be wrong (Mistral and models made from it), so some texts become other tokens "
        "than in training",
        fix="load it with fix_mistral_regex=True in trainer and engine alike, or leave both as they were for a model already trained so",
        source="huggingface/transformers: tokenization", severity="info", certainty="certain",
        example="The tokenizer you are loading from 'x' with an incorrect regex pattern: this will lead to incorrect tokenization. You should set "
        "the `fix_mistral_regex=True` flag",
    ),
    Trouble(
        id="peft/unsupported-module",
        shows=("Target module {module:t} is not supported. Currently, only the following modules are supported",),
        cause="target_modules names a part that is no linear layer (a whole attention block, a vision tower's block, a list of experts)",
        fix="name the linear layers inside: ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'], or 'all-linear'; for "
        "vision models a regular expression that leaves the tower out; for experts target_parameters in newer PEFT",
        source="huggingface/peft: tuners/lora", certainty="certain", kind="config-error",
        example="ValueError: Target module Qwen2DecoderLayer() is not supported. Currently, only the following modules are supported: "
        "`torch.nn.Linear`, `torch.nn.Embedding`",
    ),
    Trouble(
        id="peft/adapter-of-newer-release",
        shows=("LoraConfig.__init__() got an unexpected keyword argument '{key:w}'",),
        cause="the adapter's adapter_config.json was written by a newer PEFT that knows {key}, or the script is for a newer one",
        fix="pip install -U peft, or delete the line {key} from adapter_config.json if its value is empty or null",
        source="huggingface/peft: troubleshooting", certainty="certain", kind="config-error",
        example="TypeError: LoraConfig.__init__() got an unexpected keyword argument 'corda_config'",
    ),
    Trouble(
        id="peft/two-adapters",
        shows=("Already found a `peft_config` attribute in the model", "You are trying to modify a model with PEFT for a second time"),
        cause="the model already carries an adapter and got another one on top, so the trained parameters may not be the ones you look at",
        fix="pass the PEFT model to the trainer without peft_config, or the plain model with it; continue an adapter with "
        "PeftModel.from_pretrained(model, path, is_trainable=True)",
        source="huggingface/peft: tuners_utils.py", severity="warn", certainty="certain", kind="config-error",
        example="UserWarning: Already found a `peft_config` attribute in the model. This will lead to having multiple adapters in the model.",
    ),
    Trouble(
        id="peft/merge-quantised",
        shows=("Cannot merge LORA layers when the model is", "Merge lora module to {bits}-bit linear may get different generations"),
        cause="an adapter is merged into quantised weights, which rounds it away in part or is refused",
        fix="load the base model in bfloat16, then PeftModel.from_pretrained(...).merge_and_unload(); train with the same base",
        source="huggingface/peft: merging", severity="warn", certainty="certain", kind="config-error",
        example="UserWarning: Merge lora module to 4-bit linear may get different generations due to rounding errors.",
    ),
    Trouble(
        id="peft/keys-missing",
        shows=("Found missing adapter keys while loading the checkpoint", "Detected unexpected/missing keys when loading adapter"),
        cause="the adapter's file has other names than the model it is loaded into, so a part of the adapter stays at its start (no effect)",
        fix="load it into the same class of model it was trained on (Unsloth, a vision wrapper and a compiled model prefix names), with the PEFT "
        "release that saved it",
        source="huggingface/peft: peft_model.py", severity="warn", certainty="certain", kind="config-error",
        example="UserWarning: Found missing adapter keys while loading the checkpoint: ['base_model.model.model.layers.0.self_attn.q_proj.lora_A']",
    ),
    Trouble(
        id="bitsandbytes/old-triton",
        shows=("No module named 'triton.ops'",),
        cause="this bitsandbytes is too old for the installed triton (triton.ops is gone from 3.0 on)",
        fix="pip install -U bitsandbytes (0.45 or later)",
        source="bitsandbytes-foundation/bitsandbytes", certainty="certain", kind="config-error",
        example="ModuleNotFoundError: No module named 'triton.ops'",
    ),
    Trouble(
        id="bitsandbytes/state-missing",
        shows=("FP4 quantization state not initialized", "quant_state is None"),
        cause="a 4-bit layer is used before it was quantised, because it never moved to the GPU, or its state was lost when the model was sharded or "
        "copied",
        fix="load with device_map={{'': local_rank}} instead of moving the model yourself; no deepcopy of a quantised model; QLoRA with FSDP needs "
        "bnb_4bit_quant_storage equal to the dtype, and ZeRO-3 does not shard 4-bit weights",
        source="huggingface/transformers: bitsandbytes", certainty="likely", kind="config-error",
        example="UserWarning: FP4 quantization state not initialized. Please call .cuda() or .to(device) on the LinearFP4 layer first.",
    ),
    Trouble(
        id="flash-attn/empty-batch",
        shows=("RuntimeError: batch size must be positive", "batch size must be positive"),
        frames=("flash_attn",),
        cause="flash attention got no sequence: the batch is empty, or every token of it is masked as padding",
        fix="drop empty prompts and answers before the pass; look at the attention mask of that batch (all zeros), at image-only samples in text "
        "layers, and at micro-batches smaller than the number of GPUs",
        source="Dao-AILab/flash-attention: flash_api.cpp", certainty="likely",
        example='  File "/x/site-packages/flash_attn/flash_attn_interface.py", line 91, in _flash_attn_varlen_forward\n'
        "RuntimeError: batch size must be positive",
    ),
)  # fmt: skip
