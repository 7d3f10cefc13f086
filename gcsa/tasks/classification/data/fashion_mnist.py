"""Fashion-MNIST: 28 x 28 photographs of clothes (Xiao, Rasul, Vollgraf 2017), laid out as MNIST."""

from gcsa.tasks.classification.data.mnist import MNIST


class FashionMNIST(MNIST):
    """54,000 / 6,000 / 10,000 images in `<root>/FashionMNIST/raw`; see `MNIST`."""

    name = "fashion_mnist"
    class_names = (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    )
    mean, std = (0.2860,), (0.3530,)
    download_size = "31 MB"
    folder = "FashionMNIST"
