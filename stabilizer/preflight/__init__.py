"""What can be known before the first step: whether a configuration is valid and wise, and how else to cut its batch.

    check.py     all rules over one configuration
    rules/       one file per problem, written once for all trainers
    fix.py       a corrected copy with the fewest keys changed
    planner.py   every valid batch for a number of GPUs, with its memory (memory.py) and its text (paste.py)

Reading configurations is in `stabilizer.configs`; what each trainer's keys mean, and what it refuses, is in
`stabilizer.trainers`. No configuration is run: a Python script is parsed, a shell script is split into words.
"""
