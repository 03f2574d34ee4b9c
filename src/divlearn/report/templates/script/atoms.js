// Atoms as small pictures: bytes become colours when a tile is made, and again in the dark.
const FIRST_TILES = 60;
const FIRST_TILES_NARROW = 24;
const LEVELS = 127; // of either sign, as packed

function setUpAtoms() {
  for (const section of document.querySelectorAll("section.atoms")) {
    const data = dataBeside(section.querySelector(".tiles"));
    data.pixels = decodeBytes(data.pixels);
    const atoms = { section, data, tiles: [] };
    section.addEventListener("atoms:draw", () => drawTiles(atoms));
    addTiles(atoms, narrow.matches ? FIRST_TILES_NARROW : FIRST_TILES);
    offerAll(atoms);
  }
}

function drawAtoms() {
  for (const section of document.querySelectorAll("section.atoms")) {
    section.dispatchEvent(new Event("atoms:draw"));
  }
}

function offerAll(atoms) {
  const total = atoms.data.uses.length;
  const button = atoms.section.querySelector(".more");
  if (total === atoms.tiles.length) return;
  button.textContent = `Show all ${total} atoms`;
  button.hidden = false;
  button.addEventListener("click", () => {
    addTiles(atoms, total);
    drawTiles(atoms);
    button.hidden = true;
  });
}

function addTiles(atoms, count) {
  const parent = atoms.section.querySelector(".tiles");
  const last = Math.min(count, atoms.data.uses.length);
  for (let i = atoms.tiles.length; i < last; i++) {
    const tile = makeTile(atoms.data, i);
    atoms.tiles.push(tile);
    parent.append(tile);
  }
}

function makeTile(data, index) {
  const tile = document.createElement("figure");
  tile.className = "tile";
  tile.innerHTML =
    '<canvas></canvas><div class="bar"><i></i></div><figcaption><b></b><br><span></span></figcaption>';
  const canvas = tile.querySelector("canvas");
  canvas.width = canvas.height = data.starts.length;
  tile.querySelector(".bar i").style.width = `${(100 * data.uses[index]) / (data.uses[0] || 1)}%`;
  tile.querySelector("b").textContent = `${(100 * data.uses[index]).toFixed(1)}%`;
  tile.querySelector("span").textContent = data.texts[index];
  showTip(canvas, (x, y) => describeEntry(data, index, x, y));
  return tile;
}

// Place of entry (row, column), row <= column, in the packed upper triangles.
function packedIndex(data, atom, row, column) {
  const n = data.starts.length;
  return (atom * n * (n + 1)) / 2 + row * n - (row * (row - 1)) / 2 + column - row;
}

function describeEntry(data, atom, x, y) {
  const n = data.starts.length;
  const [row, column] = [y, x].map((share) => Math.min(n - 1, Math.floor(share * n)));
  const level = data.pixels[packedIndex(data, atom, Math.min(row, column), Math.max(row, column))];
  const value = ((level - LEVELS) / LEVELS).toFixed(2);
  const scales = data.scales[atom];
  return (
    `atom ${data.numbers[atom]}, row ${span(data, row)}, column ${span(data, column)}\n` +
    `correlation ${value}\n` +
    `standard deviations ${scales[row]} and ${scales[column]}`
  );
}

// The row, or the rows where a cell stands for several.
function span(data, cell) {
  const first = data.starts[cell];
  const last = (data.starts[cell + 1] ?? data.size) - 1;
  return first === last ? `${first}` : `${first} to ${last}`;
}

// The colour of every byte, as the four bytes of a pixel.
function colourTable() {
  const [negative, zero, positive] = ["negative", "zero", "positive"].map(channels);
  const table = new Uint8ClampedArray(4 * (2 * LEVELS + 1));
  for (let level = 0; level <= 2 * LEVELS; level++) {
    const share = Math.abs(level - LEVELS) / LEVELS;
    const end = level < LEVELS ? negative : positive;
    for (let c = 0; c < 3; c++) table[4 * level + c] = zero[c] + share * (end[c] - zero[c]);
    table[4 * level + 3] = 255;
  }
  return new Uint32Array(table.buffer);
}

function drawTiles({ data, tiles }) {
  const table = colourTable();
  const n = data.starts.length;
  tiles.forEach((tile, atom) => {
    const image = new ImageData(n, n);
    const pixels = new Uint32Array(image.data.buffer);
    let place = packedIndex(data, atom, 0, 0);
    for (let row = 0; row < n; row++) {
      for (let column = row; column < n; column++, place++) {
        pixels[row * n + column] = pixels[column * n + row] = table[data.pixels[place]];
      }
    }
    tile.querySelector("canvas").getContext("2d").putImageData(image, 0, 0);
  });
}
