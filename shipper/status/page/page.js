// Fetches the page again and again, and changes what differs: selections, focus and open folds stay.
"use strict";

const PAUSE = 2000, PATIENCE = 10000;
const silent = document.getElementById("silent");
let heard = Date.now();

function morph(from, to) {
  if (from.nodeType === Node.TEXT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  for (const { name } of [...from.attributes])
    if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
  for (const { name, value } of to.attributes)
    if (from.getAttribute(name) !== value && name !== "open") from.setAttribute(name, value);
  let at = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    if (at && wanted.id && at.id !== wanted.id) {
      const known = [...from.children].find((child) => child.id === wanted.id);
      if (known) from.insertBefore(known, at), (at = known);
    }
    if (at && at.nodeName === wanted.nodeName && (at.id || "") === (wanted.id || "")) {
      morph(at, wanted);
      at = at.nextSibling;
    } else {
      from.insertBefore(document.importNode(wanted, true), at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

async function look() {
  const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (!answer.ok) throw new Error("no news");
  const found = new DOMParser().parseFromString(await answer.text(), "text/html");
  const main = found.getElementById("main");
  if (!main) throw new Error("another page");
  morph(document.getElementById("main"), main);
  document.title = found.title;
}

async function live() {
  for (;;) {
    const began = performance.now();
    try {
      await look();
      heard = Date.now();
      silent.hidden = true;
    } catch {
      const seconds = Math.round((Date.now() - heard) / 1000);
      silent.textContent = `No answer for ${seconds} s: what is below is old.`;
      silent.hidden = false;
    }
    document.documentElement.dataset.looks = Number(document.documentElement.dataset.looks || 0) + 1;
    const took = performance.now() - began;  // a large page, or a slow line, is asked for less often
    await new Promise((resolve) => setTimeout(resolve, PAUSE + 5 * took));
    if (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
  }
}

// A click on a command copies it, or Enter; where the browser forbids that, it is selected to be copied.
async function copy(event) {
  const code = event.target.closest(".command code");
  if (!code || !navigator.clipboard) return;
  try {
    await navigator.clipboard.writeText(code.textContent);
    code.classList.add("copied");
    setTimeout(() => code.classList.remove("copied"), 1500);
  } catch {
    // It stays selected.
  }
}

document.addEventListener("click", copy);
document.addEventListener("keydown", (event) => event.key === "Enter" && copy(event));

live();
