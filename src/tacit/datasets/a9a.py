"""a9a: Adult (census income) as 123 binary features, in LIBSVM's form."""

from tacit.datasets import DataSet, Source, TrainingDefaults
from tacit.datasets.adult import A9A_FILES, read_a9a

_ADDRESS = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
DATASET = DataSet(
    "a9a",
    Source.of_files(
        f"{_ADDRESS}.html#a9a",
        _ADDRESS,
        {
            "a9a": "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
            "a9a.t": "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
        },
    ),
    read=read_a9a,
    files=A9A_FILES,
    defaults=TrainingDefaults("linear", lot_size=512, epochs=20, learning_rate=1.0, adam_rate=0.02),
)
