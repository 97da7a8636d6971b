"""A reward function: `completion` in the singular, so it gets one sample and returns one number."""


def close(completion: str, answer: str) -> float:
    """The share of digits that are right; one too many counts as wrong."""
    right = sum(given == wanted for given, wanted in zip(completion, answer, strict=False))
    return right / max(len(completion), len(answer))
