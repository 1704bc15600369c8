"""Fed-SMP's configs: what their options do to the data."""

from dataclasses import replace

import jax
import numpy as np
from prepared import write_random

from configs import fed_smp_fashion_mnist


def test_pixels_are_what_the_network_sees(tmp_path):
    """Bytes become numbers from 0 to 1 in the network, or are numbers from -1 to 1 already."""
    write_random(tmp_path, "fashion_mnist", train=9, test=3)
    config = replace(fed_smp_fashion_mnist.config, data_dir=tmp_path)
    unit = config.images("fashion_mnist")
    centred = replace(config, pixels="centred").images("fashion_mnist")
    for split in ("train", "test"):
        byte, scaled = getattr(unit, split), getattr(centred, split)
        assert byte["image"].dtype == np.uint8
        assert scaled["image"].dtype == np.float32
        np.testing.assert_allclose(scaled["image"], 2 * (byte["image"] / 255) - 1, atol=1e-6)
        assert jax.tree.all(jax.tree.map(np.array_equal, byte["label"], scaled["label"]))
