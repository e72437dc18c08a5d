// The recommendations: rows that glide to their new ranks.
import { byId, calm, draw, make, number, percent } from "./dom.js";

const rows = new Map();

// `items` are in order; `act` has what a click on a title and on "like" do.
export function show(items, chosen, act) {
  const list = byId("list");
  const before = new Map([...rows].map(([item, row]) => [item, row.getBoundingClientRect().top]));
  const kept = new Set(items.map((item) => item.item));
  for (const [item, row] of rows) {
    if (kept.has(item)) continue;
    row.remove();
    rows.delete(item);
  }
  items.forEach((item, at) => {
    let row = rows.get(item.item);
    if (!row) rows.set(item.item, (row = newRow(item, act)));
    update(row, item, at + 1, item.item === chosen);
    if (list.children[at] !== row) list.insertBefore(row, list.children[at] ?? null);
  });
  if (!calm.matches) for (const [item, row] of rows) glide(row, before.get(item));
}

function glide(row, before) {
  if (before === undefined) {
    row.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 200 });
    return;
  }
  const moved = before - row.getBoundingClientRect().top;
  if (moved) row.animate([{ transform: `translateY(${moved}px)` }, { transform: "none" }], { duration: 260, easing: "ease-out" });
}

function newRow(item, act) {
  const title = make("button", { type: "button", class: "title", click: () => act.why(item.item) }, item.title);
  title.addEventListener("mouseenter", () => act.point(item.item));
  title.addEventListener("focus", () => act.point(item.item));
  const like = make("button", { type: "button", class: "quiet like", click: () => act.like(item.item), "aria-label": `Like ${item.title}` }, "Like");
  const bars = make("div", { class: "bars" }, draw("svg", { "aria-hidden": "true" }), make("span", { class: "numbers" }));
  return make("li", { "data-item": item.item }, make("span", { class: "rank" }), title, like, bars);
}

function update(row, item, rank, chosen) {
  row.classList.toggle("chosen", chosen);
  row.querySelector(".rank").textContent = rank;
  row.querySelector(".title").setAttribute("aria-pressed", chosen);
  const x = (p) => `${100 * p}%`;
  const line = (kind, y, from, to) => draw("line", { class: kind, y1: y, y2: y, x1: x(from), x2: x(to) });
  row.querySelector("svg").replaceChildren(
    line("track", 6, 0, 1),
    line("interval", 6, item.low, item.high),
    draw("circle", { class: "mean", cy: 6, cx: x(item.p_like), r: 5 }),
    line("considered", 15, 0, item.p_considered ?? 0),
  );
  row.querySelector(".numbers").textContent = `like ${percent(item.p_like)}${item.p_considered === null ? "" : `, seen ${percent(item.p_considered)}`}`;
  row.querySelector(".numbers").title = `90 %: ${percent(item.low)} to ${percent(item.high)}; score ${number(item.score, 3)}`;
}
