"""Fashion-MNIST: pictures of clothes, in files as those of MNIST."""

from functools import partial

from tacit.datasets import DataSet, Source, TrainingDefaults
from tacit.datasets._images import list_mnist_files, read_mnist_form

_CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
DATASET = DataSet(
    "fashion-mnist",
    Source.of_files(
        "https://github.com/zalandoresearch/fashion-mnist",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        {
            "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
    ),
    read=partial(read_mnist_form, "fashion-mnist", classes=_CLASSES),
    files=list_mnist_files("fashion-mnist.npz", "fashion_mnist.npz"),
    # The folders of torchvision and of the authors' repository.
    folders=("FashionMNIST/raw", "data/fashion"),
    defaults=TrainingDefaults("cnn", lot_size=256, epochs=15, learning_rate=0.25, adam_rate=0.002),
)
