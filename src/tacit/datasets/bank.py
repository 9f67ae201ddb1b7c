"""Bank marketing: does a client subscribe to a term deposit?"""

from functools import partial

from tacit.datasets import Remote, Source, TrainingDefaults
from tacit.datasets._columns import Category, CodeBook, Number
from tacit.datasets._tables import PublishedTable, parse_with_header

_YES_NO = Category.of("no yes unknown")
_BOOK: CodeBook = {
    "age": Number(0, 100),
    "duration": Number(0, 5_000, logarithmic=True),
    "campaign": Number(1, 60, logarithmic=True),
    # 999 stands for "never contacted before".
    "pdays": Number(0, 999),
    "previous": Number(0, 10),
    "emp.var.rate": Number(-5, 5),
    "cons.price.idx": Number(90, 100),
    "cons.conf.idx": Number(-60, 0),
    "euribor3m": Number(0, 6),
    "nr.employed": Number(4_900, 5_300),
    "job": Category.of(
        "admin. blue-collar entrepreneur housemaid management retired self-employed services student technician "
        "unemployed unknown"
    ),
    "marital": Category.of("divorced married single unknown"),
    "education": Category.of(
        "basic.4y basic.6y basic.9y high.school illiterate professional.course university.degree unknown"
    ),
    "default": _YES_NO,
    "housing": _YES_NO,
    "loan": _YES_NO,
    "contact": Category.of("cellular telephone"),
    "month": Category.of("jan feb mar apr may jun jul aug sep oct nov dec"),
    "day_of_week": Category.of("mon tue wed thu fri"),
    "poutcome": Category.of("failure nonexistent success"),
}


_TABLE = PublishedTable(
    "bank",
    files=("bank-additional-full.csv",),
    archives=("bank-additional.zip", "bank+marketing.zip"),
    rows=41_188,
    book=_BOOK,
    target="y",
    labels={"no": 0, "yes": 1},
    to_columns=partial(parse_with_header, delimiter=";"),
    example="client",
)
_REMOTE = Remote(
    "https://archive.ics.uci.edu/ml/machine-learning-databases/00222/bank-additional.zip",
    "bank-additional.zip",
    "74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8",
    inside="bank-additional-full.csv",
)
DATASET = _TABLE.dataset(
    Source("https://archive.ics.uci.edu/dataset/222/bank+marketing", (_REMOTE,)),
    TrainingDefaults("linear", lot_size=512, epochs=20, learning_rate=1.0, adam_rate=0.02),
    folders=("bank-additional", "bank+marketing", "bank+marketing/bank-additional"),
)
