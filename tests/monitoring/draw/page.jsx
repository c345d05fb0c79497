// One dashboard, in the browser: Grafana's components for each panel, in Grafana's grid. The data is in window.DATA.
import React from "react";
import { createRoot } from "react-dom/client";
import {
  dateTime,
  FieldType,
  standardTransformers,
  standardTransformersRegistry,
  ThemeContext,
  transformDataFrame,
  VizOrientation,
} from "@grafana/data";
import { BarGauge, BigValue, GlobalStyles, PanelChrome, TimeSeries } from "@grafana/ui";
import { TableNG } from "@grafana/ui/unstable";
import { configured, frames, theme } from "./frames.js";

const WIDTH = 1366,
  GAP = 8,
  CELL = 38,
  TOP = 48;
const { panels, title, start, end } = window.DATA;
const timeRange = { from: dateTime(start), to: dateTime(end), raw: { from: dateTime(start), to: dateTime(end) } };

const last = (field) => [...field.values].reverse().find((value) => value !== null && value !== undefined);

function single(all) {
  return all.flatMap((frame) =>
    frame.fields
      .filter((field) => field.type === FieldType.number)
      .map((field) => {
        const value = field.display(last(field));
        const fixed =
          field.config.color?.mode === "fixed"
            ? theme.visualization.getColorByName(field.config.color.fixedColor)
            : value.color;
        return { field, value: { ...value, color: fixed, title: field.config.displayNameFromDS } };
      }),
  );
}

function Nothing({ panel }) {
  return (
    <div
      style={{
        display: "flex",
        height: "100%",
        alignItems: "center",
        justifyContent: "center",
        color: theme.colors.text.secondary,
      }}
    >
      {panel.fieldConfig.defaults.noValue ?? "No data"}
    </div>
  );
}

function Stats({ panel, all, width, height }) {
  const each = single(all);
  if (!each.length) return <Nothing panel={panel} />;
  const wide = width / each.length;
  return (
    <div style={{ display: "flex" }}>
      {each.map(({ field, value }, place) => (
        <BigValue
          key={place}
          width={wide}
          height={height}
          theme={theme}
          value={each.length === 1 && panel.options.textMode === "auto" ? { ...value, title: undefined } : value}
          count={each.length}
          colorMode={panel.options.colorMode}
          graphMode="none"
          justifyMode="auto"
          textMode={panel.options.textMode}
          text={panel.options.text}
        />
      ))}
    </div>
  );
}

function Gauges({ panel, all, width, height }) {
  const each = single(all);
  if (!each.length) return <Nothing panel={panel} />;
  const most = Math.max(...each.map(({ value }) => value.numeric), 0) || 1;
  const high = Math.min(
    panel.options.maxVizHeight,
    Math.max(panel.options.minVizHeight, (height - 8 * each.length) / each.length),
  );
  const longest = (key) =>
    each.map(({ value }) => String(value[key] ?? "")).reduce((one, two) => (two.length > one.length ? two : one), "");
  const alignmentFactors = { title: longest("title"), text: longest("text"), suffix: longest("suffix"), prefix: "" };
  return (
    <div style={{ display: "flex", flexDirection: "column", gap: 8, justifyContent: "center", height }}>
      {each.map(({ field, value }, place) => (
        <BarGauge
          key={place}
          theme={theme}
          width={width}
          height={high}
          field={{ ...field.config, min: 0, max: field.config.max ?? most }}
          value={value}
          display={field.display}
          orientation={VizOrientation.Horizontal}
          displayMode={panel.options.displayMode}
          showUnfilled
          valueDisplayMode={panel.options.valueMode}
          namePlacement={panel.options.namePlacement}
          text={panel.options.text}
          alignmentFactors={alignmentFactors}
        />
      ))}
    </div>
  );
}

