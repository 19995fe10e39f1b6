"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const [svg, pane, grid, tip, legend] = ["steps", "pane", "grid", "tip", "legend"].map(byId);
  const arrows = [...svg.querySelectorAll(".t")];
  const lines = new Map();
  for (const row of document.querySelectorAll(".line.has")) lines.set(row.dataset.l, { row, arrows: [] });
  for (const a of arrows) lines.get(a.dataset.l).arrows.push(a);

  // What is highlighted; a click pins it until Escape or a click beside.
  let lit = [];
  let pinned = null;

  function clear() {
    for (const e of lit) e.classList.remove("on");
    lit = [];
    svg.classList.remove("focus");
    tip.hidden = true;
  }

  function light(elements) {
    clear();
    lit = elements;
    for (const e of lit) e.classList.add("on");
    svg.classList.add("focus");
  }

  function describe(arrow, x, y) {
    const { row } = lines.get(arrow.dataset.l);
    const texts = [arrow.getAttribute("aria-label"), `${row.dataset.at}  ${row.querySelector("code").textContent.trim()}`];
    tip.replaceChildren(...texts.map((text) => Object.assign(document.createElement("div"), { textContent: text })));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18}px`;
  }

  function showArrow(arrow, x, y) {
    const { row } = lines.get(arrow.dataset.l);
    light([arrow, row]);
    row.scrollIntoView({ block: "nearest" });
    if (x === undefined) {
      const box = arrow.getBoundingClientRect();
      [x, y] = [box.right, (box.top + box.bottom) / 2];
    }
    describe(arrow, x, y);
  }

  function showLine(row) {
    light([row, ...lines.get(row.dataset.l).arrows]);
  }

  function rest() {
    clear();
    if (pinned?.matches(".t")) showArrow(pinned);
    else if (pinned) showLine(pinned);
  }

  function pin(element) {
    pinned = pinned === element ? null : element;
    rest();
  }

  svg.addEventListener("pointerover", (e) => {
    const arrow = e.target.closest(".t");
    if (arrow) showArrow(arrow, e.clientX, e.clientY);
  });
  svg.addEventListener("pointerout", (e) => e.target.closest(".t") && rest());
  svg.addEventListener("click", (e) => {
    pinned = null;
    pin(e.target.closest(".t"));
  });
  svg.addEventListener("focusin", (e) => {
    if (e.target.matches(":focus-visible")) showArrow(e.target);
  });
  svg.addEventListener("focusout", rest);
  for (const { row, arrows } of lines.values()) {
    row.addEventListener("pointerenter", () => showLine(row));
    row.addEventListener("pointerleave", rest);
    row.addEventListener("focus", () => showLine(row));
    row.addEventListener("blur", rest);
    const press = () => {
      pin(row);
      if (pinned && arrows.length) arrows[0].scrollIntoView({ block: "nearest", inline: "nearest" });
    };
    row.addEventListener("click", press);
    row.addEventListener("keydown", (e) => {
      if (e.key !== "Enter" && e.key !== " ") return;
      e.preventDefault();
      press();
    });
  }

  // One arrow at a time is in the tab order; the arrow keys go on from there.
  let current = arrows[0];
  if (current) current.setAttribute("tabindex", "0");
  const open = (a) => !svg.classList.contains("iso") || a.classList.contains("is");

  function go(arrow) {
    if (!arrow) return;
    current.setAttribute("tabindex", "-1");
    current = arrow;
    current.setAttribute("tabindex", "0");
    current.focus();
  }

  // The nearest later (or earlier) round, if possible at the same source.
  function beside(direction) {
    const round = Number(current.dataset.r);
    const ahead = arrows.filter((a) => open(a) && (Number(a.dataset.r) - round) * direction > 0);
    const near = direction > 0 ? ahead[0] : ahead[ahead.length - 1];
    const same = ahead.filter((a) => a.dataset.r === near.dataset.r);
    return same.find((a) => a.dataset.s === current.dataset.s) ?? same[0];
  }

  svg.addEventListener("keydown", (e) => {
    const all = arrows.filter(open);
    const at = all.indexOf(current);
    const protocol = {
      ArrowDown: () => all[at + 1],
      ArrowUp: () => all[at - 1],
      ArrowRight: () => beside(1),
      ArrowLeft: () => beside(-1),
      Home: () => all[0],
      End: () => all[all.length - 1],
      Enter: () => (pin(current), null),
    }[e.key];
    if (!protocol) return;
    e.preventDefault();
    go(protocol());
  });

  // One chunk alone.
  const holds = (arrow, chunk) =>
    arrow.dataset.c.split(" ").some((run) => {
      const [first, last = first] = run.split("-").map(Number);
      return first <= chunk && chunk <= last;
    });

  function isolate(button) {
    const chosen = button?.getAttribute("aria-pressed") === "true" ? null : button;
    for (const b of legend.querySelectorAll("button")) b.setAttribute("aria-pressed", b === chosen);
    svg.classList.toggle("iso", Boolean(chosen));
    if (!chosen) return;
    const chunk = Number(chosen.dataset.c);
    svg.style.setProperty("--iso", getComputedStyle(chosen).getPropertyValue("--c"));
    for (const a of arrows) a.classList.toggle("is", holds(a, chunk));
    const left = arrows.filter(open);
    if (!left.length) return;
    if (!open(current)) {
      current.setAttribute("tabindex", "-1");
      current = left[0];
      current.setAttribute("tabindex", "0");
    }
    const view = pane.getBoundingClientRect();
    const seen = left.some((a) => {
      const box = a.getBoundingClientRect();
      return box.right > view.left && box.left < view.right && box.bottom > view.top && box.top < view.bottom;
    });
    if (!seen) left[0].scrollIntoView({ block: "center", inline: "nearest" });
  }
  legend.addEventListener("click", (e) => {
    const button = e.target.closest("button");
    if (button) isolate(button.dataset.c ? button : null);
  });

  document.addEventListener("keydown", (e) => {
    if (e.key !== "Escape") return;
    pinned = null;
    clear();
    isolate(null);
  });

  // Zoom, about the middle of what is seen.
  let zoom = 1;
  byId("zoom").addEventListener("click", (e) => {
    const factor = Number(e.target.closest("button")?.dataset.z);
    if (Number.isNaN(factor)) return;
    const next = factor ? Math.min(3, Math.max(0.15, zoom * factor)) : 1;
    const [x, y] = [pane.scrollLeft + pane.clientWidth / 2, pane.scrollTop + pane.clientHeight / 2];
    grid.style.zoom = next;
    pane.scrollTo((x * next) / zoom - pane.clientWidth / 2, (y * next) / zoom - pane.clientHeight / 2);
    zoom = next;
    rest();
  });
})();
