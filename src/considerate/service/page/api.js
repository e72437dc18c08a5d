// The calls of the service that the page makes.
export class Problem extends Error {}
export class NoKey extends Problem {}

let key = null;

export function unlock(given) {
  key = given;
}

// JSON without loss: an integer of 16 digits or more, which may be an id, stays text, as a Number would be another.
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const exact = (text) => JSON.parse(text.replace(TOKEN, (token) => (/^-?\d{16,}$/.test(token) ? `"${token}"` : token)));

async function ask(path, body, signal) {
  const request = { signal, headers: { accept: "application/json" } };
  if (key !== null) request.headers["x-api-key"] = key;
  if (body !== undefined) {
    request.method = "POST";
    request.headers["content-type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The service does not answer. Is it still running?");
  }
  const answer = await response.text().then(exact).catch((error) => {
    if (error.name === "AbortError") throw error;
    return {}; // an error of a proxy, say, is no JSON
  });
  if (response.status === 401) throw new NoKey(answer.detail);
  if (!response.ok) throw new Problem(answer.detail ?? answer.title ?? `The service answered ${response.status}.`);
  return answer;
}

export const model = () => ask("/v1/model");
export const reliability = () => ask("/v1/reliability");
export const search = (q, signal) => ask(`/v1/items?${new URLSearchParams({ q, n: 12 })}`, undefined, signal);
export const item = (item, signal) => ask(`/v1/items/${encodeURIComponent(item)}`, undefined, signal);
export const similar = (item, n) => ask(`/v1/items/${encodeURIComponent(item)}/similar?n=${n}`);
export const landscape = (who, signal) => ask("/v1/landscape", who, signal);
export const explanation = (question, signal) => ask("/v1/explanations", question, signal);
