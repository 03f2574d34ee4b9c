// Sets everything up, and says when all in sight is drawn: the milliseconds since the page was asked
// for.
let drawing = Promise.resolve();

// One drawing at a time, each with the colours of its moment.
function inTurn(draw) {
  drawing = drawing.then(draw);
  return drawing;
}

function drawAll() {
  return inTurn(async () => {
    drawAtoms();
    await drawPlots([...near]);
  });
}

document.addEventListener("DOMContentLoaded", async () => {
  setUpTheme(drawAll);
  setUpTables();
  setUpCopy();
  setUpAtoms();
  setUpPlots((elements) => inTurn(() => drawPlots(elements)));
  await drawAll();
  document.documentElement.dataset.drawn = Math.round(performance.now());
});
