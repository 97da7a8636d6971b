"""A faster path for Llama-like models of up to a few hundred million parameters, behind the interface `Scorer`.

With `fast: off`, training uses plain `transformers` and imports nothing from this folder.
"""
