// Draws each figure when it comes near the screen, in the page's colours; redraws colours when the scheme changes.
"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const plots = [...document.querySelectorAll("[data-figure]")];
  const config = { displayModeBar: false, responsive: true, doubleClick: "reset", showTips: false };

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function cut(label) {
    return label.length > 20 && !label.includes("&") ? `${label.slice(0, 9)}…${label.slice(-9)}` : label;
  }

  function axis(given, narrow, roomy = false) {
    const plain = { gridcolor: colour("--grid"), linecolor: colour("--line"), zerolinecolor: colour("--line"), fixedrange: true };
    const merged = { ...plain, ...given };
    if (narrow && given && given.ticktext) merged.ticktext = given.ticktext.map(cut);
    if (narrow && given && given.range && roomy) merged.range = [given.range[0], given.range[1] * 1.45];
    if (given && given.title) merged.title = { ...given.title, font: { size: narrow ? 11 : 12, color: colour("--soft") } };
    return merged;
  }

  function themed(layout, width) {
    const narrow = width < 520;
    const hover = { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--ink"), size: 12.5 } };
    return {
      ...layout,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 11 : 12.5, color: colour("--ink") },
      hoverlabel: { ...layout.hoverlabel, ...hover },
      xaxis: axis(layout.xaxis, narrow, layout.meta === "labelled"), // labels stand right of their bars
      yaxis: axis(layout.yaxis, narrow),
    };
  }

  function draw(plot) {
    if (plot.dataset.drawn) return;
    plot.dataset.drawn = "1";
    const figure = figures[plot.dataset.figure];
    Plotly.newPlot(plot, figure.data, themed(figure.layout, plot.clientWidth), config);
  }

  function restyle() {
    for (const plot of plots) {
      if (plot.dataset.drawn) Plotly.relayout(plot, themed(figures[plot.dataset.figure].layout, plot.clientWidth));
    }
  }

  const near = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) {
          near.unobserve(entry.target);
          draw(entry.target);
        }
      }
    },
    { rootMargin: "400px" },
  );
  plots.forEach((plot) => near.observe(plot));

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restyle);
  matchMedia("print").addEventListener("change", restyle);
  addEventListener("beforeprint", () => plots.forEach(draw));

  const links = new Map([...document.querySelectorAll(".top nav a")].map((link) => [link.hash.slice(1), link]));
  const reading = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) links.get(entry.target.id)?.classList.toggle("here", entry.isIntersecting);
    },
    { rootMargin: "-20% 0px -75% 0px" },
  );
  document.querySelectorAll("main > section").forEach((section) => reading.observe(section));
})();