// The library has no state timeline: bars in plain HTML stand in for it.
function Timeline({ all, width, height }) {
  const rows = all.map((frame) => frame.fields.find((field) => field.type === FieldType.number));
  const label = 190,
    high = height / (rows.length || 1),
    wide = (width - label) / rows[0]?.values.length;
  return (
    <div>
      {rows.map((field, place) => (
        <div key={place} style={{ display: "flex", height: high, alignItems: "center", fontSize: 12 }}>
          <div
            style={{
              width: label,
              textAlign: "right",
              paddingRight: 8,
              color: theme.colors.text.primary,
              whiteSpace: "nowrap",
              overflow: "hidden",
            }}
          >
            {field.config.displayNameFromDS}
          </div>
          <div
            style={{
              position: "relative",
              height: high * 0.8,
              width: width - label,
              background: theme.colors.background.secondary,
            }}
          >
            {[...field.values].map((value, at) =>
              value === null ? null : (
                <div
                  key={at}
                  style={{
                    position: "absolute",
                    left: at * wide,
                    width: wide + 0.5,
                    height: "100%",
                    background: field.config.color.fixedColor,
                  }}
                />
              ),
            )}
          </div>
        </div>
      ))}
    </div>
  );
}

function Body({ panel, width, height }) {
  let all = frames(panel.results);
  const [shown, show] = React.useState(null);
  React.useEffect(() => {
    if (panel.type !== "table") return;
    transformDataFrame(
      panel.transformations,
      all.filter((frame) => frame.length),
    ).subscribe((made) => show(made));
  }, []);
  if (panel.type === "table") {
    if (!shown?.[0]?.length) return <Nothing panel={panel} />;
    const [data] = configured(shown, panel);
    for (const field of data.fields) field.getLinks = () => []; // links lead into Grafana
    return (
      <TableNG
        data={data}
        width={width}
        height={height}
        cellHeight={panel.options.cellHeight}
        noHeader={false}
        enableVirtualization={false}
        initialSortBy={panel.options.sortBy}
        timeRange={timeRange}
        structureRev={1}
      />
    );
  }
  all = configured(all, panel);
  if (!all.length) return <Nothing panel={panel} />;
  if (panel.type === "stat") return <Stats panel={panel} all={all} width={width} height={height} />;
  if (panel.type === "bargauge") return <Gauges panel={panel} all={all} width={width} height={height} />;
  if (panel.type === "state-timeline") return <Timeline all={all} width={width} height={height} />;
  return (
    <TimeSeries
      frames={all}
      structureRev={1}
      width={width}
      height={height}
      timeRange={timeRange}
      timeZone="browser"
      legend={panel.options.legend}
    />
  );
}

function Panel({ panel }) {
  const unit = (WIDTH - 2 * GAP + GAP) / 24,
    { x, y, w, h } = panel.gridPos;
  const place = {
    position: "absolute",
    left: GAP + x * unit,
    top: TOP + y * CELL,
    width: w * unit - GAP,
    height: h * CELL - GAP,
  };
  if (panel.type === "row")
    return (
      <div style={{ ...place, fontSize: 16, fontWeight: 500, lineHeight: `${place.height}px` }}>⌄ {panel.title}</div>
    );
  return (
    <div style={place}>
      <PanelChrome title={panel.title} description={panel.description} width={place.width} height={place.height}>
        {(width, height) => <Body panel={panel} width={width} height={height} />}
      </PanelChrome>
    </div>
  );
}

standardTransformersRegistry.setInit(() =>
  [...new Map(Object.values(standardTransformers).map((each) => [each.id, each])).values()].map((transformation) => ({
    id: transformation.id,
    name: transformation.name,
    transformation: async () => transformation,
    editor: () => null,
  })),
);
createRoot(document.getElementById("root")).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <div style={{ padding: "14px 8px", fontSize: 16 }}>{title}</div>
    {panels.map((panel, place) => (
      <Panel key={place} panel={panel} />
    ))}
  </ThemeContext.Provider>,
);
