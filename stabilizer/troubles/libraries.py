"""bitsandbytes, flash-attention, math-verify, datasets, tokenisers and the data of a run."""

from __future__ import annotations

from stabilizer.troubles.trouble import Trouble

TROUBLES = (
    Trouble(
        id="bitsandbytes/not-compiled",
        shows=("Could not load bitsandbytes native library: {path:w}libbitsandbytes_cpu.so",
               "Could not find the bitsandbytes CUDA binary at {path:t}$", "libbitsandbytes_cpu.so: cannot open shared object",
               "name 'cget_col_row_stats' is not defined", "'NoneType' object has no attribute 'cquantize_blockwise",
               "'NoneType' object has no attribute 'cget_managed_ptr'", "undefined symbol: cget_managed_ptr",
               "undefined symbol: cquantize_blockwise"),
        cause="bitsandbytes found no compiled library for this CUDA: it was installed from source without compiling it, its "
        "wheel has none for this CUDA or system, or no CUDA runtime was found and the CPU build is in use",
        fix="reinstall the wheel (pip install -U --force-reinstall bitsandbytes); from source compile first: cmake "
        "-DCOMPUTE_BACKEND=cuda -S . && make && pip install . ; check torch.cuda.is_available() and `python -m bitsandbytes`",
        source="bitsandbytes-foundation/bitsandbytes#1190", certainty="certain", kind="config-error",
        example="Could not load bitsandbytes native library: /x/libbitsandbytes_cpu.so: cannot open shared object file: No such "
        "file or directory",
    ),
    Trouble(
        id="bitsandbytes/8bit-not-saved",
        shows=("Calling `to()` is not supported for `4-bit` or `8-bit` quantized models",
               "`.to` is not supported for `4-bit` or `8-bit` bitsandbytes models",
               "`.to` is not supported for `4-bit` or `8-bit` models"),
        cause="a quantised model was moved with .to(): it already is on its device",
        fix="leave .to() out and load with device_map={{'': local_rank}}; accelerate and transformers from the same months "
        "(an older accelerate moves the model itself)",
        source="huggingface/transformers: bitsandbytes", certainty="certain", kind="config-error",
        example="ValueError: `.to` is not supported for `4-bit` or `8-bit` bitsandbytes models.",
    ),
    Trouble(
        id="bitsandbytes/quantised-sharding",
        shows=("Must flatten tensors with uniform dtype but got {one:w} and torch.uint8",
               "Blockwise quantization only supports 16/32-bit floats, but got torch.uint8"),
        cause="4-bit weights are sharded as bytes, and their storage type differs from that of the other weights",
        fix="BitsAndBytesConfig(bnb_4bit_quant_storage=torch.bfloat16) with the same torch_dtype; with DeepSpeed use ZeRO-2 or "
        "plain LoRA instead of 4-bit under ZeRO-3",
        source="huggingface/peft: FSDP with QLoRA", certainty="likely", kind="config-error",
        example="ValueError: Blockwise quantization only supports 16/32-bit floats, but got torch.uint8",
    ),
    Trouble(
        id="flash-attn/head-dimension",
        shows=("FlashAttention forward only supports head dimension at most {n}", "FlashAttention backward for head dim > {n} "
               "requires"),
        cause="this model's attention heads are wider than flash-attention supports on this GPU (limit {n})",
        fix="attn_implementation='sdpa' (or 'eager'), or a newer flash-attn",
        source="Dao-AILab/flash-attention: README", certainty="certain", kind="config-error",
        example="RuntimeError: FlashAttention forward only supports head dimension at most 256",
    ),
    Trouble(
        id="flash-attn/dtype-at-load",
        shows=("Flash Attention 2 only supports torch.float16 and torch.bfloat16 dtypes, but the current dype in {name:w} is "
               "torch.float32", "Flash Attention 2.0 only supports torch.float16 and torch.bfloat16 dtypes, but the current "
               "dype in {name:w} is torch.float32", "without specifying a torch dtype. This might lead to unexpected behaviour"),
        cause="the model is loaded in float32, which flash-attention does not take; under autocast training still works",
        fix="torch_dtype='bfloat16' when the model is loaded (model_init_kwargs in TRL)",
        source="huggingface/transformers: attention", severity="info", certainty="certain",
        example="Flash Attention 2.0 only supports torch.float16 and torch.bfloat16 dtypes, but the current dype in "
        "Qwen2ForCausalLM is torch.float32.",
    ),
    Trouble(
        id="flash-attn/build",
        shows=("Failed building wheel for flash-attn", "Failed building wheel for flash_attn", "ERROR: Failed to build flash-attn",
               "No module named 'torch'..flash", "RuntimeError: FlashAttention is only supported on CUDA 1"),
        cause="flash-attn is compiled from source here, and the build fails: no torch or nvcc in the build, CUDA of another "
        "version than torch's, or too little memory",
        fix="install the ready wheel of the releases page that fits your torch, CUDA, Python and C++ ABI; else pip install "
        "flash-attn --no-build-isolation after torch, with MAX_JOBS=4, ninja and the nvcc of torch's CUDA",
        source="Dao-AILab/flash-attention: installation", certainty="likely", kind="config-error",
        example="ERROR: Failed building wheel for flash-attn",
    ),
    Trouble(
        id="math-verify/timeouts",
        shows=("Timeout during parsing", "Timeout during comparison", "TimeoutException: Operation timed out",
               "TimeoutError: Operation timed out!"),
        cause="math_verify gave up on an answer after its time limit: a huge number, a long expression, or a busy machine. The "
        "answer counts as wrong",
        fix="it is harmless when rare. If it is frequent: cut answers before they are parsed, verify in other processes with a "
        "limit of their own (parsing_timeout=None, timeout_seconds=None inside), and leave CPUs for it",
        source="huggingface/Math-Verify: README", severity="warn", certainty="certain",
        example="Timeout during parsing: \\boxed{9^{9^{9}}}",
    ),
    Trouble(
        id="math-verify/old-name",
        shows=("from 'math_verify.errors'", "from 'latex2sympy2_extended", "cannot import name '{name:w}' from 'math_verify"),
        cause="math_verify and latex2sympy2_extended are of releases that do not fit each other or the calling code",
        fix="pip install -U math-verify latex2sympy2_extended (the first names the release of the second it needs); uninstall the "
        "old latex2sympy2",
        source="huggingface/Math-Verify: installation", certainty="likely", kind="config-error",
        example="ImportError: cannot import name 'TimeoutException' from 'math_verify.errors' (/x/math_verify/errors.py)",
    ),
    Trouble(
        id="reward/chat-completions",
        shows=("expected string or bytes-like object, got '{kind:w}'", "expected string or bytes-like object$",
               "'list' object has no attribute '{name:w}'", "'str' object has no attribute 'get'",
               "'dict' object has no attribute 'strip'", "'list' object has no attribute 'strip'"),
        frames=("reward", "score", "verif", "grader"),
        cause="the reward function expects text and gets chat messages, or the other way round: completions have the form of the "
        "prompts",
        fix="for chat prompts read completion[0]['content']; for text prompts use the completion itself. `stabilizer preflight "
        "--rewards FILE.py:FUNCTION` tries both",
        source="huggingface/trl: custom rewards", certainty="likely",
        example='  File "/home/me/rewards.py", line 8, in format_reward\n'
        "TypeError: expected string or bytes-like object, got 'list'",
    ),
    Trouble(
        id="reward/column-not-passed",
        shows=("{name:w}() missing {n} required positional argument: '{key:w}'",),
        frames=("grpo_trainer", "_calculate_rewards", "_generate_and_score_completions", "UnslothGRPOTrainer", "rewards",
                "rollout"),
        cause="the reward function {name} wants {key}, which is no column of the data set",
        fix="name the column {key} in the data set (rename_column), or give the argument the name of the column that exists; "
        "remove_unused_columns=False keeps the columns",
        source="huggingface/trl: custom rewards", certainty="likely", kind="config-error",
        example='  File "/x/site-packages/trl/trainer/grpo_trainer.py", line 980, in _calculate_rewards\n'
        "TypeError: accuracy_reward() missing 1 required positional argument: 'solution'",
    ),
    Trouble(
        id="data/column",
        shows=("KeyError: 'solution'", "KeyError: 'answer'", "KeyError: 'ground_truth'", "KeyError: 'problem'",
               "KeyError: 'question'", "KeyError: 'messages'", "KeyError: 'completion'", "KeyError: 'chosen'",
               "KeyError: 'rejected'", "KeyError: 'reward_model'", "KeyError: 'data_source'", "KeyError: 'extra_info'",
               "KeyError: 'conversations'", "KeyError: 'input_ids'", "KeyError: 'query'", "KeyError: 'response'"),
        cause="the data set, or this row of it, has no such column or field, and this code reads it",
        fix="rename the column of your data to the name in the message (dataset.rename_column), or set the trainer's key for it "
        "(dataset_prompt_column, data.prompt_key, --input_key); print(dataset.column_names) shows what is there",
        source="huggingface/trl: dataset formats", certainty="possible", kind="config-error",
        example="KeyError: 'solution'",
    ),
    Trouble(
        id="transformers/template-content",
        shows=("UndefinedError: '{what:t}' has no attribute '{name:w}'", "can only concatenate str (not \"{kind:w}\") to str"),
        frames=("jinja", "template", "chat_template"),
        cause="the chat template reads a field of the messages that is not there, or gets parts (a list) where it wants text",
        fix="make each message {{'role': ..., 'content': text}}; lists of parts only for vision models with their processor",
        source="huggingface/transformers: chat templates", certainty="likely", kind="config-error",
        example='  File "/x/jinja2/environment.py", line 1295, in render\n'
        "jinja2.exceptions.UndefinedError: 'dict object' has no attribute 'content'",
    ),
    Trouble(
        id="transformers/tokenizer-class",
        shows=("Tokenizer class {name:w} does not exist or is not currently imported",
               "Couldn't instantiate the backend tokenizer", "data did not match any variant of untagged enum ModelWrapper",
               "data did not match any variant of untagged enum PyPreTokenizerTypeWrapper"),
        cause="the tokenizer was saved by a newer release of transformers or tokenizers than the installed one, or needs "
        "sentencepiece or tiktoken",
        fix="pip install -U transformers tokenizers sentencepiece tiktoken (in the releases the trainer allows); or save the "
        "tokenizer again with the installed release",
        source="huggingface/tokenizers", certainty="likely", kind="config-error",
        example="Exception: data did not match any variant of untagged enum ModelWrapper at line 757443 column 3",
    ),
    Trouble(
        id="transformers/failed-to-import",
        shows=("Failed to import {name:w} because of the following error",),
        cause="{name} could not be imported: a package that it uses is missing or broken, and the line that follows names it",
        fix="mend the package in the next line: a missing module (install it), an undefined symbol (flash-attn, vLLM or "
        "bitsandbytes built for another torch: reinstall or uninstall it), a missing name (releases that do not fit)",
        source="huggingface/transformers: import_utils.py", certainty="possible", kind="config-error",
        example="RuntimeError: Failed to import trl.trainer.grpo_trainer because of the following error (look up to see its "
        "traceback):",
    ),
    Trouble(
        id="transformers/device-map-zero3",
        shows=("DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`",),
        cause="ZeRO-3 shards the model while it is loaded, which excludes device_map and low_cpu_mem_usage",
        fix="remove device_map (and low_cpu_mem_usage) from the loading; with 4-bit bases use ZeRO-2",
        source="huggingface/transformers: DeepSpeed", certainty="certain", kind="config-error",
        example="ValueError: DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`.",
    ),
    Trouble(
        id="datasets/generation",
        shows=("An error occurred while generating the dataset", "Couldn't infer the same data file format for all splits"),
        cause="the data files could not be read into one table: rows with other fields or types, or files of several kinds",
        fix="the exception above names the file and column; make every row have the same fields and types, or name the files "
        "(data_files={{'train': 'train.jsonl'}})",
        source="huggingface/datasets: loading", certainty="possible", kind="config-error",
        example="datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset",
    ),
    Trouble(
        id="datasets/old-glob",
        shows=("Invalid pattern: '**' can only be an entire path component", "Loading a dataset cached in a LocalFileSystem is not "
               "supported"),
        cause="datasets is older than the installed fsspec",
        fix="pip install -U datasets (or 'fsspec<=2023.9.2')",
        source="huggingface/datasets#6737", certainty="certain", kind="config-error",
        example="ValueError: Invalid pattern: '**' can only be an entire path component",
    ),
    Trouble(
        id="hub/no-connection",
        shows=("HTTPSConnectionPool(host='huggingface.co', port=443)", "Failed to resolve 'huggingface.co'"),
        cause="the machine cannot reach huggingface.co: no network from the compute nodes, a proxy, or the hub is down",
        fix="download on a machine with network and set HF_HUB_OFFLINE=1 with local paths; or HF_ENDPOINT to a mirror, or "
        "https_proxy",
        source="huggingface/huggingface_hub: offline mode", certainty="certain", kind="infrastructure",
        example="requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded "
        "with url: /api/models/x",
    ),
    Trouble(
        id="transformers/generation-flags",
        shows=("The following generation flags are not valid and may be ignored: {names:t}]",),
        cause="these sampling settings do nothing, because generation is greedy: {names}",
        fix="do_sample=True where sampling is meant (GRPO needs it); else leave them out",
        source="huggingface/transformers: generation", severity="info", certainty="certain",
        example="The following generation flags are not valid and may be ignored: ['temperature', 'top_p', 'top_k'].",
    ),
    Trouble(
        id="transformers/no-attention-mask",
        shows=("The attention mask and the pad token id were not set", "The attention mask is not set and cannot be inferred"),
        cause="generate() was called without an attention mask, and padding may be read as text",
        fix="pass **tokenizer(text, return_tensors='pt', padding=True) whole, and set a pad token other than the end token",
        source="huggingface/transformers: generation", severity="warn", certainty="certain",
        example="The attention mask and the pad token id were not set. As a consequence, you may observe unexpected behavior.",
    ),
    Trouble(
        id="python/partially-initialised",
        shows=("partially initialized module '{name:w}'",),
        cause="{name} imports itself: a file of yours has the same name, or two packages import each other",
        fix="rename your file or folder named {name} (and delete its __pycache__), or import inside the function; a broken "
        "installation needs a reinstall of {name}",
        source="python: import system", certainty="likely", kind="config-error",
        example="AttributeError: partially initialized module 'trl' has no attribute 'GRPOTrainer' (most likely due to a circular "
        "import)",
    ),
    Trouble(
        id="versions/metadata",
        shows=("{need:w} is required for a normal functioning of this module, but found {have:w}",
               "requires {need:w}, but you have {have:t} which is incompatible"),
        cause="a package wants {need}, and {have} is installed",
        fix="pip install '{need}' and what depends on it together; `pip check` lists all conflicts",
        source="huggingface/transformers: dependency_versions_check.py", certainty="likely", kind="config-error",
        example="ImportError: tokenizers>=0.21,<0.22 is required for a normal functioning of this module, but found "
        "tokenizers==0.20.3.",
    ),
    Trouble(
        id="versions/no-matching",
        shows=("ERROR: No matching distribution found for {what:t}$", "ERROR: Could not find a version that satisfies the "
               "requirement {what:t} (from", "ResolutionImpossible"),
        cause="pip finds no release that fits this Python and system, or the requirements exclude one another",
        fix="use the Python that the package supports (python -V; most trainers want 3.10 to 3.12 on Linux), relax the pins that "
        "conflict, or install into a fresh environment with uv pip",
        source="pypa/pip", certainty="likely", kind="config-error",
        example="ERROR: No matching distribution found for vllm==0.8.5.post1",
    ),
)  # fmt: skip
