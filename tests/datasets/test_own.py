"""A table of the user's own: bounds are declared, never looked up, and no row decides where another one goes."""

import gzip
from datetime import date, datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.datasets import Bounds, is_table, load_table
from tacit.datasets._columns import to_days
from tacit.errors import InvalidArgument

# Few rows are enough to tell how files are read; that they are too few is tested where it is said.
pytestmark = pytest.mark.filterwarnings("ignore::tacit.errors.Caution")

BOUNDS = """
rows = 40
example = "patient"
[columns]
age = { low = 0, high = 100 }
income = { low = 0, high = 999, log = true }
smoker = ["no", "yes"]
outcome = ["healthy", "ill"]
"""
BOUNDS_OF_ALL = Bounds.parse(BOUNDS)
HEAD = "name,age,income,smoker,outcome\n"


def rows(count: int) -> list[str]:
    return [f"p{i},{i},{10 * i},{'yes' if i % 3 else 'no'},{'ill' if i % 2 else 'healthy'}" for i in range(count)]


@pytest.fixture
def table(tmp_path):
    """A function that writes a table and its bounds and reads them."""

    def read(text: str = HEAD + "\n".join(rows(40)), bounds: str = BOUNDS, target: str = "outcome"):
        (tmp_path / "patients.csv").write_text(text)
        (tmp_path / "bounds.toml").write_text(bounds)
        return load_table(tmp_path / "patients.csv", target=target, bounds=tmp_path / "bounds.toml")

    return read


def refusal(read, **changes) -> str:
    with pytest.raises(InvalidArgument) as caught:
        read(**changes)
    return str(caught.value)


def every(data):
    return np.concatenate([data.train[0], data.test[0]]), np.concatenate([data.train[1], data.test[1]])


def test_columns_are_scaled_by_their_declared_bounds(table):
    inputs, targets = every(table(bounds=BOUNDS.replace("example", "held_out = 0\nexample")))
    ages = np.arange(40)
    assert np.allclose(inputs[:, 0], ages / 50 - 1)
    assert np.allclose(inputs[:, 1], 2 * np.log1p(10 * ages) / np.log(1000) - 1)
    assert np.array_equal(inputs[:, 2:], np.stack([ages % 3 == 0, ages % 3 != 0], axis=1))
    assert np.array_equal(targets, ages % 2)


def test_the_name_the_example_and_the_population_are_as_declared(table):
    data = table()
    assert (data.name, data.example, data.classes, data.population) == ("patients", "patient", 2, 32)
    assert data.is_test_private


def test_a_value_beyond_its_bounds_reveals_no_more_than_that(table):
    text = HEAD + "a,500,-3,yes,ill\nb,-1,1e9,no,healthy\n"
    inputs, _ = every(table(text, BOUNDS.replace("example", "held_out = 0\nexample")))
    assert inputs[0].tolist() == [1, -1, 0, 1]
    assert inputs[1].tolist() == [-1, 1, 1, 0]


def test_missing_values_are_refused_unless_declared_and_all_columns_are_named_at_once(table):
    message = refusal(table, text=HEAD + "a,,1,,ill\nb,,NA,no,healthy\n")
    for words in ("3 problems", "'age': 2 rows have no value", "'income': 1 row has", "'smoker': 1 row has"):
        assert words in message


def test_a_declared_fill_takes_the_place_of_a_missing_value_and_a_column_marks_it(table):
    bounds = BOUNDS.replace("high = 100", 'high = 100, missing = "indicator", fill = 25')
    bounds = bounds.replace('["no", "yes"]', '{ values = ["no", "yes"], missing = "indicator", fill = "yes" }')
    text = HEAD + "a,,0,,ill\nb,25,0,yes,healthy\n"
    inputs, _ = every(table(text, bounds.replace("example", "held_out = 0\nexample")))
    assert inputs.tolist() == [[-0.5, -1, 0, 1, 1, 1], [-0.5, -1, 0, 1, 0, 0]]


DATES = """rows = 3
held_out = 0
[columns]
seen = { type = "date", low = 2020-01-01, high = 2020-01-11 }
outcome = ["healthy", "ill"]
"""


