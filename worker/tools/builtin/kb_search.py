"""`kb.search`: full-text search over the Markdown and text files of the folders it may read (SQLite FTS5, BM25).

The index is built anew in memory for each call: a few hundred articles take milliseconds, and nothing can be stale.
"""

import os
import re
import sqlite3
from pathlib import Path
from typing import Any

_FILE_BYTES_MAX = 1_000_000
_FILES_MAX = 5_000
_TITLE_WEIGHT = 3.0
_COMMON = {
    *("a", "an", "and", "are", "as", "at", "be", "but", "by", "can", "do", "for", "from", "have", "how", "i", "in"),
    *("is", "it", "me", "my", "not", "of", "on", "or", "so", "that", "the", "this", "to", "us", "was", "we", "what"),
    *("when", "where", "which", "will", "with", "you", "your"),
}


def run(input: dict[str, Any]) -> dict[str, Any]:
    folders = os.environ.get("AGENTFLOW_READABLE", "")  # noqa: TID251 - how a sandbox tells a tool what it was given
    if not folders:
        raise PermissionError(
            "kb.search has no folder to search; grant one with `fs.read:<folder>` where it is hosted."
        )
    words = [word for word in re.findall(r"\w+", input["query"].lower()) if word not in _COMMON]
    if not words:
        return {"articles": []}
    index = _indexed(Path(folder) for folder in folders.split(os.pathsep))
    query = " OR ".join(f'"{word}"' for word in dict.fromkeys(words))
    rows = index.execute(
        "SELECT title, file, text, -bm25(articles, ?, 0.0, 1.0) AS score FROM articles WHERE articles MATCH ?"
        " ORDER BY score DESC, file LIMIT ?",
        (_TITLE_WEIGHT, query, input.get("limit", 5)),
    )
    found = [{"title": title, "file": file, "text": text, "score": score} for title, file, text, score in rows]
    least = input.get("min_words", 1)
    return {"articles": [article for article in found if _shared(words, article) >= least]}


def _shared(words: list[str], article: dict[str, Any]) -> int:
    known = {_stem(word) for word in re.findall(r"\w+", f"{article['title']} {article['text']}".lower())}
    return len({_stem(word) for word in words} & known)


def _stem(word: str) -> str:
    return word.removesuffix("s")


def _indexed(folders: Any) -> sqlite3.Connection:
    index = sqlite3.connect(":memory:")
    index.execute("CREATE VIRTUAL TABLE articles USING fts5(title, file UNINDEXED, text, tokenize='porter unicode61')")
    count = 0
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix.lower() not in (".md", ".txt") or path.is_symlink() or not path.is_file():
                continue
            count += 1
            if count > _FILES_MAX or path.stat().st_size > _FILE_BYTES_MAX:
                raise ValueError(f"kb.search reads up to {_FILES_MAX} files of up to {_FILE_BYTES_MAX} bytes.")
            heading, _, text = path.read_text(encoding="utf-8", errors="replace").partition("\n")
            row = (heading.removeprefix("# ").strip() or path.stem, str(path.relative_to(folder)), text.strip())
            index.execute("INSERT INTO articles VALUES (?, ?, ?)", row)
    return index
