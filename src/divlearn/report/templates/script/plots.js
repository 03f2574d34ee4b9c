// What all figures of the plotting library share.
const DRAWN = { plane: planeFigure, curves: curvesFigure, confusion: confusionFigure };

// Names are shown letter by letter: the library would read markup in them.
function literal(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

// The end stays: names often differ in a number there.
function shorten(text, length) {
  const end = Math.floor(length / 3);
  return text.length > length ? `${text.slice(0, length - 1 - end)}…${text.slice(-end)}` : text;
}

function dataBeside(element) {
  return JSON.parse(element.parentElement.querySelector("script").textContent);
}

function axis(title, more) {
  return {
    title: { text: literal(title), standoff: 12 },
    ticks: "outside",
    tickcolor: colour("line"),
    gridcolor: colour("line"),
    linecolor: colour("line"),
    zeroline: false,
    ...more,
  };
}

function layout(more) {
  const ink = colour("ink");
  return {
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink },
    paper_bgcolor: "rgba(0, 0, 0, 0)",
    plot_bgcolor: "rgba(0, 0, 0, 0)",
    margin: { l: 50, r: 10, t: 10, b: 50 },
    hoverlabel: {
      bgcolor: colour("card"),
      bordercolor: colour("line"),
      font: { color: ink, size: 13 },
      align: "left",
    },
    // A finger that drags wants to scroll the page.
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    ...more,
  };
}

const CONFIG = { responsive: true, displayModeBar: false };

async function drawPlot(element) {
  const figure = DRAWN[element.dataset.draw](dataBeside(element), narrow.matches);
  await Plotly.newPlot(element, figure.traces, layout(figure.layout), CONFIG);
}

// A figure is drawn once it comes near: a page is there before its end is.
const NEAR = 0.5; // of the height of the window
const near = new Set();

function isNear(element) {
  const { top, bottom } = element.getBoundingClientRect();
  return top < (1 + NEAR) * innerHeight && bottom > -NEAR * innerHeight;
}

// Calls `draw` with figures that have come near, or are about to be printed.
function setUpPlots(draw) {
  const come = (elements) => {
    const fresh = elements.filter((element) => !near.has(element));
    for (const element of fresh) {
      observer.unobserve(element);
      near.add(element);
    }
    if (fresh.length) draw(fresh);
  };
  const observer = new IntersectionObserver(
    (entries) => come(entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target)),
    { rootMargin: `${100 * NEAR}% 0px` },
  );
  const all = [...document.querySelectorAll(".plot")];
  for (const element of all) {
    if (isNear(element)) near.add(element);
    else observer.observe(element);
  }
  addEventListener("beforeprint", () => come(all));
}

async function drawPlots(elements) {
  if (!elements.length) return;
  try {
    if (typeof Plotly === "undefined") await loadLibrary();
    for (const element of elements) await drawPlot(element);
  } catch (error) {
    for (const element of document.querySelectorAll(".plot:not(:has(svg))")) {
      element.className = "failed";
      element.textContent = error.message;
    }
  }
}
