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
