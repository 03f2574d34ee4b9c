// Sets everything up, and says when all in sight is drawn: the milliseconds since the page was asked
// for.
document.addEventListener("DOMContentLoaded", async () => {
  setUpTheme(redraw);
  setUpTables();
  setUpCopy();
  await setUpFigures();
  document.documentElement.dataset.drawn = Math.round(performance.now());
});
