"""BM25: documents ranked by the words they share with a query.

    score(d, q) = sum over words w of q of  idf(w) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(d) / mean len))
    idf(w) = ln(1 + (n - df + 0.5) / (df + 0.5))

tf: occurrences of w in d; df: documents that contain w; n: documents. Robertson and Zaragoza, The Probabilistic
Relevance Framework: BM25 and Beyond, 2009. The added 1 inside the logarithm keeps idf above 0 for words of most
documents.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Words of a text as the index stores them: runs of letters and digits, in lower case."""
    return WORD.findall(text.lower())


class Hit(NamedTuple):
    """One document found."""

    contents: str
    score: float


class Bm25:
    """An index over documents in memory; a retriever for `search.py`."""

    def __init__(self, documents: Sequence[str], *, k1: float = 1.2, b: float = 0.75):
        self._documents = list(documents)
        counts = [Counter(words(document)) for document in self._documents]
        length = np.array([count.total() for count in counts], dtype=float)
        norm = k1 * (1 - b + b * length / max(length.mean(), 1.0)) if counts else length
        postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, count in enumerate(counts):
            for word, times in count.items():
                postings[word].append((number, times))
        self._weights: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for word, pairs in postings.items():
            where, tf = np.array(pairs).T
            idf = np.log1p((len(counts) - len(where) + 0.5) / (len(where) + 0.5))
            self._weights[word] = where, idf * tf * (k1 + 1) / (tf + norm[where])
        self.hits = lru_cache(maxsize=65_536)(self._hits)  # a policy repeats its queries

    def _hits(self, query: str, topk: int) -> tuple[Hit, ...]:
        """The best `topk` documents that share a word with the query, best first; of equal ones the earlier first."""
        score = np.zeros(len(self._documents))
        for word in words(query):
            if word in self._weights:
                where, weight = self._weights[word]
                score[where] += weight
        best = np.argsort(-score, kind="stable")[:topk]
        return tuple(Hit(self._documents[i], float(score[i])) for i in best if score[i] > 0)

    def retrieve(self, queries: Sequence[str], topk: int) -> list[list[str]]:
        """The contents of the best documents for each query."""
        return [[hit.contents for hit in self.hits(query, topk)] for query in queries]
