"""Writes sums.jsonl: all sums of a two-digit and a one-digit number, as chats after three worked examples."""

import json
from itertools import product


def turns(a, b):
    return [
        {"role": "user", "content": f"What is {a} + {b}?"},
        {"role": "assistant", "content": f"<answer>{a + b}</answer>"},
    ]


EXAMPLES = [*turns(3, 4), *turns(20, 15), *turns(46, 8)]

with open("sums.jsonl", "w", encoding="utf-8") as file:
    for a, b in product(range(10, 100), range(1, 10)):
        row = {"prompt": [*EXAMPLES, turns(a, b)[0]], "answer": a + b}
        file.write(json.dumps(row) + "\n")
