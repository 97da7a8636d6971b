"""Every known trouble is found in the line its program prints, explained with that line's numbers, and found nowhere
else."""

import random
import re
import string
import time

import pytest

from stabilizer.formats.console import Failures, Line, pieces
from stabilizer.troubles.all import TROUBLES
from stabilizer.troubles.arithmetic import by_nearness, divisors, listed, nearest_multiples, whole
from stabilizer.troubles.places import PLACES
from stabilizer.troubles.search import Found, at_place, best, by_id, in_line
from stabilizer.troubles.trouble import CODE

FRAME = re.compile(r'\s*File "([^"]+)", line \d+, in (\S+)')


def shown(example):
    """What is found in an example, its frames and their code known."""
    lines = example.splitlines()
    frames = [f"{match[1]} {match[2]}" for line in lines if (match := FRAME.match(line))]
    if frames and (code := [line.strip() for line in lines if line.startswith("    ")]):
        frames[-1] += CODE + code[-1]
    return [found for line in lines if (found := in_line(line, tuple(frames)))]


def places(trouble):
    """The frames in which a trouble is looked for, with a line of code that it names."""
    code = CODE + trouble.code[0] if trouble.code else ""
    parts = trouble.frames[:1] or (["some.py"] if code else [])
    return tuple(f"/x/site-packages/{part} f{code}" for part in parts)


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.id)
def test_its_own_message_is_explained(trouble):
    found = best(shown(trouble.example))
    assert found is not None and found.trouble.id == trouble.id
    cause, fix = trouble.explained(found.values)
    assert cause and fix and not set("{}") & set(cause.replace("{'", "").replace("'}", "").replace("True}", ""))
    assert trouble.source and cause[0].islower() | cause[0].isdigit() | cause[:2].isupper() | cause[0].isupper()


FILLED = {"w": "some.name", "t": "some text", None: "7"}
SHARED = {  # a message of one is a message of the other, and the other says more
    "bitsandbytes/quantised-sharding", "data/column", "python/no-module",
    "versions/attribute-of-module",
}  # fmt: skip


def filled(template):
    """A line that a template fits: its fields with plain contents."""
    line = re.sub(r"\{\w+(?::([wt]))?\}|(\.\.\.)", lambda match: " x " if match[2] else FILLED[match[1]], template)
    return line.removeprefix("^").removesuffix("$")


def all_found(trouble):
    """The best explanation of every message of a trouble, innermost in one of its frames."""
    frames = places(trouble)
    return [found.trouble for show in trouble.shows if (found := in_line(filled(show), frames))]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.id)
def test_each_of_its_messages_is_found(trouble):
    frames = places(trouble)
    missed = [show for show in trouble.shows if in_line(filled(show), frames) is None]
    assert not missed or trouble.work  # numbers of its own decide


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.id)
def test_none_of_its_messages_is_taken_for_another_trouble(trouble):
    others = {found.id for found in all_found(trouble) if not found.general} - {trouble.id}
    assert not others or trouble.id in SHARED


def test_a_report_of_a_failure_elsewhere_explains_none():
    for line in (
        "subprocess.CalledProcessError: Command '['/usr/bin/python', 'train.py']' returned non-zero exit status 1.",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "ray.exceptions.RayTaskError(ValueError): ray::TaskRunner.run() (pid=3141, ip=10.0.0.1)",
        "[rank3]:[E302 ProcessGroupNCCL.cpp:616] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12",
        "EngineCore failed to start.",
        "The actor died unexpectedly before finishing this task.",
    ):
        assert in_line(line).trouble.consequence, line


def test_what_follows_from_another_failure_is_never_certain():
    assert {trouble.certainty for trouble in TROUBLES if trouble.consequence} == {"possible"}


def test_the_folder_of_an_environment_is_no_place_in_a_program():
    line = "ValueError: too many values to unpack (expected 2)"
    inside = "/opt/conda/envs/gym/lib/python3.11/site-packages/trl/trainer/grpo_trainer.py step"
    assert in_line(line, (inside,)).trouble.id == "python/unpack"
    assert in_line(line, ("/home/me/envs/cart/env.py reset",)).trouble.id == "gym/reset-returns-two"


def test_an_empty_tensor_is_an_empty_answer_only_where_answers_are_handled():
    line = "IndexError: argmax(): Expected reduction dim 1 to have non-zero size."
    assert (
        in_line(line, ("/x/site-packages/trl/trainer/grpo_trainer.py compute_loss",)).trouble.id == "torch/empty-answer"
    )
    assert in_line(line, ("/home/me/model.py forward",)).trouble.id == "torch/empty-reduction"


