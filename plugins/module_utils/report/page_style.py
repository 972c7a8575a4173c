# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The style sheet of the HTML report: system fonts, light and dark by the reader's setting, one column on a telephone."""

from __future__ import annotations

# Contrast of text on its background is 4.5:1 or more in both schemes. States differ by mark and word too, not by colour alone.
CSS = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --panel: #f5f7f9; --line: #c9d1d9; --ink: #16191d; --faint: #545d68;
  --ok: #1a7f37; --warning: #8a5a00; --failed: #b3261e; --unknown: #5d6670;
  --ok-soft: #dff3e4; --warning-soft: #fbeecb; --failed-soft: #fbe0de; --unknown-soft: #e8ebee;
  --a: #0b62a8; --b: #5b8f2a; --c: #a8b3bd; --d: #7a4fa3;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #101418; --panel: #181e24; --line: #3a444e; --ink: #e8ecf0; --faint: #a3adb8;
    --ok: #58c878; --warning: #e0b040; --failed: #ff8a80; --unknown: #a3adb8;
    --ok-soft: #12301c; --warning-soft: #372b0b; --failed-soft: #43191a; --unknown-soft: #262d34;
    --a: #4f9fe0; --b: #86b852; --c: #56616c; --d: #b18ad6;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; }
main, header, footer { max-width: 1240px; margin: 0 auto; padding: 0 clamp(14px, 3vw, 32px); }
header { padding-top: 24px; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 4px; }
h2 { font-size: 1.25rem; margin: 40px 0 12px; padding-bottom: 6px; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 0 0 8px; }
p { margin: 0 0 10px; }
code, .mono { font-family: ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; font-size: 0.9em; overflow-wrap: anywhere; }
.faint { color: var(--faint); }
.skip { position: absolute; left: -9999px; }
.skip:focus { left: 8px; top: 8px; background: var(--paper); padding: 8px; }
a { color: var(--a); }
nav ul { display: flex; flex-wrap: wrap; gap: 4px 18px; list-style: none; padding: 0; margin: 14px 0 0; }
:focus-visible { outline: 3px solid var(--a); outline-offset: 2px; }
.verdict { display: flex; flex-wrap: wrap; gap: 10px 28px; align-items: baseline; margin-top: 16px; padding: 14px 18px; border-radius: 8px;
  border-left: 6px solid; }
