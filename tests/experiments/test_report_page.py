"""The report as a document: it loads nothing, nothing can be injected, it can be read without seeing it."""

import json
import re
import shutil

import pytest
from recorded import made
from reported import edit, text, tree, with_class

from fedpriv.experiments.commands import report as command
from fedpriv.experiments.tables.report import charts


def report(*folders):
    output = folders[0].parent / "page.html"
    assert command.main([*map(str, folders), "--output", str(output)]) == 0
    return tree(output)


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Two runs of different configs."""
    base = tmp_path_factory.mktemp("several")
    for name, kind in (("a", "audited"), ("c", "claimed of records")):
        shutil.copytree(made(kind).path, base / name)
    return report(base / "a", base / "c")


def test_the_page_loads_nothing(several):
    root = several
    tags = {e.tag for e in root.iter()}
    assert not tags & {"script", "link", "iframe", "object", "embed", "base", "img", "image"}
    assert not tags & {"form", "metadata"}
    for e in root.iter():
        for name in ("src", "href", "xlink:href", "srcset", "data", "action", "poster"):
            assert e.get(name, "#").startswith("#")
        assert not [name for name in e.attrib if name.startswith("on")]
        for value in e.attrib.values():
            assert all(re.match(r"url\(#[\w-]+\)", u) for u in re.findall(r"url\(.*", value))
    (style,) = root.iter("style")
    assert "@import" not in style.text
    assert "url(" not in style.text
    metas = {m.get("http-equiv") or m.get("name"): m.get("content") for m in root.iter("meta")}
    assert metas["Content-Security-Policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert metas["viewport"] == "width=device-width, initial-scale=1"


def test_the_page_can_be_read_without_seeing(several):
    root = several
    assert root.find("html").get("lang") == "en"
    assert text(root.find(".//title")).startswith("fedpriv: quickstart")
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(set(ids)) == len(ids)
    for e in root.iter():
        for name in ("aria-labelledby", "aria-describedby", "for"):
            assert name not in e.attrib or e.get(name) in ids
        if "href" in e.attrib:
            assert e.get("href")[1:] in ids
    pictures = with_class(root, "chart")
    assert len(pictures) == 2 * (1 + 1 + 2) + 2 + 2
    for picture in pictures:
        assert picture.get("role") == "img"
        said = text(picture.find("desc"))
        assert "ends at" in said or "missed at 1 % false positives" in said
    for table in root.iter("table"):
        assert text(table.find("caption"))
        assert all(th.get("scope") in ("row", "col") for th in table.iter("th"))
    labelled = {label.get("for") for label in root.iter("label")}
    assert {e.get("id") for e in root.iter("input")} == labelled


def test_every_series_has_a_box_that_hides_it_in_every_picture(several):
    root = several
    (style,) = root.iter("style")
    boxes = [e.get("id").removeprefix("show-") for e in root.iter("input")]
    drawn = {c for e in with_class(root, "series") for c in e.get("class").split()}
    for key in set(boxes) - {"bands"}:
        rule = f":root:has(#show-{key}:not(:checked)) .chart .{key}{{display:none}}"
        assert rule in style.text
        assert key in drawn
    assert len(boxes) == 2 + 2 + 1


def test_every_colour_is_the_pages_own_for_light_dark_and_print(several):
    root = several
    (style,) = root.iter("style")
    variables = [f"--c{i}" for i in range(len(charts.COLOURS))]
    for name in (*variables, "--text", "--rule"):
        assert style.text.count(f"{name}:") == 3
    assert all(colour in style.text for colour in charts.COLOURS)
    pictures = with_class(root, "chart")
    inside = "".join(e.get("style", "") for picture in pictures for e in picture.iter())
    assert "#" not in re.sub(r"url\(#[\w-]+\)", "", inside)
    used = set(re.findall(r"var\((--\w+)\)", inside))
    assert {"--c0", "--text", "--rule"} <= used <= {*variables, "--text", "--rule"}


EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;</style>$title\x00"


def test_what_a_run_says_cannot_become_a_part_of_the_page(tmp_path):
    folder = tmp_path / "<b onclick=alert(3)>&amp;"
    shutil.copytree(made("one seed").path, folder)
    for name in ("summary.json", "config.json", "metrics.jsonl"):
        path = folder / name
        held = path.read_text()
        for word in ("mean_update_norm", "top_k", "add_or_remove"):
            held = held.replace(word, json.dumps(EVIL)[1:-1])
        path.write_text(held)
    summary = json.loads((folder / "summary.json").read_text())
    edit(folder / "summary.json", status=f"failed {EVIL}", privacy_notes=[EVIL], git_revision=EVIL)
    summary["settings"]["sampling"] = EVIL
    edit(folder / "config.json", config=EVIL, settings=summary["settings"])
    shutil.copytree(made("plain").path, tmp_path / "other")
    root = report(folder, tmp_path / "other")
    tags = {e.tag for e in root.iter()}
    assert not tags & {"script", "img", "b"}
    assert not [name for e in root.iter() for name in e.attrib if name.startswith("on")]
    shown = EVIL.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    assert text(root).count(shown) > 5
    assert "<b onclick=alert(3)>&amp;" in text(root)
    assert "\x00" not in (tmp_path / "page.html").read_text()
