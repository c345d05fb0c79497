// What Prometheus answered as Grafana's data frames, and the panel's configuration put into their fields.
import { createTheme, FieldType, getDisplayProcessor, toDataFrame } from "@grafana/data";

export const theme = createTheme({ colors: { mode: "dark" } });
const { start, end, step } = window.DATA;

const legend = (format, metric) => format.replaceAll(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => metric[label] ?? "");
const nameOf = (result, metric) => {
  if (result.legend !== "__auto") return legend(result.legend, metric);
  const labels = Object.entries(metric).filter(([label]) => label !== "__name__");
  return labels.length ? labels.map(([, value]) => value).join(" ") : "Value";
};

export function frames(results) {
  return results.flatMap((result) =>
    result.table
      ? [tableFrame(result, results.length === 1)]
      : result.series.map((series) => {
          const points = result.range ? grid(series.values) : [[end, Number(series.value[1])]];
          return toDataFrame({
            refId: result.refId,
            fields: [
              { name: "Time", type: FieldType.time, values: points.map(([at]) => at) },
              {
                name: "Value",
                type: FieldType.number,
                values: points.map(([, value]) => value),
                labels: series.metric,
                config: { displayNameFromDS: nameOf(result, series.metric) },
              },
            ],
          });
        }),
  );
}

// A moment without a sample is a gap, as in Grafana.
function grid(values) {
  const known = new Map(values.map(([at, value]) => [at, Number(value)]));
  const points = [];
  for (let at = start / 1000; at <= end / 1000; at += step)
    points.push([at * 1000, known.has(at) && !Number.isNaN(known.get(at)) ? known.get(at) : null]);
  return points;
}

function tableFrame(result, alone) {
  const labels = [...new Set(result.series.flatMap((series) => Object.keys(series.metric)))].filter(
    (label) => label !== "__name__",
  );
  return toDataFrame({
    refId: result.refId,
    fields: [
      { name: "Time", type: FieldType.time, values: result.series.map(() => end) },
      ...labels.map((label) => ({
        name: label,
        type: FieldType.string,
        values: result.series.map((series) => series.metric[label] ?? ""),
      })),
      {
        name: alone ? "Value" : `Value #${result.refId}`,
        type: FieldType.number,
        values: result.series.map((series) => Number(series.value[1])),
      },
    ],
  });
}

// What the SDK writes as overrides, put into the fields' own configuration.
export function configured(all, panel) {
  const { defaults, overrides } = panel.fieldConfig;
  let place = 0;
  for (const frame of all)
    for (const field of frame.fields) {
      if (field.type === FieldType.time) continue;
      const { displayName, displayNameFromDS } = field.config;
      const config = { ...structuredClone(defaults), displayName, displayNameFromDS };
      config.custom = { ...config.custom };
      config.color ??= { mode: panel.type === "timeseries" ? "palette-classic" : "thresholds" };
      const name = displayName ?? displayNameFromDS ?? field.name;
      for (const override of overrides) {
        if (!matches(override.matcher, name, frame.refId)) continue;
        for (const { id, value } of override.properties) {
          if (id.startsWith("custom.")) config.custom[id.slice(7)] = value;
          else config[id] = value;
        }
      }
      if (config.thresholds)
        config.thresholds = {
          ...config.thresholds,
          steps: config.thresholds.steps.map((each) => ({ ...each, value: each.value ?? -Infinity })),
        };
      if (config.custom.lineInterpolation === undefined && panel.type === "timeseries")
        config.custom.lineInterpolation = "linear";
      if (panel.type === "timeseries")
        config.custom = {
          drawStyle: "line",
          axisPlacement: "auto",
          scaleDistribution: { type: "linear" },
          hideFrom: {},
          ...config.custom,
        };
      field.config = config;
      field.state = { ...field.state, seriesIndex: field.type === FieldType.number ? place++ : place, displayName };
      field.display = getDisplayProcessor({ field, theme, timeZone: "browser" });
    }
  return all;
}

function matches(matcher, name, refId) {
  if (matcher.id === "byName") return matcher.options === name;
  if (matcher.id === "byFrameRefID") return matcher.options === refId;
  if (matcher.id === "byRegexp") return new RegExp(matcher.options.replace(/^\/|\/$/g, "")).test(name);
  throw new Error(`unknown matcher ${matcher.id}`);
}
