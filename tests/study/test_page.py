"""The page of a study: one file, every table, every text escaped; and results to JSON and back."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from considerate.errors import DataError, UsageError
from considerate.study.names import plain_name
from considerate.study.page import inline_svg, make_page, write_page
from considerate.study.results import (
    ErrorByDegree,
    Results,
    ScorerResult,
    Statement,
    results_from_json,
    results_to_json,
)
from tests.helpers.study_results import PEERS, drawn_once, empty_results, plausible_results

HOSTILE = "<script>alert('x')</script> & \"quoted\" $x$"
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Reader(HTMLParser):
    """Elements, links, ids and text of a page; fails where elements are not nested."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def links(self) -> list[str]:
        return [value for _, had in self.elements for name, value in had.items() if name in ("href", "src") and value]


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def report() -> Path:
    pytest.importorskip("matplotlib")
    figures, results = drawn_once(), plausible_results()
    folder = next(iter(figures.values())).parents[1]
    write_page(results, figures, folder / "index.html")
    (folder / "results.json").write_text(results_to_json(results))
    return folder


def test_page_has_a_section_with_caption_and_links_for_each_figure(report: Path) -> None:
    from considerate.study.figures import DRAWN

    reader = read((report / "index.html").read_text())
    ids = [had["id"] for _, had in reader.elements if had.get("id")]
    assert len(ids) == len(set(ids)), "two elements have one id"
    sections = [had["id"] for tag, had in reader.elements if tag == "section"]
    assert sections == [*DRAWN, "examples", "statements", "data"]
    assert [link[1:] for link in reader.links() if link[1:] in sections] == sections, "the list of sections"
    assert sum(tag == "figcaption" for tag, _ in reader.elements) == len(DRAWN)
    assert "".join(reader.text).count("How to read it.") == len(DRAWN)
    for name in DRAWN:
        ends = (".svg", "-wide.svg", ".pdf")
        assert {f"figures/{name}{end}" for end in ends} <= set(reader.links())


def test_page_is_one_file_and_needs_no_network(report: Path) -> None:
    page = (report / "index.html").read_text()
    reader = read(page)
    ids = {had.get("id") for _, had in reader.elements}
    for link in reader.links():
        if link.startswith("#"):
            assert link[1:] in ids, f"{link} leads nowhere"
        elif link != "data:,":
            assert (report / link).is_file(), f"{link} is not in the report"
    assert not re.search(r"(src|href|url|@import)\W{0,3}(https?:)?//", page)
    assert "http" not in page
    assert {tag for tag, had in reader.elements if "src" in had} == set()
    for used in re.findall(r"url\(#([^)]*)\)", page):
        assert used in ids


def test_page_is_readable_on_a_phone_and_in_the_dark(report: Path) -> None:
    page = (report / "index.html").read_text()
    reader = read(page)
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in reader.elements
    assert "prefers-color-scheme: dark" in page
    boxes = [had for tag, had in reader.elements if tag == "div" and (had.get("class") or "").startswith("table")]
    assert len(boxes) == sum(tag == "table" for tag, _ in reader.elements) > 10
    scrolling = [had for had in boxes if had["class"] != "table board"]
    assert all(had.get("tabindex") == "0" for had in scrolling), "a box that scrolls must be reachable by keyboard"
    drawings = [had for tag, had in reader.elements if tag == "svg"]
    assert all("width" not in had and had["viewbox"] and had["aria-label"] for had in drawings)


def test_every_table_is_there_and_sorts_by_number() -> None:
    results = plausible_results()
    page = make_page(results, {}, Path())
    text = "\n".join(read(page).text)
    for scorer in results.comparisons:
        assert plain_name(scorer.name) in text
    for caption in (
        "All scorers on the same held-out likes",
        "Ours minus each peer, paired by user",
        "Ours minus each peer by the item's degree",
        "Mean rank by the user's degree",
        "Mean rank by the item's degree",
        "Median rank by the user's degree",
        "Held-out likes with p(like) under 1/2",
        "Honesty of p(like)",
        "By the popularity weight",
        "After the last sweep",
        "At the end of the fit",
        "Fitted laws",
        "Statements of the paper",
        "Versions",
    ):
        assert caption in text, caption
    assert 'data-value="0.931"' in page
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', page)
    assert heads[:5] == ["scorer", "mean rank", "mean rank, tail", "Recall@20", "NDCG@20"]
    for said in results.statements:
        assert said.paper in text


