// The additions for a browser with scripts: a button that copies each command, and a list that is filtered as one types.
"use strict";
function unseen(text) {
  const span = document.createElement("span");
  span.className = "unseen";
  span.textContent = text;
  return span;
}
for (const command of document.querySelectorAll(".command")) {
  const code = command.querySelector("code");
  const button = document.createElement("button");
  const told = document.createElement("span");
  button.type = "button";
  button.append("Copy", unseen(` the line ${code.textContent}`));
  told.setAttribute("role", "status");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      told.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      told.textContent = "Press Ctrl+C";
    }
    setTimeout(() => { told.textContent = ""; }, 2000);
  });
  command.append(told, button);
}
const search = document.querySelector("input[type=search][data-filters]");
const rows = search ? [...document.querySelectorAll(`#${search.dataset.filters} tbody tr`)] : [];
if (rows.length) {
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    for (const row of rows) {
      row.hidden = !row.querySelector("th").textContent.toLowerCase().includes(wanted);
    }
    const left = rows.filter((row) => !row.hidden).length;
    const beyond = document.querySelector("a[rel=next]") ? " Search looks at the others." : "";
    document.getElementById("found").textContent = wanted ? `${left} of ${rows.length} on this page.${beyond}` : "";
  });
}
