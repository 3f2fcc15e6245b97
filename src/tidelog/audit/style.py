"""CSS of the HTML report, light and dark; loads nothing from elsewhere."""

STYLE = """
:root { color-scheme: light dark; --text: #1c2733; --dim: #5b6b7b; --page: #fbfcfd; --line: #d8e0e8;
  --panel: #ffffff; --bar: #2f7fb8; --good: #1f7a4d; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --text: #e4ebf2; --dim: #93a4b5; --page: #11171d; --line: #2b3742;
  --panel: #18212a; --bar: #58a6dc; --good: #5cc793; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 75rem;
  margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.1rem; font-weight: 600; color: var(--dim); margin: 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
.verdict { font-size: 1.8rem; font-weight: 650; line-height: 1.25; margin: .3rem 0 1.2rem; }
.verdict.good { color: var(--good); }
.verdict.bad { color: var(--bad); }
.figures { display: flex; flex-wrap: wrap; gap: .8rem 2rem; margin: 0; }
.figures div { display: flex; flex-direction: column; }
.figures dd { margin: 0; font-size: 1.15rem; font-variant-numeric: tabular-nums; }
.figures dt { color: var(--dim); font-size: .85rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; background: var(--panel); }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .4rem .7rem; border-bottom: 1px solid var(--line); }
td:not(:last-child) { white-space: nowrap; }
td:last-child { min-width: 12rem; }
th { color: var(--dim); font-weight: 600; white-space: nowrap; }
tbody tr:last-child td { border-bottom: 0; }
svg { display: block; width: 100%; height: auto; background: var(--panel); border: 1px solid var(--line);
  border-radius: 6px; }
svg text { fill: var(--text); font: 13px system-ui, sans-serif; }
svg .dim { fill: var(--dim); }
svg .bar { fill: var(--bar); }
svg .axis { stroke: var(--line); }
"""
