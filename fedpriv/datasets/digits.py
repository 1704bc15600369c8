"""The 8x8 digits that come with scikit-learn: real, small, nothing to prepare.

E. Alpaydin and C. Kaynak, "Optical recognition of handwritten digits", UCI Machine Learning
Repository, 1998: its test part, 1,797 examples.
"""

from pathlib import Path

import numpy as np

from fedpriv.datasets.dataset import Dataset


def load_digits(data_dir: Path) -> Dataset:
    """1,437 training and 360 test examples, image u8[N, 8, 8, 1], label i32[N].

    Pixels 0..16 are scaled to 0..255 and rounded, so that models scale all sets alike. The split is
    fixed: in order of the classes, every fifth example is a test example (so stratified to within
    one per class). `data_dir` is not used.
    """
    from sklearn import datasets

    raw = datasets.load_digits()
    image = np.rint(raw.images * (255 / 16)).astype(np.uint8)[..., None]
    label = raw.target.astype(np.int32)
    is_test = np.zeros(len(label), bool)
    is_test[np.argsort(label, kind="stable")[::5]] = True
    train = {"image": image[~is_test], "label": label[~is_test]}
    test = {"image": image[is_test], "label": label[is_test]}
    return Dataset("digits", train, test, num_classes=10)
