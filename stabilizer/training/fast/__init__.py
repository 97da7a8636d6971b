"""A faster path for Llama-like models of up to some hundred million parameters, behind the seam `Scorer`.

With `fast: off` training uses plain `transformers` and imports nothing of this folder.
"""
