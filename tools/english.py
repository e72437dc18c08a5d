"""Check the English that a machine can check: docstrings, sentences of the docs, subjects of commits.

    python tools/english.py                  every docstring and sentence that breaks a rule
    python tools/english.py --commit FILE    the message of a commit, as a commit-msg hook

tests/house/test_english.py holds the tree to the same rules.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "considerate"
MOST_WORDS = 45  # of a sentence
MOST_LETTERS = 72  # of a subject

NO_SUBJECT = re.compile(r"(What|Of|That|Those|How|Whether|Where|Whose|Which|Whom|The same)\b")
NO_IMPERATIVE = re.compile(r"(The|An?|This|These|It|There|In|On|For|With|No|One)\b|\w+(ing|ed)\b|\w+(?<![su])s\b")
IMPERATIVE = re.compile(r"(Bring|Embed|Exceed|Feed|Need|Seed|Shed|Speed|Spring|Bias|Canvas)\b")
BY_GIT = re.compile(r"(Merge|Revert|fixup!|squash!|amend!) ")


def docstrings(package: Path) -> Iterator[tuple[Path, int, str]]:
    """File, line and first line of each docstring."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, documented) and (text := ast.get_docstring(node)):
                yield path, node.body[0].lineno, text.partition("\n")[0]


def pages() -> list[Path]:
    """Pages of prose. The changelog is a list of notes."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found += [ROOT / folder / "README.md" for folder in ("attacks", "examples", "studies")]
    return sorted(path for path in found if path.name != "CHANGELOG.md")


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs, items of lists and cells of tables; no code."""
    text = re.sub(r"^(```|~~~).*?^\1|<!--.*?-->", "", text, flags=re.S | re.M)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=#)", text):
        lines = [line for line in block.split("\n") if line.strip()]
        if all(line.startswith("    ") for line in lines):
            continue
        for line in lines:
            if line.startswith("|"):
                yield from line.strip("|").split(" | ")
        yield " ".join(line.strip() for line in lines if not line.startswith("|"))


def sentences(text: str) -> Iterator[str]:
    """Sentences of a page of Markdown, with a word in place of each piece of code and address."""
    for paragraph in paragraphs(text):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", paragraph))
        plain = re.sub(r"\b(e\.g|i\.e|eqs?|vs|cf|al|p)\.", r"\1", plain)
        yield from filter(None, re.split(r"(?<=[.!?])[*_)\"]*\s+", plain.strip()))


def words(sentence: str) -> int:
    return sum(re.search(r"\w", word) is not None for word in sentence.split())


def long_sentences(text: str) -> list[str]:
    return [one for one in sentences(text) if words(one) > MOST_WORDS]


def commit_faults(message: str) -> list[str]:
    """Reasons against the message of a commit."""
    lines = [line for line in message.partition("\n# ------------------------ >8")[0].splitlines() if line[:1] != "#"]
    subject, *body = "\n".join(lines).strip().split("\n")
    if BY_GIT.match(subject):
        return []
    faults = []
    if len(subject) > MOST_LETTERS:
        faults.append(f"the subject has {len(subject)} letters, {MOST_LETTERS} at most")
    if not re.match(r"[A-Z][a-z-]+ ", subject):
        faults.append("the subject begins with a verb and a capital letter: Add, Remove, Name ...")
    elif (NO_SUBJECT.match(subject) or NO_IMPERATIVE.match(subject)) and not IMPERATIVE.match(subject):
        faults.append(f"the subject begins with a verb in the imperative, not with {subject.split()[0]}")
    if subject.endswith("."):
        faults.append("the subject ends without a full stop")
    if body and body[0].strip():
        faults.append("a blank line parts the subject from the rest")
    return faults


def main() -> int:
    if sys.argv[1:2] == ["--commit"]:
        faults = commit_faults(Path(sys.argv[2]).read_text())
    else:
        faults = [
            f"{path.relative_to(ROOT)}:{line}: {text}"
            for path, line, text in docstrings(PACKAGE)
            if NO_SUBJECT.match(text)
        ]
        faults += [
            f"{path.relative_to(ROOT)}: {words(one)} words: {one}"
            for path in pages()
            for one in long_sentences(path.read_text())
        ]
    print(*faults, sep="\n", end="\n" if faults else "")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
