"""A page complete in itself: its style, its charts in the reader's theme, and a policy that lets nothing else in.

A content security policy lets only two scripts run, by their hashes, and nothing be loaded: the one written here, and
plotly, which is packed (1.9 MB instead of 4.8) and unpacked by the first. Text comes in escaped: what is put together
here is HTML already.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any, Literal

import orjson

from stabilizer.core.severity import ICONS
from stabilizer.core.text import LONGEST, plain
from stabilizer.core.version import __version__
from stabilizer.figures import CONFIG, PALETTES, TEMPLATES


def document(title: str, body: str, figures: str) -> str:
    """A whole page around escaped HTML: the style, the charts of `charts_json`, and the two scripts that may run."""
    policy = (
        f"default-src 'none'; script-src {_digest(_plotly())} {_digest(_SCRIPT)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{_style()}</style>
</head>
<body>
<main>
{body}
</main>
<footer>Written by stabilizer {__version__}. This page is complete in itself and loads nothing.</footer>
<script type="application/json" id="figures">{figures}</script>
<script type="application/gzip" id="plotly">{_packed()}</script>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def safe(text: object, longest: int = LONGEST) -> str:
    """Any text as HTML shows it: without control characters, and unable to open a tag or end an attribute."""
    return escape(plain(text, longest), quote=True)


def table_html(heads: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[int] = ()) -> str:
    """A table of texts; the columns `right` hold numbers. Without `heads` it has no head."""
    sides = {place: " class=r" for place in right}
    top = "".join(f"<th{sides.get(place, '')}>{safe(head)}</th>" for place, head in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f"<td{sides.get(place, '')}>{safe(cell)}</td>" for place, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    head = f"<thead><tr>{top}</tr></thead>" if heads else ""
    return f"<div class=scroll><table>{head}<tbody>{body}</tbody></table></div>"


def figure_html(name: str, title: str, caption: str = "") -> str:
    """The place of the chart `name`; the caption is HTML."""
    return (
        f"<figure><figcaption><b>{safe(title)}</b>{caption}</figcaption>"
        f"<div class=plot data-figure='{safe(name)}' role=img aria-label='{safe(title)}'></div></figure>"
    )


def tone(level: str) -> str:
    """The class of the colour of a severity or verdict."""
    return {"healthy": "good-tone", "crashed": "critical"}.get(level, level if level in ICONS else "muted")


def charts_json(figures: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """Figures (light, dark) as JSON, once: the light one whole, of the dark one only what differs."""
    drawn = {}
    for name, (light, dark) in figures.items():
        for figure in (light, dark):
            figure["layout"].pop("template", None)
        differs = [
            {key: value for key, value in night.items() if day.get(key) != value}
            for day, night in zip(light["data"], dark["data"], strict=True)
        ]
        layout = {key: value for key, value in dark["layout"].items() if light["layout"].get(key) != value}
        drawn[name] = {
            "data": light["data"],
            "layout": light["layout"],
            "dark": {"data": differs, "layout": layout},
        }
    templates = {theme: template.to_plotly_json() for theme, template in TEMPLATES.items()}
    text = orjson.dumps(
        _rounded({"figures": drawn, "templates": templates, "config": dict(CONFIG)}),
        option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS,
    ).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(value: Any) -> Any:
    """Numbers to six digits: more than a chart can show, a third of the bytes."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(inner) for inner in value]
    return value


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script


@cache
def _packed() -> str:
    return base64.b64encode(gzip.compress(_plotly().encode(), mtime=0)).decode()


@cache
def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


_SCRIPT = """
(function () {
  var spec = JSON.parse(document.getElementById('figures').textContent);
  var media = window.matchMedia('(prefers-color-scheme: dark)');
  var plots = Array.prototype.slice.call(document.querySelectorAll('.plot'));
  function draw(div, dark) {
    var figure = spec.figures[div.dataset.figure];
    if (!figure) { return; }
    var theme = dark ? 'dark' : 'light';
    var data = figure.data.map(function (trace, i) {
      return Object.assign({}, trace, dark ? figure.dark.data[i] : {});
    });
    var layout = Object.assign({}, figure.layout, dark ? figure.dark.layout : {}, {template: spec.templates[theme]});
    layout = JSON.parse(JSON.stringify(layout));
    layout.autosize = true;
    layout.height = 230;
    Plotly.react(div, data, layout, spec.config);
  }
  function drawAll(dark) { plots.forEach(function (div) { draw(div, dark); }); }
  function start(code) {
    var script = document.createElement('script');
    script.textContent = code;
    document.head.appendChild(script);
    drawAll(media.matches);
    media.addEventListener('change', function () { drawAll(media.matches); });
    window.addEventListener('beforeprint', function () { drawAll(false); });
    window.addEventListener('afterprint', function () { drawAll(media.matches); });
  }
  function sorry() {
    plots.forEach(function (div) { div.textContent = 'Charts need a browser of 2023 or later.'; });
  }
  if (!plots.length) { return; }
  if (!window.DecompressionStream) { sorry(); return; }
  var packed = Uint8Array.from(atob(document.getElementById('plotly').textContent), function (c) {
    return c.charCodeAt(0);
  });
  var stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  new Response(stream).text().then(start, sorry);
})();
"""


