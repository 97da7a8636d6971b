"""bitsandbytes, flash-attention, math-verify, datasets, tokenisers and the data of a run."""

from __future__ import annotations

from stabilizer.troubles.trouble import Trouble

REWARD_CALLS = ("reward_func(", "reward_fn(", "reward_function(", "compute_score(", "_reward(", " reward(")
"""The calls of reward functions in trainers' code, and names in messages where the traceback is missing."""

TROUBLES = (
    Trouble(
        id="bitsandbytes/not-compiled",
        shows=("Could not load bitsandbytes native library: {path:w}libbitsandbytes_cpu.so",
               "Could not find the bitsandbytes CUDA binary at {path:t}$", "libbitsandbytes_cpu.so: cannot open shared object",
               "name 'cget_col_row_stats' is not defined", "'NoneType' object has no attribute 'cquantize_blockwise",
               "'NoneType' object has no attribute 'cget_managed_ptr'", "undefined symbol: cget_managed_ptr",
               "undefined symbol: cquantize_blockwise", "CUDA Setup failed despite GPU being available", "libbitsandbytes_cpu.so: undefined symbol",
               "libbitsandbytes_cuda{version}.so"),
        cause="bitsandbytes found no compiled library for this CUDA: it was installed from source without compiling it, its "
        "wheel has none for this CUDA or system, or no CUDA runtime was found and the CPU build is in use",
        fix="reinstall the wheel (pip install -U --force-reinstall bitsandbytes; releases before 0.43 look for libcudart.so on LD_LIBRARY_PATH); from source compile first: cmake "
        "-DCOMPUTE_BACKEND=cuda -S . && make && pip install . ; BNB_CUDA_VERSION picks a version it has; check torch.cuda.is_available() and `python -m bitsandbytes`",
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
               "dype in {name:w} is torch.float32", "without specifying a torch dtype. This might lead to unexpected behaviour",
               "You are attempting to use Flash Attention 2.0 with a model not initialized on GPU",
               "You are attempting to use Flash Attention 2 without specifying a torch dtype"),
        cause="the model is loaded in float32 or on the CPU first; flash attention needs half precision on a GPU when it runs, and under autocast training still works",
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
        source="huggingface/Math-Verify: README", severity="info", certainty="certain",
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
               "'dict' object has no attribute 'strip'", "'list' object has no attribute 'strip'",
               "string indices must be integers", "list indices must be integers or slices, not str"),
        frames=("reward", "score", "verif", "grader"), innermost=True,
        code=("completion[", "response[", "['content']", '["content"]', "['role']", '["role"]'),
        cause="the reward function expects text and gets chat messages, or the other way round: completions have the form of the "
        "prompts, messages or plain text",
        fix="for prompts that are messages (lists of role and content) read completion[0]['content']; for prompts that are text use "
        "the completion itself. `stabilizer preflight --rewards FILE.py:FUNCTION` tries both",
        source="unslothai/unsloth#2907", certainty="likely",
        example='  File "/home/me/rewards.py", line 8, in format_reward\n'
        "TypeError: expected string or bytes-like object, got 'list'",
    ),
    Trouble(
        id="reward/column-not-passed",
        shows=("{name:w}() missing {n} required positional argument: '{key:w}'",), code=REWARD_CALLS,
        cause="the reward function {name} wants {key}, which is no column of the data set",
        fix="name the column {key} in the data set (rename_column), or give the argument the name of the column that exists; "
        "remove_unused_columns=False keeps the columns; let {name} take **kwargs",
        source="gensyn-ai/rl-swarm#340", certainty="likely", kind="config-error",
        example='  File "/x/site-packages/trl/trainer/grpo_trainer.py", line 980, in _calculate_rewards\n'
        "    output_reward_func = reward_func(prompts=prompts, completions=completions, **reward_kwargs)\n"
        "TypeError: accuracy_reward() missing 1 required positional argument: 'solution'",
    ),
    Trouble(
        id="reward/call",
        shows=("{name:w}() takes {n} positional argument", "{name:w}() missing {n} required positional arguments: ",
               "{name:w}() got an unexpected keyword argument '{key:w}'"), code=REWARD_CALLS,
        cause="the trainer calls the reward function {name} with other arguments than it takes: each trainer, and TRL before and "
        "after 0.14, has its own form",
        fix="install the trainer's release that the script was written for (newer: pip install -U trl), or change the function. TRL (also "
        "Open-R1, Unsloth, ms-swift, mlx-lm-lora) passes lists by keyword, with every column of the data: def {name}(prompts, "
        "completions, **kwargs), returning a list. veRL passes one answer: compute_score(data_source, "
        "solution_str, ground_truth, extra_info). EasyR1 one answer or a batch, by worker.reward.reward_type (sequential, batch)",
        source="huggingface/open-r1#13", kind="config-error",
        example="TypeError: format_reward_func() takes 1 positional argument but 2 were given",
    ),
    Trouble(
        id="python/not-in-table",
        shows=("^KeyError: '{key:w}'$",), code=("_MAPPING[", "_MAP[", "_REGISTRY[", "REGISTRY[", "_CLASSES[", "_DICT["),
        cause="a setting has the value {key}, which is not in the table of names that this line of code looks it up in",
        fix="print the table's keys here and set one of them. The name may belong to another command (GRPO in ms-swift is `swift rlhf "
        "--rlhf_type grpo`, not `swift sft --loss_type grpo`), to a plugin that was not loaded, or to a newer release",
        source="modelscope/ms-swift#5283", kind="config-error",
        example='  File "/x/site-packages/swift/plugin/loss.py", line 869, in get_loss_func\n    return LOSS_MAPPING[loss_type]\n'
        "KeyError: 'grpo'",
    ),
    Trouble(
        id="data/row-without-key",
        shows=("^KeyError: '{key:w}'$",), code=("feature[", "example[", "row[", "sample[", "item[", "inputs[", "batch[", "record["),
        cause="a row of the data has no {key}",
        fix="print the keys of the row here. A column gets lost when the evaluation data were not mapped like the training data, when "
        "the trainer drops what its model does not take (remove_unused_columns=False keeps it), by select_columns or another "
        "spelling in one of several files",
        source="RLHFlow/RLHF-Reward-Modeling#6", certainty="possible", kind="config-error",
        example='  File "/home/me/train.py", line 244, in __call__\n    "input_ids": feature["input_ids_j"],\n'
        "KeyError: 'input_ids_j'",
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
        cause="{name} is imported while it is still being imported: a file of yours has the same name, or its release and that of a package it calls (torch and torchvision) do not fit",
        fix="rename your file or folder named {name} (and delete its __pycache__), or import inside the function; a broken "
        "installation needs a reinstall of {name}",
        source="python: import system", certainty="certain", kind="config-error",
        example="AttributeError: partially initialized module 'trl' has no attribute 'GRPOTrainer' (most likely due to a circular "
        "import)",
    ),
    Trouble(
        id="versions/metadata",
        shows=("{need:w} is required for a normal functioning of this module, but found {have:w}",),
        cause="a package wants {need}, and {have} is installed",
        fix="pip install '{need}' and what depends on it together; `pip check` lists all conflicts",
        source="huggingface/transformers: dependency_versions_check.py", certainty="likely", kind="config-error",
        example="ImportError: tokenizers>=0.21,<0.22 is required for a normal functioning of this module, but found "
        "tokenizers==0.20.3.",
    ),
    Trouble(
        id="versions/pip-conflict",
        shows=("requires {need:w}, but you have {have:t} which is incompatible",),
        cause="a package wants {need}, and {have} is installed; pip only warns, and most programs still run",
        fix="if an import fails: pip install '{need}' and what depends on it together; `pip check` lists all conflicts",
        source="pypa/pip", certainty="certain", kind="config-error", severity="warn",
        example="trl 0.15.2 requires transformers>=4.46.0, but you have transformers 4.44.2 which is incompatible.",
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
    Trouble(
        id="datasets/unknown-split",
        shows=('Unknown split "{split:w}". Should be one of [{splits:t}].',),
        cause="the data set has no split {split}; it has {splits}",
        fix="ask for one of {splits} (dataset_train_split, dataset_test_split in TRL), or make one: dataset.train_test_split(test_size=0.05)",
        source="huggingface/datasets: arrow_reader.py", certainty="certain", kind="config-error",
        example="ValueError: Unknown split \"test\". Should be one of ['train'].",
    ),
    Trouble(
        id="datasets/config-name",
        shows=("BuilderConfig '{name:w}' not found. Available: [{names:t}]", "Config name is missing.",
               "Please pick one among the available configs: [{names:t}]"),
        cause="the data set comes in several configurations, and the one asked for is missing or unknown",
        fix="name one: load_dataset(path, NAME), dataset_config in TRL scripts, or path:NAME; the message or the data set's page lists them",
        source="huggingface/datasets: builder.py", certainty="certain", kind="config-error",
        example="ValueError: BuilderConfig 'default' not found. Available: ['main', 'socratic']",
    ),
    Trouble(
        id="datasets/not-found",
        shows=("Couldn't find a dataset script at {path:w}", "Couldn't find any data file at {path:w}", "Couldn't find '{path:w}' on the Hugging "
               "Face Hub", "Dataset '{path:w}' doesn't exist on the Hub or cannot be accessed", "DatasetNotFoundError: Dataset"),
        cause="the data set is neither a folder here nor on the hub under this name, or it is private and you are not logged in",
        fix="check the name; for local files load_dataset('json', data_files='...') or 'parquet'; absolute paths in Ray and in containers; "
        "HF_TOKEN for private and gated ones",
        source="huggingface/datasets: load.py", certainty="certain", kind="config-error",
        example="datasets.exceptions.DatasetNotFoundError: Dataset 'me/rl-data' doesn't exist on the Hub or cannot be accessed.",
    ),
    Trouble(
        id="datasets/newer-format",
        shows=("Feature type '{kind:w}' not found. Available feature types",),
        cause="the data set was saved by a newer release of datasets (feature type {kind}) than the installed one",
        fix="pip install -U datasets (4.0 or later writes List), or delete the cached copy (~/.cache/huggingface/datasets) and load the original "
        "files again with the installed release",
        source="huggingface/datasets: release 4.0", certainty="certain", kind="config-error",
        example="ValueError: Feature type 'List' not found. Available feature types: ['Value', 'ClassLabel', 'Translation']",
    ),
    Trouble(
        id="datasets/split-sizes",
        shows=("NonMatchingSplitsSizesError", "ExpectedMoreSplitsError", "NonMatchingChecksumError"),
        cause="the files that came do not match what the data set's card promises: a download that was cut, or a data set changed since it was cached",
        fix="load_dataset(..., download_mode='force_redownload'); if it stays, verification_mode='no_checks'",
        source="huggingface/datasets: info_utils.py", certainty="likely", kind="config-error",
        example="datasets.exceptions.NonMatchingSplitsSizesError: [{'expected': SplitInfo(name='train', num_examples=7473)",
    ),
    Trouble(
        id="pyarrow/not-parquet",
        shows=("Parquet magic bytes not found in footer", "Could not open Parquet input source"),
        cause="the file is no Parquet file: a Git LFS pointer or an error page was downloaded, the download was cut, or it is JSON under another name",
        fix="look at its size and first bytes (head -c 200 FILE); download it with huggingface-cli download or git lfs pull; read JSON with "
        "load_dataset('json', data_files=...)",
        source="apache/arrow: parquet", certainty="certain", kind="config-error",
        example="pyarrow.lib.ArrowInvalid: Could not open Parquet input source '<Buffer>': Parquet magic bytes not found in footer.",
    ),
    Trouble(
        id="pyarrow/offset-overflow",
        shows=("offset overflow while concatenating arrays", "Nested data conversions not implemented for chunked array outputs"),
        cause="a column (texts, nested messages, images) is larger than 2 GB in one piece or row group, which pyarrow cannot hold or read",
        fix="write smaller row groups (df.to_parquet(path, row_group_size=1000), dataset.to_parquet with a smaller batch_size), cast texts to large_string, batch_size and writer_batch_size of "
        "map, and keep images as paths",
        source="apache/arrow", certainty="certain", kind="config-error",
        example="pyarrow.lib.ArrowInvalid: offset overflow while concatenating arrays",
    ),
    Trouble(
        id="hub/not-found-or-private",
        shows=("Repository Not Found for url", "RepositoryNotFoundError", "Cannot access gated repo for url", "401 Client Error: Unauthorized for url: https://huggingface.co",
               "Invalid username or password.", "Invalid user token", "Invalid credentials in Authorization header", "You are trying to access a gated repo",
               "Access to model {name:w} is restricted"),
        cause="the hub knows no such repository for this user: a path without a folder of that name here (then the name is asked for on the hub), misspelled, private, gated (its licence is not "
        "accepted), or the token is missing, expired or wrong",
        fix="a folder of your own: give its full path on this machine and see that adapter_config.json or config.json is in it. A repository: check owner/name, accept the licence on its page; "
        "huggingface-cli login, or export HF_TOKEN=... in the environment of every process (Ray: runtime_env env_vars)",
        source="huggingface/huggingface_hub: errors", certainty="certain", kind="config-error",
        example="huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: Root=1) Repository Not Found for url: https://huggingface.co/api/models/me/x.",
    ),
    Trouble(
        id="hub/no-rights",
        shows=("You don't have the rights to create a model under the namespace", "Cannot access content at: "
               "https://huggingface.co"),
        cause="the token may read and not write there, or the licence of a gated model was not accepted",
        fix="make a token with write access, use your own namespace in hub_model_id, or push_to_hub=False; accept the licence on the model's page",
        source="huggingface/huggingface_hub: errors", certainty="certain", kind="config-error",
        example="huggingface_hub.errors.HfHubHTTPError: 403 Forbidden: You don't have the rights to create a model under the namespace \"x\".",
    ),
    Trouble(
        id="hub/hf-transfer",
        shows=("HF_HUB_ENABLE_HF_TRANSFER=1) but 'hf_transfer' package is not available",),
        cause="fast downloads are switched on, and the package for them is not installed",
        fix="pip install hf_transfer, or unset HF_HUB_ENABLE_HF_TRANSFER",
        source="huggingface/huggingface_hub: file_download.py", certainty="certain", kind="config-error",
        example="ValueError: Fast download using 'hf_transfer' is enabled (HF_HUB_ENABLE_HF_TRANSFER=1) but 'hf_transfer' package is not available "
        "in your environment.",
    ),
    Trouble(
        id="hub/consistency",
        shows=("Consistency check failed: file should be of size {want} but has size {has}",),
        cause="a downloaded file has {has} bytes of {want}: the download was cut, often by a full disk or several processes at once",
        fix="delete the incomplete file in HF_HOME, check the disk's free space, and download once before the ranks start",
        source="huggingface/huggingface_hub: file_download.py", certainty="certain", kind="infrastructure",
        example="OSError: Consistency check failed: file should be of size 4976698672 but has size 1300234240 (model-00001-of-00002.safetensors).",
    ),
    Trouble(
        id="linux/no-permission",
        shows=("PermissionError: [Errno 13] Permission denied: '{path:w}'", "Read-only file system: '{path:w}'"),
        cause="the process may not write to {path}: another user's folder, a read-only mount, or a container's user",
        fix="point caches and outputs to a folder of yours (HF_HOME, TRITON_CACHE_DIR, TORCH_EXTENSIONS_DIR, RAY_TMPDIR, output_dir), or chown it",
        source="linux: open(2)", certainty="certain", kind="infrastructure",
        example="PermissionError: [Errno 13] Permission denied: '/home/ada/.cache/huggingface/hub'",
    ),
    Trouble(
        id="linux/bus-error",
        shows=("exitcode: -7", "Signal 7 (SIGBUS) received by PID", "exitcode  : -7", "Bus error (core dumped)"),
        cause="a process met a bus error: shared memory (/dev/shm) or a memory-mapped file's disk was full, or the file was cut while it was read",
        fix="start the container with --shm-size=16g or --ipc=host, free the disk, and keep checkpoints and data off network disks that drop out",
        source="pytorch/pytorch: elastic error reports", certainty="likely", kind="infrastructure",
        example="exitcode: -7 (pid: 3141) of binary: /usr/bin/python3",
    ),
    Trouble(
        id="linux/session-memory",
        shows=("Your session crashed after using all available RAM", "Your notebook tried to allocate more memory than is available"),
        cause="the notebook's machine ran out of main memory (not the GPU's)",
        fix="load the model straight to the GPU in half or 4-bit (device_map={{'': 0}}, torch_dtype), no optimizer or cache on the CPU, a smaller data "
        "set in memory, or a machine with more memory",
        source="Google: Colaboratory FAQ", certainty="certain", kind="out-of-memory",
        example="Your session crashed after using all available RAM.",
    ),
    Trouble(
        id="wandb/timeout",
        shows=("Run initialization has timed out after {s} sec", "wandb.init() timed out", "timed out waiting for run to start"),
        cause="W&B could not open the run within {within}: no way out of the machine's network, or a slow disk",
        fix="WANDB_MODE=offline and `wandb sync` later, or wandb.init(settings=wandb.Settings(init_timeout=300)); WANDB_DIR on a local disk; "
        "https_proxy where one is needed",
        source="wandb/wandb: sdk/wandb_init.py", certainty="likely", kind="infrastructure",
        work=lambda values: {"within": values.get("s", "its time limit of 90") + " s"},
        example="wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec.",
    ),
    Trouble(
        id="wandb/permission",
        shows=("permission denied ({code:t})...wandb", "Error while calling W&B API: permission denied", "Error while calling W&B API: project not found",
               "Error while calling W&B API: entity", "user is not logged in", "API key must be 40 characters long", "api_key not configured (no-tty)",
               "wandb: ERROR api_key not configured"),
        cause="W&B refuses the key, the entity or the project, or has no key and no terminal to ask at",
        fix="wandb login --relogin with a key of this server, or export WANDB_API_KEY=...; WANDB_ENTITY must be your user or a team of yours; or WANDB_MODE=offline, report_to='none' (TRL), "
        "trainer.logger=['console'] (veRL)",
        source="wandb/wandb: errors", certainty="certain", kind="config-error",
        example="wandb: ERROR Error while calling W&B API: permission denied (<Response [403]>)",
    ),
    Trouble(
        id="wandb/step-back",
        shows=("Tried to log to step {a} that is less than the current step {b}",),
        cause="a metric was logged at step {a} after step {b}, and W&B drops such rows: two writers use two step counters in one run, or a resumed run "
        "started from an older checkpoint",
        fix="log with a step metric of its own (wandb.define_metric('eval/*', step_metric='global_step')), let one place write to the run, and resume "
        "with resume_from rather than from an older step",
        source="huggingface/trl#4004", severity="info", certainty="certain",
        example="wandb: WARNING Tried to log to step 10 that is less than the current step 120. Steps must be monotonically increasing, so this data "
        "will be ignored.",
    ),
    Trouble(
        id="python/too-old",
        shows=("unsupported operand type(s) for |: 'type' and 'NoneType'", "'type' object is not subscriptable", "'ABCMeta' object is not subscriptable", "dataclass() got an unexpected keyword argument 'kw_only'",
               "dataclass() got an unexpected keyword argument 'slots'", "cannot import name '{name:w}' from 'typing'", "No module named 'tomllib'",
               "cannot import name 'UTC' from 'datetime'", "cannot import name 'StrEnum' from 'enum'", "requires a different Python: {have:t} not in "
               "'{need:t}'", "Requires-Python {need:t}"),
        cause="this Python is older (or newer) than the program needs",
        fix="make an environment with Python 3.10 to 3.12 as the trainer's installation page says: uv venv --python 3.12 (or conda create -n rl "
        "python=3.11), then install again",
        source="python: what's new", certainty="certain", kind="config-error",
        example="TypeError: unsupported operand type(s) for |: 'type' and 'NoneType'",
    ),
    Trouble(
        id="python/setuptools-gone",
        shows=("No module named 'pkg_resources'", "No module named 'distutils'", "module 'pkgutil' has no attribute 'ImpImporter'",
               "No module named 'imp'$"),
        cause="a package uses parts of Python's packaging that newer Python (3.12) or setuptools releases removed",
        fix="pip install -U 'setuptools<81' wheel, upgrade the package in the traceback, or use Python 3.11",
        source="pypa/setuptools: history", certainty="certain", kind="config-error",
        example="ModuleNotFoundError: No module named 'pkg_resources'",
    ),
    Trouble(
        id="python/mutable-default",
        shows=("mutable default {kind:t} for field {name:w} is not allowed: use default_factory",),
        cause="a package older than Python 3.11 declares the default of {name} in a way that 3.11 refuses",
        fix="upgrade the package in the traceback (hydra-core, omegaconf, fairseq, an old transformers), or use Python 3.10",
        source="python: dataclasses", certainty="certain", kind="config-error",
        example="ValueError: mutable default <class 'x.Config'> for field common is not allowed: use default_factory",
    ),
    Trouble(
        id="numpy/names-gone",
        shows=("`np.{name:w}` was removed in the NumPy 2.0 release", "module 'numpy' has no attribute '{name:w}'", "AttributeError: _ARRAY_API not "
               "found", "numpy.core.multiarray failed to import", "RuntimeError: Numpy is not available",
               "Unable to avoid copy while creating an array as requested", "A module that was compiled using NumPy 1.x cannot be run in",
               "numpy.dtype size changed, may indicate binary incompatibility"),
        cause="a package was written or built for another NumPy than the installed one",
        fix="pip install 'numpy<2' (for np.bool, np.float and the like: 'numpy<1.24'), or upgrade the package that the traceback names",
        source="numpy/numpy: 2.0 migration", certainty="certain", kind="config-error",
        example="AttributeError: `np.float_` was removed in the NumPy 2.0 release. Use `np.float64` instead.",
    ),
    Trouble(
        id="versions/undefined-symbol",
        shows=("{library:w}.so: undefined symbol: {symbol:w}",),
        cause="the compiled file {library}.so was built for another release of torch or CUDA than the installed one",
        fix="reinstall the package of that file for the installed torch (pip install --force-reinstall --no-cache-dir --no-deps, with "
        "--no-build-isolation where it compiles), or the torch it was built for: trainer, torch, vLLM and flash-attn must be of one set",
        source="pytorch/pytorch: C++ ABI", certainty="likely", kind="config-error",
        example="ImportError: /x/site-packages/causal_conv1d_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
    ),
    Trouble(
        id="python/event-loop",
        shows=("asyncio.run() cannot be called from a running event loop", "This event loop is already running"),
        cause="asynchronous code is started inside a loop that already runs, as in a notebook or inside an asynchronous worker",
        fix="await the coroutine instead of asyncio.run, or in a notebook: import nest_asyncio; nest_asyncio.apply()",
        source="python: asyncio", certainty="certain",
        example="RuntimeError: asyncio.run() cannot be called from a running event loop",
    ),
    Trouble(
        id="python/notebook-arguments",
        shows=("ipykernel_launcher.py: error: unrecognized arguments",),
        cause="a script that reads command-line arguments runs in a notebook, whose own arguments it does not know",
        fix="parser.parse_args([]) or parse_args_into_dataclasses(args=[]), or run it as a script",
        source="python: argparse", certainty="certain", kind="config-error",
        example="ipykernel_launcher.py: error: unrecognized arguments: -f /home/ada/.local/share/jupyter/runtime/kernel-1.json",
    ),
    Trouble(
        id="python/daemonic-children",
        shows=("daemonic processes are not allowed to have children",),
        cause="a worker that may not start processes (a pool's or a data loader's) tries to start some, as math_verify or an engine does",
        fix="compute rewards with concurrent.futures.ProcessPoolExecutor or threads instead of multiprocessing.Pool, and num_workers=0 for the loader",
        source="python: multiprocessing", certainty="certain",
        example="AssertionError: daemonic processes are not allowed to have children",
    ),
    Trouble(
        id="python/recursion",
        shows=("RecursionError: maximum recursion depth exceeded",),
        cause="a function calls itself too deeply: a nested answer given to a parser (JSON, LaTeX, sympy), or an object that copies or prints itself",
        fix="the repeated frames of the traceback name the function; cut answers before they are parsed, and let the reward return 0 for RecursionError",
        source="python: sys.setrecursionlimit", certainty="possible",
        example="RecursionError: maximum recursion depth exceeded while calling a Python object",
    ),
    Trouble(
        id="reward/integer-digits",
        shows=("Exceeds the limit ({limit} digits) for integer string conversion",),
        cause="an answer holds a number of more than {limit} digits, which Python refuses to convert: models write such numbers, and the verifier "
        "raises",
        fix="sys.set_int_max_str_digits(0) bounds nothing any more, so rather cut or reject such answers before they are parsed, and catch ValueError "
        "with a reward of 0",
        source="python: integer string conversion length limitation", certainty="certain",
        example="ValueError: Exceeds the limit (4300 digits) for integer string conversion; use sys.set_int_max_str_digits() to increase the limit",
    ),
    Trouble(
        id="math-verify/time-arguments",
        shows=("verify() got an unexpected keyword argument 'timeout_seconds'", "parse() got an unexpected keyword argument 'parsing_timeout'",
               "parse() got an unexpected keyword argument 'timeout_seconds'", "verify() got an unexpected keyword argument 'raise_on_error'",
               "parse() got an unexpected keyword argument 'raise_on_error'"),
        cause="the installed math-verify is older than the code that calls it",
        fix="pip install -U 'math-verify[antlr4_9_3]' (0.8 or later has the time limits as arguments)",
        source="huggingface/Math-Verify: releases", certainty="certain", kind="config-error",
        example="TypeError: verify() got an unexpected keyword argument 'timeout_seconds'",
    ),
    Trouble(
        id="service/refused",
        shows=("HTTPConnectionPool(host='{host:w}', port={port}): Max retries exceeded", "Failed to establish a new connection: [Errno 111] Connection "
               "refused", "ConnectionRefusedError: [Errno 111] Connection refused", "Cannot connect to host {host:w}:{port} ", "openai.APIConnectionError: Connection error", "httpx.ConnectError: All connection attempts failed"),
        cause="nothing answers at {where}: the server there is not started, still loads, ended with an error, or listens on another address",
        fix="look into that server's own log first; curl http://HOST:PORT/health (/v1/models) from the machine that asks; check base_url; listen on 0.0.0.0 for other machines, set "
        "no_proxy for them, and start it before the training",
        source="python: urllib3", certainty="likely", kind="infrastructure",
        work=lambda values: {"where": f"{values['host']}:{values['port']}" if "port" in values else "the address that is asked"},
        example="requests.exceptions.ConnectionError: HTTPConnectionPool(host='10.0.0.5', port=5000): Max retries exceeded with url: /get_reward",
    ),
    Trouble(
        id="service/gateway",
        shows=("502 Server Error: Bad Gateway", "502 Bad Gateway", "503 Service Unavailable", "504 Gateway Time-out",
               "500 Server Error: Internal Server Error for url: https://huggingface.co", "504 Server Error: Gateway Time-out for url: https://huggingface.co",
               "503 Server Error: Service Temporarily Unavailable for url: https://huggingface.co"),
        cause="a proxy stands between the program and its server, or the server itself is down or overloaded",
        fix="of the hub: try again later (status.huggingface.co), HF_HUB_OFFLINE=1 if the files are cached, push_to_hub=False. Of a local server: unset http_proxy and https_proxy (or no_proxy "
        "for its address), then look at its log and load",
        source="python: requests", certainty="possible", kind="infrastructure",
        example="requests.exceptions.HTTPError: 502 Server Error: Bad Gateway for url: http://127.0.0.1:8000/generate/",
    ),
    Trouble(
        id="service/hung-up",
        shows=("ServerDisconnectedError", "Server disconnected without sending a response", "RemoteDisconnected('Remote end closed connection without response')",
               "ConnectionResetError: [Errno 104] Connection reset by peer"),
        cause="the server that was asked (an engine, a reward model or a tool) closed the connection before it answered: it died, was restarted, or closes idle connections",
        fix="look into that server's log at this time first: its own error is the cause. If it still runs: fewer requests at a time, a longer keep-alive, and one retry",
        source="aio-libs/aiohttp: client exceptions", certainty="possible", consequence=True, kind="infrastructure",
        example="aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected",
    ),
)  # fmt: skip
