"use strict";
(() => {
  // Tables: a click on a head sorts by its column, a second click turns the order round. Empty cells stay last.
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const value = cell.dataset.value;
    if (value !== undefined) return value === "" ? null : Number(value);
    const text = cell.textContent.trim();
    return text === "" ? null : text;
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  const sort = (table, button) => {
    const column = Number(button.dataset.column);
    const head = button.closest("th");
    const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    const sign = order === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const rows = Array.from(body.rows).map((row) => ({ row, value: valueOf(row, column) }));
    rows.sort((a, b) => {
      if (a.value === null || b.value === null) return (a.value === null) - (b.value === null);
      return sign * compare(a.value, b.value);
    });
    for (const { row } of rows) body.appendChild(row);
    table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
  };
  document.querySelectorAll("table.sortable").forEach((table) => {
    table.querySelectorAll("thead button").forEach((button) => {
      button.addEventListener("click", () => sort(table, button));
    });
  });

  // Charts: drawn once the library is there, in the colours of the page, again when these change.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const themed = (layout) => {
    const ink = colour("--ink"), grid = colour("--chart-grid");
    const copy = { ...layout, font: { family: getComputedStyle(document.body).fontFamily, ...layout.font, color: ink }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hoverlabel: { bgcolor: colour("--panel"), bordercolor: grid, font: { color: ink }, align: "left" } };
    for (const key of Object.keys(copy)) {
      if (/^[xy]axis\d*$/.test(key)) copy[key] = { ...copy[key], gridcolor: grid, linecolor: grid, zerolinecolor: grid };
    }
    return copy;
  };
  const charts = Array.from(document.querySelectorAll(".chart"));
  // A finger that drags over a chart means to scroll the page.
  const touch = window.matchMedia("(pointer: coarse)").matches;
  const media = window.matchMedia("print");
  // A chart does not follow the width of the paper by itself: half of it where several stand side by side.
  const paper = (chart) => ({ width: chart.closest(".figures")?.querySelector(".chart ~ .chart, figure ~ figure") ? 330 : 680, height: 420 });
  let printing = false;
  const draw = () => {
    if (!window.Plotly) return;
    for (const chart of charts) {
      const { data, layout } = JSON.parse(document.getElementById(chart.dataset.source).textContent);
      const size = printing || media.matches ? paper(chart) : { autosize: true };
      window.Plotly.react(chart, data, { ...themed(layout), ...size, dragmode: touch ? false : "zoom" }, { displayModeBar: false, responsive: true });
    }
  };
  const turn = (to) => () => { printing = to; draw(); };
  draw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  media.addEventListener("change", draw);
  window.addEventListener("beforeprint", turn(true));
  window.addEventListener("afterprint", turn(false));
})();
