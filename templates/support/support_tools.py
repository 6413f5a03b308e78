"""The tool `kb.search`: which articles in knowledge/ answer a question? Runs in the sandbox, without network."""

import re
from pathlib import Path
from typing import Any

KNOWLEDGE = Path(__file__).parent / "knowledge"
COMMON = {
    *("a", "an", "and", "are", "as", "at", "be", "but", "by", "can", "do", "for", "from", "have", "how", "i", "in"),
    *("is", "it", "me", "my", "not", "of", "on", "or", "so", "that", "the", "this", "to", "us", "was", "we", "what"),
    *("when", "where", "which", "will", "with", "you", "your"),
}
BEST = 2  # articles returned
TITLE_WEIGHT = 3
RELEVANT = 4  # a title word and something more, or four words of the text


def search(input: dict[str, Any]) -> dict[str, Any]:
    """Articles that share enough words with the query, the best first. None is better than one beside the point."""
    wanted = words(input["query"])
    found = []
    for path in sorted(KNOWLEDGE.glob("*.md")):
        heading, _, text = path.read_text(encoding="utf-8").partition("\n")
        title = heading.removeprefix("# ")
        score = TITLE_WEIGHT * len(wanted & words(title)) + len(wanted & words(text))
        if score >= RELEVANT:
            found.append({"title": title, "file": path.name, "score": score, "text": text.strip()})
    found.sort(key=lambda article: -article["score"])
    return {"articles": found[:BEST]}


def words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall(r"[a-z]+", text.lower())} - COMMON
