// What the page shows, kept in the address, so that a link brings back the same page.
export const state = { likes: [], user: null, popularity: null, lift: null, item: null, across: null };

export function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  state.likes = given.getAll("like");
  state.user = given.get("user");
  state.item = given.get("item");
  state.across = given.get("across") === "considered" ? "considered" : null;
  for (const knob of ["popularity", "lift"]) {
    const value = Number.parseFloat(given.get(knob));
    state[knob] = Number.isFinite(value) ? value : null;
  }
}

export function write() {
  const kept = new URLSearchParams();
  for (const like of state.likes) kept.append("like", like);
  for (const name of ["user", "popularity", "lift", "item", "across"]) if (state[name] !== null) kept.set(name, state[name]);
  const hash = `#${kept}`;
  if (hash !== location.hash) history.replaceState(null, "", hash === "#" ? location.pathname : hash);
}