def test_an_unknown_number_is_a_dash_and_sorts_last() -> None:
    results = replace(
        empty_results(),
        comparisons=[ScorerResult("one", "", 0, math.nan, {"S_rank": math.nan}, {"S_rank": (0.1, 0.2)})],
    )
    page = make_page(results, {}, Path())
    assert re.search(r'data-value="">–', page)
    assert "nan" not in re.sub(r"<script>.*?</script>", "", page, flags=re.S).lower()


def test_every_text_from_the_data_is_escaped(tmp_path: Path) -> None:
    full = plausible_results()
    data = replace(full.data, name=HOSTILE, source=HOSTILE, rule=HOSTILE, notes=[HOSTILE], split=HOSTILE)
    hostile = replace(
        full,
        data=data,
        ranks=[replace(each, score=each.score + HOSTILE) for each in full.ranks],
        errors=[replace(each, name=HOSTILE) for each in full.errors],
        reliability=[replace(each, name=HOSTILE) for each in full.reliability],
        considered=[replace(each, name=HOSTILE) for each in full.considered],
        knobs=[replace(each, name=HOSTILE) for each in full.knobs],
        traces=[replace(each, name=HOSTILE, taus={HOSTILE: each.bound}) for each in full.traces],
        times=[replace(each, name=HOSTILE) for each in full.times],
        degrees=[replace(each, law=HOSTILE) for each in full.degrees],
        comparisons=[
            replace(each, name=each.name + HOSTILE, settings=HOSTILE, metrics={**each.metrics, HOSTILE: 1.0})
            for each in full.comparisons
        ],
        differences=[replace(each, peer=HOSTILE, ours=HOSTILE) for each in full.differences],
        statements=[Statement(HOSTILE, HOSTILE, None, HOSTILE)],
        versions={HOSTILE: HOSTILE},
    )
    page = make_page(hostile, {}, tmp_path)
    reader = read(page)
    assert sum(tag == "script" for tag, _ in reader.elements) == 1
    assert "alert('x')" in "".join(reader.text)
    assert page.count("<script>") == 1


def test_figures_with_hostile_names_are_inlined_safely(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from considerate.study.figures import draw_all

    full = plausible_results()
    hostile = replace(
        empty_results(),
        ranks=[replace(each, score="--> " + HOSTILE) for each in full.ranks[:2]],
        balance=[replace(full.balance[0], name="--> " + HOSTILE)],
    )
    page = make_page(hostile, draw_all(hostile, tmp_path), tmp_path)
    assert sum(tag == "script" for tag, _ in read(page).elements) == 1


def test_links_survive_odd_folders(tmp_path: Path) -> None:
    folder = tmp_path / 'a "b" & #1'
    (folder / "figures").mkdir(parents=True)
    svg = folder / "figures" / "knob.svg"
    svg.write_text('<?xml version="1.0"?>\n<svg viewBox="0 0 1 1"><g id="a"><use href="#a"/></g></svg>')
    full = replace(empty_results(), knobs=plausible_results().knobs)
    write_page(full, {"knob": svg}, tmp_path / "index.html")
    links = read((tmp_path / "index.html").read_text()).links()
    assert "a%20%22b%22%20%26%20%231/figures/knob.svg" in links


def test_inlined_figures_keep_their_ids_apart() -> None:
    text = '<?xml?><!-- c --><svg viewBox="0 0 2 3" width="9pt"><metadata>http://x</metadata><style>*{}</style>'
    text += '<path id="m1" clip-path="url(#p1)"/><use xlink:href="#m1"/></svg>'
    assert inline_svg(text, "knob", "a & b") == (
        '<svg viewBox="0 0 2 3" role="img" aria-label="a &amp; b">'
        '<path id="knob-m1" clip-path="url(#knob-p1)"/><use href="#knob-m1"/></svg>'
    )


def test_the_same_results_give_the_same_page(report: Path) -> None:
    results = results_from_json((report / "results.json").read_text())
    assert make_page(results, drawn_once(), report) == (report / "index.html").read_text()


def test_without_jinja_there_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UsageError, match=r"pip install 'considerate\[study\]'"):
        make_page(empty_results(), {}, Path())


