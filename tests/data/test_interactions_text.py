"""The reader of delimited text: delimiters, headers, quotes, white space, missing values."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from considerate.data import read_interactions
from considerate.data import text as reader
from considerate.errors import DataError
from tests.helpers.reader_cases import PAIRS, check, pairs

RATINGS = [5, 4, 3, 2, 1]


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|", "::", " ", "   "])
@pytest.mark.parametrize("ending", ["csv", "tsv", "dat", "csv.gz"])
def test_delimited_text(tmp_path: Path, delimiter: str, ending: str) -> None:
    lines = [("user", "item", "rating"), *((u, i, str(r)) for (u, i), r in zip(PAIRS, RATINGS))]
    text = "\n".join(delimiter.join(line) for line in lines) + "\n"
    path = tmp_path / f"likes.{ending}"
    path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    got = read_interactions(path, where="rating >= 3")
    check(got, PAIRS[:3])  # type: ignore[arg-type]
    assert got.rows_read == 5


def test_text_without_header(tmp_path: Path) -> None:
    path = tmp_path / "u.data"
    path.write_text("196\t242\t3\t881250949\n186\t302\t5\t891717742\n22\t377\t1\t878887116\n")
    with pytest.raises(DataError, match=r"'column1', 'column2', 'column3', 'column4'"):
        read_interactions(path)
    options = {"user_column": "column1", "item_column": "column2"}
    check(read_interactions(path, **options), [(196, 242), (186, 302), (22, 377)])  # type: ignore[arg-type]
    got = read_interactions(path, **options, rating_column="column3", where="rating > 2")  # type: ignore[arg-type]
    check(got, [(196, 242), (186, 302)])
    two = tmp_path / "two.txt"
    two.write_text("1 7\n2 8\n1 8\n")
    got = read_interactions(two)
    check(got, [(1, 7), (2, 8), (1, 8)])
    assert any("first line is taken for data" in note for note in got.notes)


def test_text_header_of_unusual_words_above_numbers(tmp_path: Path) -> None:
    path = tmp_path / "likes.csv"
    path.write_text("who,what\n1,7\n2,8\n")
    got = read_interactions(path)
    check(got, [(1, 7), (2, 8)])
    assert "'who'" in got.notes[-1]
    path.write_text("who,what,extra\na,b,c\nd,e,f\n")
    check(read_interactions(path, user_column="who", item_column="what"), [("a", "b"), ("d", "e")])


def test_text_ids_are_integers_only_if_all_are(tmp_path: Path) -> None:
    path = tmp_path / "likes.csv"
    rows = [f"{u},{i}" for u, i in [(7, "0345"), (-3, "1"), (7, "034X")]]
    path.write_text("user,isbn\n" + "\n".join(rows) + "\n")
    check(read_interactions(path), [(7, "0345"), (-3, "1"), (7, "034X")])
    path.write_text("user,item\n007,1\n7,2\n")
    check(read_interactions(path), [("007", 1), ("7", 2)])
    path.write_text("user,item\n7.0,99999999999999999999\n8.0,1\n")
    check(read_interactions(path), [(7, "99999999999999999999"), (8, "1")])
    path.write_text("user,item\n1,9999999999999999999\n2,1\n")  # nineteen digits, above 2^63
    check(read_interactions(path), [(1, "9999999999999999999"), (2, "1")])
    late = "user,item\n" + "1,2\n" * 200_000 + "1,X\n"  # a string long after the sample
    path.write_text(late)
    assert read_interactions(path).item_ids.ids_of(range(2)) == ["2", "X"]


def test_text_quotes_bom_crlf_and_newlines(tmp_path: Path) -> None:
    path = tmp_path / "likes.csv"
    path.write_bytes('\ufeffuser,item,text\r\n"a, b","x","1\n2"\r\n"c ""d""",z,3\r\n'.encode())
    got = read_interactions(path)
    check(got, [("a, b", "x"), ('c "d"', "z")])
    assert "1 rows go over several lines" in got.notes[0]


