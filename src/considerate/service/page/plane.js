// Every item as a point: x is log popularity, y the logit of liking. The knob is a line of equal score.
//
//   score = logit + popularity * x + lift * l,    l = the item's log lift, `floor` of what no like leads to
//   y     = logit + lift * (l - floor)            so that score >= T is y + popularity * x >= T - lift * floor
//
// Or x is the logit of p(considered), and y the logit of liking alone. Equal score is no line there: p(considered) has
// popularity and lift in it with weights of its own.
import { COLUMNS } from "./columns.js";
import { byId, draw, logit, make, number, percent } from "./dom.js";

const ROOM = { left: 40, right: 12, top: 10, bottom: 36 };
const P_TICKS = [0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999];
const CONSIDERED_TICKS = [1e-8, 1e-6, 1e-4, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99];

export function show(items, picked, knobs, pointed, across) {
  const box = byId("plane").getBoundingClientRect();
  for (const choice of document.querySelectorAll("[name=across]")) choice.checked = choice.value === (across ?? "");
  if (!items.length || !box.width) return;
  const seen = across ? items.filter((item) => item.p_considered > 0 && item.p_considered < 1) : [];
  const view = seen.length ? considered(seen) : popularity(items, knobs);
  const scale = scales(view, box);
  points(view, scale, box);
  const svg = byId("plane").querySelector("svg");
  svg.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
  const drawn = new Set(view.items);
  const dots = chosen(picked.filter((item) => drawn.has(item)), view, scale, pointed);
  svg.replaceChildren(...axes(view, scale, box), ...line(view.threshold(picked), knobs.popularity, scale, box), ...dots);
  const unknown = across && !seen.length ? "Nothing says how much is considered before there is a like, so this is by popularity. " : "";
  byId("plane-caption").textContent = unknown + `${view.items.length} ${view.caption}` + (items.note ? ` ${items.note}` : "");
  table(picked);
}

function popularity(items, knobs) {
  const floor = items.reduce((least, item) => Math.min(least, item.lift), Infinity);
  return {
    items, ticks: [], label: "popularity, log scale \u2192",
    x: (item) => item.log_popularity,
    y: (item) => item.logit + knobs.lift * (item.lift - floor),
    threshold: (picked) => (picked.length ? picked.at(-1).score - knobs.lift * floor : null),
    caption: "items by popularity and by how likely they are to be liked. Those above the line of equal score are " +
      `recommended; popularity ${number(knobs.popularity)} is its tilt.${knobs.lift ? " A stem is what lift adds." : ""}`,
  };
}

function considered(items) {
  return {
    items, ticks: CONSIDERED_TICKS, label: "p(considered), logit scale \u2192",
    x: (item) => logit(item.p_considered),
    y: (item) => item.logit,
    threshold: () => null,
    caption: "items by how likely they are to be considered and to be liked; the large dots are recommended. Equal score " +
      "is no straight line here: p(considered) has popularity and lift in it with weights of its own.",
  };
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

function scales(view, box) {
  const [x0, x1] = range(view.items.map(view.x));
  const [y0, y1] = range([...view.items.map((item) => item.logit), ...view.items.map(view.y)]);
  const width = box.width - ROOM.left - ROOM.right;
  const tall = box.height - ROOM.top - ROOM.bottom;
  return {
    x0, x1, y0, y1,
    x: (value) => ROOM.left + (width * (value - x0)) / (x1 - x0),
    y: (value) => ROOM.top + (tall * (y1 - value)) / (y1 - y0),
  };
}

function points({ items, x, y }, scale, box) {
  const canvas = byId("plane").querySelector("canvas");
  const dense = devicePixelRatio || 1;
  canvas.width = box.width * dense;
  canvas.height = box.height * dense;
  const context = canvas.getContext("2d");
  context.scale(dense, dense);
  context.fillStyle = getComputedStyle(document.body).getPropertyValue("--point");
  context.globalAlpha = items.length > 3000 ? 0.35 : 0.6;
  const size = items.length > 3000 ? 1.6 : 2.6;
  for (const item of items) context.fillRect(scale.x(x(item)) - size / 2, scale.y(y(item)) - size / 2, size, size);
}

function axes(view, scale, box) {
  const bottom = box.height - ROOM.bottom;
  const parts = [draw("text", { x: box.width - ROOM.right, y: box.height - 6, "text-anchor": "end" }, view.label),
    draw("text", { x: ROOM.left + 4, y: ROOM.top + 4 }, "\u2191 p(like), logit scale")];
  for (const p of P_TICKS.filter((p) => logit(p) >= scale.y0 && logit(p) <= scale.y1)) {
    const y = scale.y(logit(p));
    parts.push(draw("line", { class: "axis", x1: ROOM.left, x2: box.width - ROOM.right, y1: y, y2: y }));
    parts.push(draw("text", { x: ROOM.left - 4, y: y + 4, "text-anchor": "end" }, percent(p)));
  }
  for (const p of view.ticks.filter((p) => logit(p) >= scale.x0 && logit(p) <= scale.x1)) {
    const x = scale.x(logit(p));
    parts.push(draw("line", { class: "axis", x1: x, x2: x, y1: ROOM.top, y2: bottom }));
    parts.push(draw("text", { x, y: bottom + 14, "text-anchor": "middle" }, `${Number((100 * p).toPrecision(3))}\u00a0%`));
  }
  parts.push(draw("line", { class: "axis", x1: ROOM.left, x2: box.width - ROOM.right, y1: bottom, y2: bottom }));
  if (!view.ticks.length) parts.push(draw("text", { x: ROOM.left, y: box.height - 6 }, "rare"));
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

function chosen(picked, view, scale, pointed) {
  return picked.flatMap((item) => {
    const x = scale.x(view.x(item));
    const y = scale.y(view.y(item));
    return [
      draw("line", { class: "stem", x1: x, x2: x, y1: scale.y(item.logit), y2: y }),
      draw("circle", { class: item.item === pointed ? "picked shown" : "picked", cx: x, cy: y, r: item.item === pointed ? 7 : 5, "data-item": item.item },
        draw("title", {}, item.title)),
    ];
  });
}

const FORMATS = { plain: String, decimals: (value) => number(value, 3), percent };

function table(picked) {
  const formats = Object.fromEntries(COLUMNS.map(({ name, format }) => [name, FORMATS[format]]));
  const text = (item, name) => (item[name] === null ? "?" : formats[name](item[name]));
  const shown = COLUMNS.filter(({ heading }) => heading);
  const head = [{ heading: "item" }, ...shown, { heading: "log popularity" }, { heading: "lift" }, { heading: "score" }];
  const cells = (item) => [
    item.title, ...shown.map(({ cell }) => cell.replace(/\{(\w+)\}/g, (_, name) => text(item, name))),
    number(item.log_popularity), number(item.lift), number(item.score, 3),
  ];
  byId("plane-table").replaceChildren(
    make("thead", {}, make("tr", {}, ...head.map(({ heading, help }) => make("th", { scope: "col", title: help }, heading)))),
    make("tbody", {}, ...picked.map((item) => make("tr", {}, ...cells(item).map((text) => make("td", {}, text))))),
  );
}
