// Sets everything up, and says when all is drawn: the milliseconds since the page was asked for.
let drawing = Promise.resolve();

// One drawing at a time, each with the colours of its moment.
function drawAll() {
  drawing = drawing.then(async () => {
    drawAtoms();
    await drawPlots();
  });
  return drawing;
}

document.addEventListener("DOMContentLoaded", async () => {
  setUpTheme(drawAll);
  setUpTables();
  setUpCopy();
  setUpAtoms();
  await drawAll();
  document.documentElement.dataset.drawn = Math.round(performance.now());
});
