// The button that copies the command.
function setUpCopy() {
  for (const button of document.querySelectorAll(".copy")) {
    const code = button.parentElement.querySelector("code");
    button.hidden = false;
    button.addEventListener("click", async () => {
      button.textContent = (await copyText(code)) ? "Copied" : "Press Ctrl+C";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
  }
}

async function copyText(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    // Not allowed here: select it, so that the reader can.
    getSelection().selectAllChildren(element);
    return false;
  }
}
