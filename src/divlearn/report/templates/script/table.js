// Tables: sorted by a click on a heading; long ones show their first rows until asked for all.
function setUpTables() {
  for (const section of document.querySelectorAll("section.table")) setUpTable(section);
}

function setUpTable(section) {
  const body = section.querySelector("tbody");
  const more = section.querySelector(".more");
  let shown = body.rows.length;
  let rows = null;
  const change = async (action) => {
    try {
      rows ??= [...body.rows, ...(await remainingRows(section))];
    } catch (error) {
      more.replaceWith(error.message);
      rows = [...body.rows];
    }
    action();
    body.replaceChildren(...rows.slice(0, shown));
  };
  section.querySelectorAll("th").forEach((heading, column) => {
    const sort = () => sortRows(rows, column, heading);
    heading.querySelector("button").addEventListener("click", () => change(sort));
  });
  more?.addEventListener("click", () =>
    change(() => {
      shown = rows.length;
      more.hidden = true;
    }),
  );
}

async function remainingRows(section) {
  const packed = section.querySelector("script");
  if (!packed) return [];
  const template = document.createElement("template");
  template.innerHTML = await unpack(packed);
  return template.content.children;
}

function sortRows(rows, column, heading) {
  const isNumber = heading.classList.contains("n");
  // Numbers are looked at for what is large, words for where they stand in the alphabet.
  const first = isNumber ? "descending" : "ascending";
  const other = isNumber ? "ascending" : "descending";
  const order = heading.getAttribute("aria-sort") === first ? other : first;
  for (const cell of heading.parentElement.cells) cell.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const keys = new Map(rows.map((row) => [row, sortKey(row.cells[column], isNumber)]));
  rows.sort((a, b) => compareKeys(keys.get(a), keys.get(b), sign));
}

function sortKey(cell, isNumber) {
  return isNumber ? Number(cell.dataset.value ?? cell.textContent) : cell.textContent;
}

const WORDS = new Intl.Collator("en", { numeric: true });

// What is missing comes last, whatever the order.
function compareKeys(a, b, sign) {
  if (typeof a === "string") return sign * WORDS.compare(a, b);
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
  return a === b ? 0 : sign * (a < b ? -1 : 1);
}
