// Small helpers. Text of the data only ever becomes text nodes.
const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

// An element with attributes and children; functions among the attributes listen to events.
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export const number = (value, digits = 2) => value.toFixed(digits).replace("-", "\u2212");

// Of a probability, with a digit more near 0 and 1; the space does not break.
export const percent = (p, digits = p > 0.01 && p < 0.985 ? 0 : 1) => `${number(100 * p, digits)}\u00a0%`;

export const logit = (p) => Math.log(p / (1 - p));

export const calm = matchMedia("(prefers-reduced-motion: reduce)");
