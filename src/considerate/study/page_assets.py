"""The page's style sheet and script, which are written into it: the page is one file and needs no network."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --card: #f6f7f8; --ink: #1c1e21; --soft: #5b6168; --line: #d9dce0;
  --link: #005a91; --yes: #00694c; --no: #a34500; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171a; --card: #1d2125; --ink: #e6e8ea; --soft: #a4abb3; --line: #343a40; --link: #6fb9ea;
    --yes: #4fc79f; --no: #f0995c; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body { margin: 0; background: var(--ground); color: var(--ink); overflow-wrap: break-word;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main, header, footer { max-width: 66rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.5rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 0 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .35rem; }
p { margin: 0 0 .7rem; }
a { color: var(--link); }
.soft { color: var(--soft); }
section { padding: 1.6rem 0; border-top: 1px solid var(--line); }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .35rem .5rem; margin: 1rem 0 1.4rem; padding: 0; }
nav a { display: inline-block; padding: .2rem .65rem; border: 1px solid var(--line); border-radius: 1rem;
  font-size: .88rem; text-decoration: none; }
nav a:hover, nav a:focus-visible { background: var(--card); }
.answers { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem; }
.answer { background: var(--card); border-radius: .6rem; padding: 1rem 1.1rem; }
.answer .short { font-size: 1.35rem; font-weight: 650; margin: 0 0 .4rem; font-variant-numeric: tabular-nums; }
.answer ul { margin: 0; padding-left: 1.1rem; }
.answer li { margin-bottom: .35rem; }
.beside { display: grid; gap: 1rem 2rem; }
@media (min-width: 56rem) { .beside { grid-template-columns: minmax(0, 30rem) minmax(0, 1fr); align-items: start; } }
figure { margin: 0 0 1rem; }
.plot { background: #fff; color: #222; border: 1px solid var(--line); border-radius: .5rem; padding: .5rem; }
.plot svg { display: block; width: 100%; height: auto; max-width: 30rem; margin: 0 auto; }
.plot svg * { stroke-linejoin: round; stroke-linecap: butt; }
.table { overflow: auto; margin: 0 0 1rem; border: 1px solid var(--line); border-radius: .5rem; max-height: 32rem;
  background: linear-gradient(to right, var(--ground) 40%, transparent) 0 0 / 3rem 100% no-repeat local,
    linear-gradient(to left, var(--ground) 40%, transparent) 100% 0 / 3rem 100% no-repeat local,
    linear-gradient(to right, rgb(128 128 128 / .35), transparent) 0 0 / .8rem 100% no-repeat scroll,
    linear-gradient(to left, rgb(128 128 128 / .35), transparent) 100% 0 / .8rem 100% no-repeat scroll; }
.table:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .5rem .7rem; color: var(--soft); }
th, td { padding: .38rem .7rem; text-align: right; vertical-align: top; white-space: nowrap;
  border-top: 1px solid var(--line); }
thead th { border-top: 0; position: sticky; top: 0; background: var(--card); z-index: 1; }
th.text, td.text { text-align: left; }
td.wide { white-space: normal; min-width: 11rem; }
tbody th { text-align: left; font-weight: 600; }
td small { display: block; color: var(--soft); font-size: .76rem; }
th button { all: unset; cursor: pointer; font-weight: 650; }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; border-radius: 2px; }
th button::after { content: "\\2195"; opacity: .35; margin-left: .25em; font-size: .85em; }
th[aria-sort=ascending] button::after { content: "\\2191"; opacity: 1; }
th[aria-sort=descending] button::after { content: "\\2193"; opacity: 1; }
details { margin: 0 0 1rem; }
summary { cursor: pointer; padding: .25rem 0; color: var(--link); }
.yes { color: var(--yes); font-weight: 650; } .no { color: var(--no); font-weight: 650; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .2rem 1rem; margin: 0 0 1rem; }
dt { color: var(--soft); } dd { margin: 0; }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .4rem; }
  .plot { padding: .25rem; } }
footer { padding-top: 1rem; padding-bottom: 2.5rem; color: var(--soft); font-size: .9rem; }
@media print { nav, summary { display: none; } figure, .answer { break-inside: avoid; } .table { max-height: none; } }
"""

SCRIPT = """
"use strict";
document.querySelectorAll("table").forEach(function (table) {
  var body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach(function (head, column) {
    var button = document.createElement("button");
    button.type = "button";
    button.title = "sort by this column";
    while (head.firstChild) button.appendChild(head.firstChild);
    head.appendChild(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", function () {
      var next = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      var sign = next === "ascending" ? 1 : -1;
      table.querySelectorAll("thead th").forEach(function (other) { other.setAttribute("aria-sort", "none"); });
      head.setAttribute("aria-sort", next);
      function key(row) {
        var cell = row.cells[column], value = cell.getAttribute("data-value");
        if (value === null) return cell.textContent.trim().toLowerCase();
        return value === "" ? NaN : Number(value);
      }
      Array.from(body.rows).map(function (row, place) { return [key(row), place, row]; }).sort(function (a, b) {
        var x = a[0], y = b[0];
        if (typeof x === "number" && typeof y === "number") {
          if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y) || a[1] - b[1];
          return sign * (x - y) || a[1] - b[1];
        }
        return sign * String(x).localeCompare(String(y)) || a[1] - b[1];
      }).forEach(function (each) { body.appendChild(each[2]); });
    });
  });
});
"""
