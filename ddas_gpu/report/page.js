"use strict";
// Extras only: the page reads well without them.
(() => {
  const readout = document.createElement("div");
  readout.className = "readout";
  readout.hidden = true;
  document.body.append(readout);

  const show = (event, text) => {
    readout.textContent = text;
    readout.hidden = false;
    const box = readout.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, innerWidth - box.width - 6);
    const above = event.clientY - box.height - 12;
    readout.style.left = `${Math.max(6, left)}px`;
    readout.style.top = `${above > 6 ? above : event.clientY + 18}px`;
  };
  const hide = () => { readout.hidden = true; };

  for (const plot of document.querySelectorAll(".plot[data-lines]")) {
    const lines = JSON.parse(plot.dataset.lines);
    const end = Number(plot.dataset.end);
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width * end;
      const texts = lines.filter((line) => line.x.length).map((line) => {
        const nearest = line.x.reduce(
          (best, x, i) => Math.abs(x - at) < Math.abs(line.x[best] - at) ? i : best, 0);
        return [line.x[nearest], `${line.name} ${line.y[nearest]}`];
      });
      if (!texts.length) return;
      show(event, [`${plot.dataset.x} ${texts[0][0]}`, ...texts.map((t) => t[1])].join("\n"));
    });
    plot.addEventListener("pointerleave", hide);
  }

  for (const map of document.querySelectorAll(".heat svg")) {
    const names = JSON.parse(map.dataset.names);
    const ratios = JSON.parse(map.dataset.ratios);
    // The title is for reading aloud; as a tooltip it would cover the read-out.
    map.querySelector("title")?.remove();
    map.addEventListener("pointermove", (event) => {
      const box = map.getBoundingClientRect();
      const clamp = (value, size) => Math.max(0, Math.min(size - 1, Math.floor(value * size)));
      const row = clamp((event.clientY - box.top) / box.height, names.length);
      const epoch = clamp((event.clientX - box.left) / box.width, ratios[row].length);
      show(event, `${names[row]}, epoch ${epoch + 1}\n×${ratios[row][epoch].toFixed(2)} uniform`);
    });
    map.addEventListener("pointerleave", hide);
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
        const order = (a, b) => key(a).localeCompare(key(b), "en", { numeric: true });
        const number = (a, b) => Number(key(a)) - Number(key(b));
        const compare = body.rows[0]?.cells[column].dataset.value ? number : order;
        const rows = [...body.rows].sort(compare);
        body.append(...(down ? rows.reverse() : rows));
      });
    });
  }
})();
