// A confusion matrix: one colour for what is right, another for what is wrong.
const WRITTEN = 12; // classes up to which counts stand in the cells

function confusionFigure(data, isNarrow) {
  const n = data.classes.length;
  const totals = data.counts.map((row) => row.reduce((sum, count) => sum + count, 0));
  const shares = data.counts.map((row, i) => row.map((count) => count / (totals[i] || 1)));
  const slanted = n > 6 || isNarrow;
  const ticks = (room, length, height) => {
    const step = Math.ceil((n * height) / room);
    const places = [...Array(n).keys()].filter((i) => i % step === 0);
    return {
      tickvals: places,
      ticktext: places.map((i) => literal(shorten(data.classes[i], length))),
      showgrid: false,
      constrain: "domain",
      automargin: true,
    };
  };
  const room = isNarrow ? 260 : 560;
  const length = isNarrow ? 9 : 18;
  const counts = {
    text: data.counts.map((row) => row.map((count) => (count ? String(count) : ""))),
    texttemplate: "%{text}",
  };
  return {
    traces: [
      {
        type: "heatmap",
        // The root lets single mistakes be seen beside hundreds of right answers.
        z: shares.map((row, i) => row.map((s, j) => Math.sqrt(s) * (i === j ? 1 : -1))),
        zmin: -1,
        zmax: 1,
        colorscale: [
          [0, colour("bad-area")],
          [0.5, colour("zero")],
          [1, colour("good-area")],
        ],
        showscale: false,
        xgap: n > 40 ? 0 : 2,
        ygap: n > 40 ? 0 : 2,
        ...(n > WRITTEN ? {} : counts),
        customdata: data.counts.map((row, i) =>
          row.map((count, j) => confusionHover(data, i, j, count, totals[i])),
        ),
        hovertemplate: "%{customdata}<extra></extra>",
      },
    ],
    layout: {
      xaxis: axis("predicted class", { ...ticks(room, length, slanted ? 22 : 16), tickangle: slanted ? -45 : "auto" }),
      yaxis: axis("true class", { ...ticks(room, length, 16), autorange: "reversed" }),
    },
  };
}

function confusionHover(data, i, j, count, total) {
  const [truth, predicted] = [data.classes[i], data.classes[j]].map(literal);
  const share = total ? ` (${((100 * count) / total).toFixed(1)}%)` : "";
  return `true: <b>${truth}</b><br>predicted: <b>${predicted}</b><br>${count} of ${total}${share}`;
}
