// Figures in sight are drawn first, the others one after the other, and folded ones once they are
// opened: a page is there before its end is.
const NEAR = 0.5; // of the height of the window
const CONFIG = { responsive: true, displayModeBar: false };
const plots = [...document.querySelectorAll(".plot")]; // in the order of `content.figures`
const drawn = new Set();
let content = null; // figures, tables and templates

async function loadFigures() {
  await loadLibrary();
  content = JSON.parse(await unpack(document.getElementById("figures")));
  document.querySelectorAll(".csv").forEach((link, index) => {
    link.href = URL.createObjectURL(new Blob([content.tables[index]], { type: "text/csv" }));
  });
}

function draw(plot, isPrinted = false) {
  const { data, layout } = content.figures[plots.indexOf(plot)];
  const template = content.templates[isDark() && !isPrinted ? "dark" : "light"];
  // A finger that drags wants to scroll the page.
  const dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom";
  Plotly.newPlot(plot, data, { ...layout, template, dragmode }, CONFIG);
  drawn.add(plot);
}

function isFolded(plot) {
  return plot.closest("details:not([open])") !== null;
}

function isNear(plot) {
  const { top, bottom } = plot.getBoundingClientRect();
  return !isFolded(plot) && top < (1 + NEAR) * innerHeight && bottom > -NEAR * innerHeight;
}

function watchFigures() {
  const come = (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting && !drawn.has(target)) draw(target);
    }
  };
  const observer = new IntersectionObserver(come, { rootMargin: `${100 * NEAR}% 0px` });
  for (const plot of plots) observer.observe(plot);
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("paper");
    for (const plot of plots) if (!isFolded(plot)) draw(plot, true);
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("paper");
    redraw();
  });
}

function redraw() {
  for (const plot of drawn) draw(plot);
}

async function setUpFigures() {
  if (!plots.length) return;
  const loaded = delayLoad();
  try {
    await loadFigures();
    for (const plot of plots.filter(isNear)) draw(plot);
    watchFigures();
    drawRest(loaded);
  } catch (error) {
    for (const plot of plots) {
      plot.className = "failed";
      plot.textContent = error.message;
    }
    loaded();
  }
}

function drawRest(done) {
  const next = plots.find((plot) => !drawn.has(plot) && !isFolded(plot));
  if (!next) return done();
  draw(next);
  setTimeout(drawRest, 0, done); // whoever scrolls meanwhile need not wait
}

// Keeps the page from being loaded, and so from being printed or photographed by a program, until
// figures are there: an open document in a frame does. Returns the function that ends this.
function delayLoad() {
  const frame = document.createElement("iframe");
  frame.hidden = true;
  document.body.append(frame);
  frame.contentDocument.open();
  return () => {
    frame.contentDocument.close();
    frame.remove();
  };
}