def test_a_trainer_that_calls_a_reward_function_is_no_reward_function():
    line = "TypeError: 'NoneType' object is not subscriptable"
    trainer = "/x/site-packages/trl/trainer/grpo_trainer.py _generate_and_score_completions"
    inner = ("/x/site-packages/transformers/models/a.py forward", "/x/site-packages/torch/nn/module.py _call_impl")
    assert in_line(line, (trainer, *inner)).trouble.id == "python/none"
    assert in_line(line, (trainer, "/home/me/rewards.py accuracy")).trouble.id == "reward/parsing"


def test_ids_are_unique_and_name_program_and_trouble():
    assert len(by_id()) == len(TROUBLES) + len(PLACES) >= 600
    assert all(trouble.id.count("/") == 1 for trouble in TROUBLES)


@pytest.mark.parametrize(
    "line",
    [
        "{'loss': 0.01, 'grad_norm': 0.2, 'reward': 0.6, 'kl': 0.001, 'epoch': 0.1}",
        "step:12 - actor/entropy:0.4 - critic/score/mean:0.31 - response_length/mean:512.0",
        "Loading checkpoint shards: 100%|##########| 4/4 [00:03<00:00,  1.21it/s]",
        "INFO 03-09 20:11:43 llm_engine.py:275] # GPU blocks: 2470, # CPU blocks: 512",
        "Saving model checkpoint to out/checkpoint-500",
        "The answer is 4 because 2 + 2 must be divisible by 2.",
        "so the number 7 must be divisible by prime 2",
        "wandb: Run data is saved locally in wandb/run-20250302",
        "Map: 100%|##########| 7473/7473 [00:01<00:00, 5123.3 examples/s]",
    ],
)
def test_a_healthy_log_shows_no_trouble(line):
    assert in_line(line) is None


def test_a_fix_is_computed_from_the_numbers_of_the_message():
    (found,) = shown("AssertionError: only support equal chunk. Got size of DataProto 200 and chunk 3.")
    cause, fix = found.trouble.explained(found.values)
    assert "200" in cause and "198 or 201" in fix and "use 2, 4 or 1 GPUs" in fix


def test_a_cause_ranks_before_a_consequence_however_sure_that_is():
    report = by_id()["nccl/watchdog-timeout"]
    for trouble in TROUBLES:
        if not trouble.consequence:
            cause = best(shown(trouble.example))
            for pair in ((Found(report, {}), cause), (cause, Found(report, {}))):
                assert best(pair) is cause


def test_numbers_that_contradict_a_trouble_rule_it_out():
    assert not shown("AssertionError: only support equal chunk. Got size of DataProto 8 and chunk 4.")


def events(text):
    failures = Failures()
    seen = [failures.see(Line(place, line, True)) for place, line in enumerate(text.splitlines(), 1)]
    return [event for event in [*seen, failures.close()] if event]


def test_a_message_behind_a_loggers_prefix_is_found():
    (event,) = events(
        "Exception in thread Thread-4: ValueError: signal only works in main thread of the main interpreter"
    )
    assert event.data["trouble"] == "math-verify/main-thread"


def test_a_traceback_carries_the_trouble_of_its_last_frames():
    (event,) = events(
        "Traceback (most recent call last):\n"
        '  File "/x/slime/utils/ppo_utils.py", line 672, in calculate_log_probs_and_entropy\n'
        "    log_prob = compute_log_probs(logits.clone(), tokens)\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 44.07 GiB. GPU 0 has a total capacity"
    )
    assert event.data["trouble"] == "cuda/logits-out-of-memory" and event.data["values"]["want"] == "44.07"


def test_refused_logits_are_counted_in_tokens_and_beside_the_free_memory():
    (event,) = events(
        "Traceback (most recent call last):\n"
        '  File "/x/trl/trainer/grpo_trainer.py", line 812, in _get_per_token_logps\n    logits = model(ids).logits\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.55 GiB. GPU 0 has a total capacity of 39.39 "
        "GiB of which 9.81 GiB is free."
    )
    cause, fix = by_id()[event.data["trouble"]].explained(event.data["values"])
    assert "32,800 tokens of Qwen's 151,936" in cause  # 8 rows of 4,096 tokens, and some
    assert "9.8 GiB were free, so at least 6 times fewer" in fix


def test_the_same_message_elsewhere_is_no_trouble_of_the_logits():
    (event,) = events(
        "Traceback (most recent call last):\n"
        '  File "/x/optimizer.py", line 6, in step\n    self.moments()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 44.07 GiB. GPU 0 has a total capacity"
    )
    assert event.data.get("trouble") != "cuda/logits-out-of-memory"


