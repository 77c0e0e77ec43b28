"""The style sheet: light and dark by the reader's setting, ink on white when printed.

Colours of series are Okabe and Ito's; in the dark some are lighter, in the light the yellow one is
darker. Contrast of text is at least 4.5, of lines 3 to 1.
"""

from __future__ import annotations

_LIGHT = """
  --paper:#fff; --panel:#f6f7f9; --ink:#1a1d21; --dim:#5a6270; --rule:#d5dae1; --link:#0b5cad;
  --error:#b3261e; --error-bg:#fdecea; --warning:#8a5300; --warning-bg:#fff4e0;
  --info:#2b5d8a; --info-bg:#eaf2fa; --good:#1a6b3c; --good-bg:#e7f5ec;
  --s0:#0072b2; --s1:#d55e00; --s2:#008f68; --s3:#b5568d; --s4:#b87900; --s5:#3a9bd0;
  --s6:#7a6ff0; --s7:#555b66; --heat:0,90,160; --hatch:rgba(255,255,255,.75);
"""
_DARK = """
  --paper:#14171b; --panel:#1c2026; --ink:#e6e9ed; --dim:#a2abb8; --rule:#353c46; --link:#7db8f5;
  --error:#ff8a80; --error-bg:#3a1a18; --warning:#ffb74d; --warning-bg:#35270f;
  --info:#8ec5f7; --info-bg:#162635; --good:#7fd6a0; --good-bg:#14301f;
  --s0:#4ea3dd; --s1:#f2843a; --s2:#2fbf93; --s3:#df8bbb; --s4:#e6ac3c; --s5:#8fcdf2;
  --s6:#a9a1ff; --s7:#b4bac4; --heat:90,175,240; --hatch:rgba(0,0,0,.55);
"""
_RULES = """
*{box-sizing:border-box}
html{color-scheme:light dark}
body{margin:0;background:var(--paper);color:var(--ink);
  font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif}
main,header,footer{max-width:1000px;margin:0 auto;padding:0 24px}
header{padding-top:28px}
h1{font-size:26px;line-height:1.25;margin:0 0 4px}
h2{font-size:21px;margin:0 0 2px;padding-top:22px;border-top:2px solid var(--rule)}
h3{font-size:15px;margin:22px 0 6px} h3 .csv{font-size:12px;font-weight:400;margin-left:6px}
a{color:var(--link)}
p{margin:6px 0}
.sub,.note,.question{color:var(--dim)}
.note{font-size:13px}
.question{font-style:italic}
.verdict{display:flex;gap:14px;align-items:baseline;flex-wrap:wrap;margin:16px 0;
  padding:12px 16px;border-left:6px solid;border-radius:4px}
.verdict strong{font-size:18px}
.error{color:var(--error)} .warning{color:var(--warning)} .info{color:var(--info)}
.good{color:var(--good)}
.verdict.error{background:var(--error-bg)} .verdict.warning{background:var(--warning-bg)}
.verdict.good{background:var(--good-bg)}
.verdict span{color:var(--ink)}
.partial{margin:14px 0;padding:10px 14px;border:2px dashed var(--warning);border-radius:4px;
  background:var(--warning-bg)}
dl.facts{display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:14px 0}
dl.facts dt{color:var(--dim)} dl.facts dd{margin:0;overflow-wrap:anywhere}
ul.findings{list-style:none;margin:10px 0;padding:0}
ul.findings li{display:flex;gap:10px;margin:4px 0;padding:6px 10px;border-left:4px solid;
  border-radius:3px;overflow-wrap:anywhere}
ul.findings li.error{background:var(--error-bg)}
ul.findings li.warning{background:var(--warning-bg)}
ul.findings li.info{background:var(--info-bg)}
ul.findings b{flex:none;width:92px;white-space:nowrap;font-size:12px;letter-spacing:.04em;
  line-height:22px}
ul.findings span{color:var(--ink)}
nav{margin:18px 0;padding:10px 14px;background:var(--panel);border-radius:4px}
nav ol{columns:2;margin:0;padding-left:22px}
figure.chart{margin:18px 0;padding:12px 14px;background:var(--panel);border-radius:6px;
  break-inside:avoid}
figcaption{font-weight:600;margin-bottom:2px}
.plot{overflow-x:auto}
.plot>svg{display:block;width:100%;min-width:640px;height:auto}
svg text{fill:var(--ink);font-size:11.5px;font-variant-numeric:tabular-nums}
svg text.label{fill:var(--dim);font-size:12px}
svg text.value{fill:var(--dim)}
.axis{stroke:var(--dim);stroke-width:1}
.grid{stroke:var(--rule);stroke-width:1}
.edge{stroke:var(--ink);stroke-opacity:.35;stroke-width:.6}
.hatch{stroke:var(--hatch);stroke-width:1.4;fill:none}
.plate{fill:var(--panel);fill-opacity:.88}
ul.legend{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;margin:8px 0 2px;padding:0;
  font-size:13px}
ul.legend li{display:flex;gap:7px;align-items:center;overflow-wrap:anywhere}
ul.legend svg{flex:none}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13.5px;min-width:40%}
th,td{padding:4px 12px 4px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}
th{color:var(--dim);font-weight:600;white-space:nowrap}
td{overflow-wrap:anywhere;max-width:420px}
td.right,th.right{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
td.when{white-space:nowrap;font-variant-numeric:tabular-nums}
.unit{font-weight:400}
.toggle{font-size:13px;margin:0 0 4px}
.toggle label{margin-left:6px}
.table:has(.toggle input:not(:checked)) tr.more{display:none}
footer{margin-top:36px;padding-top:10px;padding-bottom:28px;color:var(--dim);font-size:13px;
  border-top:1px solid var(--rule)}
@media (max-width:700px){nav ol{columns:1} main,header,footer{padding:0 12px}
  ul.findings li,ul.findings b{display:block} .plot>svg{min-width:700px}}
@media print{
  body{font-size:11px} nav,.toggle{display:none}
  main,header,footer{max-width:none;padding:0} h2{break-after:avoid} h3{break-after:avoid}
  tr{break-inside:avoid} thead{display:table-header-group}
  .plot>svg{min-width:0} .scroll,.plot{overflow:visible} table{font-size:9.5px}
  th{white-space:normal} a{color:inherit;text-decoration:none}
  .verdict,.partial,ul.findings li,figure.chart,svg{print-color-adjust:exact;
    -webkit-print-color-adjust:exact}
}
"""


def style_sheet() -> str:
    series = "".join(
        f".line-{n}{{fill:none;stroke:var(--s{n});stroke-width:2;stroke-linejoin:round}}"
        f".fill-{n}{{fill:var(--s{n})}}"
        for n in range(8)
    )
    heat = ".heat-0{fill:var(--rule);fill-opacity:.45}" + "".join(
        f".heat-{n}{{fill:rgba(var(--heat),{0.12 + 0.176 * n:.2f})}}" for n in range(1, 6)
    )
    heat += "svg text.heat-text-4,svg text.heat-text-5{fill:var(--paper)}"
    return (
        f":root{{{_LIGHT}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
        f"{_RULES}{series}{heat}"
    )
