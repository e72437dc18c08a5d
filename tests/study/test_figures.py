"""The figures of a study: what is drawn, what is not, and that the same results give the same bytes."""

from __future__ import annotations

import itertools
import math
import os
import re
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.paths import ROOT

pytest.importorskip("matplotlib")

from considerate.study.figures import DRAWN, draw_all
from considerate.study.figures.fits import draw_balance
from considerate.study.figures.style import (
    COLUMN,
    DARK,
    PAGE,
    PALE,
    Looks,
    Sheet,
    bin_centre,
    degree_text,
    enough,
    paper_style,
    plain,
)
from considerate.study.results import Results
from tests.helpers.randomised import share
from tests.helpers.study_results import PEERS, drawn_once, empty_results, plausible_results

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def drawn() -> dict[str, Path]:
    return drawn_once()


def texts(svg: Path) -> str:
    """What a figure says: matplotlib leaves each text in a comment beside its outlines."""
    return "\n".join(re.findall(r"<!-- (.*?) -->", svg.read_text(), re.S))


def wide(svg: Path) -> Path:
    return svg.with_name(f"{svg.stem}-wide.svg")


def test_every_figure_is_drawn_from_full_results(drawn: dict[str, Path]) -> None:
    assert list(drawn) == list(DRAWN)
    for svg in drawn.values():
        assert ElementTree.parse(svg).getroot().tag == SVG + "svg"
        assert svg.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


def test_figures_are_of_two_widths_and_legible(drawn: dict[str, Path]) -> None:
    for name, svg in drawn.items():
        for file, inches in ((svg, 3.4), (wide(svg), 7.2)):
            root = ElementTree.parse(file).getroot()
            width, height = (float(root.attrib[side].removesuffix("pt")) for side in ("width", "height"))
            assert width == pytest.approx(inches * 72, abs=0.1), name
            assert height < 9 * 72, f"{name} is higher than a page"
    with paper_style():
        import matplotlib

        sizes = [matplotlib.rcParams[f"{part}.labelsize"] for part in ("axes", "xtick", "ytick")]
        assert min(*sizes, matplotlib.rcParams["legend.fontsize"]) >= 7


def test_svg_is_self_contained_and_pdf_embeds_its_fonts(drawn: dict[str, Path]) -> None:
    for name, svg in drawn.items():
        root = ElementTree.parse(svg).getroot()
        assert not root.findall(f".//{SVG}text"), f"{name}: text depends on the reader's fonts"
        assert not root.findall(f".//{SVG}image"), f"{name}: not a vector figure"
        assert b"/FontFile2" in svg.with_suffix(".pdf").read_bytes(), f"{name}: a font is not embedded as TrueType"


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes(drawn: dict[str, Path], tmp_path: Path) -> None:
    names = share(list(DRAWN), 2)
    code = "import sys, pathlib, considerate.study.figures as f\nfrom tests.helpers import study_results as s\n"
    code += f"f.DRAWN = {{name: f.DRAWN[name] for name in {names}}}\n"
    code += "f.draw_all(s.plausible_results(), pathlib.Path(sys.argv[1]))"
    paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=environment)
    for name in names:
        for end in (".svg", ".pdf", "-wide.svg"):
            file = f"{name}{end}"
            assert (drawn[name].parent / file).read_bytes() == (tmp_path / file).read_bytes(), file


def test_no_figure_without_data_and_old_ones_go(tmp_path: Path) -> None:
    (tmp_path / "knob.svg").write_text("of another study")
    (tmp_path / "mine.svg").write_text("not ours")
    assert draw_all(empty_results(), tmp_path) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["mine.svg"]


LISTS = {  # a part of the results -> the figures that go with it
    "degrees": {"degrees", "hidden-degrees"},
    "balance": {"balance"},
    "errors": {"errors"},
    "histograms": {"histograms"},
    "ranks": {"mean-ranks", "percentiles"},
    "reliability": {"reliability"},
    "considered": {"considered"},
    "knobs": {"knob"},
    "traces": {"traces"},
    "times": {"times"},
    "comparisons": {"differences"},
    "differences": {"differences-by-degree"},
}


def test_each_figure_hangs_on_its_own_part_of_the_results() -> None:
    full = plausible_results()
    assert set(LISTS) <= {each.name for each in fields(Results)}
    with paper_style():
        for part, names in LISTS.items():
            alone = replace(empty_results(), **{part: getattr(full, part)})
            looks = Looks.of(alone)
            assert {name for name, draw in DRAWN.items() if draw(alone, looks) is not None} == names, part