.verdict strong { font-size: 1.25rem; }
.verdict.ok { background: var(--ok-soft); border-color: var(--ok); }
.verdict.warnings { background: var(--warning-soft); border-color: var(--warning); }
.verdict.failures { background: var(--failed-soft); border-color: var(--failed); }
.state { font-weight: 600; white-space: nowrap; }
.state.ok { color: var(--ok); } .state.warning { color: var(--warning); } .state.failed { color: var(--failed); } .state.unknown { color: var(--unknown); }
.todo { list-style: none; padding: 0; margin: 0; display: grid; gap: 12px; }
.todo li { border: 1px solid var(--line); border-left: 6px solid; border-radius: 8px; padding: 12px 16px; background: var(--panel); }
.todo li.failed { border-left-color: var(--failed); } .todo li.warning { border-left-color: var(--warning); }
.todo li.unknown { border-left-color: var(--unknown); }
.todo h3 { display: flex; flex-wrap: wrap; gap: 2px 12px; }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: 2px 14px; margin: 0; }
dl.facts dt { color: var(--faint); } dl.facts dd { margin: 0; overflow-wrap: anywhere; white-space: pre-line; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 16px; }
.card { border: 1px solid var(--line); border-radius: 8px; padding: 14px 16px; background: var(--panel); min-width: 0; }
.card h4 { font-size: 0.92rem; margin: 14px 0 4px; }
.drawing { border: 1px solid var(--line); border-radius: 8px; background: var(--panel); padding: 12px; }
.drawing svg { display: block; width: 100%; height: auto; margin: 0 auto; }
.narrow { display: none; }
svg text { fill: var(--ink); font-family: ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; }
svg .faint { fill: var(--faint); } svg .bold { font-weight: 700; }
svg text.end { text-anchor: end; }
svg .box { fill: var(--paper); stroke: var(--line); } svg .ghost { fill: none; stroke: var(--line); stroke-dasharray: 4 4; }
svg .plug { fill: var(--ink); } svg text.in-plug { fill: var(--paper); font-weight: 700; }
svg .wire { stroke-width: 4; fill: none; }
svg .wire.ok { stroke: var(--ok); } svg .wire.warning { stroke: var(--warning); stroke-dasharray: 12 4; }
svg .wire.failed { stroke: var(--failed); stroke-dasharray: 4 6; } svg .wire.unknown { stroke: var(--unknown); stroke-dasharray: 2 4; }
svg text.ok { fill: var(--ok); } svg text.warning { fill: var(--warning); } svg text.failed { fill: var(--failed); }
svg text.unknown { fill: var(--unknown); }
.bar { display: block; width: 100%; height: 26px; margin: 4px 0 6px; }
.bar .rail { fill: var(--paper); stroke: var(--line); vector-effect: non-scaling-stroke; }
.bar .limit { stroke: var(--failed); stroke-width: 2; vector-effect: non-scaling-stroke; }
.a { fill: var(--a); } .b { fill: var(--b); } .c { fill: var(--c); } .d { fill: var(--d); } .none { fill: var(--paper); } .wrong { fill: var(--failed); }
.key { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 16px; padding: 0; margin: 0; font-size: 0.88rem; }
.key li { overflow-wrap: anywhere; }
.key svg { width: 12px; height: 12px; margin-right: 6px; vertical-align: -1px; } .key svg rect { stroke: var(--line); }
table { border-collapse: collapse; width: 100%; font-size: 0.92rem; }
caption { text-align: left; color: var(--faint); padding: 14px 0 6px; }
figure { margin: 0 0 18px; }
.engram, .legend { margin-top: 16px; }
th, td { text-align: left; vertical-align: top; padding: 6px 10px; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
thead th { color: var(--faint); font-weight: 600; overflow-wrap: normal; }
td[data-label=node], td[data-label=state] { overflow-wrap: normal; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
td.odd { background: var(--warning-soft); }
td.odd::after { content: ' \\2190 differs'; color: var(--warning); font-weight: 600; }
details { border: 1px solid var(--line); border-radius: 8px; background: var(--panel); margin-bottom: 10px; padding: 0 14px; }
summary { cursor: pointer; padding: 10px 0; font-weight: 600; }
details table { margin-bottom: 12px; }
.plot { display: block; width: 100%; height: auto; max-width: 720px; }
figure .plot { max-width: 480px; margin-top: 6px; }
.plot .axis { stroke: var(--line); } .plot .published { stroke: var(--d); stroke-width: 3; }
footer { margin-top: 48px; padding-bottom: 32px; color: var(--faint); font-size: 0.88rem; }
.wide { overflow-x: auto; }
@media (max-width: 1000px) { .wide { display: none; } .narrow { display: block; } }
@media (min-width: 761px) { table.stack th code { white-space: nowrap; } }
@media (max-width: 760px) {
  dl.facts { grid-template-columns: 1fr; gap: 0; } dl.facts dd { margin-bottom: 6px; }
  table.stack thead { position: absolute; left: -9999px; }
  table.stack, table.stack tbody, table.stack tr, table.stack td, table.stack th { display: block; }
  table.stack caption { display: block; }
  table.stack tr { border-bottom: 1px solid var(--line); padding: 8px 0; }
  table.stack td, table.stack th { border: 0; padding: 1px 0; text-align: left; }
  table.stack td::before { content: attr(data-label) ': '; color: var(--faint); }
  table.stack td.odd { padding: 1px 4px; }
}
@media print { details { break-inside: avoid; } nav { display: none; } }
"""
