"""Prompts as the policy reads them, problems held out for good, and a stream that any position can be asked of."""

from __future__ import annotations

import pytest

from stabilizer.training.data.config import DataConfig
from stabilizer.training.data.task import DataTask
from tests.training.data.conftest import character_tokenizer, rows

# --- the stream -----------------------------------------------------------------------------------------------------


def test_an_epoch_is_every_row_but_those_held_out(task, write):
    data = task(write(*rows(50)), held_out=10)
    first = data.training(40, seed=1, salt=0, cursor=0)
    second = data.training(40, seed=1, salt=0, cursor=40)
    held = {problem.prompt for problem in data.held_out(100)}
    assert len(held) == 10
    for epoch in (first, second):
        prompts = {problem.prompt for problem in epoch}
        assert len(prompts) == 40 and not prompts & held
    assert [p.index for p in first] != [p.index for p in second]


def test_a_resumed_stream_goes_on_where_it_stood(task, write):
    path = write(*rows(30))
    whole = task(path).training(100, seed=3, salt=1, cursor=20)
    assert whole[64:] == task(path).training(36, seed=3, salt=1, cursor=84)
    assert whole != task(path).training(100, seed=3, salt=2, cursor=20)


def test_held_out_problems_stay_when_rows_are_added_and_shuffled(task, write):
    few = task(write(*rows(200)), held_out=0.2)
    many = task(write(*reversed(rows(300)), name="more.jsonl"), held_out=0.2)
    before, after = ({p.prompt for p in data.held_out(1000)} for data in (few, many))
    assert before <= after and 20 < len(before) < 60 and len(after) < 90
    assert few.held_out(7) == few.held_out(1000)[:7]


def test_equal_prompts_are_on_the_same_side(task, write):
    data = task(write(*rows(20), *rows(20)), held_out=5)
    held = [problem.prompt for problem in data.held_out(100)]
    trained = {problem.prompt for problem in data.training(100, seed=0, salt=0, cursor=0)}
    assert len(held) == len(set(held)) == 5 and not trained & set(held)
    assert data.size == 30


def test_held_out_problems_of_another_file_are_taken_out_of_training(task, write):
    aside = write({"prompt": "question 3", "answer": 3}, {"prompt": "new", "answer": 0}, name="test.jsonl")
    data = task(write(*rows(10)), held_out_path=aside)
    assert {problem.prompt for problem in data.held_out(10)} == {"question 3", "new"}
    assert data.size == 9 and any("1 of 10 rows are not trained on" in note for note in data.notes)


def test_nothing_left_to_train_on_is_an_error(task, write):
    with pytest.raises(ValueError, match="all 3 usable rows are held out"):
        task(write(*rows(3)), held_out=3)


def test_a_problem_holds_its_row(task, write):
    (problem,) = task(write(*rows(1), {"prompt": "x", "answer": None, "level": 0}), held_out=1).training(
        1, seed=0, salt=0, cursor=0
    )
    assert problem.columns[("prompt")] == problem.prompt and set(problem.columns) == {"prompt", "answer", "level"}
    assert problem.answer == problem.columns["answer"]


# --- prompts --------------------------------------------------------------------------------------------------------


def first(data: DataTask):
    return data.training(1, seed=0, salt=0, cursor=0)[0]


def test_a_template_is_filled_with_columns(task, write):
    path = write({"q": "2+2", "unit": "{m}", "a": 4})
    data = task(path, template="{q} in {unit}, as {{json}}:\n", answer_column="a", held_out=0)
    assert first(data).prompt == "2+2 in {m}, as {json}:\n" and first(data).answer == 4


def test_plain_text_gets_one_bos_and_no_eos(plain_tokenizer, write, task):
    def ids(text, tokenizer):
        data = task(write({"prompt": text, "answer": ""}), tokenizer, held_out=0)
        return tokenizer.convert_ids_to_tokens(data.encode([first(data)], tokenizer)[0])

    assert ids("hi", plain_tokenizer) == ["<bos>", "h", "i"]
    assert ids("<bos>hi", plain_tokenizer) == ["<bos>", "h", "i"]
    ends = character_tokenizer(chat=False, eos_too=True)
    assert ids("hi", ends) == ["<bos>", "h", "i"]
    assert ids("hi<eos>", ends)[-2:] == ["i", "<eos>"]