def blanked(value: object) -> object:
    """The same with every float NaN."""
    if isinstance(value, float):
        return math.nan
    if isinstance(value, list):
        return [blanked(part) for part in value]
    if isinstance(value, tuple):
        return tuple(blanked(part) for part in value)
    if isinstance(value, dict):
        return {key: blanked(part) for key, part in value.items()}
    return value


def test_bins_that_are_all_empty_draw_nothing() -> None:
    full = plausible_results()
    parts = {}
    for part in LISTS:
        rows = getattr(full, part)
        parts[part] = [replace(row, **{f.name: blanked(getattr(row, f.name)) for f in fields(row)}) for row in rows]
    empty = replace(full, **{**parts, "balance": []})
    looks = Looks.of(empty)
    with paper_style():
        assert [name for name, draw in DRAWN.items() if draw(empty, looks) is not None] == []


def test_one_empty_bin_leaves_a_gap(tmp_path: Path) -> None:
    full = plausible_results()
    rank = full.ranks[0]
    holed = replace(
        rank,
        mean=[math.nan, *rank.mean[1:]],
        interval=[(math.nan, math.nan), *rank.interval[1:]],
        percentiles={cut: [math.nan, *values[1:]] for cut, values in rank.percentiles.items()},
        count=[0, *rank.count[1:]],
    )
    few = replace(empty_results(), ranks=[holed])
    assert set(draw_all(few, tmp_path)) == {"mean-ranks", "percentiles"}


# --- Looks ---


def test_a_score_has_one_colour_in_all_figures_and_no_two_look_alike() -> None:
    looks = Looks.of(plausible_results())
    scores = [rank.score for rank in plausible_results().ranks]
    seen = {(looks[name].colour, looks[name].hollow, str(looks[name].line)) for name in scores}
    assert len(seen) == len(set(scores))
    assert looks["like, r = 1"].colour == looks["like, r = 1/2"].colour != looks["popularity x like, r = 1"].colour
    assert len({looks[name].marker for name in (*PEERS, "considerate", "like, r = 1")}) == 7  # grey prints
    assert looks["considerate"] == looks["default"]


def test_scorers_that_join_get_looks_of_their_own() -> None:
    looks = Looks(["mine", "yours", "popularity", "mine"])
    assert len({looks[name].colour for name in ("mine", "yours", "popularity")}) == 3


def test_every_colour_has_a_partner_that_stands_out_on_a_dark_page(drawn: dict[str, Path]) -> None:
    known = {light.lower(): dark for light, dark in DARK.items()}
    for name, svg in drawn.items():
        for file in (svg, wide(svg)):
            assert set(re.findall(r"#[0-9a-f]{6}\b", file.read_text())) <= set(known), name
    ground, quiet = luminance(DARK["#ffffff"]), {"#ffffff", "#e6e6e6", PALE}
    for light in set(DARK) - quiet:
        assert (luminance(DARK[light]) + 0.05) / (ground + 0.05) > 4.5, light


@pytest.mark.parametrize("sheet", [COLUMN, PAGE], ids=["column", "page"])
@pytest.mark.parametrize("name", ["differences", "differences-by-degree", "histograms", "knob", "traces", "balance"])
def test_titles_and_labels_are_inside_the_figure_and_apart(name: str, sheet: Sheet) -> None:
    full = plausible_results()
    with paper_style():
        figure = DRAWN[name](full, Looks.of(full), sheet)
        assert figure is not None
        figure.draw_without_rendering()
        shown = [ax for ax in figure.axes if ax.get_visible()]
        texts = [text for ax in shown for text in (ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label)]
        texts += [
            text for legend in [*figure.legends, *(ax.get_legend() for ax in shown)] if legend for text in legend.texts
        ]
        boxes = [
            (text.get_text(), text.get_window_extent()) for text in texts if text.get_visible() and text.get_text()
        ]
    for said, box in boxes:
        assert min(box.x0, box.y0) > -1, said
        assert box.x1 < figure.bbox.x1 + 1, said
        assert box.y1 < figure.bbox.y1 + 1, said
    for (said, box), (other, second) in itertools.combinations(boxes, 2):
        assert not box.shrunk(0.98, 0.9).overlaps(second.shrunk(0.98, 0.9)), (said, other)


def luminance(colour: str) -> float:
    channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_colours_stand_out_on_white() -> None:
    looks = Looks.of(plausible_results())
    for name in {rank.score for rank in plausible_results().ranks}:
        assert 1.05 / (luminance(looks[name].colour) + 0.05) > 2, name


