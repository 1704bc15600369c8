"""A picture of who has what: what it shows, how quickly, and what a full disk leaves."""

import errno
from pathlib import Path

import numpy as np
import pytest

from fedpriv.data.partition import (
    counts,
    picture,
)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_a_picture_shows_who_has_what(tmp_path):
    labels = np.array([0, 1, 1, 2, 2, 2])
    clients = [[0, 3], [1, 2, 4, 5]]
    np.testing.assert_array_equal(counts(clients, labels), [[1, 0, 1], [0, 2, 2]])
    figure = picture(clients, labels, tmp_path / "who.png")
    (axes,) = figure.axes
    colours = [handle.get_facecolor() for handle in axes.get_legend().legend_handles]
    assert len(set(colours)) == 3
    expected = [(0, 0, 0, 1), (0, 2, 1, 2), (1, 1, 0, 2), (1, 2, 2, 4)]  # client, class, from, to
    assert drawn(axes) == [
        (client - 0.4, client + 0.4, start, end, colours[c]) for client, c, start, end in expected
    ]
    assert (tmp_path / "who.png").read_bytes().startswith(b"\x89PNG")
    assert picture([[0]], np.arange(21)).axes[0].get_legend() is None  # beyond any palette


def drawn(axes):
    """(top, bottom, left, right, colour) of each rectangle, in order."""
    (bars,) = axes.collections
    corners = [path.get_extents() for path in bars.get_paths()]
    return [
        (box.y0, box.y1, box.x0, box.x1, tuple(colour))
        for box, colour in zip(corners, bars.get_facecolors(), strict=True)
    ]


@pytest.mark.parametrize(("clients", "classes"), [(1, 300_000), (5_000, 3), (1_100, 100)])
def test_a_picture_of_many_is_drawn_as_quickly_as_it_has_pixels(clients, classes):
    """Neighbours share a bar or a colour; what all bars hold is what all clients hold."""
    total = 2 * max(clients, classes)
    labels = np.arange(total) % classes
    (axes,) = picture(np.array_split(rng().permutation(total), clients), labels).axes
    assert len(axes.get_children()) < 20
    bars = drawn(axes)
    assert len(bars) <= 64_000
    assert len({bar[0] for bar in bars}) == min(clients, 1000)
    area = sum((bottom - top) * (right - left) for top, bottom, left, right, _ in bars)
    assert area == pytest.approx(total * (0.8 if clients == 1 else 1))


def test_a_full_disk_leaves_the_picture_of_before(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    path = tmp_path / "who.png"
    picture([[0]], [0], path)
    before = path.read_bytes()

    def full(figure, to, **options):
        Path(to).write_bytes(before[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        picture([[0]], [0], path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