@pytest.mark.parametrize("form", ["csv", "parquet", "frame", "format"])
def test_dates_are_scaled_by_declared_dates(tmp_path, form):
    days = pd.to_datetime(["2020-01-01", "2020-01-06", "2021-01-01"])
    frame = pd.DataFrame({"seen": days, "outcome": ["ill", "ill", "healthy"]})
    bounds = DATES
    if form == "csv":
        frame.to_csv(tmp_path / "t.csv", index=False)
    if form == "parquet":
        frame.to_parquet(tmp_path / "t.parquet")
    if form == "format":
        bounds = DATES.replace("high = 2020-01-11", 'high = "2020-01-11", format = "%d.%m.%Y"')
        frame["seen"] = days.strftime("%d.%m.%Y")
    source = frame if form in ("frame", "format") else tmp_path / f"t.{form}"
    data = load_table(source, target="outcome", bounds=Bounds.parse(bounds))
    assert data.train[0].tolist() == [[-1], [0], [1]]


def test_a_date_in_another_form_is_refused_with_its_row():
    frame = pd.DataFrame({"seen": ["2020-01-02", "3.1.2020"], "outcome": ["ill", "ill"]})
    with pytest.raises(InvalidArgument, match=r"row 2 holds '3\.1\.2020', which is no date"):
        load_table(frame, target="outcome", bounds=Bounds.parse(DATES))


def test_ignored_columns_are_not_used(table):
    ignoring = BOUNDS.replace("[columns]", "[columns]\nname = { ignore = true }")
    assert np.array_equal(table(bounds=ignoring).train[0], table().train[0])
    assert "declared as ignored" in refusal(table, bounds=ignoring, target="name")


def test_everything_in_which_table_and_bounds_differ_is_listed_at_once(table):
    message = refusal(table, text="agee,income,smoker,outcome\n1,rich,maybe,dead\n2,,,\n")
    for words in (
        "7 problems",
        "no column 'age', which is declared. Did you mean agee?",
        "'income': row 1 holds 'rich'",
        "'income': 1 row has no value",
        "'smoker': 1 row has a value that was not declared: 'maybe'",
        "'smoker': 1 row has no value. Leave it out, or declare { values = [...], missing = \"indicator\" }",
        "'outcome': 1 row has a value that was not declared: 'dead'",
        "'outcome': 1 row has no value, so nothing can be learnt from it",
    ):
        assert words in message


def test_everything_that_is_wrong_with_the_bounds_is_listed_at_once(table):
    wrong = BOUNDS.replace("high = 100", "hihg = 100").replace('["no", "yes"]', '"TODO"').replace("= 40", '= "TODO"')
    message = refusal(table, bounds=wrong)
    for words in ("3 problems", "Did you mean high?", "'smoker' is still to be declared", "rows is still"):
        assert words in message


@given(st.integers(0, 39))
def test_one_row_less_moves_no_other_row_between_training_and_testing(tmp_path_factory, left_out):
    folder = tmp_path_factory.mktemp("tables")
    (folder / "bounds.toml").write_text(BOUNDS)
    parts = []
    for kept in (rows(40), [row for i, row in enumerate(rows(40)) if i != left_out]):
        (folder / "patients.csv").write_text(HEAD + "\n".join(kept))
        data = load_table(folder / "patients.csv", target="outcome", bounds=folder / "bounds.toml")
        parts.append([{row.tobytes() for row in part[0]} for part in (data.train, data.test)])
    (train, test), (train_less, test_less) = parts
    assert train_less <= train
    assert test_less <= test
    assert len(train - train_less) + len(test - test_less) == 1


def test_about_the_declared_share_is_held_out(table):
    text = HEAD + "\n".join(f"p,{i % 90}.{i},{i % 997},no,ill" for i in range(4000))
    data = table(text, BOUNDS.replace("example", "held_out = 0.3\nexample"))
    # Ten standard deviations of a binomial.
    assert abs(len(data.test[0]) / 4000 - 0.3) < 0.073


def test_public_rows_of_another_file_are_tested_on_if_they_are_named(table, tmp_path):
    (tmp_path / "public.csv").write_text(HEAD + "q,1,1,no,ill\n")
    data = table(bounds='test = "public.csv"\n' + BOUNDS)
    assert (len(data.train[0]), data.test[1].tolist(), data.population) == (40, [1], 40)
    assert not data.is_test_private


def test_a_number_to_be_predicted_is_a_share_of_its_range(table):
    data = table(bounds=BOUNDS.replace("example", "held_out = 0\nexample"), target="age")
    assert (data.classes, data.unit) == (None, 100)
    assert np.allclose(data.unit * data.train[1][:, 0], np.arange(40))