@pytest.mark.parametrize("between", ["", "ok\n"])
def test_a_report_of_the_launcher_hides_no_exception(between):
    seen = events(
        "Traceback (most recent call last):\n"
        '  File "/x/train.py", line 9, in main\n    trainer.train()\n'
        f"ValueError: bad\n{between}"
        "W1126 10:00:00 torch/distributed/elastic/api.py:900] Sending process 77 closing signal SIGTERM\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    )
    assert seen[0].data["message"] == "ValueError: bad" and "trouble" not in seen[0].data
    told = [event.data["trouble"] for event in seen[1:]]
    assert told[-1] == "nccl/child-failed" and set(told) <= {"nccl/closing-signal", "nccl/child-failed"}


REWARD_CALL = "output_reward_func = reward_func(prompts=prompts, completions=completions)"


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        (REWARD_CALL, "reward/column-not-passed"),
        ("loss = accumulated_loss(batch)", "versions/other-arguments"),
    ],
)
def test_the_line_of_code_tells_a_reward_function_from_another(code, trouble):
    (event,) = events(
        "Traceback (most recent call last):\n"
        f'  File "/x/site-packages/trl/trainer/grpo_trainer.py", line 9, in f\n    {code}\n'
        "TypeError: scored() missing 1 required positional argument: 'old'"
    )
    assert event.data["trouble"] == trouble


def test_a_notebook_cell_is_own_code():
    (event,) = events(
        "Cell In[3], line 2, in score(completions)\n      1 def score(completions):\n"
        "----> 2     return [c[0]['content'] for c in completions]\n      3\n"
        "TypeError: string indices must be integers"
    )
    assert event.data["trouble"] == "reward/chat-completions" and event.data["user_frame"].startswith("Cell In[3]")


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/x/site-packages/trl/trainer/grpo_trainer.py f", True),
        ("/w/EasyR1/verl/trainer/main.py f", False),
        ("/me/run.py f", True),
    ],
)
def test_a_trouble_of_one_trainer_is_none_of_another(path, known):
    line = "ConnectionError: The vLLM server can't be reached at 0.0.0.0:8000 after 120.0 seconds. Make sure"
    found = in_line(line, (path,))
    assert bool(found and found.trouble.id.startswith("trl/")) is known


@pytest.mark.parametrize(
    ("sizes", "trouble"),
    [
        (
            "20.00 MiB (GPU 0; 79.15 GiB total capacity; 40.02 GiB already allocated; 12.56 MiB free; 77.90 GiB",
            "cuda/fragmented-memory",
        ),
        (
            "1.20 GiB (GPU 0; 79.15 GiB total capacity; 77.02 GiB already allocated; 12.56 MiB free; 77.10 GiB",
            "cuda/full",
        ),
        (
            "260.00 MiB (GPU 0; 79.15 GiB total capacity; 74.31 GiB already allocated; 12.56 MiB free; 75.33 GiB",
            "cuda/full",
        ),
    ],
)
def test_fragmentation_and_size_are_told_apart_by_the_numbers(sizes, trouble):
    found = in_line(
        f"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {sizes} reserved in total by PyTorch)"
    )
    assert found.trouble.id == trouble


def test_a_traceback_without_its_head_is_read():
    (event,) = events(
        '  File "/x/site-packages/torch/optim/adamw.py", line 180, in _init_group\n'
        '    state["exp_avg_sq"] = torch.zeros_like(p)\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 520.00 MiB. GPU 0 has a total capacity of 23 GiB"
    )
    assert event.data["trouble"] == "cuda/optimizer-out-of-memory" and event.data["failure"] == "oom"


def test_a_remark_on_a_frame_explains_no_lack_of_memory():
    (event,) = events(
        "Traceback (most recent call last):\n"
        '  File "/content/unsloth_compiled_cache/UnslothGRPOTrainer.py", line 1024, in compute_loss\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23 GiB"
    )
    assert event.data.get("trouble") != "unsloth/compiled-cache"


def test_the_two_packages_of_a_clash_are_named():
    (event,) = events(
        "Traceback (most recent call last):\n"
        '  File "/x/site-packages/transformers/trainer.py", line 10, in train\n'
        '  File "/x/site-packages/trl/trainer/grpo_trainer.py", line 12, in step\n'
        "TypeError: unwrap() got an unexpected keyword argument 'is_peft'"
    )
    found = by_id()[event.data["trouble"]]
    cause, fix = found.explained(event.data["values"])
    assert cause.startswith("trl passes is_peft") and "pip install -U trl transformers" in fix


