"""MNIST: handwritten digits."""

from functools import partial

from tacit.datasets import DataSet, Source, TrainingDefaults
from tacit.datasets._images import list_mnist_files, read_mnist_form

DATASET = DataSet(
    "mnist",
    Source.of_files(
        "http://yann.lecun.com/exdb/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        {
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    ),
    read=partial(read_mnist_form, "mnist", is_handwriting=True),
    files=list_mnist_files("mnist.npz"),
    # torchvision's folder. Fashion-MNIST has files of the same names, so only folders of a known name are searched.
    folders=("MNIST/raw",),
    defaults=TrainingDefaults("cnn", lot_size=256, epochs=15, learning_rate=0.25, adam_rate=0.002),
)
