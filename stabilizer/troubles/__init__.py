"""The catalogue of known troubles: what a log says, why, and what to change.

One module a program, trainers and engines alike, so that a reader of logs can ask without knowing any trainer. A new
entry is one `Trouble` in the module of its program, with the program's own line as its example; a test asks for it.
"""