def test_an_empty_study_has_a_page_too() -> None:
    page = make_page(empty_results(), {}, Path())
    reader = read(page)
    assert [had["id"] for tag, had in reader.elements if tag == "section"] == ["data"]
    assert "This study has no peers." in "".join(reader.text)


def test_the_first_table_has_ours_and_every_rival() -> None:
    page = make_page(plausible_results(), {}, Path())
    board = page[page.index('<div class="table board">') : page.index('<div class="answers">')]
    assert re.findall(r'<th scope="row" class="text">([^<]*)', board) == [
        "considerate",
        "BPR-uniform",
        "EASE",
        "ALS",
        "popularity",
        "BPR-popularity",
    ]
    ease = board[board.index(">EASE<") : board.index(">ALS<")]
    assert re.search(r'0.312 <small class="no">−0.021<span class="hidden"> ours behind it', ease)
    assert re.search(r'0.921 <small class="yes">\+0.010<span class="hidden"> ours ahead of it', ease)


def test_the_page_says_how_long_the_study_took_in_all() -> None:
    text = " ".join(" ".join(read(make_page(plausible_results(), {}, Path())).text).split())
    assert "The study took 62 min: 12 min in this run, 50 min in earlier ones." in text


def test_examples_have_titles_and_mark_what_was_held_out() -> None:
    page = make_page(plausible_results(), {}, Path())
    example = page[page.index('<article class="example">') : page.index("</article>")]
    words = " ".join("".join(read(example + "</article>").text).split())
    assert "User u 17, 12 likes" in words
    assert "Likes Alien; Brazil; and 10 more." in words
    assert "considerate, tuned for NDCG@20 Dune p(like) 81 % held out Solaris p(like) 64 %" in words
    assert "most popular Titanic Jaws" in words


def test_no_paper_name_of_a_score_is_left_unexplained() -> None:
    text = " ".join(read(make_page(plausible_results(), {}, Path())).text)
    assert text.count("S_rank") == text.count("S_rank in the paper") > 0
    assert not re.search(r"first places|, for the tail", text)


# --- The answers ---


def answers(results: Results) -> list[str]:
    """The text of the four cards."""
    page = make_page(results, {}, Path())
    cards = page[page.index('<div class="answers">') : page.index('<details class="words">')].split(
        '<div class="answer">'
    )[1:]
    return [" ".join("".join(read(card.split("</ul>")[0] + "</ul>").text).split()) for card in cards]


def test_ours_and_its_peers_are_told_apart() -> None:
    results = plausible_results()
    assert results.ours is not None
    assert results.ours.name == "considerate"
    assert tuple(peer.name for peer in results.peers) == PEERS


def test_the_four_questions_are_answered_from_the_numbers() -> None:
    ranking, honesty, knob, comparison = answers(plausible_results())
    assert "mean rank 0.931" in ranking
    assert "stands above 93.1 % of the items" in ranking
    assert "Recall@20 is 0.291" in ranking
    assert re.search(r"Users: best at \S+ likes \(0.9\d+\), worst at \S+ \(0.\d+\)", ranking)
    assert "Items: best at 1,540-3,000 likes (0.961), worst at 2-3 (0.726)." in ranking
    assert "off by 0.084; 0.012 recalibrated" in honesty
    assert "the paper's, r = 1/2: 0.112; default: 0.084; default, recalibrated: 0.012." in honesty
    assert "default: 69 %" in honesty
    assert (
        "popularity (pi): 79.4 %; walk (w): 82.8 %; taste (a): 80.1 %; taste and walk (a + log w): 87.5 %." in honesty
    )
    assert "popularity weight of 0.55" in knob
    assert "From 0 to there, on the first split, mean rank goes from 0.907 to 0.925, mean rank of the tail from" in knob
    assert "from 0.760 to 0.606" in knob
    assert "At its worst it predicts" in honesty
    assert "ahead of 5 of 5 by mean rank" in comparison
    assert re.search(
        r"Part of the catalogue: best \+0.\d+ against \S+ on items of .*, worst −0.\d+ against", comparison
    )
    assert "Recall@20: ahead of popularity, BPR-uniform, BPR-popularity and ALS, behind EASE." in comparison
    assert "Mean rank, tail (ours tuned for it): ahead of all 5." in comparison


