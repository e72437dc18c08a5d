// A reliability diagram: of the pairs that were judged and got p, how many were liked.
import { byId, draw, make, number, percent } from "./dom.js";

const ROOM = { left: 54, right: 22, top: 10, bottom: 38 };
const TICKS = [0, 0.25, 0.5, 0.75, 1];
const SOURCES = {
  events: "What users did since the model was trained; every pair counts the same.",
  model: "Measured when the model was recalibrated, on users that it was not fitted to.",
};

let width = 0; // that it was drawn for

export function show(found) {
  const box = byId("honest");
  new ResizeObserver(() => found.source && box.clientWidth !== width && fit(found.bins)).observe(box);
  if (!found.source) return box.replaceChildren(make("p", {}, none(found.pairs)));
  box.replaceChildren(
    make("p", {}, `Off by ${number(100 * found.error, 1)} points on average, over ${found.pairs.toLocaleString("en")} judged pairs.`),
    draw("svg", { role: "img", "aria-label": "The share that was liked against p(like); the table below has the numbers." }),
    make("p", { class: "hint" }, "On the dashed line as many were liked as p said. A bar is a 90\u00a0% interval; larger dots have more pairs. ",
      SOURCES[found.source], found.weights === "equal classes" ? " Liked and not liked pairs weigh the same." : ""),
    make("details", {}, make("summary", {}, "The same as a table"),
      make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Said and seen as a table" }, table(found.bins))),
  );
}

function none(pairs) {
  return (pairs ? `All ${pairs} pairs that were judged so far have the same answer. ` : "Nobody has judged what this model says yet. ") +
    "Likes alone cannot show it: send events of what was considered and not liked, or recalibrate on ratings.";
}

// The diagram, a square as wide as there is room.
function fit(bins) {
  width = byId("honest").clientWidth;
  const side = Math.min(300, width - ROOM.left - ROOM.right);
  const x = (p) => ROOM.left + side * p;
  const y = (p) => ROOM.top + side * (1 - p);
  const size = { width: side + ROOM.left + ROOM.right, height: side + ROOM.top + ROOM.bottom };
  const most = Math.max(...bins.map((bin) => bin.pairs));
  const ticks = TICKS.filter((p) => side > 180 || p % 0.5 === 0).flatMap((p) => [
    draw("line", { class: "axis", x1: x(p), x2: x(p), y1: y(0), y2: y(1) }),
    draw("line", { class: "axis", x1: x(0), x2: x(1), y1: y(p), y2: y(p) }),
    draw("text", { x: x(p), y: y(0) + 14, "text-anchor": "middle" }, percent(p, 0)),
    draw("text", { x: x(0) - 5, y: y(p) + 4, "text-anchor": "end" }, percent(p, 0)),
  ]);
  const dots = bins.flatMap((bin) => [
    draw("line", { class: "interval", x1: x(bin.predicted), x2: x(bin.predicted), y1: y(bin.low), y2: y(bin.high) }),
    draw("circle", { cx: x(bin.predicted), cy: y(bin.liked), r: 2.5 + 3.5 * Math.sqrt(bin.pairs / most), "data-pairs": bin.pairs },
      draw("title", {}, `said ${percent(bin.predicted)}, liked ${percent(bin.liked)}, ${bin.pairs} pairs`)),
  ]);
  const svg = byId("honest").querySelector("svg");
  for (const [name, value] of Object.entries(size)) svg.setAttribute(name, value);
  svg.replaceChildren(
    ...ticks,
    draw("line", { class: "ideal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
    ...dots,
    draw("text", { x: x(0.5), y: size.height - 6, "text-anchor": "middle" }, "p(like) said"),
    draw("text", { x: -y(0.5), y: 12, transform: "rotate(-90)", "text-anchor": "middle" }, "share that was liked"));
}

function table(bins) {
  const head = ["p(like) said", "liked", "90 % interval", "pairs"];
  const cells = (bin) => [percent(bin.predicted), percent(bin.liked), `${percent(bin.low)} \u2013 ${percent(bin.high)}`, String(bin.pairs)];
  return make("table", {},
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...bins.map((bin) => make("tr", {}, ...cells(bin).map((text) => make("td", {}, text))))));
}
