// A reliability diagram: of the pairs that were judged and got p, how many were liked.
import { byId, draw, make, number, percent } from "./dom.js";

export function show(calibration) {
  const box = byId("honest");
  if (!calibration || !calibration.bins.length) {
    box.replaceChildren(make("p", {}, "Nobody has judged what this model says yet. Likes alone cannot show it: send events of " +
      "what was considered and not liked, or evaluate on ratings."));
    return;
  }
  const side = 200;
  const at = (p) => side * p;
  const dots = calibration.bins.map((bin) =>
    draw("circle", { cx: at(bin.predicted), cy: side - at(bin.liked), r: 3 + 4 * Math.sqrt(bin.share ?? 0.1) },
      draw("title", {}, `said ${percent(bin.predicted)}, liked ${percent(bin.liked)}`)));
  const label = `Said against seen: ${calibration.bins.map((bin) => `${percent(bin.predicted)} said, ${percent(bin.liked)} liked`).join("; ")}.`;
  box.replaceChildren(
    draw("svg", { viewBox: `-28 -6 ${side + 40} ${side + 36}`, role: "img", "aria-label": label },
      draw("rect", { class: "axis", width: side, height: side }),
      draw("line", { class: "ideal", x1: 0, y1: side, x2: side, y2: 0 }),
      ...dots,
      draw("text", { x: side / 2, y: side + 22, "text-anchor": "middle" }, "p(like) said"),
      draw("text", { x: -side / 2, y: -12, transform: "rotate(-90)", "text-anchor": "middle" }, "share liked")),
    make("p", { class: "hint" }, `Off by ${number(100 * calibration.error, 1)} points on average, from ${calibration.pairs} judged pairs.`));
}
