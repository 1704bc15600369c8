"""Fed-SMP's configs: what their options do to the data."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from prepared import write_random

from configs import fed_smp_fashion_mnist


@pytest.mark.parametrize(
    ("pixels", "mean", "deviation"), [("centred", 0.5, 0.5), ("standardised", 0.2860, 0.3530)]
)
def test_pixels_are_what_the_network_sees(pixels, mean, deviation, tmp_path):
    """Bytes become numbers from 0 to 1 in the network, or are scaled numbers already."""
    write_random(tmp_path, "fashion_mnist", train=9, test=3)
    config = replace(fed_smp_fashion_mnist.settings, data_dir=tmp_path)
    unit = config.images("fashion_mnist")
    other = replace(config, pixels=pixels).images("fashion_mnist")
    for split in ("train", "test"):
        byte, scaled = getattr(unit, split), getattr(other, split)
        assert byte["image"].dtype == np.uint8
        assert scaled["image"].dtype == np.float32
        expected = (byte["image"] / 255 - mean) / deviation
        np.testing.assert_allclose(scaled["image"], expected, atol=1e-6)
        assert jax.tree.all(jax.tree.map(np.array_equal, byte["label"], scaled["label"]))


def test_pixels_of_unknown_moments_are_not_standardised(tmp_path):
    config = replace(fed_smp_fashion_mnist.settings, pixels="standardised", data_dir=tmp_path)
    (note,) = fed_smp_fashion_mnist.ledger(config).notes
    assert "no epsilon covers" in note
    with pytest.raises(ValueError, match="pixels: standardised is for fashion_mnist, not svhn"):
        config.images("svhn_cropped")
