// The search box: a list of matching titles that arrows and a click choose from.
import * as api from "./api.js";
import { byId, make } from "./dom.js";

let found = [];
let at = -1;
let asking = null;

export function listen(choose, fail) {
  const query = byId("query");
  query.addEventListener("input", () => look(query.value.trim(), choose, fail));
  query.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (found.length) mark((at + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length);
    } else if (event.key === "Escape") close();
  });
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    if (found.length) take(found[Math.max(at, 0)], choose);
  });
  document.addEventListener("click", (event) => {
    if (!byId("search").contains(event.target)) close();
  });
}

async function look(text, choose, fail) {
  asking?.abort();
  if (!text) return close();
  asking = new AbortController();
  try {
    found = (await api.search(text, asking.signal)).items;
  } catch (error) {
    if (error.name !== "AbortError") fail(error);
    return;
  }
  const option = (item, place) =>
    make("li", { role: "option", id: `match-${place}`, "aria-selected": "false", click: () => take(item, choose) }, item.title);
  byId("matches").replaceChildren(...(found.length ? found.map(option) : [make("li", { role: "option", "aria-disabled": "true" }, "No title matches.")]));
  byId("matches").hidden = false;
  byId("query").setAttribute("aria-expanded", "true");
  mark(found.length ? 0 : -1);
}

function mark(place) {
  at = place;
  const options = [...byId("matches").children];
  options.forEach((option, number) => option.setAttribute("aria-selected", number === at));
  if (found.length && at >= 0) {
    byId("query").setAttribute("aria-activedescendant", `match-${at}`);
    options[at].scrollIntoView({ block: "nearest" });
  } else byId("query").removeAttribute("aria-activedescendant");
}

function take(item, choose) {
  byId("query").value = "";
  close();
  choose(item);
}

function close() {
  found = [];
  at = -1;
  byId("matches").hidden = true;
  byId("query").setAttribute("aria-expanded", "false");
  byId("query").removeAttribute("aria-activedescendant");
}