def test_the_innermost_frame_of_own_code_is_kept():
    (event,) = events(
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 12, in main\n    trainer.train()\n'
        '  File "/home/me/rewards.py", line 40, in grade\n    return parse(x)\n'
        '  File "/venv/lib/python3.11/site-packages/pkg/mod.py", line 7, in parse\n    raise Odd(x)\n'
        "pkg.Odd: nothing known\n"
    )
    assert event.data["user_frame"] == "/home/me/rewards.py, line 40, in grade"
    assert event.data["message"] == "pkg.Odd: nothing known"


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        (["/v/site-packages/trl/data_utils.py f"], "place/data"),
        (["/v/site-packages/trl/trainer/grpo_trainer.py f", "/v/site-packages/vllm/engine/llm.py g"], "place/engine"),
        (["/v/site-packages/torch/utils/odd.py f"], None),
        (["/home/me/checkpoint.py save"], None),
    ],
)
def test_an_unknown_message_is_placed_but_never_explained(frames, place):
    found = at_place(tuple(frames), "/home/me/train.py, line 3, in main")
    assert (found.trouble.id if found else None) == place
    if found:
        assert found.trouble.certainty == "possible" and found.trouble.id in by_id()
        cause, fix = found.trouble.explained(found.values)
        assert cause.startswith("no known trouble has this message") and "train.py, line 3" in fix


def test_the_exception_counts_and_not_the_report_that_announces_it():
    (event,) = events(
        "ray.exceptions.RayTaskError(ValueError): ray::TaskRunner.run() (pid=5)\n"
        '  File "/w/verl/utils/dataset/rl_dataset.py", line 100, in __init__\n    self.read()\n'
        "ValueError: something that nobody has met\n"
    )[-1:]
    assert event.data["message"] == "ValueError: something that nobody has met"
    assert event.data["trouble"] == "place/data"


def test_a_notebooks_traceback_is_read():
    (event,) = events(
        "---------------------------------------------------------------------------\n"
        "ValueError                                Traceback (most recent call last)\n"
        "Cell In[5], line 3\n      1 x = 1\n----> 3 trainer.train()\n\n"
        "File ~/rl/mine.py:88, in step(self)\n     87 a\n---> 88 raise ValueError(m)\n\n"
        "ValueError: something of my own\n"
    )
    assert event.data["message"] == "ValueError: something of my own" and "mine.py, line 88" in event.data["user_frame"]


@pytest.mark.parametrize("seed", range(3))
def test_hostile_lines_cost_time_linear_in_their_length(seed):
    draw = random.Random(seed)
    anchors = sorted({anchor for trouble in TROUBLES for anchor in trouble.anchors})
    lines = []
    for _ in range(300):
        words = draw.choices(anchors, k=draw.randrange(1, 200)) + ["9" * draw.randrange(1, 500)]
        draw.shuffle(words)
        lines.append(draw.choice([" ", "(", "1,", "'"]).join(words) + "".join(draw.choices(string.printable, k=100)))
    began = time.process_time()
    for line in lines:
        in_line(line)
    assert time.process_time() - began < 2 * sum(map(len, lines)) / 1e5  # 2 s for 100 kB of nothing but anchors


def test_a_hostile_text_costs_no_more_than_its_share():
    draw = random.Random(5)
    anchors = sorted({anchor for trouble in TROUBLES for anchor in trouble.anchors})
    failures = Failures()
    began = time.process_time()
    for place in range(60_000):  # 6 MB of short lines, each with words of twelve messages
        line = "Error: " + " ".join(anchors[draw.randrange(len(anchors))] for _ in range(12))
        failures.see(Line(place, line, True))
    assert time.process_time() - began < 12  # 3 s on a free core; 25 s without the limit


def test_a_failure_after_a_long_log_is_still_found():
    failures = Failures()
    failures._spent = 90_000_000
    assert failures.see(Line(1, "the value is not available: some text without an error", True)) is None
    event = failures.see(Line(2, "ValueError: LoRA rank 64 is greater than max_lora_rank 16.", True))
    assert event.data["trouble"] == "vllm/lora-rank"


def test_arithmetic():
    assert whole("32,768") == 32768 and divisors(12, 2) == [2, 3, 4, 6, 12]
    assert nearest_multiples(200, 8 * 3) == [192, 216] and nearest_multiples(3, 4) == [4]
    assert listed([1]) == "1" and listed([4, 8, 16]) == "4, 8 or 16"
    assert by_nearness(4, [1, 2, 3, 6, 12]) == [3, 2, 6, 1, 12]


