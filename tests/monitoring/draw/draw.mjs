// Draws the dashboards from the data of a running Prometheus with Grafana's UI library; see README.md.
// node draw.mjs PROMETHEUS_URL INSTANCE SECONDS OUTPUT_DIRECTORY [DASHBOARD ...]
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, writeFileSync, mkdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const DASHBOARDS = join(HERE, "../../../deploy/grafana/dashboards");
const WIDTH = 1366,
  POINTS = 400;
const [prometheus, instance, spanText, output, ...chosen] = process.argv.slice(2);
const span = Number(spanText),
  end = Number(process.env.UNTIL) || Math.floor(Date.now() / 1000),
  start = end - span;
const step = Math.max(2, Math.ceil(span / POINTS));

async function ask(path, parameters) {
  const answer = await fetch(`${prometheus}${path}?${new URLSearchParams(parameters)}`);
  const body = await answer.json();
  if (body.status !== "success") throw new Error(`${JSON.stringify(parameters)}: ${body.error}`);
  return body.data;
}

function filled(text, variables) {
  const all = {
    __rate_interval: `${Math.max(4 * step, 20)}s`,
    __interval: `${step}s`,
    __range: `${span}s`,
    ...variables,
  };
  return Object.entries(all).reduce(
    (done, [name, value]) => done.replaceAll(new RegExp(`\\$(${name}\\b|{${name}})`, "g"), () => value),
    text,
  );
}

async function results(panel, variables) {
  return Promise.all(
    panel.targets.map(async (target) => {
      const query = filled(target.expr, variables);
      const data = target.range
        ? await ask("/api/v1/query_range", { query, start, end, step })
        : await ask("/api/v1/query", { query, time: end });
      return {
        refId: target.refId,
        legend: target.legendFormat,
        table: target.format === "table",
        range: target.range,
        series: data.result,
      };
    }),
  );
}

async function values(label, match) {
  const data = await ask(`/api/v1/label/${label}/values`, { "match[]": match, start, end });
  return data;
}

// A row that repeats is drawn once for each value of its variable, as Grafana does, each below the one before.
async function unrolled(dashboard, variables) {
  const panels = [];
  let shift = 0;
  for (let i = 0; i < dashboard.panels.length; i++) {
    const row = dashboard.panels[i];
    if (row.type !== "row") {
      panels.push([row, shift, {}]);
      continue;
    }
    let last = i + 1;
    while (last < dashboard.panels.length && dashboard.panels[last].type !== "row") last++;
    const section = dashboard.panels.slice(i, last);
    const height = Math.max(...section.map((panel) => panel.gridPos.y + panel.gridPos.h)) - row.gridPos.y;
    const each = row.repeat ? variables[`${row.repeat}s`] : [null];
    each.forEach((value, place) => {
      for (const panel of section)
        panels.push([panel, shift + place * height, value === null ? {} : { [row.repeat]: value }]);
    });
    shift += (each.length - 1) * height;
    i = last - 1;
  }
  return panels;
}

async function drawn(name) {
  const dashboard = JSON.parse(readFileSync(join(DASHBOARDS, `${name}.json`)));
  const one = name === "fleet" ? ".*" : instance;
  const devices = await values("device", `{__name__=~"vramscope_nvml_up", instance=~"${one}"}`);
  const model =
    name === "model-anatomy" ? (await values("model", `vramscope_model_state{instance=~"${one}"}`))[0] : ".*";
  const variables = { instance: one, device: name === "model-anatomy" ? devices[0] : ".*", model, devices };
  const panels = await Promise.all(
    (await unrolled(dashboard, variables)).map(async ([panel, shift, own]) => ({
      ...panel,
      title: filled(panel.title, { ...variables, ...own }),
      gridPos: { ...panel.gridPos, y: panel.gridPos.y + shift },
      results: panel.type === "row" ? [] : await results(panel, { ...variables, ...own }),
    })),
  );
  return { name, title: dashboard.title, panels, start: start * 1000, end: end * 1000, step };
}

const work = mkdtempSync(join(tmpdir(), "draw-"));
mkdirSync(output, { recursive: true });
await build({
  entryPoints: [join(HERE, "page.jsx")],
  bundle: true,
  outfile: join(work, "page.js"),
  logLevel: "error",
  define: { "process.env.NODE_ENV": '"production"', global: "window" },
  loader: { ".svg": "text", ".woff2": "dataurl", ".ttf": "dataurl" },
});
const names = readdirSync(DASHBOARDS)
  .map((file) => file.replace(/\.json$/, ""))
  .filter((name) => !chosen.length || chosen.includes(name));
for (const name of names) {
  const data = await drawn(name);
  const height = 56 + 38 * Math.max(...data.panels.map((panel) => panel.gridPos.y + panel.gridPos.h));
  const page = join(work, `${name}.html`);
  writeFileSync(
    page,
    `<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="page.css"><body><div id="root"></div><script>window.DATA = ${JSON.stringify(data).replaceAll("<", "\\u003c")}</script><script src="page.js"></script>`,
  );
  execFileSync(
    process.env.CHROMIUM || "chromium",
    [
      "--headless",
      ...(process.env.DRAW_LOG ? ["--enable-logging=stderr", "--v=0"] : []),
      "--no-sandbox",
      "--disable-gpu",
      "--hide-scrollbars",
      "--no-first-run",
      "--disable-background-networking",
      "--allow-file-access-from-files",
      "--virtual-time-budget=8000",
      `--user-data-dir=${join(work, "profile")}`,
      `--window-size=${WIDTH},${height}`,
      `--screenshot=${join(output, `dashboard-${name}.png`)}`,
      `file://${page}`,
    ],
    { stdio: process.env.DRAW_LOG ? "inherit" : "ignore", timeout: 120000 },
  );
  console.log(join(output, `dashboard-${name}.png`));
}
rmSync(work, { recursive: true });
