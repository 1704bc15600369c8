"""The page's style sheet: no font, picture or script from elsewhere; light, dark, narrow and printed."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.report.looks import Look

# Okabe and Ito's palette for all kinds of colour vision, without its yellow and black, which one of the two
# backgrounds would hide; lighter where the page is dark.
LIGHT = ("#0072b2", "#d55e00", "#009e73", "#b0528c", "#b8860b", "#56b4e9", "#5f5f5f")
DARK = ("#4a9fe0", "#f0752a", "#1fc79a", "#dd8fbb", "#e6a817", "#9bd7ff", "#b9b9b9")

STYLE = """
:root{color-scheme:light dark;--page:#fff;--text:#1b1b1b;--quiet:#555;--rule:#d9d9d9;--panel:#f6f6f6;--warn:#a32a00;
--link:#005a9c;LIGHT}
@media (prefers-color-scheme:dark){:root{--page:#15171a;--text:#e8e8e8;--quiet:#a9adb3;--rule:#3a3f45;--panel:#1e2125;
--warn:#ff9b6b;--link:#7cc0ff;DARK}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:84rem;padding:1rem;background:var(--page);color:var(--text);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;overflow-wrap:anywhere}
a{color:var(--link)}
h1{font-size:1.6rem;line-height:1.2;margin:.2rem 0 .6rem}
h2{font-size:1.25rem;margin:2rem 0 .6rem;padding-top:.6rem;border-top:1px solid var(--rule)}
h3{font-size:1rem;margin:1rem 0 .3rem}
p,ul{max-width:75ch;margin:.4rem 0}
ul{padding-left:1.2rem}
nav ul{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;list-style:none;padding:0;max-width:none}
.quiet,figcaption,caption{color:var(--quiet);font-size:.9em}
.warn{color:var(--warn)}
.free{overflow-wrap:anywhere}
td .warn{display:inline-block;min-width:8rem}
.legend{position:sticky;top:0;z-index:1;display:flex;flex-wrap:wrap;gap:.1rem 1rem;max-height:30vh;overflow:auto;
margin:.6rem 0;padding:.2rem .7rem .4rem;border:1px solid var(--rule);border-radius:6px;background:var(--page);
font-size:.9rem;min-width:0}
.legend legend{color:var(--quiet);padding:0 .3rem}
.legend label{display:inline-flex;align-items:center;gap:.35rem;padding:.15rem 0}
.sample{flex:none}
.row{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,20rem),1fr));gap:.4rem 1.4rem;margin:0 0 1rem}
figure{margin:0;min-width:0;break-inside:avoid}
figure h3{margin:.4rem 0}
figcaption p{margin:.1rem 0;font-size:.85rem}
.chart{display:block;width:100%;max-width:36rem;height:auto}
.nothing{color:var(--quiet)}
svg text{font-size:13px;fill:var(--text)}
.grid path{stroke:var(--rule);stroke-width:1;fill:none}
.grid .frame{stroke:var(--quiet)}
.grid .x,.labels text{text-anchor:middle}
.grid .y{text-anchor:end}
.labels .inside{text-anchor:start;fill:var(--quiet);font-size:11px}
.line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}
.marker{fill:currentColor;stroke:var(--page);stroke-width:.6}
.band{fill:currentColor;opacity:BAND;stroke:none}
.quiet{font-weight:normal}
.unbroken{white-space:nowrap}
.scroll{overflow-x:auto;margin:.6rem 0;max-width:100%}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;overflow-wrap:normal}
caption{text-align:left;padding:.2rem 0}
th,td{border-bottom:1px solid var(--rule);padding:.3rem .7rem .3rem .3rem;text-align:left;vertical-align:top}
td{min-width:4rem;max-width:24rem}
tbody th{min-width:7rem;max-width:24rem;overflow-wrap:anywhere}
tbody th{position:sticky;left:0;background:var(--page)}
td code{white-space:nowrap}
thead th{border-bottom:2px solid var(--quiet);vertical-align:bottom}
.account{border:1px solid var(--rule);border-radius:6px;padding:.2rem .9rem .6rem;margin:.8rem 0}
details{margin:.5rem 0}
summary{cursor:pointer}
td:has(code){max-width:none}
code{font-family:ui-monospace,"DejaVu Sans Mono",monospace;
font-size:.85rem;background:var(--panel);padding:.1rem .25rem}
dt{font-weight:600}
dd{margin:0 0 .5rem}
@media (max-width:40rem){.legend{position:static;max-height:none}
body{padding:.7rem}th,td{padding:.25rem .4rem .25rem .1rem}
tbody th{min-width:6rem;max-width:9rem}td{min-width:0;max-width:15rem}td:has(.free){min-width:5rem}
.account{padding:.2rem .5rem}
.account table{font-size:.76rem}.account tbody th{min-width:5.2rem;overflow-wrap:normal}
.account th,.account td{padding-right:.3rem}}
@media print{:root{color-scheme:light;--page:#fff;--text:#000;--quiet:#333;--rule:#bbb;--panel:#fff;--warn:#a32a00;
--link:#000;font-size:10px;LIGHT}
body{font-size:1rem;max-width:none;padding:0}nav{display:none}.legend{position:static;max-height:none}
.legend input{display:none}.row{grid-template-columns:repeat(3,1fr)}.scroll{overflow:visible}
table{font-size:.75rem}td,th{padding:.2rem .4rem .2rem .2rem;min-width:0}tr,.account{break-inside:avoid}
h2{break-after:avoid}
:is(.account,#settings,#provenance) details::details-content{content-visibility:visible}}
"""


def style(found: Sequence[Look]) -> str:
    """The sheet, with rules for the colours and for hiding each series."""
    sheet = STYLE.replace("LIGHT", _variables(LIGHT)).replace("DARK", _variables(DARK))
    sheet = sheet.replace("BAND", ".16" if len(found) <= 8 else ".07")
    colours = "".join(f".c{i}{{color:var(--c{i})}}" for i in range(len(LIGHT)))
    hidden = "".join(_hides(look.key) for look in found)
    bands = ":root:has(#show-bands:not(:checked)) .band{display:none}"
    return f"{sheet}{colours}\n{hidden}{bands}\n"


def _variables(colours: Sequence[str]) -> str:
    return ";".join(f"--c{i}:{colour}" for i, colour in enumerate(colours))


def _hides(key: str) -> str:
    return f":root:has(#show-{key}:not(:checked)) .chart .{key}{{display:none}}\n"