# --- Names from the data ---


def test_names_are_not_read_as_mathematics(tmp_path: Path) -> None:
    full = plausible_results()
    name = r"\frac{1}$ & <b> $\nonsense{$ 100 %"
    ranks = [replace(full.ranks[0], score=name)]
    times = [replace(full.times[0], name=name)]
    written = draw_all(replace(empty_results(), ranks=ranks, times=times), tmp_path)
    assert set(written) == {"mean-ranks", "times"}
    assert plain("a$b") == r"a\$b"
    for svg in written.values():
        ElementTree.parse(svg)


def test_a_name_too_long_for_the_legend_does_not_break_the_layout(tmp_path: Path) -> None:
    full = plausible_results()
    ranks = [replace(rank, score=f"{rank.score}, our neighbour's recommender") for rank in full.ranks[:4]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_all(replace(empty_results(), ranks=ranks), tmp_path)


# --- Details ---


def test_many_items_stay_a_small_file() -> None:
    few, many = plausible_results(items=3_000), plausible_results(items=60_000)
    counts = []
    with paper_style():
        for results in (few, many):
            figure = draw_balance(results, Looks.of(results))
            assert figure is not None
            counts.append(sum(len(line.get_xdata()) for line in figure.axes[0].lines))
    assert counts[1] < 4 * counts[0] < 12_000


def test_all_of_the_tail_is_not_drawn_as_one_more_stratum() -> None:
    full = plausible_results()
    with paper_style():
        figure = DRAWN["differences-by-degree"](full, Looks.of(full))
        assert figure is not None
        line = next(line for line in figure.axes[0].lines if len(line.get_xdata()) > 2)
    assert len(line.get_xdata()) == len(full.differences[0].low) - 1


def test_the_chosen_knob_is_marked_on_its_curve() -> None:
    full = plausible_results()
    knob = full.knobs[0]
    with paper_style():
        figure = DRAWN["knob"](full, Looks.of(full))
        assert figure is not None
        points = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 1]
    assert [float(line.get_xdata()[0]) for line in points] == [knob.chosen] * 2
    assert float(points[0].get_ydata()[0]) == pytest.approx(np.interp(knob.chosen, knob.knob, knob.mean_rank))


def test_figures_say_what_they_show(drawn: dict[str, Path]) -> None:
    for name, words in {
        "mean-ranks": ["considerate", "paper: p(like), r = 1/2", "BPR-popularity", "user's degree", "item's degree"],
        "differences": ["EASE", "Recall@20", "ours minus the peer"],
        "reliability": ["default, recalibrated: error 0.012", "share that liked"],
        "considered": ["taste and walk (a + log w): 0.875", "popularity (pi): 0.794", "user's degree"],
        "degrees": ["users per degree", "exp"],
        "balance": ["r = 1/2, head corrected"],
    }.items():
        said = texts(drawn[name])
        assert all(word in said for word in words), (name, said)


def test_bins_of_few_likes_are_left_to_the_tables_unless_all_are() -> None:
    assert np.isnan(enough([0.1, 0.2], [9, 10])).tolist() == [True, False]
    assert enough([0.1, 0.2], [1, 2]).tolist() == [0.1, 0.2]
    full = plausible_results()
    error = replace(full.errors[0], error=[0.9, *full.errors[0].error[1:]], count=[2, *full.errors[0].count[1:]])
    few = replace(empty_results(), errors=[error])
    with paper_style():
        figure = DRAWN["errors"](few, Looks.of(few))
        assert figure is not None
        assert np.nanmax([np.nanmax(line.get_ydata()) for line in figure.axes[0].lines]) < 60


def test_degree_zero_has_a_place_on_a_logarithmic_axis() -> None:
    assert bin_centre([0, 1, 4], [0, 3, 9]).tolist() == pytest.approx([0.5, math.sqrt(3), 6.0])
    assert [degree_text(value) for value in (0, 1, 1000, 100_000)] == ["0", "1", "1000", "$10^{5}$"]


def test_the_users_own_matplotlib_settings_neither_count_nor_change(drawn: dict[str, Path], tmp_path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9}):
        again = draw_all(replace(empty_results(), knobs=plausible_results().knobs), tmp_path)
        assert matplotlib.rcParams["font.size"] == 30
    assert again["knob"].read_bytes() == drawn["knob"].read_bytes()


def test_importing_the_study_does_not_load_matplotlib() -> None:
    code = (
        "import sys, considerate, considerate.study.figures, considerate.study.page; print('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