@pytest.mark.parametrize("name", ["PATIENTS.CSV", "p.tsv", "P.TSV", "p.tsv.gz", "P.Tsv.GZ", "P.CSV.GZ", "p.txt"])
def test_a_table_is_read_by_its_ending_however_that_is_spelt(table, tmp_path, name):
    lines = [HEAD.strip(), *rows(40)]
    text = "\n".join(line.replace(",", "\t") if "tsv" in name.lower() else line for line in lines).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.lower().endswith(".gz") else text)
    expected = table()
    found = load_table(tmp_path / name, target="outcome", bounds=tmp_path / "bounds.toml")
    assert np.array_equal(found.train[0], expected.train[0])
    assert is_table(name) == (name != "p.txt")


def test_the_ending_decides_where_the_first_line_might_mean_something_else(tmp_path):
    (tmp_path / "p.tsv").write_text("a,b,c\tdose\till\n1,2,3\t1\tno\n")
    (tmp_path / "b.toml").write_text(
        'rows = 1\nheld_out = 0\n[columns]\ndose = { low = 0, high = 2 }\nill = ["no", "yes"]\n'
    )
    data = load_table(tmp_path / "p.tsv", target="ill", bounds=tmp_path / "b.toml")
    assert data.train[0].tolist() == [[0.0]]


@pytest.mark.parametrize(("name", "write"), [("P.NPZ", np.savez), ("P.PARQUET", None)], ids=["npz", "parquet"])
def test_packed_tables_are_read_by_their_ending_however_that_is_spelt(table, tmp_path, name, write):
    with (tmp_path / name).open("wb") as file:
        np.savez(file, **COLUMNS) if write else pd.DataFrame(COLUMNS).to_parquet(file)
    found = load_table(tmp_path / name, target="outcome", bounds=BOUNDS_OF_ALL)
    assert np.array_equal(found.train[0], table().train[0])


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16"])
def test_another_encoding_is_said_with_the_line_and_nothing_of_what_it_holds(tmp_path, encoding):
    text = HEAD + "\n".join([*rows(5), "Zoë,17,3,no,ill", *rows(2)])
    (tmp_path / "p.csv").write_bytes(text.encode(encoding))
    with pytest.raises(InvalidArgument) as caught:
        load_table(tmp_path / "p.csv", target="outcome", bounds=Bounds.parse(BOUNDS))
    message = str(caught.value)
    line = 1 if encoding == "utf-16" else 7
    assert f"{tmp_path / 'p.csv'} is not text in UTF-8: line {line} is" in message
    assert "CSV UTF-8" in message
    assert "Fetch" not in message
    assert not [each for each in ("Zo", "17", "0xeb", "0xff") if each in message.replace(str(tmp_path), "")]
    # A traceback would print the byte, and whoever catches it would hold the table.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_table_that_was_cut_off_is_to_be_saved_again(tmp_path):
    whole = gzip.compress((HEAD + "\n".join(rows(40))).encode())
    (tmp_path / "p.csv.gz").write_bytes(whole[:-20])
    with pytest.raises(InvalidArgument, match=r"cannot be read: .* Save it again\."):
        load_table(tmp_path / "p.csv.gz", target="outcome", bounds=Bounds.parse(BOUNDS))


