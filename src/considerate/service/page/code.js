// The shell's and Python's way to what is on the screen.
import { byId } from "./dom.js";

const quoted = (text) => `'${text.replaceAll("'", `'"'"'`)}'`;

// `who` has the user, or the likes, as the model names them.
export function show(who, knobs, graph, count) {
  const { popularity, lift } = knobs;
  const base = `${location.origin}/`;
  if (who.user !== undefined) {
    const query = new URLSearchParams({ n: count, popularity, lift });
    byId("curl").textContent = `curl ${quoted(`${base}v1/users/${encodeURIComponent(who.user)}/recommendations?${query}`)}`;
    byId("python").textContent = python(graph, `recommend_table([${JSON.stringify(who.user)}], N=${count}, popularity=${popularity}, lift=${lift})`);
    return;
  }
  if (!who.likes.length) { // the list of nobody is the page's own, made of the landscape
    for (const id of ["curl", "python"]) byId(id).textContent = "# Like something first: then this gives the same list.";
    return;
  }
  const body = JSON.stringify({ likes: who.likes, n: count, popularity, lift });
  byId("curl").textContent = `curl ${base}v1/recommendations -H 'content-type: application/json' \\\n  -d ${quoted(body)}`;
  const likes = JSON.stringify(who.likes);
  byId("python").textContent = python(graph, `recommend_for(${likes}, N=${count}, popularity=${popularity}, lift=${lift})`);
}

function python(graph, call) {
  const kind = graph ? "GraphRecommender" : "Recommender";
  return `from considerate import ${kind}\n\nmodel = ${kind}.load("model.safetensors")\nmodel.${call}`;
}
