// Named curves, with a second axis on the right where one is wanted.
const N_SERIES = 6;

function curvesFigure(data, isNarrow) {
  const hasSecond = data.curves.some((curve) => curve.second);
  const layout = {
    xaxis: axis(data.x_label, { showgrid: false }),
    yaxis: axis(data.y_label, { automargin: true }),
    hovermode: "x unified",
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
  };
  if (hasSecond) {
    layout.yaxis2 = axis(data.second_label, {
      overlaying: "y",
      side: "right",
      showgrid: false,
      tickmode: "auto", // not at the heights of the other axis: these are no round numbers here
      automargin: true,
    });
  }
  return { traces: data.curves.map((curve, i) => curveTrace(curve, i, isNarrow)), layout };
}

function curveTrace(curve, index, isNarrow) {
  const sparse = curve.x.length <= (isNarrow ? 30 : 60);
  const tint = colour(`series-${(index % N_SERIES) + 1}`);
  return {
    type: "scatter",
    mode: sparse ? "lines+markers" : "lines",
    name: literal(shorten(curve.name, 40)),
    x: curve.x,
    y: curve.y,
    yaxis: curve.second ? "y2" : "y",
    line: { color: tint, width: 2, dash: curve.second ? "dot" : "solid" },
    marker: { color: tint, size: 5 },
    hovertemplate: "%{y:.4g}",
    showlegend: true,
  };
}