def test_an_interval_across_zero_is_neither_ahead_nor_behind() -> None:
    results = plausible_results()
    level = [
        replace(peer, difference_intervals={"S_rank": (-0.001, 0.002)}) if peer.name == "ALS" else peer
        for peer in results.comparisons
    ]
    comparison = answers(replace(results, comparisons=level))[3]
    assert "level with ALS" in comparison
    assert "ahead of 4 of 5" in comparison


def test_errors_are_weighed_by_their_counts_and_small_strata_are_not_named() -> None:
    errors = [ErrorByDegree("m", [1, 2, 10, 100], [1, 9, 99, 999], [0.5, 0.3, 0.1, 0.2], [(0, 1)] * 4, [5, 5, 30, 10])]
    honesty = answers(replace(empty_results(), errors=errors))[1]
    assert "below one half: m: 12.5 %" in honesty
    assert "Of users with one like: m: 50 %" in honesty
    full = plausible_results()
    rank = next(each for each in full.ranks if each.by == "user" and each.score == "considerate")
    odd = replace(rank, mean=[0.99, *rank.mean[1:]], count=[3, *rank.count[1:]])
    assert "0.990" not in answers(replace(full, ranks=[odd]))[0]


def test_without_truth_the_page_says_so() -> None:
    honesty = answers(replace(plausible_results(), reliability=[], considered=[]))[1]
    assert "can be checked on likes only" in honesty
    assert "Who considers what" not in honesty


# --- JSON ---


def test_results_round_trip_through_strict_json() -> None:
    results = plausible_results()
    text = results_to_json(results)
    assert results_from_json(text) == results
    assert results_to_json(results_from_json(text)) == text
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_nan_is_null_and_null_is_nan_only_where_a_number_belongs() -> None:
    results = replace(
        empty_results(),
        errors=[ErrorByDegree("m", [1], [2], [math.nan], [(math.nan, math.inf)], [0])],
        statements=[Statement("a", "b", None, "c")],
        seconds=math.nan,
    )
    back = results_from_json(results_to_json(results))
    assert math.isnan(back.errors[0].error[0])
    assert all(map(math.isnan, back.errors[0].interval[0]))
    assert isinstance(back.errors[0].interval[0], tuple)
    assert back.statements[0].agrees is None
    assert back.data.rule is None
    assert math.isnan(back.seconds)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda plain: plain.pop("ranks"), "another version"),
        (lambda plain: plain.update(more=1), "another version"),
        (lambda plain: plain["data"].update(users="many"), "results.data.users"),
        (lambda plain: plain["data"].update(users=None), "results.data.users"),
        (lambda plain: plain.update(seconds="long"), "results.seconds"),
        (lambda plain: plain["errors"][0].update(interval=[[1, 2, 3]]), "results.errors.interval"),
        (lambda plain: plain.update(errors={}), "results.errors"),
        (lambda plain: plain["statements"][0].update(agrees="yes"), "results.statements.agrees"),
    ],
)
def test_damaged_results_are_refused_with_their_place(damage: object, says: str) -> None:
    plain = json.loads(results_to_json(plausible_results()))
    assert callable(damage)
    damage(plain)
    with pytest.raises(DataError, match=says):
        results_from_json(json.dumps(plain))


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(DataError, match="not JSON"):
        results_from_json("{")
