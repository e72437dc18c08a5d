// Which likes moved an item, as signed bars.
import { byId, draw, make, number } from "./dom.js";

// `reasons` are {item, title, contribution}; `remove` is what the button beside a like does, if it may be removed.
export function show(title, reasons, remove) {
  const most = Math.max(...reasons.map((reason) => Math.abs(reason.contribution)), 1e-9);
  const rows = reasons.map((reason) => row(reason, most, remove));
  byId("why").replaceChildren(
    make("p", {}, "Why ", make("strong", {}, title), reasons.length ? ": what each like adds to the logit." : "."),
    reasons.length ? make("ul", { class: "reasons" }, ...rows) : make("p", { class: "hint" }, "No like is behind it: it is popular."),
  );
}

function row(reason, most, remove) {
  const share = (50 * Math.abs(reason.contribution)) / most;
  const plus = reason.contribution >= 0;
  const bar = draw("svg", { "aria-hidden": "true" },
    draw("rect", { class: plus ? "plus" : "minus", x: `${plus ? 50 : 50 - share}%`, y: 1, width: `${share}%`, height: 12 }),
    draw("line", { class: "axis", x1: "50%", x2: "50%", y1: 0, y2: 14 }));
  const name = remove
    ? make("button", { type: "button", class: "quiet", click: () => remove(reason.item), "aria-label": `Remove ${reason.title}` }, `${reason.title} \u00d7`)
    : make("span", {}, reason.title);
  return make("li", {}, name, bar, make("span", { class: "number" }, `${plus ? "+" : ""}${number(reason.contribution)}`));
}

export function clear() {
  byId("why").replaceChildren(make("p", { class: "hint" }, "Choose a recommendation to see which likes moved it."));
}