LONG = [f"u{k}\ti{k % 7}\tx" for k in range(40_000)]  # more than the sample


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_quotes_long_after_the_sample(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "likes.txt"
    lines = ["user\titem\ttitle", *LONG, '"new"\t"i8"\t"t"']
    path.write_text("\n".join(lines).replace("\t", delimiter) + "\n")
    if delimiter in ",;":
        got = read_interactions(path)
        assert pairs(got)[-1] == ("new", "i8")
        assert got.user_ids.row_of('"new"') < 0
    else:
        with pytest.raises(DataError, match=r"""the user '"new"' in 'user' is in quotes"""):
            read_interactions(path)


@pytest.mark.parametrize("delimiter", ["\t", "|"])
@pytest.mark.parametrize("end", ['"bar', 'bar"', "bar"])
def test_a_stray_quote_swallows_no_rows(tmp_path: Path, delimiter: str, end: str) -> None:
    path = tmp_path / "likes.txt"
    text = f'user\titem\ttitle\nu1\ti1\t"Hello\nu2\ti2\tfoo\nu3\ti3\t{end}\nu4\ti4\tz\n'
    path.write_text(text.replace("\t", delimiter))
    check(read_interactions(path), [(f"u{k}", f"i{k}") for k in (1, 2, 3, 4)])
    text = "user\titem\n" + f'u1\t"i1\nu2\ti2\nu3\t{end}\nu4\ti4\n'
    path.write_text(text.replace("\t", delimiter))
    check(read_interactions(path), [("u1", '"i1'), ("u2", "i2"), ("u3", end), ("u4", "i4")])


@pytest.mark.parametrize(
    ("delimiter", "lines"),
    [
        (",", ['q1\t"i9\tx', "q2\ti8\tx", 'q3\t"i7\tx']),
        (",", ['q1\ti9\t"x', "q2\ti8\tx", 'q3\ti7\t"x']),
        (";", ['q1\ti9\t"x', "q2\ti8\tx"]),
        (",", ['q1\ti9\t"x', "q2\ti8\tx", *LONG * 60]),  # longer than two blocks
        ("\t", ['q1\ti9\t"x', "q2\ti8\tx", 'q3\ti7\tx"']),
    ],
)
@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_stray_quote_long_after_the_sample_is_refused(
    tmp_path: Path, delimiter: str, lines: list[str], ending: str
) -> None:
    path = tmp_path / "likes.txt"
    head = ["user\titem\ttitle", '"a"\ti1\tx']
    path.write_text("\n".join([*head, *LONG, *lines]).replace("\t", delimiter) + ending)
    with pytest.raises(DataError, match=r"a quote is opened that is not closed"):
        read_interactions(path)


def test_values_of_several_lines_between_tabs(tmp_path: Path) -> None:
    path = tmp_path / "likes.tsv"
    path.write_text('user\titem\ttitle\na\tx\t"one\ntwo"\nb\ty\t"three"\n')
    check(read_interactions(path), [("a", "x"), ("b", "y")])
    path.write_text("user\titem\ttitle\n" + 'a\tx\t"one\ntwo"\n' * 40_000)  # the sample ends within a value
    assert read_interactions(path).rows_kept == 40_000


def test_ids_of_several_lines_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "likes.csv"
    path.write_text('user,item\na,"x\ny"\nb,z\n')
    with pytest.raises(DataError, match=r"the item 'x\\ny' in 'item' goes over several lines") as caught:
        read_interactions(path)
    assert "\n" not in str(caught.value)
    (tmp_path / "likes.dat").write_text('"a"::"x"\n"b"::"y"\n')
    with pytest.raises(DataError, match="is in quotes"):
        read_interactions(tmp_path / "likes.dat")


BLANK = {"blank": "", "delimiter": ",", "quotes": '"",""', "spaces": "  ", "several": '\n,\n"",""'}


@pytest.mark.parametrize("first", BLANK.values(), ids=BLANK)
@pytest.mark.parametrize("form", ["csv", "crlf", "bom", "tsv", "semicolon", "gz"])
def test_blank_lines_before_the_header(tmp_path: Path, first: str, form: str) -> None:
    text = f"{first}\nuser,item,rating\na,x,5\nb,y,4\n"
    text = text.replace(",", {"tsv": "\t", "semicolon": ";"}.get(form, ","))
    text = text.replace("\n", "\r\n") if form == "crlf" else text
    data = text.encode("utf-8-sig" if form == "bom" else "utf-8")
    path = tmp_path / {"tsv": "likes.tsv", "gz": "likes.csv.gz"}.get(form, "likes.csv")
    path.write_bytes(gzip.compress(data) if form == "gz" else data)
    got = read_interactions(path, where="rating >= 4")
    check(got, [("a", "x"), ("b", "y")])
    assert got.rows_read == 2


def test_blank_lines_before_data_without_a_header(tmp_path: Path) -> None:
    for text in ("\n1,7\n2,8\n", ",\n1,7\n2,8\n", "\n 1 7\n2 8\n", "\n\n1::7\n2::8\n"):
        (tmp_path / "likes.txt").write_text(text)
        check(read_interactions(tmp_path / "likes.txt"), [(1, 7), (2, 8)])
    (tmp_path / "likes.csv").write_text('\n"user","it\nem"\na,x\n')  # a header of two lines
    check(read_interactions(tmp_path / "likes.csv"), [("a", "x")])
    (tmp_path / "likes.csv").write_text("user,item\na,x\n,\nb,y\n")
    with pytest.raises(DataError, match="1 rows have no user"):  # after the header it is a row
        read_interactions(tmp_path / "likes.csv")


@pytest.mark.parametrize("word", ["", "NULL", "null", "NaN", "nan", "None", "N/A", "<NA>", "\\N", " ", " NULL "])
@pytest.mark.parametrize("column", ["user", "item"])
def test_texts_that_stand_for_no_id(tmp_path: Path, word: str, column: str) -> None:
    path = tmp_path / "likes.csv"
    path.write_text("user,item\na,x\n" + (f"{word},y\n" if column == "user" else f"b,{word}\n"))
    with pytest.raises(DataError, match=f"1 rows have no {column} in the column '{column}'"):
        read_interactions(path)
    check(read_interactions(path, where=f"{column} is not null"), [("a", "x")])


def test_texts_that_are_ids(tmp_path: Path) -> None:
    path = tmp_path / "likes.csv"
    words = ["NA", "none", "Null", "0", "-"]
    path.write_text("user,item,rating,kind\n" + "".join(f"{word},{word},NA,{word}\n" for word in words) + "b,c,4,d\n")
    got = read_interactions(path, where="rating is null or rating > 3")
    check(got, [*((word, word) for word in words), ("b", "c")])
    assert "NA in 'user' is taken for the id of a user, not for a missing value" in got.notes
    check(read_interactions(path, where="kind is null"), [("NA", "NA")])


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_white_space_around_values(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"likes.{ending}"
    delimiter = "\t" if ending == "tsv" else ","
    text = "user , item, rating, kind\n a, x , 4, good\na,x,5 ,good \nb c,y,3,bad\n"
    path.write_text(text.replace(",", delimiter))
    check(read_interactions(path, where="rating > 0"), [("a", "x"), ("a", "x"), ("b c", "y")])
    check(read_interactions(path, where="kind = 'good' and user = 'a'"), [("a", "x"), ("a", "x")])
    path.write_text("user,item\n 1, 7\n2, 8\n".replace(",", delimiter))
    check(read_interactions(path), [(1, 7), (2, 8)])


def test_a_space_before_a_quote_is_refused(tmp_path: Path) -> None:
    (tmp_path / "likes.csv").write_text('user,item\na, "x"\nb,"y"\n')
    with pytest.raises(DataError, match=r"""the value ' "x"' in 'item' has a space before its quote"""):
        read_interactions(tmp_path / "likes.csv")


def test_many_columns_take_time_in_proportion(tmp_path: Path) -> None:
    class Name(str):
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other)

        def strip(self, *_: Any) -> Name:
            return self

    names = [Name(f"c{at}") for at in range(3000)] + [Name("c0"), Name("c0 (3003)"), Name("c0")]
    unique = reader._unique(names)  # type: ignore[arg-type]
    assert Name.compared < 10 * len(names)
    assert len(set(unique)) == len(unique) == 3003
    path = tmp_path / "wide.csv"
    path.write_text("user,item" + "," * 20_000 + "\n" + ("a,x" + ",1" * 20_000 + "\n") * 2)
    check(read_interactions(path), [("a", "x"), ("a", "x")])


def test_long_lines_without_a_quote(tmp_path: Path) -> None:
    path = tmp_path / "likes.csv"
    head = 'user,item,text\n"a","x","y"\n' + "b,y,z\n" * 60_000
    path.write_text(head + "c,z," + "w" * (2 * reader.BLOCK + 1) + "\n")
    with pytest.raises(DataError, match="line 60003 has more than 8388608 bytes; expected one like per line"):
        read_interactions(path)
    path.write_text(head + '"d","z","1\n2"\n' + "c,z," + "w" * 200_000 + "\n")  # more than the csv module takes
    assert read_interactions(path).rows_kept == 60_003


def test_rules_on_text_files(tmp_path: Path) -> None:
    path = tmp_path / "likes.csv"
    path.write_text(
        "user,item,rating,day,at,kind\n1,7,5,2024-01-01,2024-01-01 10:00:00,a\n"
        "2,8,4.5,2024-02-01,2024-02-01 10:00:00,b\n"
        "3,9,,2024-03-01,2024-03-01 10:00:00,\n"
    )
    for rule, wanted in [
        ("rating > 4", [1, 2]),
        ("day >= '2024-02-01'", [2, 3]),
        ("at < '2024-02-01T10:00:00'", [1]),
        ("kind is null", [3]),
        ("user >= 2", [2, 3]),
        ("kind = 'a' or rating is null", [1, 3]),
    ]:
        assert read_interactions(path, where=rule).user_ids.ids_of(range(len(wanted))) == wanted
