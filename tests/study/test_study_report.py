"""The report of a study, and its command."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from considerate.errors import OutputError
from considerate.study.page import missing_parts, open_report, write_report
from considerate.study.results import Results, results_from_json
from tests.helpers.shell import run as shell
from tests.helpers.study_fixtures import table, without_seconds

# --- The report and the shell ---


def test_the_report(results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from considerate.study import figures
    from considerate.study.figures.style import Looks, paper_style

    with paper_style():
        drawn = [name for name, draw in figures.DRAWN.items() if draw(results, Looks.of(results)) is not None]
    assert drawn == list(figures.DRAWN)
    monkeypatch.setattr(figures, "DRAWN", {"knob": figures.DRAWN["knob"]})  # saving all is tested elsewhere
    with open_report(tmp_path / "new" / "report") as folder:
        _, written = write_report(results, folder)
    assert set(written) == {"numbers", "figures", "page"}
    assert without_seconds(results_from_json((folder / "results.json").read_text())) == without_seconds(results)
    assert "<html" in (folder / "index.html").read_text()
    assert sorted(file.name for file in (folder / "figures").iterdir()) == ["knob-wide.svg", "knob.pdf", "knob.svg"]
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file"), open_report(tmp_path / "file"):
        pass


def test_a_report_without_matplotlib(results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with open_report(tmp_path) as folder:
        _, written = write_report(results, folder)
    assert "figures" not in written
    assert (tmp_path / "index.html").stat().st_size > 1000
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with open_report(tmp_path / "numbers") as folder:
        assert set(write_report(results, folder)[1]) == {"numbers"}
    assert missing_parts() == {"figures": "matplotlib", "page": "jinja2"}


def test_bad_input_leaves_no_folder_behind(tmp_path: Path) -> None:
    report = tmp_path / "new" / "report"
    assert shell("study", tmp_path / "nowhere.parquet", "-o", report).exit_code == 2
    assert not report.parent.exists()
    (tmp_path / "kept").mkdir()
    assert shell("study", tmp_path / "nowhere.parquet", "-o", tmp_path / "kept").exit_code == 2
    assert (tmp_path / "kept").is_dir()


@pytest.mark.usefixtures("no_figures")
def test_study_in_the_shell(ratings: Path, tmp_path: Path) -> None:
    report, titles = tmp_path / "report", tmp_path / "titles.csv"
    titles.write_text("item,title\n" + "".join(f"{item},Film {item}\n" for item in range(80)))
    common = (ratings, "--where", "rating >= 4", "--no-peers", "--splits", 1, "--factors", 3, "--sweeps", 5)
    common += ("--titles", titles, "-o", report, "--title", "coins")
    done = shell("study", *common)
    assert done.exit_code == 0, done.output
    for word in ("coins", "tuned for", "mean rank", "popularity", "calibration error", "index.html"):
        assert word in done.stdout
    assert "matplotlib is not installed" in done.stderr
    progress = re.findall(r"^(\d+)/(\d+): (.*) \(after [\d.]+ s\)$", done.stderr, re.M)
    counts = [int(count) for count, _, _ in progress]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] == int(progress[-1][1]) - 1
    assert progress[-1][2] == "summary"
    stored = json.loads((report / "results.json").read_text())
    assert stored["data"]["rule"] == "rating >= 4"
    listed = [item for example in stored["examples"] for items in example["lists"].values() for item in items]
    assert {re.sub(r"\d+", "7", item) for item in listed} == {"Film 7"}
    again = shell("study", *common, "--json")
    assert again.exit_code == 0, again.output
    plain = json.loads(again.stdout)
    assert plain["comparisons"] == stored["comparisons"]  # fit seconds too: nothing was fitted
    assert plain["times"] == stored["times"]
    assert plain["reused_seconds"] > 0 == stored["reused_seconds"]
    assert plain["examples"] == stored["examples"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--splits", "0"], "splits is 0"),
        (["--factors", "0"], "factors is 0"),
        (["--judged-where", "rating >= 4"], "--judged-where goes with --judged"),
        (["--test", "nowhere.parquet"], "no such file"),
        (["--judged", "nowhere.parquet"], "no such file"),
    ],
)
def test_study_refuses_what_makes_no_sense(ratings: Path, tmp_path: Path, arguments: list[str], words: str) -> None:
    done = shell("study", ratings, "--where", "rating >= 4", "-o", tmp_path / "report", *arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1 + done.stderr.count("note: ")


def test_study_needs_two_likes_of_someone(tmp_path: Path) -> None:
    data = table(tmp_path / "likes.parquet", user=[0, 1, 2], item=[0, 1, 0])
    done = shell("study", data, "-o", tmp_path / "report", "--no-peers")
    assert done.exit_code == 2
    assert "held out" in done.stderr


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_coat_in_one_command(data_dir: Path, tmp_path: Path) -> None:
    """Its randomly assigned test is the truth about p(like)."""
    coat = data_dir / "coat"
    options = ("--judged", coat / "test.parquet", "--no-peers", "--splits", 2, "-o", tmp_path)
    done = shell("study", coat / "train.parquet", "--where", "rating >= 4", *options)
    assert done.exit_code == 0, done.output
    found = results_from_json((tmp_path / "results.json").read_text())
    assert found.data.judged > 3000
    tables = {one.name: one for one in found.reliability}
    assert tables["default"].auc > 0.5
    assert tables["default, recalibrated"].calibration_error < 0.03
