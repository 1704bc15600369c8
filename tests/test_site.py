"""The site builds without a warning, every link of it leads somewhere, and nothing of it comes from elsewhere."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from look import SEARCHES, look

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
ELSEWHERE = re.compile(r"(?:https?:)?//[\w.-]+")
IN_STYLES = re.compile(r"(?:url\(|@import)\s*[\"']?\s*((?:https?:)?//[^\s\"')]+)")
IN_SCRIPTS = re.compile(
    r"(?:fetch|import|open)\(\s*[\"'`](?:https?:)?//[^\"'`]+|\.src\s*=\s*[\"'`](?:https?:)?//"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("sphinx", reason='pip install -e ".[docs]"')
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    command += ["-c", "docs", "-d", str(folder / "doctrees"), ".", str(folder / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "html"


class Page(HTMLParser):
    """The ids of a page, where it links to, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") not in (
            "canonical",
            "index",
            "search",
            "next",
            "prev",
        ):
            self.loads.append(given["href"])
        self.loads += [given[LOADED[tag]]] if LOADED.get(tag) in given else []
        self.loads += [x.split()[0] for x in given.get("srcset", "").split(",") if x.strip()]


@cache
def read(path: Path) -> Page:
    return Page(path.read_text())


def broken(page: Path) -> Iterator[str]:
    """Links and files of a page that are not there."""
    for target in read(page).links + read(page).loads:
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        there = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        anchors = read(there).ids if there.is_file() and there.suffix == ".html" else {""}
        if not there.is_file() or unquote(parts.fragment) not in {"", *anchors}:
            yield target


def from_elsewhere(folder: Path) -> Iterator[tuple[str, str]]:
    """What pages, styles and scripts load from another host."""
    for page in folder.rglob("*.html"):
        yield from ((page.name, x) for x in read(page).loads if ELSEWHERE.match(x))
    for pattern, suffix in ((IN_STYLES, "css"), (IN_SCRIPTS, "js")):
        for file in folder.rglob(f"*.{suffix}"):
            yield from ((file.name, x) for x in pattern.findall(file.read_text()))


def test_every_link_leads_somewhere(site):
    pages = [*site.rglob("*.html")]
    assert len(pages) > 40
    assert {str(p.relative_to(site)): found for p in pages if (found := [*broken(p)])} == {}


def test_nothing_comes_from_elsewhere(site):
    assert [*from_elsewhere(site)] == []


def test_formulas_are_drawn_by_the_browser(site):
    text = (site / "docs" / "ideas" / "epsilon.html").read_text()
    assert "<math" in text
    assert "varepsilon" not in text


def test_the_reference_prints_no_object(site):
    pages = [*(site / "docs" / "reference").glob("*.html")]
    assert len(pages) > 10
    assert [page.name for page in pages if re.search(r"\bat 0x[0-9a-f]{6}", page.read_text())] == []


def test_a_type_in_a_signature_leads_to_its_meaning(site):
    links = read(site / "docs" / "reference" / "privacy.html").links
    assert {"types.html#fedpriv.Probability", "types.html#fedpriv.View"} <= set(links)


def test_what_is_wrong_is_found(tmp_path):
    text = """<link rel=stylesheet href="//c.d/s.css"><img src="gone.png"><h1 id="a b">A</h1>
    <a href="#a%20b">1</a> <a href="#b">2</a> <a href="other.html">3</a> <a href="https://a.b/c">4</a>
    <script src="https://a.b/s.js"></script>"""
    (tmp_path / "page.html").write_text(text)
    (tmp_path / "s.css").write_text(
        "a {background: url('https://a.b/x.png')} b {background: url(x.png)}"
    )
    (tmp_path / "s.js").write_text("// https://a.b\nfetch('https://a.b/x'); fetch('/x')")
    assert [*broken(tmp_path / "page.html")] == ["#b", "other.html", "gone.png"]
    assert [name for name, _ in from_elsewhere(tmp_path)] == [
        "page.html",
        "page.html",
        "s.css",
        "s.js",
    ]


@pytest.fixture
def index(site) -> dict:
    text = (site / "searchindex.js").read_text()
    return json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))


@pytest.mark.parametrize(("word", "page"), SEARCHES.items())
def test_a_word_is_in_the_index_with_its_page(index, word, page):
    named = [known[0] for kind in index["objects"].values() for known in kind if known[4] == word]
    stems = {s for s in (*index["terms"], *index["titleterms"]) if word.lower().startswith(s[:4])}
    pages = [index[kind].get(stem, []) for stem in stems for kind in ("terms", "titleterms")]
    written = {n for each in pages for n in (each if isinstance(each, list) else [each])}
    assert index["docnames"].index(page) in {*named, *written}


def test_pages_fit_phones_and_desktops_and_searches_show_the_right_one(site):
    chromium = shutil.which("chromium") or pytest.skip("there is no chromium")
    seen = look(site, chromium)
    assert (seen.wide, seen.outside) == ([], [])
    assert seen.found == SEARCHES


def test_chromium_sees_what_is_wrong(tmp_path):
    chromium = shutil.which("chromium") or pytest.skip("there is no chromium")
    (tmp_path / "index.html").touch()
    wide = "<!doctype html><div style='width: 600px'>A</div>"
    (tmp_path / "a.html").write_text(wide + "<img src='http://a.invalid/x.png'>")
    results = "<!doctype html><div id='search-results'><li><a href='/a.html'>A</a></li></div>"
    (tmp_path / "search.html").write_text(results)
    seen = look(tmp_path, chromium)
    assert [page.partition(":")[0] for page in seen.wide] == ["/a.html at 390"]
    assert seen.outside == ["http://a.invalid/x.png"]
    assert set(seen.found.values()) == {"a"}
