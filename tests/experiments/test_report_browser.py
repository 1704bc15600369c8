"""The report as a real browser shows it, on a desk and on a phone. Skipped where no Chromium is installed."""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image, ImageColor
from reported import record

from fedpriv.experiments.commands import report as command
from fedpriv.experiments.tables.plots import COLOURS, colours

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
DARK = ("#4a9fe0", "#f0752a", "#1fc79a", "#dd8fbb", "#e6a817", "#9bd7ff", "#b9b9b9")
DRAWN = [*colours(["fed_avg", "dp_fed_avg", "rand_k", "top_k"]).values()]  # the quickstart's
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome is installed"),
]
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
FLAGS += ["--hide-scrollbars"]
WIDTHS = (1280, 390)

# Looks into the page from outside: it may run no script itself. A browser's window is never as narrow as a phone, a
# frame may be.
LOOK = """
frame.onload = () => {
  const view = frame.contentWindow, page = frame.contentDocument, found = {};
  found.width = [page.documentElement.scrollWidth, view.innerWidth];
  const box = e => e.getBoundingClientRect(), meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
    && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  found.texts = 0; found.smallest = 99; found.overlapping = []; found.outside = [];
  for (const chart of page.querySelectorAll("svg.chart")) {
    const texts = [...chart.querySelectorAll("text")], whole = box(chart);
    for (const [i, a] of texts.entries()) {
      const mine = box(a), scale = whole.width / chart.viewBox.baseVal.width;
      found.texts += 1;
      found.smallest = Math.min(found.smallest, parseFloat(view.getComputedStyle(a).fontSize) * scale);
      if (mine.left < whole.left - 1 || mine.right > whole.right + 1 || mine.bottom > whole.bottom + 1)
        found.outside.push(a.textContent);
      for (const b of texts.slice(i + 1))
        if (meet(mine, box(b))) found.overlapping.push([a.textContent, b.textContent]);
    }
  }
  found.cells = page.querySelectorAll("td, th").length;
  found.cut = [...page.querySelectorAll("td, th")].filter(e => e.scrollWidth > e.clientWidth + 1)
    .map(e => e.textContent);
  const shown = c => [...page.querySelectorAll(".chart " + c)].filter(e => view.getComputedStyle(e).display != "none");
  const count = () => [shown(".series").length, shown(".s1").length, shown(".band").length];
  found.before = count();
  page.getElementById("show-s1").click();
  found.without_one = count();
  page.getElementById("show-bands").click();
  found.without_bands = count();
  page.getElementById("show-s1").click();
  page.getElementById("show-bands").click();
  said.textContent = JSON.stringify(found);
};
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Of two runs that differ, one by a long name; with an unbreakable word in the status."""
    base = tmp_path_factory.mktemp("browser")
    record(base / "a", rounds=(50, 1000, 100_000))
    record(
        base / "noise_multiplier=2,p=0.05", seed=1, noise_multiplier=2.0, p=0.05, status="w" * 120
    )
    output = base / "report.html"
    assert (
        command.main(
            [str(base / "a"), str(base / "noise_multiplier=2,p=0.05"), "--output", str(output)]
        )
        == 0
    )
    return output


def browse(page, width, *flags, height=3000):
    """Chromium on `page` in a frame of that width."""
    frame = f'<iframe id=frame style="border:0;width:{width}px;height:{height}px" srcdoc="'
    frame += html.escape(page.read_text(encoding="utf-8")) + '"></iframe><pre id=said></pre>'
    outer = page.with_name(f"frame-{width}.html")
    outer.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">{frame}<script>{LOOK}</script>'
    )
    window = f"--window-size={max(width, 500)},{height}"
    profile = f"--user-data-dir={page.parent / 'profile'}"
    command = [BROWSER, *FLAGS, profile, window, *flags, outer.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=True).stdout


@pytest.fixture(scope="module", params=WIDTHS)
def seen(request, page):
    dumped = browse(page, request.param, "--dump-dom")
    return request.param, json.loads(
        html.unescape(re.search(r'<pre id="said">(.+?)</pre>', dumped)[1])
    )


def test_nothing_is_wider_than_the_screen(seen):
    width, found = seen
    scrolled, inner = found["width"]
    assert inner == width
    assert scrolled <= inner


def test_no_cell_of_a_table_runs_into_the_next(seen):
    _, found = seen
    assert found["cells"] > 200
    assert [x[:60] for x in found["cut"]] == []


def test_the_labels_of_the_pictures_can_be_read(seen):
    _, found = seen
    assert found["texts"] > 50
    assert found["overlapping"] == []
    assert found["outside"] == []
    assert found["smallest"] >= 9  # pixels


def test_a_box_hides_its_series_in_every_picture(seen):
    _, found = seen
    # Accuracy and loss by round, uplink and epsilon (without the two that are not private), two measures by round.
    series = 2 * (8 + 8 + 6) + 2 * 8
    assert found["before"] == [series, 8 + 8, series]  # a line and a band in each of the 8 pictures
    assert found["without_one"] == [series - 8, 0, series - 8]
    assert found["without_bands"] == [series - 8, 0, 0]


@pytest.mark.parametrize(
    ("width", "flags", "palette", "background"),
    [
        (1280, [], COLOURS, "#ffffff"),
        (390, [], COLOURS, "#ffffff"),
        (1280, ["--blink-settings=preferredColorScheme=0"], DARK, "#15171a"),
    ],
)
def test_the_curves_are_there_in_their_colours(page, tmp_path, width, flags, palette, background):
    shot = tmp_path / "shot.png"
    browse(page, width, f"--screenshot={shot}", *flags)
    pixels = np.asarray(Image.open(shot).convert("RGB")).astype(int)[:, :width]

    def near(colour):
        return np.abs(pixels - ImageColor.getrgb(colour)).max(-1) <= 12

    assert 0.5 < near(background).mean() < 0.98
    four = [near(palette[number]).sum() for number in DRAWN]
    assert min(four) > 300
    rows = np.nonzero(near(palette[DRAWN[1]]).any(1))[0]
    assert np.ptp(rows) > 800  # in pictures all over the page
