// The (alpha, beta) plane: a map of values, named divergences and learned points.
function planeFigure(data, isNarrow) {
  const traces = [];
  if (data.alphas.length) traces.push(mapTrace(data, isNarrow));
  if (data.named.length) traces.push(namedTrace(data));
  if (data.learned.length) traces.push(learnedTrace(data)); // seen inside a named one
  const lines = { constrain: "domain", showgrid: !data.alphas.length };
  const letter = (name) => ({ title: { text: name, font: { size: 17 }, standoff: 8 } });
  return {
    traces,
    layout: {
      xaxis: axis("", { ...letter("α"), ...lines, range: data.extent[0] }),
      yaxis: axis("", { ...letter("β"), ...lines, range: data.extent[1], scaleanchor: "x" }),
      annotations: nameLabels(data, isNarrow),
      legend: { orientation: "h", x: 0, y: 1.01, yanchor: "bottom" },
      showlegend: data.learned.length > 0,
      hovermode: "closest",
      margin: { l: 55, r: 10, t: 30, b: 50 },
    },
  };
}

function mapTrace(data, isNarrow) {
  const names = data.betas.map(() => data.alphas.map(() => ""));
  for (const [column, row, name] of data.cells) {
    if (column !== null && row !== null) names[row][column] += `<br><b>${literal(name)}</b>`;
  }
  const place = isNarrow ? { orientation: "h", y: -0.2, yanchor: "top" } : {};
  return {
    type: "heatmap",
    x: data.alphas,
    y: data.betas,
    z: data.values,
    customdata: names,
    zmin: data.range?.[0],
    zmax: data.range?.[1],
    colorscale: "Cividis",
    colorbar: {
      title: { text: literal(data.label), side: isNarrow ? "bottom" : "right" },
      tickformat: data.format,
      thickness: 14,
      outlinewidth: 0,
      ...place,
    },
    hoverongaps: false,
    hovertemplate:
      `α = %{x}, β = %{y}<br>${literal(data.label)} %{z:${data.format}}` +
      "%{customdata}<extra></extra>",
  };
}

function namedTrace(data) {
  return pointTrace(data, data.named, "named divergence", {
    size: 13,
    color: "white",
    line: { color: "#1d2329", width: 1.5 },
  });
}

function learnedTrace(data) {
  const single = data.learned.length === 1;
  const many = data.learned.length > 200;
  return pointTrace(data, data.learned, literal(data.mark), {
    symbol: single ? "star" : "circle",
    size: single ? 18 : many ? 6 : 8,
    color: colour("learned"),
    line: { color: "white", width: 1 },
  });
}

function pointTrace(data, points, name, marker) {
  return {
    type: "scatter",
    mode: "markers",
    name,
    x: points.map((point) => point.alpha),
    y: points.map((point) => point.beta),
    text: points.map((point) => literal(point.name)),
    customdata: points.map((point) =>
      point.value ? `<br>${literal(data.label)} ${literal(point.value)}` : "",
    ),
    marker,
    cliponaxis: false,
    hovertemplate: "<b>%{text}</b><br>α = %{x}, β = %{y}%{customdata}<extra></extra>",
  };
}

// A name stands beside its point, on the side where there is room, and above the star if it would
// cover that.
function nameLabels(data, isNarrow) {
  const right = Math.max(...data.alphas, ...data.named.map((point) => point.alpha));
  const side = isNarrow ? 240 : 520; // of the map in pixels, about
  const [width, height] = data.extent.map(([low, high]) => (high - low) / side);
  const star = data.learned.length === 1 ? data.learned[0] : { alpha: Infinity, beta: Infinity };
  return data.named.map((point) => {
    const leftward = point.alpha > 0.65 * right;
    const across = ((star.alpha - point.alpha) / width) * (leftward ? -1 : 1);
    const up = (star.beta - point.beta) / height;
    const covers = across > -20 && across < 130 && up > 0 && up < 42;
    return {
      x: point.alpha,
      y: point.beta,
      text: literal(shorten(point.name, 22)),
      showarrow: false,
      xanchor: leftward ? "right" : "left",
      xshift: leftward ? -2 : 2,
      yshift: covers ? up + 24 : 18,
      bgcolor: colour("card"),
      opacity: 0.88,
      borderpad: 2,
      font: { size: 12 },
    };
  });
}
