// Every item as a point: x is log popularity, y the logit of liking. The knob is a line of equal score.
//
//   score = logit + popularity * x + lift * l,    l = the item's log lift, `floor` of what no like leads to
//   y     = logit + lift * (l - floor)            so that score >= T is y + popularity * x >= T - lift * floor
import { byId, draw, make, number, percent } from "./dom.js";

const ROOM = { left: 40, right: 12, top: 10, bottom: 34 };
const P_TICKS = [0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999];

export function show(items, picked, knobs, pointed) {
  const box = byId("plane").getBoundingClientRect();
  if (!items.length || !box.width) return;
  const floor = items.reduce((least, item) => Math.min(least, item.lift), Infinity);
  const height = (item) => item.logit + knobs.lift * (item.lift - floor);
  const scale = scales(items, height, box);
  points(items, height, scale, box);
  const svg = byId("plane").querySelector("svg");
  svg.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
  const threshold = picked.length ? picked.at(-1).score - knobs.lift * floor : null;
  svg.replaceChildren(...axes(scale, box), ...line(threshold, knobs.popularity, scale, box), ...chosen(picked, height, scale, pointed));
  caption(items, picked, knobs);
  table(picked);
}

function range(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const room = 0.05 * (high - low || 1);
  return [low - room, high + room];
}

function scales(items, height, box) {
  const [x0, x1] = range(items.map((item) => item.log_popularity));
  const [y0, y1] = range([...items.map((item) => item.logit), ...items.map(height)]);
  const width = box.width - ROOM.left - ROOM.right;
  const tall = box.height - ROOM.top - ROOM.bottom;
  return {
    x0, x1, y0, y1,
    x: (value) => ROOM.left + (width * (value - x0)) / (x1 - x0),
    y: (value) => ROOM.top + (tall * (y1 - value)) / (y1 - y0),
  };
}

function points(items, height, scale, box) {
  const canvas = byId("plane").querySelector("canvas");
  const dense = devicePixelRatio || 1;
  canvas.width = box.width * dense;
  canvas.height = box.height * dense;
  const context = canvas.getContext("2d");
  context.scale(dense, dense);
  context.fillStyle = getComputedStyle(document.body).getPropertyValue("--point");
  context.globalAlpha = items.length > 3000 ? 0.35 : 0.6;
  const size = items.length > 3000 ? 1.6 : 2.6;
  for (const item of items) context.fillRect(scale.x(item.log_popularity) - size / 2, scale.y(height(item)) - size / 2, size, size);
}

function axes(scale, box) {
  const bottom = box.height - ROOM.bottom;
  const parts = [draw("text", { x: box.width - ROOM.right, y: box.height - 4, "text-anchor": "end" }, "popularity, log scale \u2192"),
    draw("text", { x: ROOM.left + 4, y: ROOM.top + 4 }, "\u2191 p(like), logit scale")];
  for (const p of P_TICKS) {
    const logit = Math.log(p / (1 - p));
    if (logit < scale.y0 || logit > scale.y1) continue;
    const y = scale.y(logit);
    parts.push(draw("line", { class: "axis", x1: ROOM.left, x2: box.width - ROOM.right, y1: y, y2: y }));
    parts.push(draw("text", { x: ROOM.left - 4, y: y + 4, "text-anchor": "end" }, percent(p)));
  }
  parts.push(draw("line", { class: "axis", x1: ROOM.left, x2: box.width - ROOM.right, y1: bottom, y2: bottom }));
  parts.push(draw("text", { x: ROOM.left, y: box.height - 4 }, "rare"));
  return parts;
}

// Where y + popularity * x = threshold, inside the frame.
function line(threshold, popularity, scale, box) {
  if (threshold === null) return [];
  const ends = [scale.x0, scale.x1].map((x) => [scale.x(x), scale.y(threshold - popularity * x)]);
  const frame = { x: ROOM.left, y: ROOM.top, width: box.width - ROOM.left - ROOM.right, height: box.height - ROOM.top - ROOM.bottom };
  const [[xa, ya], [xb, yb]] = ends;
  return [
    draw("clipPath", { id: "frame" }, draw("rect", frame)),
    draw("line", { class: "equal", x1: xa, y1: ya, x2: xb, y2: yb, "clip-path": "url(#frame)", "data-threshold": threshold, "data-slope": -popularity }),
  ];
}

function chosen(picked, height, scale, pointed) {
  return picked.flatMap((item) => {
    const x = scale.x(item.log_popularity);
    const y = scale.y(height(item));
    return [
      draw("line", { class: "stem", x1: x, x2: x, y1: scale.y(item.logit), y2: y }),
      draw("circle", { class: item.item === pointed ? "picked shown" : "picked", cx: x, cy: y, r: item.item === pointed ? 7 : 5, "data-item": item.item },
        draw("title", {}, item.title)),
    ];
  });
}

function caption(items, picked, knobs) {
  byId("plane-caption").textContent =
    `${items.length} items by popularity and by how likely they are to be liked. Those above the line of equal score are ` +
    `recommended; popularity ${number(knobs.popularity)} is its tilt.` +
    (knobs.lift ? " A stem is what lift adds." : "") + (items.note ? ` ${items.note}` : "");
}

function table(picked) {
  const head = ["item", "p(like)", "90 % interval", "p(considered)", "log popularity", "lift", "score"];
  const cells = (item) => [
    item.title, percent(item.p_like), `${percent(item.low)} \u2013 ${percent(item.high)}`, percent(item.p_considered),
    number(item.log_popularity), number(item.lift), number(item.score, 3),
  ];
  byId("plane-table").replaceChildren(
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...picked.map((item) => make("tr", {}, ...cells(item).map((text) => make("td", {}, text))))),
  );
}