@pytest.mark.parametrize(
    "prefix",
    [
        "(ActorWorker(actor_infer-0) pid=90113) ",
        "(Engine pid=597306) (EngineCore_DP2 pid=598582) ERROR 03-26 20:21:53 [core.py:1299] ",
        "[Engine pid=1308262] [EngineCore_DP0 pid=1308664] ERROR 12-18 15:51:23 [v1/engine/core.py:710] ",
        "10.141.246.153: ",
        "[1,0]<stderr>:",
        "[rank3]: ",
    ],
)
def test_the_lines_of_a_traceback_are_read_behind_any_launchers_prefix(prefix):
    text = (
        "Traceback (most recent call last):\n"
        '  File "/x/site-packages/vllm/model_executor/models/qwen2_5_vl.py", line 1071, in load_weights\n'
        "    return loader.load_weights(weights)\n"
        "Exception: Call to collective_rpc method failed: 'visual.patch_embed.proj.weight'"
    )
    wrapped = "\n".join(prefix + line for line in text.splitlines())
    lines = [piece.text for piece in pieces(Line(1, wrapped.replace("\n", "\r"), True))]
    assert lines == text.splitlines()
    (event,) = events("\n".join(lines))
    assert event.data["trouble"] == "vllm/weight-key"
    assert event.data["values"]["name"] == "visual.patch_embed.proj"


def test_a_model_gathered_for_the_engine_is_told_from_one_being_loaded():
    frame = "/x/site-packages/deepspeed/runtime/zero/partition_parameters.py "
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 260.00 MiB. GPU 1 has a total capacity"
    gathered = in_line(
        line, ("/s/rollout_mixin.py _move_full_model_to_vllm", frame + "__enter__", frame + "_all_gather")
    )
    loaded = in_line(line, (frame + "_post_init_method", frame + "_zero_init_param"))
    assert gathered.trouble.id == "cuda/gather-out-of-memory" and loaded.trouble.id == "cuda/weights-out-of-memory"


def test_a_full_stop_after_a_word_is_no_part_of_it():
    found = in_line(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0", ("/x/site-packages/torch/optim/adamw.py f",)
    )
    assert found.values["unit"] == "GiB"


def test_only_the_condition_of_a_check_is_quoted():
    code = '    assert "rollout_log_probs" in data.batch.keys(), ('
    assert in_line(code).values["check"] == '"rollout_log_probs" in data.batch.keys()'


@pytest.mark.parametrize(
    ("line", "id"),
    [
        ("mat1 and mat2 shapes cannot be multiplied (549x6656 and 1x22151168)", "bitsandbytes/packed-weight"),
        ("mat1 and mat2 shapes cannot be multiplied (512x3584 and 4096x8192)", "torch/matrix-shapes"),
        ("mat1 and mat2 shapes cannot be multiplied (8x4096 and 1x5)", "torch/matrix-shapes"),
        (
            "The size of tensor a (2048) must match the size of tensor b (4241) at non-singleton dimension 1",
            "data/longer-than-limit",
        ),
        (
            "The size of tensor a (4241) must match the size of tensor b (2048) at non-singleton dimension 1",
            "data/longer-than-limit",
        ),
        (
            "The size of tensor a (512) must match the size of tensor b (513) at non-singleton dimension 1",
            "torch/shapes",
        ),
        (
            "The size of tensor a (2048) must match the size of tensor b (4096) at non-singleton dimension 1",
            "torch/shapes",
        ),
        (
            "The size of tensor a (128256) must match the size of tensor b (151936) at non-singleton dimension 0",
            "torch/shapes",
        ),
    ],
)
def test_the_numbers_of_a_message_decide_what_it_means(line, id):
    assert in_line(f"RuntimeError: {line}").trouble.id == id


@pytest.mark.parametrize(
    "line",
    [
        "error: command 'gcc' failed with exit status 1",
        "safetensors_rust.SafetensorError: File does not contain tensor model.norm.weight",
        "openai.PermissionDeniedError: 403 Forbidden: this key may not use the model",
        "FileNotFoundError: Could not find 'nvcc'",
    ],
)
def test_a_message_of_several_programs_is_not_taken_for_ones_own(line):
    found = in_line(line)
    assert found is None or found.trouble.id not in (
        "gym/missing-dependency", "transformers/damaged-weights", "hub/no-rights", "verl/interpolation",
    )  # fmt: skip
