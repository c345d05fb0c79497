"""The style of the report's page. The owners of memory have the colours of the daemon's own page."""

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #f4f5f7; --card: #fff; --text: #1b1f24; --soft: #5b6470; --line: #dfe3e8; --bad: #c0272d; --mark: #8b949e;
  --changed: #fdf3d8; --parameters: #0072b2; --buffers: #56b4e9; --rounding: #cc79a7; --cache: #e69f00;
  --context: #009e73; --others: #d55e00; --reserved: #6f7884;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #111418; --card: #1a1e24; --text: #e6e9ed; --soft: #98a2ae; --line: #2c333c; --bad: #ff7b7b;
    --mark: #6b7580; --changed: #3a3118; --parameters: #2a8fd0; --buffers: #8accf2; --rounding: #dc9abf;
    --cache: #eeb22e; --context: #18b98b; --others: #e8762c; --reserved: #8d97a3;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 16px; background: var(--ground); color: var(--text);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 22px; margin: 6px 0 14px; overflow-wrap: anywhere; }
h2 { font-size: 16px; margin: 0 0 8px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px;
  margin: 0 0 14px; }
.soft { color: var(--soft); }
p { margin: 0 0 10px; }
ul { margin: 10px 0 0; padding-left: 20px; color: var(--soft); overflow-wrap: anywhere; }
summary { cursor: pointer; color: var(--soft); font-size: 13px; margin: 4px 0 8px; }
.wide { overflow-x: auto; margin: 0 0 10px; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; font-size: 12px; color: var(--soft); vertical-align: bottom; }
th, td { padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: break-word; max-width: 560px; }
.figure { text-align: right; white-space: nowrap; }
th.figure { white-space: normal; max-width: 96px; }
small { display: block; color: var(--soft); font-size: 11px; }
tr.changed td { background: var(--changed); }
svg { display: block; width: 100%; min-width: 760px; height: auto; }
svg text { fill: var(--text); font: 12px system-ui, sans-serif; }
svg text.soft { fill: var(--soft); } svg text.small { font-size: 11px; } svg text.title { font-weight: 600; }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); } .mark { stroke: var(--mark); stroke-dasharray: 2 3; }
.span { fill: var(--soft); } .span.bad { fill: var(--bad); } .foreseen { fill: var(--text); }
.curve { fill: none; stroke-width: 1.5; }
.parameters { fill: var(--parameters); } .buffers { fill: var(--buffers); }
.allocator_rounding { fill: var(--rounding); } .allocator_cache { fill: var(--cache); }
.cuda_context { fill: var(--context); } .other_processes { fill: var(--others); }
.outside_allocator { fill: var(--others); } .driver_reserved { fill: var(--reserved); }
.phase0 { fill: #0072b2; stroke: #0072b2; } .phase1 { fill: #e69f00; stroke: #e69f00; }
.phase2 { fill: #009e73; stroke: #009e73; } .phase3 { fill: #cc79a7; stroke: #cc79a7; }
.phase4 { fill: #56b4e9; stroke: #56b4e9; } .phase5 { fill: #d55e00; stroke: #d55e00; }
.phase6 { fill: #8a6fd1; stroke: #8a6fd1; } .phase7 { fill: #8c8c1a; stroke: #8c8c1a; }
.phase8 { fill: #b0544f; stroke: #b0544f; } .phase9 { fill: #4fa3a5; stroke: #4fa3a5; }
.phase10 { fill: #c49a6c; stroke: #c49a6c; } .phase11 { fill: #7a8794; stroke: #7a8794; }
rect.phase0, rect.phase1, rect.phase2, rect.phase3, rect.phase4, rect.phase5, rect.phase6, rect.phase7, rect.phase8,
rect.phase9, rect.phase10, rect.phase11 { stroke: none; }
.curve.phase0, .curve.phase1, .curve.phase2, .curve.phase3, .curve.phase4, .curve.phase5, .curve.phase6,
.curve.phase7, .curve.phase8, .curve.phase9, .curve.phase10, .curve.phase11 { fill: none; }
@media print { body { max-width: none; background: none; } section { break-inside: avoid; } }
"""
