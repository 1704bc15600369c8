"""python docs/look.py [SITE]: opens every page of the built site in Chromium, as wide as a phone and as a desktop.

Says which pages scroll sideways or load anything from elsewhere, and where a search finds its words; exit code 1 if
anything is wrong. Nothing but Chromium is needed: a page of ours opens the others in frames and tells what it sees.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

WIDTHS = (390, 1280)  # pixels
SECONDS = 60

SEARCHES = {
    "adjacency": "docs/ideas/adjacency",
    "delta": "docs/ideas/delta",
    "unit": "docs/ideas/unit",
    "view": "docs/ideas/view",
    "operational": "docs/ideas/operational_numbers",
    "glossary": "docs/glossary",
    "install": "docs/start",
    "fed_smp": "docs/reference/algorithms",
    "LeakError": "docs/reference/own_algorithms",
    "StreamedFederation": "docs/reference/data",
    "blt": "docs/reference/mechanisms",
    "lora": "docs/how_to/fine_tuning",
    "csv": "docs/how_to/csv",
    "slurm": "docs/how_to/devices_and_slurm",
    "resume": "docs/how_to/resume",
    "publish": "docs/how_to/publish_a_model",
    "pretrained": "docs/how_to/pretrained",
    "AUC": "docs/how_to/metrics",
    "histogram": "docs/reference/statistics",
    "asynchronous": "docs/how_to/late_clients",
}
"""A word, and the page that a search for it shows first."""

LOOK = """<!doctype html><title>look</title><script>
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
async function open(url, width) {
  const frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 900px; border: 0`;
  frame.src = url;
  const loaded = new Promise((done) => { frame.onload = done; });
  document.body.append(frame);
  await loaded;
  return frame;
}
async function page(url, width) {
  const frame = await open(url, width), inside = frame.contentWindow;
  await wait(20);
  const root = inside.document.documentElement;
  const loads = inside.performance.getEntriesByType("resource").map((entry) => entry.name);
  const seen = {url, width, scroll: root.scrollWidth, inner: inside.innerWidth, loads};
  frame.remove();
  return seen;
}
async function search(word) {
  const frame = await open(`/search.html?q=${encodeURIComponent(word)}`, 1280);
  for (let i = 0; i < 100; i++) {
    await wait(50);
    const first = frame.contentWindow.document.querySelector("#search-results li a");
    if (first) { frame.remove(); return new URL(first.href).pathname; }
  }
  frame.remove();
  return "";
}
async function look({pages, widths, words}) {
  const told = {pages: [], found: {}, error: ""};
  try {
    for (const url of pages) for (const width of widths) told.pages.push(await page(url, width));
    for (const word of words) told.found[word] = await search(word);
  } catch (error) {
    told.error = String(error.stack);
  }
  await fetch("/told", {method: "POST", body: JSON.stringify(told)});
}
window.onload = () => look(ASKED);
</script><body></body>"""


class Seen(NamedTuple):
    """What is wrong with pages, and the first page that each search shows."""

    wide: list[str]
    outside: list[str]
    found: dict[str, str]


def look(site: Path, chromium: str) -> Seen:
    """Opens all pages of a built site, but for the one that leads to the front page.

    Raises:
      TimeoutError: Chromium told nothing.
      RuntimeError: its script failed.
    """
    pages = sorted(f"/{path.relative_to(site)}" for path in site.rglob("*.html"))
    pages.remove("/index.html")
    server = _Server(site, {"pages": pages, "widths": WIDTHS, "words": [*SEARCHES]})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen(
            [*_headless(chromium, profile), f"{server.origin}/look.html"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            if not server.told.wait(SECONDS):
                raise TimeoutError(f"{chromium} told nothing in {SECONDS} seconds")
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()
            server.server_close()
    if server.seen["error"]:
        raise RuntimeError(server.seen["error"])
    return _judged(server)


def _headless(chromium: str, profile: str) -> list[str]:
    """A browser without windows that finds no other host."""
    options = ["headless=new", "no-sandbox", "disable-gpu", "no-first-run"]
    options += ["disable-background-networking", f"user-data-dir={profile}"]
    options += ["host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    return [chromium, *(f"--{option}" for option in options)]


class _Server(ThreadingHTTPServer):
    """The site, the page that looks at it, and what that page tells."""

    def __init__(self, site: Path, asked: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(site)))
        self.page = LOOK.replace("ASKED", json.dumps(asked)).encode()
        self.origin = f"http://127.0.0.1:{self.server_port}"
        self.told = threading.Event()
        self.seen: dict[str, Any] = {}

    def handle_error(self, *_: Any) -> None:
        """A frame was gone before all of its page was sent."""


class _Handler(SimpleHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        if self.path != "/look.html":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.server.page)

    def do_POST(self) -> None:
        self.server.seen = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        self.server.told.set()

    def log_message(self, *_: Any) -> None:
        pass


def _judged(server: _Server) -> Seen:
    pages = server.seen["pages"]
    wide = [f"{p['url']} at {p['width']}: {p['scroll']}" for p in pages if p["scroll"] > p["inner"]]
    loads = {load for page in pages for load in page["loads"]}
    outside = sorted(x for x in loads if not x.startswith((server.origin, "data:")))
    found = {w: p.strip("/").removesuffix(".html") for w, p in server.seen["found"].items()}
    return Seen(wide, outside, found)


def main(argv: list[str]) -> int:
    site = Path(argv[0] if argv else Path(__file__).parent / "_build")
    chromium = shutil.which("chromium")
    if chromium is None or not (site / "index.html").exists():
        missing = site / "index.html" if chromium else "chromium"
        print(
            f"error: there is no {missing}; CONTRIBUTING.md says how the site is built",
            file=sys.stderr,
        )
        return 2
    seen = look(site, chromium)
    wrong = [f"scrolls sideways: {page}" for page in seen.wide]
    wrong += [f"loaded from elsewhere: {load}" for load in seen.outside]
    wrong += [
        f"a search for {word!r} shows {seen.found[word] or 'nothing'} first, not {page}"
        for word, page in SEARCHES.items()
        if seen.found[word] != page
    ]
    print("\n".join(wrong) or "all pages fit, load nothing from elsewhere, and are found")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
