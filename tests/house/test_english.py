"""The English that a machine can check (tools/english.py): docstrings, sentences of the docs, subjects of commits."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from english import MOST_LETTERS, NO_SUBJECT, PACKAGE, commit_faults, docstrings, long_sentences, pages, sentences
from tests.helpers.paths import ROOT


@cache
def without_subject() -> dict[str, list[str]]:
    """Room -> the docstrings that begin with no noun or verb."""
    found: dict[str, list[str]] = {}
    for path, line, text in docstrings(PACKAGE):
        if NO_SUBJECT.match(text):
            place = path.relative_to(PACKAGE)
            found.setdefault(place.parts[0], []).append(f"{place}:{line}: {text}")
    return found


@pytest.mark.parametrize("room", sorted({path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py")}))
def test_docstrings_begin_with_a_noun_or_a_verb(room: str) -> None:
    faults = without_subject().get(room, [])
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in pages()])
def test_sentences_of_the_docs_are_short(page: str) -> None:
    faults = long_sentences((ROOT / page).read_text())
    assert not faults, "\n".join(faults)


def test_the_reader_of_docstrings(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        '"""Whatever it is."""\nclass A:\n    """Of B.\n\n    More."""\n    def f(self): ...\n'
    )
    found = [text for _, _, text in docstrings(tmp_path)]
    assert found == ["Whatever it is.", "Of B."]
    assert [bool(NO_SUBJECT.match(text)) for text in found] == [False, True]


def test_the_reader_of_sentences() -> None:
    page = "# A title\n\nOne, e.g. `x. y`. **Two**\nlines [there](a.md). Three?\n\n- an item\n- another\n"
    page += "\n    code. Here.\n\n| a | b. c |\n|---|---|\n\n```\nNot. Read.\n```\n"
    found = list(sentences(page))
    assert found[:6] == ["# A title", "One, e.g code.", "**Two** lines there.", "Three?", "- an item", "- another"]
    assert [one.strip() for one in found[6:9]] == ["a", "b.", "c"]
    assert not any("code. Here" in one or "Not" in one for one in found)
    assert long_sentences("word " * 45 + ".") == []
    assert len(long_sentences("word " * 46 + ". Short.")) == 1


SUBJECTS = ["Add a column", "Process events in order", "Embed a font", "Merge branch 'x'", "fixup! Whatever it is"]
NO_SUBJECTS = ["The page is new", "tests: faster", "Docs: faster", "Added a column", "Adds a column", "Adding columns"]


@pytest.mark.parametrize("subject", [*SUBJECTS, "Hold " + "x" * (MOST_LETTERS - 5)])
def test_a_subject_is_an_imperative(subject: str) -> None:
    assert commit_faults(f"{subject}\n\nWhy it is so.\n# a comment of git\n") == []


@pytest.mark.parametrize(
    "subject", [*NO_SUBJECTS, "What is new", "Of G", "Add a column.", "Add", "", "Hold " + "x" * (MOST_LETTERS - 4)]
)
def test_other_subjects_are_refused(subject: str) -> None:
    assert len(commit_faults(subject)) == 1


def test_the_hook_ends_with_an_error_and_a_reason(tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text("Adds a column\nto a table\n")
    hook = [sys.executable, str(ROOT / "tools" / "english.py"), "--commit", str(message)]
    refused = subprocess.run(hook, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "not with Adds" in refused.stdout
    assert "blank line" in refused.stdout
    message.write_text("Add a column\n")
    assert subprocess.run(hook, check=False).returncode == 0
