"""Numbers with their nouns, for people."""


def plural(count: int, word: str, words: str | None = None) -> str:
    """`1 record`, `1,200 records`."""
    return f"{count:,} {word if count == 1 else words or word + 's'}"
