// The shell's and Python's way to what is on the screen.
import { byId } from "./dom.js";

const quoted = (text) => `'${text.replaceAll("'", `'"'"'`)}'`;

// An id as the model has it: an integer, or a text in quotes.
const literal = (id, isInteger) => (isInteger && /^(0|-?[1-9]\d*)$/.test(id) ? id : JSON.stringify(id));

// `who` has the user, or the likes.
export function show(who, knobs, model, count) {
  const { popularity, lift } = knobs;
  const base = `${location.origin}/`;
  if (who.user !== undefined) {
    const query = new URLSearchParams({ n: count, popularity, lift });
    byId("curl").textContent = `curl ${quoted(`${base}v1/users/${encodeURIComponent(who.user)}/recommendations?${query}`)}`;
    byId("python").textContent = python(model, `recommend_table([${literal(who.user, model.integer_users)}], N=${count}, popularity=${popularity}, lift=${lift})`);
    return;
  }
  if (!who.likes.length) { // the list of nobody is the page's own, made of the landscape
    for (const id of ["curl", "python"]) byId(id).textContent = "# Like something first: then this gives the same list.";
    return;
  }
  const likes = `[${who.likes.map((like) => literal(like, model.integer_items)).join(",")}]`;
  const body = `{"likes":${likes},"n":${count},"popularity":${popularity},"lift":${lift}}`;
  byId("curl").textContent = `curl ${base}v1/recommendations -H 'content-type: application/json' \\\n  -d ${quoted(body)}`;
  byId("python").textContent = python(model, `recommend_for(${likes}, N=${count}, popularity=${popularity}, lift=${lift})`);
}

function python(model, call) {
  const kind = model.graph ? "GraphRecommender" : "Recommender";
  return `from considerate import ${kind}\n\nmodel = ${kind}.load("model.safetensors")\nmodel.${call}`;
}
