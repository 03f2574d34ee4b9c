// Light and dark: as the system says, until the reader says otherwise.
const system = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 40rem)");
const HALF_MOON =
  '<svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true" style="display:block">' +
  '<circle cx="8" cy="8" r="6.5" fill="none" stroke="currentColor" stroke-width="1.5"/>' +
  '<path d="M8 1.5a6.5 6.5 0 0 1 0 13z" fill="currentColor"/></svg>';

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : system.matches;
}

// Calls `redraw` whenever colours or the room for figures change.
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
  narrow.addEventListener("change", redraw);
}

// The colour a variable of the style sheet stands for now, as [red, green, blue].
function channels(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const numbers = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
  probe.remove();
  return numbers.slice(0, 3);
}

function colour(name) {
  return `rgb(${channels(name).join(", ")})`;
}
