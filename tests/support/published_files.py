"""Every data set that is read from files, with very few rows, in the files in which it was published."""

import gzip
import io

import numpy as np
from scipy.io import savemat

PERSON = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "United-States, <=50K\n"
)
CLIENT_HEAD = (
    "age;job;marital;education;default;housing;loan;contact;month;day_of_week;duration;campaign;pdays;previous;poutcome;"
    "emp.var.rate;cons.price.idx;cons.conf.idx;euribor3m;nr.employed;y\n"
)
CLIENT = (
    "50;services;married;high.school;unknown;no;yes;telephone;may;mon;149;1;999;0;nonexistent;1.1;93.994;-36.4;4.857;"
    "5191;no\n"
)
CARD = f"Time,{','.join(f'V{i}' for i in range(1, 29))},Amount,Class\n0{',0' * 29},1\n"
CONNECTION = (
    "0,tcp,http,SF,181,5450,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,8,8,0.00,0.00,0.00,0.00,1.00,0.00,0.00,9,9,1.00,0.00,0.11,"
    "0.00,0.00,0.00,0.00,0.00,normal.\n"
)


def idx(*shape: int) -> bytes:
    lengths = b"".join(length.to_bytes(4, "big") for length in shape)
    return bytes([0, 0, 8, len(shape)]) + lengths + bytes(int(np.prod(shape)))


def mat() -> bytes:
    file = io.BytesIO()
    savemat(file, {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[10], [1]])})
    return file.getvalue()


def batches() -> dict[str, bytes]:
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    return dict.fromkeys(names, bytes(1 + 3 * 32 * 32))


_REVIEWS = {f"{part}/{label}/0_1.txt": b"good" for part in ("train", "test") for label in ("pos", "neg")}
_IMAGES = {
    "train-images-idx3-ubyte": idx(2, 28, 28),
    "train-labels-idx1-ubyte": idx(2),
    "t10k-images-idx3-ubyte": idx(1, 28, 28),
    "t10k-labels-idx1-ubyte": idx(1),
}
PUBLISHED: dict[str, dict[str, bytes]] = {
    "a9a": {"a9a": b"-1 3:1\n", "a9a.t": b"+1 2:1\n"},
    "adult": {"adult.data": PERSON.encode(), "adult.test": PERSON.encode()},
    "bank": {"bank-additional-full.csv": (CLIENT_HEAD + CLIENT).encode()},
    "breast-cancer-wisconsin": {"breast-cancer-wisconsin.data": b"1000025,5,1,1,1,2,1,3,1,1,2\n"},
    "cifar10": batches(),
    "creditcard": {"creditcard.csv": CARD.encode()},
    "fashion-mnist": _IMAGES,
    "imdb": {"imdb.vocab": b"film\ngood\n", **_REVIEWS},
    "kddcup99": {"kddcup.data_10_percent": CONNECTION.encode(), "corrected": CONNECTION.encode()},
    "mnist": _IMAGES,
    "movielens-100k": {"u.data": b"196\t242\t3\t881250949\n"},
    "movielens-1m": {"ratings.dat": b"196::242::3::978300760\n"},
    "svhn": {"train_32x32.mat": mat(), "test_32x32.mat": mat()},
}


def write_published(name, folder, *, gzipped=False):
    """Write all files of a data set into a folder, which may be new."""
    for file, content in PUBLISHED[name].items():
        path = folder / f"{file}{'.gz' if gzipped else ''}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content) if gzipped else content)