def _style() -> str:
    def colours(theme: Literal["light", "dark"]) -> str:
        p = PALETTES[theme]
        ground = "#f6f7f9" if theme == "light" else "#11151b"
        good = p.fix
        tones = "".join(f"--{name}:{colour};" for name, colour in p.severity.items())
        return (
            f"--text:{p.text};--muted:{p.muted};--line:{p.grid};--card:{p.surface};--ground:{ground};--good:{good};{tones}"
            f"--link:{p.lines[0]};" + "".join(f"--line{place}:{colour};" for place, colour in enumerate(p.lines))
        )

    return f""":root{{{colours("light")}}}
@media screen and (prefers-color-scheme:dark){{:root{{{colours("dark")}}}}}{_CSS}"""


_CSS = """
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:15px/1.5 Inter,system-ui,-apple-system,'Segoe UI',
'Liberation Sans',Arial,sans-serif;overflow-wrap:anywhere}
main{max-width:1180px;margin:0 auto;padding:24px 20px}
header,section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:20px 24px;margin:0 0 16px}
h1{margin:.1em 0 .3em;font-size:26px;line-height:1.25}
h2{margin:0 0 .6em;font-size:18px;display:inline-block}
h2 small{font-weight:400;font-size:14px;color:var(--muted);margin-left:.4em}
h3{margin:0 0 .4em;font-size:14px}
p{margin:.35em 0}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
.eyebrow{color:var(--muted);font-size:12px;letter-spacing:.08em;text-transform:uppercase;margin:0}
.verdict{font-size:19px;font-weight:600}.verdict .muted{font-size:14px;font-weight:400}
.critical{color:var(--critical)}.warn{color:var(--warn)}.info{color:var(--info)}.good-tone{color:var(--good)}
.muted{color:var(--muted)}
.facts{display:flex;flex-wrap:wrap;gap:8px 32px;margin:14px 0 4px}
.facts div{min-width:90px}
dt{color:var(--muted);font-size:12px}dd{margin:0;font-weight:500;font-variant-numeric:tabular-nums}
.lead{margin:12px 0 0;padding:12px 0 0;border-top:1px solid var(--line);list-style:none}.lead li{margin:.3em 0}
.finding{border-left:3px solid var(--line);padding:2px 0 2px 12px;margin:10px 0}
.evidence{display:flex;flex-wrap:wrap;gap:2px 18px;font-size:13px;color:var(--muted);font-variant-numeric:tabular-nums}
.evidence i{font-style:normal;opacity:.8}.evidence i::after{content:':'}
.tag{font-size:12px;border:1px solid currentColor;border-radius:99px;padding:0 8px;white-space:nowrap}
code{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(340px,100%),1fr));gap:16px 32px}
.columns>div{min-width:0}
.plots{display:grid;align-items:end;
grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:18px 28px;margin:12px 0}
figure{margin:0;min-width:0}figcaption{font-size:13px}
.key{white-space:nowrap;margin-right:12px}.key i{display:inline-block;width:12px;height:3px;margin:0 5px 3px 0}
.plot{min-height:230px}
ul,ol{margin:0;padding-left:1.2em}li{margin:.45em 0}.good{list-style:'✓  '}.good li::marker{color:var(--good)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13px}
th{font-weight:500;color:var(--muted);text-align:left}th,td{padding:5px 14px 5px 0;border-bottom:1px solid var(--line);
vertical-align:top;overflow-wrap:break-word}
.scroll td{min-width:72px}.scroll td:last-child{min-width:220px}
td:first-child{white-space:nowrap}.r{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.columns td:first-child{white-space:normal;min-width:110px}
summary{cursor:pointer}summary h2{margin-bottom:.3em}
footer{max-width:1180px;margin:0 auto;padding:0 24px 32px;color:var(--muted);font-size:12px}
@media print{body{background:#fff}header,section{break-inside:avoid-page;border:0;padding:8px 0}
.plot{break-inside:avoid}}
"""
