"""The style of pages: reports, tables of published runs, and drawings of a search.

Answers: which colours, sizes and rules for print does every page have?
Elsewhere: the frame of a page (frame.py), drawings (drawing.py).
Colours are variables, so that the dark scheme changes them in one place; printed pages are always light.
Text has a contrast of at least 4.5 to its background, marks of at least 3 (WCAG 2.2, 1.4.3 and 1.4.11).
"""

from collections.abc import Mapping

LIGHT = {
    "paper": "#ffffff", "panel": "#f4f6f8", "ink": "#1b1f24", "soft": "#535c66", "line": "#c9d1d9",
    "link": "#1f5fa8", "warn": "#a4421a",
    "hue-0": "#2f6db3", "hue-1": "#c05a1a", "hue-2": "#35803f", "hue-3": "#8a55b0",
    "hue-4": "#8f6d12", "hue-5": "#b03a5b", "hue-6": "#0f7b83", "hue-7": "#6e7781",
}  # fmt: skip
DARK = {
    "paper": "#11161c", "panel": "#1a212a", "ink": "#e6e9ed", "soft": "#a9b3be", "line": "#3d4753",
    "link": "#86b8f0", "warn": "#f2a07a",
    "hue-0": "#6fa8e6", "hue-1": "#f09355", "hue-2": "#74c787", "hue-3": "#c192e8",
    "hue-4": "#d8b95c", "hue-5": "#ec7f9c", "hue-6": "#5cc3c9", "hue-7": "#9aa4af",
}  # fmt: skip
HUES = sum(name.startswith("hue-") for name in LIGHT)


def _variables(colours: Mapping[str, str]) -> str:
    return ":root{" + "".join(f"--{name}:{colour};" for name, colour in colours.items()) + "}\n"


COLOURS = (
    f"{_variables(LIGHT)}@media screen and (prefers-color-scheme:dark){{{_variables(DARK)}}}\n"
    + "".join(f".hue-{hue}{{fill:var(--hue-{hue})}}" for hue in range(HUES))
    + "\n"
)
DRAWN = """svg{font:13px system-ui,sans-serif} svg text{fill:var(--ink)} svg .soft{fill:var(--soft)}
.grid{stroke:var(--line);stroke-width:.7;fill:none} .rule{stroke:var(--ink);stroke-width:1.2;fill:none}
.band{fill:var(--line);opacity:.45} .faint{stroke:var(--ink);stroke-width:.8;opacity:.3;fill:none}
"""
LINED = "".join(f".line-{hue}{{fill:none;stroke:var(--hue-{hue});stroke-width:2}}" for hue in range(HUES))
UNSCRIPTED = ".needs-script{display:none}"
STYLE = f"""{COLOURS}{DRAWN}{LINED}
html{{color-scheme:light dark;scroll-padding-top:1rem;font-size:94%}}
body{{font:1rem/1.5 system-ui,sans-serif;max-width:72rem;margin:0 auto;padding:1rem 1rem 4rem;
 background:var(--paper);color:var(--ink);overflow-wrap:break-word}}
h1{{font-size:1.5rem;margin:.5rem 0}} h2{{font-size:1.15rem;margin:2.2rem 0 .5rem}}
h3{{font-size:1rem;margin:1.2rem 0 .3rem}} a{{color:var(--link)}}
nav ul{{display:flex;flex-wrap:wrap;gap:.2rem 1rem;list-style:none;padding:0;margin:.5rem 0}}
:focus-visible{{outline:3px solid var(--link);outline-offset:2px}}
.soft,caption,figcaption,footer{{color:var(--soft)}}
table{{border-collapse:collapse;max-width:100%;font-size:.92rem}}
caption{{text-align:left;padding:.25rem 0}}
td,th{{padding:.2rem 1rem .2rem 0;text-align:left;vertical-align:top;font-weight:400}}
thead th{{font-weight:600;border-bottom:1px solid var(--line)}}
tbody tr+tr>*{{border-top:1px solid var(--line)}}
.number{{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}}
thead .number{{white-space:normal}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fill,minmax(11rem,1fr));gap:.75rem;margin:1rem 0}}
.tiles>div{{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:.6rem .8rem}}
dl,dd{{margin:0}} dt{{color:var(--soft)}} dd{{font-size:1.25rem;font-weight:600}}
dd small{{display:block;font-size:.85rem;font-weight:400;color:var(--soft)}}
.warning{{border-left:4px solid var(--warn);padding-left:.75rem}} .bad{{color:var(--warn)}}
.answer{{font-size:1.3rem}}
figure{{margin:1rem 0}} .scroll{{overflow-x:auto}}
.scroll>svg{{display:block;width:100%;min-width:44rem;height:auto}} .scroll>svg.bare{{min-width:0}}
svg.bar{{width:16rem;height:.7rem;display:block}}
svg.mark{{width:.9rem;height:.9rem;vertical-align:-.1rem}}
.legend span{{white-space:nowrap;margin-right:1rem}}
.box{{stroke:var(--paper);stroke-width:.35;vector-effect:non-scaling-stroke}}
.rule.box{{stroke:var(--ink);stroke-width:1}}
details{{border-top:1px solid var(--line)}} summary{{cursor:pointer;padding:.25rem 0}}
pre{{background:var(--panel);padding:.75rem;overflow-x:auto;font-size:.85rem}}
.told{{min-height:1.5em;margin:.25rem 0}} .tools{{display:flex;gap:.5rem;flex-wrap:wrap}}
button{{font:inherit;color:var(--ink);background:var(--panel);border:1px solid var(--line);
 border-radius:4px;padding:.1rem .6rem;cursor:pointer}}
th button{{all:unset;cursor:pointer}} th button:focus-visible{{outline:3px solid var(--link)}}
.sorts thead th{{position:relative}} .sorts th[aria-sort]::after{{position:absolute;padding-left:.2rem}}
.sorts th[aria-sort=ascending]::after{{content:"\\2191"}}
.sorts th[aria-sort=descending]::after{{content:"\\2193"}}
@media print{{html{{font-size:66%}} body{{max-width:none;padding:0}} nav,.needs-script{{display:none}}
 h2,h3,summary{{break-after:avoid}} tr,figure,.tiles>div{{break-inside:avoid}}
 .scroll{{overflow:visible}} .scroll>svg{{min-width:0}} pre{{white-space:pre-wrap}}
 details::details-content{{content-visibility:visible;block-size:auto}}}}
"""
