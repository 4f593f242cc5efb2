"""The style of pages: reports, tables of published runs, and drawings of a search.

Answers: which colours does every page have, what do drawings look like?
Elsewhere: sizes and rules for print (page.css), the frame of a page (frame.py), drawings (drawing.py).
Colours are variables, so that the dark scheme changes them in one place; printed pages are always light.
`good`, `amber` and `bad` colour verdicts, which are also words.
Text has a contrast of at least 4.5 to its background, marks of at least 3 (WCAG 2.2, 1.4.3 and 1.4.11).
"""

from collections.abc import Mapping

from flopcast.files.package_table import read_text

LIGHT = {
    "paper": "#ffffff", "panel": "#f4f6f8", "ink": "#1b1f24", "soft": "#535c66", "line": "#c9d1d9",
    "link": "#1f5fa8", "warn": "#a4421a", "good": "#1a6e3c", "amber": "#8a5a00", "bad": "#b3261e",
    "tint": "#e7eff9",
    "hue-0": "#2f6db3", "hue-1": "#c05a1a", "hue-2": "#35803f", "hue-3": "#8a55b0",
    "hue-4": "#8f6d12", "hue-5": "#b03a5b", "hue-6": "#0f7b83", "hue-7": "#6e7781",
}  # fmt: skip
DARK = {
    "paper": "#11161c", "panel": "#1a212a", "ink": "#e6e9ed", "soft": "#a9b3be", "line": "#3d4753",
    "link": "#86b8f0", "warn": "#f2a07a", "good": "#6fcf8e", "amber": "#e3b341", "bad": "#ff8f85",
    "tint": "#1b2a3d",
    "hue-0": "#6fa8e6", "hue-1": "#f09355", "hue-2": "#74c787", "hue-3": "#c192e8",
    "hue-4": "#d8b95c", "hue-5": "#ec7f9c", "hue-6": "#5cc3c9", "hue-7": "#9aa4af",
}  # fmt: skip
HUES = sum(name.startswith("hue-") for name in LIGHT)


def _variables(colours: Mapping[str, str], where: str = ":root") -> str:
    return where + "{" + "".join(f"--{name}:{colour};" for name, colour in colours.items()) + "}\n"


COLOURS = (
    f"{_variables(LIGHT)}@media screen and (prefers-color-scheme:dark){{{_variables(DARK)}}}\n"
    + "".join(f".hue-{hue}{{fill:var(--hue-{hue})}}" for hue in range(HUES))
    + "\n"
)
CHOSEN_SCHEME = (  # of a page whose reader can choose it; the attribute overrides what the system prefers
    f"@media screen{{{_variables(LIGHT, ':root[data-scheme=light]')}"
    f"{_variables(DARK, ':root[data-scheme=dark]')}"
    "html[data-scheme=light]{color-scheme:light} html[data-scheme=dark]{color-scheme:dark}}\n"
)
DRAWN = """svg{font:13px system-ui,sans-serif} svg text{fill:var(--ink)} svg .soft{fill:var(--soft)}
.grid{stroke:var(--line);stroke-width:.7;fill:none} .rule{stroke:var(--ink);stroke-width:1.2;fill:none}
.band{fill:var(--line);opacity:.45} .faint{stroke:var(--ink);stroke-width:.8;opacity:.3;fill:none}
"""
LINED = "".join(f".line-{hue}{{fill:none;stroke:var(--hue-{hue});stroke-width:2}}" for hue in range(HUES))
UNSCRIPTED = ".needs-script{display:none}"
STYLE = f"{COLOURS}{DRAWN}{LINED}\n{read_text(__package__, 'page.css')}"
