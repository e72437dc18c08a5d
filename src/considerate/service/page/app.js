// Titles and ids come from the data of strangers: they are only ever text.
const $ = (id) => document.getElementById(id);
const cell = (row, text) => { row.insertCell().textContent = text; };
const fixed = (value, digits) => (value === null ? "" : value.toFixed(digits));

async function get(path) {
  const response = await fetch(path);
  const body = await response.json();
  if (!response.ok) throw new Error(body.detail);
  return body;
}

async function recommend(form) {
  const data = new FormData(form);
  const query = new URLSearchParams();
  for (const name of ["user", "popularity", "lift"]) if (data.get(name)) query.set(name, data.get(name));
  const path = `/v1/recommendations?${query}`;
  $("curl").textContent = `curl '${location.origin}${path.replaceAll("'", "%27")}'`;
  const answer = await get(path);
  const body = $("list").tBodies[0];
  body.replaceChildren();
  for (const item of answer.items) {
    const row = body.insertRow();
    cell(row, item.rank);
    cell(row, item.title ?? item.item);
    cell(row, fixed(item.p_like, 2));
    cell(row, `${fixed(item.low, 2)} – ${fixed(item.high, 2)}`);
    cell(row, fixed(item.p_considered, 2));
    cell(row, fixed(item.score, 3));
  }
  $("list").hidden = false;
  $("said").textContent = answer.items.length ? "" : "No item is left to recommend.";
}

$("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  try { await recommend(event.target); } catch (error) {
    $("list").hidden = true;
    $("said").textContent = error.message;
  }
});

try {
  const model = await get("/v1/model");
  $("model").textContent =
    `Model ${model.digest.slice(0, 12)}: ${model.users} users, ${model.items} items, ${model.likes} likes.`;
} catch (error) { $("model").textContent = error.message; }

const { paths } = await get("/openapi.json");
for (const [path, methods] of Object.entries(paths)) for (const [method, { summary }] of Object.entries(methods)) {
  const entry = document.createElement("li"), code = document.createElement("code");
  code.textContent = `${method.toUpperCase()} ${path}`;
  entry.append(code, ` ${summary}`);
  $("routes").append(entry);
}