def test_a_field_that_is_too_long_for_a_table_is_refused_in_a_sentence(table):
    assert "field larger than field limit" in refusal(table, text=HEAD + f"{'x' * 200_000},1,1,no,ill\n")


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters_and_gzip(tmp_path, delimiter):
    text = (HEAD + "\n".join(rows(40))).replace(",", delimiter)
    (tmp_path / "p.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "bounds.toml").write_text(BOUNDS)
    data = load_table(tmp_path / "p.csv.gz", target="outcome", bounds=tmp_path / "bounds.toml")
    assert len(every(data)[0]) == 40


AGES = np.arange(40)
COLUMNS = {
    "age": AGES,
    "income": 10.0 * AGES,
    "smoker": np.where(AGES % 3, "yes", "no"),
    "outcome": np.where(AGES % 2, "ill", "healthy"),
    "unused": AGES,
}


@pytest.mark.parametrize(
    ("form", "write"),
    [("npz", lambda path: np.savez(path, **COLUMNS)), ("parquet", lambda path: pd.DataFrame(COLUMNS).to_parquet(path))],
    ids=["npz", "parquet"],
)
def test_parquet_and_npz_say_the_same_as_csv(table, tmp_path, form, write):
    write(tmp_path / f"p.{form}")
    expected = table()
    found = load_table(tmp_path / f"p.{form}", target="outcome", bounds=tmp_path / "bounds.toml")
    assert np.array_equal(found.train[0], expected.train[0])
    assert np.array_equal(found.test[1], expected.test[1])


def test_images_in_an_npz_file_keep_their_shape(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (30, 1, 4, 4), dtype=np.uint8)
    np.savez(tmp_path / "scans.npz", scan=images, ill=np.arange(30) % 2 == 0)
    (tmp_path / "b.toml").write_text("rows = 30\n[columns]\nscan = { low = 0, high = 255 }\nill = [false, true]\n")
    data = load_table(tmp_path / "scans.npz", target="ill", bounds=tmp_path / "b.toml")
    assert data.shape == (1, 4, 4)
    assert np.abs(data.train[0]).max() <= 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("rows = 40\n", ""), "public number of rows is missing"),
        (("rows", "row"), "Did you mean rows?"),
        (("rows = 40", "rows = 0"), "rows must be a whole number of at least 1"),
        (("low = 0, high = 100", "low = 100, high = 0"), "Column 'age': low must be below high"),
        (("low = 0, high = 100", "low = 0"), "Column 'age' must be declared as"),
        (('["no", "yes"]', '["no", "no"]'), "all be different"),
        (('["no", "yes"]', '["no"]'), "rows have a value that was not declared: 'yes'"),
        (('"ill"]', '"well"]'), "Column 'outcome': 20 rows have a value that was not declared: 'ill'"),
        (('["healthy", "ill"]', '["healthy"]'), "The target 'outcome' has one declared value, 'healthy'"),
        (("[columns]\n", ""), "There is no 'age' here. Columns go below [columns]."),
        (("age", "years"), "no column 'years'"),
        (("outcome", "outcom"), "The target 'outcome' is not among the declared columns"),
        (("[columns]", "[columns"), "is not a TOML file"),
        (("rows = 40", f"rows = {'9' * 5000}"), "is not a TOML file"),
        # Each of these was once taken for something that nobody had declared.
        (("high = 999, log = true", 'high = 999, log = "no"'), "Column 'income' must be declared as"),
        (("low = 0, high = 100", "low = true, high = 100"), "Column 'age' must be declared as"),
        (("low = 0, high = 100", "low = -1e308, high = 1e308"), "their difference must be finite"),
        (("high = 100", f"high = 1{'0' * 400}"), "Column 'age': low must be below high"),
        (('["no", "yes"]', '[["no"], ["yes"]]'), "Column 'smoker' must be declared as"),
        (("rows = 40", "rows = 40\nheld_out = 1"), "no row is left to train on"),
        (("rows = 40", 'rows = 40\nheld_out = 0.5\ntest = "public.csv"'), "Both test and held_out are declared"),
        (("rows = 40", "rows = 40\ntest = 3"), "test must be text in quotes. Got 3"),
        (('example = "patient"', "example = []"), "example must be text in quotes. Got []"),
        (('example = "patient"', 'example = " "'), "example must be text in quotes"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(table, change, words):
    assert words in refusal(table, bounds=BOUNDS.replace(*change))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + "a,old,1,no,ill\n", "row 1 holds 'old', which is not a number"),
        (HEAD + "a,1,1,no,\n", "1 row has no value"),
        (HEAD + "a,1\n", "every row has 5 columns"),
        ("age,age,income,smoker,outcome\n1,1,1,no,ill\n", "two of its columns have the same name"),
    ],
)
def test_tables_that_mean_nothing_are_refused_with_the_file(table, text, words):
    message = refusal(table, text=text)
    assert words in message
    assert "patients.csv" in message


def test_a_table_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="There is no table"):
        load_table(tmp_path / "p.csv", target="outcome", bounds=Bounds.parse(BOUNDS))


def test_bounds_that_are_not_there_are_refused_with_an_example(tmp_path):
    with pytest.raises(InvalidArgument, match=r"cannot be read.*\[columns\]"):
        load_table(tmp_path / "p.csv", target="outcome", bounds=tmp_path / "b.toml")