def test_messages_go_through_the_chat_template(task, write, chat_tokenizer):
    messages = [
        {"role": "user", "content": "2+2"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "+1?"},
    ]
    data = task(write({"prompt": messages, "answer": "5"}), chat_tokenizer, system_prompt="Be brief.", held_out=0)
    text = (
        "<bos><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2+2<|im_end|>\n"
        "<|im_start|>assistant\n4<|im_end|>\n<|im_start|>user\n+1?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert first(data).prompt == text
    tokens = chat_tokenizer.convert_ids_to_tokens(data.encode([first(data)], chat_tokenizer)[0])
    assert tokens.count("<bos>") == 1 and tokens[:2] == ["<bos>", "<|im_start|>"] and tokens[-1] == "\n"
    assert first(data).columns["prompt"] == messages, "reward functions see what the data says"


def test_a_template_that_writes_no_bos_gets_none(task, write):
    tokenizer = character_tokenizer(chat=True)
    tokenizer.chat_template = tokenizer.chat_template.replace("{{ bos_token }}", "")
    data = task(write({"prompt": [{"role": "user", "content": "x"}], "answer": ""}), tokenizer, held_out=0)
    assert "<bos>" not in tokenizer.convert_ids_to_tokens(data.encode([first(data)], tokenizer)[0])


def test_a_conversation_with_a_system_message_keeps_its_own(task, write, chat_tokenizer):
    messages = [{"role": "system", "content": "own"}, {"role": "user", "content": "x"}]
    data = task(write({"prompt": messages, "answer": ""}), chat_tokenizer, system_prompt="other", held_out=0)
    assert "own" in first(data).prompt and "other" not in first(data).prompt


def test_text_becomes_a_chat_when_asked(task, write, chat_tokenizer):
    path = write({"prompt": "hi", "answer": ""})
    plain, chat = (task(path, chat_tokenizer, chat=chat, held_out=0) for chat in (False, True))
    assert first(plain).prompt == "hi"
    assert first(chat).prompt == "<bos><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert any("data.chat=true" in note for note in plain.notes)
    assert not any("data.chat=true" in note for note in chat.notes)


def test_prompts_that_are_too_long_are_dropped_and_counted(task, write):
    # 20 characters and <bos> are 21 tokens, one more than allowed
    data = task(write(*rows(5), {"prompt": "x" * 20, "answer": 0, "level": 0}), max_prompt_tokens=20, held_out=0)
    assert data.size == 5
    assert any("1 of 6 rows dropped" in note and "= 20 (the longest has 21)" in note for note in data.notes)
    assert task(write(*rows(5), {"prompt": "x" * 19, "answer": 0}), max_prompt_tokens=20, held_out=0).size == 6
    with pytest.raises(ValueError, match="5 of 5 rows dropped.*raise the limit"):
        task(write(*rows(5)), max_prompt_tokens=3)


# --- errors ---------------------------------------------------------------------------------------------------------


GOOD = {"prompt": "hi", "answer": "1"}


@pytest.mark.parametrize(
    ("row", "settings", "message"),
    [
        (GOOD, {"prompt_column": "promt"}, "no column 'promt'; nearest is 'prompt' (there are prompt, answer)"),
        (GOOD, {"answer_column": "anwser"}, "no column 'anwser'; nearest is 'answer'"),
        (GOOD, {"template": "{question}"}, "no column 'question'"),
        (GOOD, {"template": "{}"}, "{} names no column"),
        (GOOD, {"template": "{prompt.__class__}"}, "names no column"),
        (GOOD, {"template": "{prompt"}, "write a literal brace twice: {{ }}"),
        (GOOD, {"template": "{prompt:{nope}}"}, "line 1: data.template can't be filled in: KeyError: 'nope'; use only"),
        (GOOD, {"template": "{prompt:d}"}, "line 1: data.template can't be filled in: ValueError: Unknown format"),
        (
            {"prompt": ["x"], "answer": ""},
            {"template": "{prompt:>9}"},
            "line 2: data.template can't be filled in: TypeE",
        ),
        (GOOD, {"system_prompt": "x"}, "data.system_prompt needs data.chat=true"),
        (GOOD, {"chat": True}, "no chat template: use a chat model"),
        ({"prompt": "", "answer": ""}, {}, "line 2: column 'prompt' is empty"),
        ({"prompt": "x\ud83d", "answer": ""}, {}, "line 2: column 'prompt' is cut in the middle of a character"),
        ({"prompt": 5, "answer": ""}, {}, "line 2: column 'prompt' holds 5: must be text or a list of messages"),
        ({"answer": ""}, {}, "line 2: column 'prompt' is missing; the row has answer"),
        ({"prompt": "x"}, {}, "line 2: column 'answer' is missing; the row has prompt"),
        ({"prompt": "x", "answer": None}, {"template": "{answer}"}, "line 2: column 'answer' is empty"),
        (
            {"prompt": [{"role": "user", "content": "x"}], "answer": ""},
            {},
            "line 2: column 'prompt' holds chat messages",
        ),
        ({"prompt": [{"user": "x"}], "answer": ""}, {}, 'line 2: column \'prompt\' holds a message {"user": "x"}'),
        ({"prompt": [], "answer": ""}, {}, "line 2: column 'prompt' holds []"),
        (
            {"prompt": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "answer": ""},
            {},
            "line 2: column 'prompt' ends with the assistant's message",
        ),
    ],
)
def test_errors_name_line_and_column(write, plain_tokenizer, row, settings, message):
    path = write(GOOD, row)
    with pytest.raises(ValueError) as error:
        DataTask(DataConfig(path=path, held_out=0, **settings), plain_tokenizer)
    assert message in str(error.value)


def test_what_the_chat_template_refuses_is_said_with_its_line(task, write, chat_tokenizer):
    good, bad = ([{"role": role, "content": "x"}] for role in ("user", "robot"))
    with pytest.raises(ValueError, match="line 2: the chat template rejects it: unknown role"):
        task(write({"prompt": good, "answer": 0}, {"prompt": bad, "answer": 0}), chat_tokenizer)


# --- chats as data sets have them -------------------------------------------------------------------------------------


def test_parts_of_text_and_calls_of_tools_are_messages_like_any_other(task, write, chat_tokenizer):
    chat_tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<{{ c.function.name }}>{% endfor %};{% endfor %}"
        "{% if tools %}{{ tools | length }} tools{% endif %}{% if loud %}!{% endif %}"
    )
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {"name": "f"}}]},
        {"role": "tool", "content": "c", "name": "f"},
    ]
    path = write({"prompt": messages, "answer": "5", "tools": [{"name": "f"}]})
    wanted = "<bos>user:ab;assistant:<f>;tool:c;"
    assert first(task(path, chat_tokenizer, held_out=0)).prompt == wanted
    options = {"tools_column": "tools", "chat_template_kwargs": {"loud": True}}
    data = task(path, chat_tokenizer, held_out=0, **options)
    assert first(data).prompt == f"{wanted}1 tools!"
    assert [message["content"] for message in first(data).messages] == ["ab", "", "c"]


@pytest.mark.parametrize(
    "content", [None, [{"type": "image", "image": "x.png"}], [{"type": "text", "text": 5}], {"text": "x"}]
)
def test_a_message_without_text_is_refused_with_its_line(task, write, chat_tokenizer, content):
    with pytest.raises(ValueError, match="line 1: column 'prompt' holds a message"):
        task(write({"prompt": [{"role": "user", "content": content}], "answer": ""}), chat_tokenizer, held_out=0)


def test_tools_that_are_no_list_are_refused(task, write, chat_tokenizer):
    row = {"prompt": [{"role": "user", "content": "x"}], "answer": "", "tools": "not json"}
    with pytest.raises(ValueError, match="line 1: column 'tools' .data.tools_column. must hold a list"):
        task(write(row), chat_tokenizer, tools_column="tools", held_out=0)


def test_plain_text_has_no_messages(task, write, chat_tokenizer):
    path = write({"prompt": "hi", "answer": ""})
    assert first(task(path, chat_tokenizer, held_out=0)).messages == []
    asked = [{"role": "user", "content": "hi"}]
    assert first(task(path, chat_tokenizer, chat=True, held_out=0)).messages == asked
