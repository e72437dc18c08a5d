// The page: likes and knobs in, recommendations and their reasons out.
import * as api from "./api.js";
import * as code from "./code.js";
import { COLUMNS } from "./columns.js";
import { byId, make, number } from "./dom.js";
import * as honest from "./honest.js";
import * as list from "./list.js";
import * as plane from "./plane.js";
import * as search from "./search.js";
import { read, state, write } from "./state.js";
import * as why from "./why.js";

const COUNT = 12; // items in the list
const TASTES = 4;
const RANGES = { popularity: [0, 1.5], lift: [0, 3] };

const titles = new Map();
let model = null;
let items = []; // all that the knobs can bring up, and some more
let pointed = null;
let asking = null;

const titleOf = (item) => titles.get(item) ?? item;
const knobs = () => ({
  popularity: state.popularity ?? model.popularity,
  lift: model.lift === null ? 0 : (state.lift ?? model.lift),
});

function fail(error) {
  if (error instanceof api.NoKey) byId("unlock").hidden = false;
  byId("problem").textContent = error instanceof api.Problem ? error.message : `The page has a fault: ${error.message}`;
  byId("problem").hidden = false;
}

// --- What the service knows of who is asking ---

async function ask() {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  write();
  showLikes();
  try {
    await nameLikes(signal);
    const answer = await api.landscape({ ...who(), ...RANGES, n: COUNT, points: 20000 }, signal);
    byId("problem").hidden = true;
    items = unpacked(answer);
    show();
    await explain(signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    items = [];
    show();
    fail(error);
  }
}

function unpacked(answer) {
  const found = answer.item.map(String).map((item, at) => {
    const point = { item, title: answer.title[at] ?? item, logit: answer.logit[at], log_popularity: answer.log_popularity[at], lift: answer.log_lift?.[at] ?? 0 };
    for (const { name } of COLUMNS) point[name] = answer[name][at]; // null: unknown
    return point;
  });
  for (const item of found) titles.set(item.item, item.title);
  const left = answer.total - found.length;
  found.note = left > 0 ? `${left} more are not drawn: ${answer.complete ? "no setting of the knobs brings them up." : "a sample is."}` : "";
  if (answer.ignored?.length) fail(new api.Problem(`The model does not know ${answer.ignored.join(", ")}; they are left out.`));
  return found;
}

// An id is text everywhere on the page: a Number would round large ones. The service knows an integer by its text.
const who = () => (state.user !== null ? { user: state.user } : { likes: state.likes });

// Titles of likes that came with the address.
async function nameLikes(signal) {
  for (const like of state.likes) {
    if (titles.has(like)) continue;
    const found = await api.item(like, signal).catch(() => null);
    titles.set(like, found?.title ?? like);
  }
  showLikes();
}

// --- What is on the screen ---

function show() {
  const { popularity, lift } = knobs();
  for (const item of items) item.score = item.logit + popularity * item.log_popularity + lift * item.lift;
  const picked = items.toSorted((a, b) => b.score - a.score).slice(0, COUNT);
  list.show(picked, state.item, { why: choose, like, point });
  plane.show(items, picked, { popularity, lift }, pointed, state.across);
  for (const [name, value] of Object.entries({ popularity, lift })) {
    byId(name).value = value;
    byId(`${name}-value`).textContent = number(value);
  }
  code.show(who(), { popularity, lift }, model, COUNT);
  byId("status").textContent = picked.length ? "" : "Nothing to recommend.";
}

function showLikes() {
  const chip = (item) =>
    make("li", {}, make("button", { type: "button", click: () => unlike(item), "aria-label": `Remove ${titleOf(item)}` }, titleOf(item)));
  byId("likes").replaceChildren(...state.likes.map(chip));
  byId("no-likes").hidden = state.likes.length > 0 || state.user !== null;
  byId("user").value = state.user ?? "";
  byId("list-title").textContent = state.user === null ? "Recommendations" : `Recommendations for ${state.user}`;
}

// --- What people do ---

function like(item) {
  if (!state.likes.includes(item)) state.likes.push(item);
  state.user = null;
  ask();
}

function unlike(item) {
  state.likes = state.likes.filter((other) => other !== item);
  ask();
}

function point(item) {
  pointed = item;
  show();
}

function choose(item) {
  state.item = item;
  pointed = item;
  write();
  show();
  explain().catch(fail);
}

async function explain(signal) {
  if (state.item === null) return why.clear();
  const { item } = state;
  if (state.user === null && state.likes.length === 0) return why.show(titleOf(item), [], null);
  const answer = await api.explanation({ item, ...who(), n: 10 }, signal);
  const reasons = answer.because.map((reason) => ({ item: String(reason.item), title: reason.title, contribution: reason.logit }));
  why.show(answer.title ?? item, reasons, state.user === null ? unlike : null);
}

// A ready-made taste: a popular item and the two nearest to it, each taste far from those before.
async function tastes() {
  const near = new Set();
  const popular = (await api.search("")).items;
  for (const start of popular) {
    if (near.has(start.item) || byId("tastes").children.length === TASTES) continue;
    const similar = (await api.similar(start.item, 6)).items;
    for (const item of [start, ...similar]) {
      near.add(item.item);
      titles.set(String(item.item), item.title ?? String(item.item));
    }
    const taste = [start, ...similar.slice(0, 2)].map((item) => String(item.item));
    const take = () => {
      Object.assign(state, { likes: taste, user: null, item: null });
      ask();
    };
    byId("tastes").append(make("button", { type: "button", click: take }, `Likes ${start.title ?? start.item}`));
  }
}

function listen() {
  search.listen((item) => {
    titles.set(String(item.item), item.title ?? String(item.item));
    like(String(item.item));
  }, fail);
  for (const knob of ["popularity", "lift"])
    byId(knob).addEventListener("input", (event) => {
      state[knob] = Number(event.target.value);
      write();
      show();
    });
  for (const choice of document.querySelectorAll("[name=across]"))
    choice.addEventListener("change", () => {
      state.across = choice.value || null;
      write();
      show();
    });
  byId("known").addEventListener("submit", (event) => {
    event.preventDefault();
    const user = byId("user").value.trim();
    Object.assign(state, { user: user || null, likes: [], item: null });
    ask();
  });
  byId("clear").addEventListener("click", () => {
    Object.assign(state, { likes: [], user: null, popularity: null, lift: null, item: null });
    ask();
  });
  addEventListener("hashchange", () => {
    read();
    ask();
  });
  new ResizeObserver(() => items.length && show()).observe(byId("plane"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
}

const plain = (count) => count.toLocaleString("en");
const sizes = () => (model.graph ? `${plain(model.items)} vertices, ${plain(model.likes / 2)} links.` : `${plain(model.users)} users, ${plain(model.items)} items, ${plain(model.likes)} likes.`);

async function begin() {
  byId("unlock").hidden = byId("problem").hidden = true;
  read();
  for (const [knob, [low, high]] of Object.entries(RANGES)) Object.assign(byId(knob), { min: low, max: high });
  model = await api.model();
  byId("about").textContent = `${sizes()} What people like, told apart from what they see.`;
  byId("lift").disabled = model.lift === null;
  api.reliability().then(honest.show).catch(fail);
  listen();
  await ask();
  await tastes();
}

byId("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  api.unlock(byId("key").value);
  begin().catch(fail);
});
begin().catch(fail);
