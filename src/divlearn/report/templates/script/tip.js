// One tip for the whole page, beside the pointer.
const GAP = 14;

// `describe` gets the place of the pointer in the element, from 0 to 1.
function showTip(element, describe) {
  const tip = document.getElementById("tip");
  const show = (event) => {
    const box = element.getBoundingClientRect();
    tip.textContent = describe(
      (event.clientX - box.left) / box.width,
      (event.clientY - box.top) / box.height,
    );
    tip.hidden = false;
    const left = Math.min(event.clientX + GAP, innerWidth - tip.offsetWidth - 4);
    const below = event.clientY + GAP + tip.offsetHeight < innerHeight;
    const top = below ? event.clientY + GAP : event.clientY - GAP - tip.offsetHeight;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  };
  element.addEventListener("pointermove", show);
  element.addEventListener("pointerdown", show);
  element.addEventListener("pointerleave", () => (tip.hidden = true));
}
