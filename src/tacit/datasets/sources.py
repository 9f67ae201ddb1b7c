"""Where each data set is published: addresses, and checksums that say that what came is what was published.

Addresses and checksums are those that several public projects agree on; that of kddcup99's test part is of a copy whose
rows agree with the published count. A checksum is that of the file as served, or of the one file `inside` it that is
read, where archives have been packed anew over the years.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Remote:
    """One file to download. `inside` is the member of an archive that has the checksum, or "" for what was gzipped."""

    url: str
    file: str
    sha256: str
    inside: str | None = None


@dataclass(frozen=True)
class Source:
    """The files of one data set, and the page that describes it and says what may be done with it."""

    page: str
    files: tuple[Remote, ...]


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_UCI_PAGE = "https://archive.ics.uci.edu/dataset"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_GROUPLENS = "https://files.grouplens.org/datasets/movielens"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_SVHN = "http://ufldl.stanford.edu/housenumbers"

_MNIST_FILES = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
_FASHION_FILES = {
    "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}


def _all(base: str, files: dict[str, str]) -> tuple[Remote, ...]:
    return tuple(Remote(f"{base}/{file}", file, sha256) for file, sha256 in files.items())


_A9A = {
    "a9a": "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
    "a9a.t": "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
}
_ADULT = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
_WISCONSIN = {"breast-cancer-wisconsin.data": "402c585309c399237740f635ef9919dc512cca12cbeb20de5e563a4593f22b64"}
_SVHN_FILES = {
    "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
}
_ML_100K = {"ml-100k.zip": "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229"}
_ML_1M = {"ml-1m.zip": "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20"}

SOURCES = {
    "a9a": Source(f"{_LIBSVM}.html#a9a", _all(_LIBSVM, _A9A)),
    "adult": Source(f"{_UCI_PAGE}/2/adult", _all(f"{_UCI}/adult", _ADULT)),
    "bank": Source(
        f"{_UCI_PAGE}/222/bank+marketing",
        (
            Remote(
                f"{_UCI}/00222/bank-additional.zip",
                "bank-additional.zip",
                "74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8",
                inside="bank-additional-full.csv",
            ),
        ),
    ),
    "breast-cancer-wisconsin": Source(
        f"{_UCI_PAGE}/15/breast+cancer+wisconsin+original", _all(f"{_UCI}/breast-cancer-wisconsin", _WISCONSIN)
    ),
    "cifar10": Source(
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        (
            Remote(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "cifar-10-binary.tar.gz",
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        ),
    ),
    "creditcard": Source(
        "https://www.openml.org/d/1597",
        (
            Remote(
                "https://www.openml.org/data/get_csv/1673544/phpKo8OWT",
                "creditcard.csv",
                "a57f43b36bd695c8e984f481d9309c08a635e726068007f8d1751933e6866d86",
            ),
        ),
    ),
    "fashion-mnist": Source("https://github.com/zalandoresearch/fashion-mnist", _all(_FASHION, _FASHION_FILES)),
    "imdb": Source(
        "https://ai.stanford.edu/~amaas/data/sentiment/",
        (
            Remote(
                "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                "aclImdb_v1.tar.gz",
                "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            ),
        ),
    ),
    "kddcup99": Source(
        "https://kdd.ics.uci.edu/databases/kddcup99/kddcup99.html",
        (
            Remote(
                "https://ndownloader.figshare.com/files/5976042",
                "kddcup.data_10_percent.gz",
                "8045aca0d84e70e622d1148d7df782496f6333bf6eb979a1b0837c42a9fd9561",
            ),
            Remote(
                "https://kdd.ics.uci.edu/databases/kddcup99/corrected.gz",
                "corrected.gz",
                "547dfb9c0f0dc1d9944219ec79e851191faebaeb8acbfa1cd171c418397052a4",
                inside="",
            ),
        ),
    ),
    "mnist": Source("http://yann.lecun.com/exdb/mnist/", _all(_MNIST, _MNIST_FILES)),
    "movielens-100k": Source("https://grouplens.org/datasets/movielens/100k/", _all(_GROUPLENS, _ML_100K)),
    "movielens-1m": Source("https://grouplens.org/datasets/movielens/1m/", _all(_GROUPLENS, _ML_1M)),
    "svhn": Source(f"{_SVHN}/", _all(_SVHN, _SVHN_FILES)),
}
