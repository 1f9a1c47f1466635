// What a browser with scripts adds: a button that copies each command, and a list that is filtered as one types.
"use strict";
for (const command of document.querySelectorAll(".command")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command.querySelector("code").textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Press Ctrl+C";
      getSelection().selectAllChildren(command.querySelector("code"));
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  command.append(button);
}
const search = document.querySelector("input[type=search][data-filters]");
if (search) {
  search.addEventListener("input", () => {
    for (const row of document.querySelectorAll(`#${search.dataset.filters} tbody tr`)) {
      row.hidden = !row.textContent.toLowerCase().includes(search.value.toLowerCase());
    }
  });
}
