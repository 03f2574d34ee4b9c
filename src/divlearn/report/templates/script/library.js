// What is large lies in the page compressed, and is unpacked here: the plotting library, long tables.
const UNSUPPORTED =
  "This browser cannot unpack what is compressed in this page: that takes Chrome 80, " +
  "Firefox 113, Safari 16.4 or later.";

function decodeBytes(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function unpack(element) {
  if (typeof DecompressionStream === "undefined") throw new Error(UNSUPPORTED);
  const blob = new Blob([decodeBytes(element.textContent)]);
  return new Response(blob.stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

async function loadLibrary() {
  const script = document.createElement("script");
  script.textContent = await unpack(document.getElementById("library"));
  document.head.append(script); // runs at once
  if (typeof Plotly === "undefined") throw new Error("The library that draws did not start.");
}