@pytest.mark.slow
def test_a_frame_is_the_same_as_its_file(tmp_path):
    frame = pd.DataFrame(
        {
            "age": [30.0, None, 70.0, 20.0] * 5,
            "seen": pd.to_datetime(["2020-01-01", None, "2020-02-01", "2020-03-01"] * 5),
            "smoker": pd.Categorical(["no", "yes", None, "no"] * 5),
            "ill": [0, 1, 1, 0] * 5,
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    marked = 'missing = "indicator"'
    columns = f'age = {{ low = 0, high = 100, {marked}, fill = 40 }}\nsmoker = {{ values = ["no", "yes"], {marked} }}\n'
    columns += f'seen = {{ type = "date", low = 2020-01-01, high = 2021-01-01, {marked}, fill = 2020-06-30 }}\n'
    columns += "ill = [0, 1]\n"
    bounds = Bounds.parse(f"rows = 20\n[columns]\n{columns}")
    read, taken = (load_table(each, target="ill", bounds=bounds) for each in (tmp_path / "t.csv", frame))
    for one, other in zip((*read.train, *read.test), (*taken.train, *taken.test), strict=True):
        assert np.array_equal(one, other)
    assert (read.name, taken.name) == ("t", "table")
    with pytest.raises(InvalidArgument, match="no column 'smoker'"):
        load_table(frame[["age", "seen", "ill"]], target="ill", bounds=bounds)
    with pytest.raises(InvalidArgument, match="same name"):
        load_table(frame.rename(columns={"age": "ill"}), target="ill", bounds=bounds)


def test_a_table_may_be_called_like_the_home_of_nobody(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"{age},10,no,ill\n" for age in range(40)]
    (tmp_path / "~nobody-of-that-name.csv").write_text(HEAD.removeprefix("name,") + "".join(lines))
    data = load_table("~nobody-of-that-name.csv", target="outcome", bounds=BOUNDS_OF_ALL)
    assert len(data.train[0]) + len(data.test[0]) == 40


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("7", "must be declared as"),
        ('{ low = 0, high = 1, missing = "drop" }', 'missing must be "refuse" or "indicator". Got \'drop\''),
        ("{ low = 0, high = 1, fill = 0 }", "fill goes with missing"),
        ('{ low = 0, high = 1, missing = "indicator" }', "needs fill"),
        ('{ low = 0, high = 1, missing = "indicator", fill = "0" }', "fill must be a number. Got '0'"),
        ('{ low = 0, high = 1, missing = "indicator", fill = 2 }', "fill must be from low to high. Got 2"),
        ('{ values = ["a", "b"], missing = "indicator", fill = "c" }', "fill must be one of 'a', 'b'. Got 'c'"),
        ('{ type = "date", low = "spring", high = 2020-01-01 }', "'spring' is no date"),
        ('{ type = "date", low = 1, high = 2020-01-01 }', "1 is no date"),
    ],
)
def test_a_column_that_is_declared_wrongly_is_refused_with_the_reason(column, words):
    with pytest.raises(InvalidArgument) as caught:
        Bounds.parse(f"rows = 40\n[columns]\nage = {column}\nill = [0, 1]\n")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ('{ type = "date", low = 2020-01-01, high = 2021-01-01 }\nage = [1, 2]', "'ill' is a date"),
        ('{ low = 0, high = 9, missing = "indicator", fill = 1 }\nage = [1, 2]', "'ill' is declared with missing"),
        ("[0, 1]\nage = { ignore = true }", "No column is left to predict 'ill' from"),
    ],
)
def test_a_target_that_cannot_be_predicted_is_refused(columns, words):
    with pytest.raises(InvalidArgument) as caught:
        Bounds.parse(f"rows = 40\n[columns]\nill = {columns}\n").features("ill")
    assert words in str(caught.value)


def test_bounds_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "b.toml").write_bytes(b"rows = \xff\xfe")
    with pytest.raises(InvalidArgument, match="is not a TOML file"):
        Bounds.read(tmp_path / "b.toml")


def test_days_are_read_from_every_kind_of_date():
    parsed = np.array([date(1970, 1, 3), datetime(1970, 1, 3, 12)], dtype=object)
    assert to_days(parsed).tolist() == [2, 2.5]
    assert np.array_equal(to_days(np.array(["1970-01-02T12", "NaT"], dtype="M8[s]")), [1.5, np.nan], equal_nan=True)
    with pytest.raises(InvalidArgument, match=r"row 2 holds 3\.5, which is no date"):
        to_days(np.array([date(1970, 1, 3), 3.5], dtype=object))
