"""The 8x8 digits that come with scikit-learn: real, small, nothing to prepare.

E. Alpaydin and C. Kaynak, "Optical recognition of handwritten digits", UCI Machine Learning
Repository, 1998: its test part, 1,797 examples.
"""

import importlib.util
from pathlib import Path

import numpy as np

from fedpriv.core.optional_imports import of_package
from fedpriv.data.datasets.dataset import Dataset


def load_digits(data_dir: Path) -> Dataset:
    """1,437 training and 360 test examples, image u8[N, 8, 8, 1], label i32[N].

    Pixels 0..16 are scaled to 0..255 and rounded, so that models scale all sets alike. The split is
    fixed: in order of the classes, every fifth example is a test example (so stratified to within
    one per class). `data_dir` is not used.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
    """
    pixels, target = _read()
    image: np.ndarray = np.rint(pixels.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
    label = target.astype(np.int32)
    is_test = np.zeros(len(label), bool)
    is_test[np.argsort(label, kind="stable")[::5]] = True
    train = {"image": image[~is_test], "label": label[~is_test]}
    test = {"image": image[is_test], "label": label[is_test]}
    return Dataset("digits", train, test, num_classes=10)


def _read() -> tuple[np.ndarray, np.ndarray]:
    """f64[1797, 64] pixels, f64[1797] classes: the file that scikit-learn ships.

    Importing scikit-learn, and with it scipy.stats, takes ten times as long as all that is needed of it; where its file
    is kept elsewhere, it is asked.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec and spec.origin:
        file = Path(spec.origin).parent / "datasets/data/digits.csv.gz"
        if file.is_file():
            rows = np.loadtxt(file, delimiter=",")
            return rows[:, :-1], rows[:, -1]
    with of_package("scikit-learn"):
        from sklearn.datasets import load_digits

    pixels, target = load_digits(return_X_y=True)
    return pixels, target
