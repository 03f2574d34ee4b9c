// Light and dark: as the system says, until the reader says otherwise; paper is light.
const system = matchMedia("(prefers-color-scheme: dark)");
const HALF_MOON =
  '<svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true" style="display:block">' +
  '<circle cx="8" cy="8" r="6.5" fill="none" stroke="currentColor" stroke-width="1.5"/>' +
  '<path d="M8 1.5a6.5 6.5 0 0 1 0 13z" fill="currentColor"/></svg>';

function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : system.matches;
}

// Calls `redraw` whenever colours change.
function setUpTheme(redraw) {
  const button = document.getElementById("theme");
  const label = () => {
    button.title = isDark() ? "Light colours" : "Dark colours";
    button.setAttribute("aria-label", button.title);
  };
  button.innerHTML = HALF_MOON;
  button.hidden = false;
  label();
  const change = () => {
    label();
    redraw();
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    change();
  });
  system.addEventListener("change", change);
}
