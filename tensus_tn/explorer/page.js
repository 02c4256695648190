"use strict";
// Everything is exact: given the ranks, the links are independent, so a condition is one small matrix
// over the ranks at the ends of its link, and a marginal is a sum of products of such matrices.
const content = JSON.parse(document.getElementById("content").textContent);
const state = { view: 0, given: new Map() }; // link -> choice

// A factor is a function of some ranks: {ranks: [r, ...], data}, the last rank varying fastest.
function multiply(left, right, sizes) {
  const ranks = [...new Set([...left.ranks, ...right.ranks])];
  const shape = ranks.map((r) => sizes[r]);
  const data = new Float64Array(shape.reduce((a, b) => a * b, 1));
  const at = new Array(ranks.length).fill(0);
  const place = (factor) => factor.ranks.reduce((sum, r) => sum * sizes[r] + at[ranks.indexOf(r)], 0);
  for (let n = 0; n < data.length; n++) {
    data[n] = left.data[place(left)] * right.data[place(right)];
    for (let k = ranks.length - 1; k >= 0 && ++at[k] === shape[k]; k--) at[k] = 0;
  }
  return { ranks, data };
}

function sumOut(factor, rank, sizes) {
  const axis = factor.ranks.indexOf(rank);
  const inner = factor.ranks.slice(axis + 1).reduce((size, r) => size * sizes[r], 1);
  const data = new Float64Array(factor.data.length / sizes[rank]);
  factor.data.forEach((value, n) => {
    data[Math.floor(n / (inner * sizes[rank])) * inner + (n % inner)] += value;
  });
  return { ranks: factor.ranks.filter((r) => r !== rank), data };
}

// Sum the product of all factors over every rank that is not kept. Factors are scaled to a largest
// value of one on the way; `log` remembers by how much, so that long chains do not underflow.
function contract(factors, kept, sizes) {
  let log = 0;
  const scaled = (factor) => {
    const top = factor.data.reduce((a, b) => Math.max(a, b), 0);
    log += Math.log(top);
    return { ranks: factor.ranks, data: top > 0 ? factor.data.map((value) => value / top) : factor.data };
  };
  let left = factors.map(scaled);
  const users = (rank) => left.filter((factor) => factor.ranks.includes(rank));
  const cost = (rank) => new Set(users(rank).flatMap((factor) => factor.ranks)).size;
  const waiting = new Set(left.flatMap((factor) => factor.ranks).filter((r) => !kept.includes(r)));
  while (waiting.size) {
    const rank = [...waiting].reduce((a, b) => (cost(b) < cost(a) ? b : a));
    waiting.delete(rank);
    const joined = users(rank).reduce((a, b) => multiply(a, b, sizes));
    left = left.filter((factor) => !factor.ranks.includes(rank));
    left.push(scaled(sumOut(joined, rank, sizes)));
  }
  const whole = left.reduce((a, b) => multiply(a, b, sizes), { ranks: [], data: Float64Array.of(1) });
  return { ...whole, log };
}

const endsOf = (view, link) => [...new Set(view.ends[link].filter((rank) => rank !== null))];

// A core is stored as (choices, ranks of its ends), flat.
function slice(view, link, choice) {
  const ranks = endsOf(view, link);
  const size = ranks.reduce((product, r) => product * view.ranks[r], 1);
  return { ranks, data: Float64Array.from(view.cores[link].slice(choice * size, (choice + 1) * size)) };
}

// The logarithm of the probability of a set of choices: the ranks are uniform.
function logProbability(view, given) {
  const factors = [...given].map(([link, choice]) => slice(view, link, choice));
  const whole = contract(factors, [], view.ranks);
  const touched = new Set(factors.flatMap((factor) => factor.ranks));
  const states = [...touched].reduce((sum, rank) => sum + Math.log(view.ranks[rank]), 0);
  return Math.log(whole.data[0]) + whole.log - states;
}

// P(choice of `link` | given), one number for each choice.
function marginal(view, link, given) {
  const names = view.choices[link];
  if (given.has(link)) return names.map((_, choice) => (choice === given.get(link) ? 1 : 0));
  const ranks = endsOf(view, link);
  const uniform = { ranks, data: new Float64Array(ranks.reduce((n, r) => n * view.ranks[r], 1)).fill(1) };
  const factors = [uniform, ...[...given].map(([other, choice]) => slice(view, other, choice))];
  const joint = contract(factors, ranks, view.ranks);
  const weights = names.map((_, choice) => {
    const product = multiply(joint, slice(view, link, choice), view.ranks);
    return product.data.reduce((a, b) => a + b, 0);
  });
  const total = weights.reduce((a, b) => a + b, 0);
  return weights.map((weight) => weight / total);
}

// ---------------------------------------------------------------------------------------- drawing

const element = (id) => document.getElementById(id);
const percent = (p) => (p >= 0.001 ? `${(100 * p).toFixed(1)} %` : p > 0 ? p.toExponential(1) : "0");

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    key.startsWith("on") ? node.addEventListener(key.slice(2), value) : node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

const linkName = (view, link) => `${view.names[view.links[link][0]]} → ${view.names[view.links[link][1]]}`;

function toggle(link, choice) {
  state.given.get(link) === choice ? state.given.delete(link) : state.given.set(link, choice);
  show();
}

function card(view, link, chances) {
  const order = chances.map((_, choice) => choice).sort((a, b) => chances[b] - chances[a]);
  const rows = order.map((choice) => {
    const chosen = state.given.get(link) === choice;
    const bar = make("span", { class: "bar", style: `width:${(100 * chances[choice]).toFixed(2)}%` });
    return make(
      "button",
      {
        class: chosen ? "choice chosen" : "choice",
        "aria-pressed": chosen,
        "data-link": link,
        "data-choice": choice,
        "data-probability": chances[choice],
        onclick: () => toggle(link, choice),
      },
      bar,
      make("span", { class: "text" }, view.choices[link][choice]),
      make("span", { class: "number" }, percent(chances[choice])),
    );
  });
  return make("section", { class: "card" }, make("h3", {}, linkName(view, link)), ...rows);
}

function best(view, index) {
  const links = index === null ? [] : view.best[index].choices;
  view.links.forEach((_, link) => {
    element(`link-${link}`).classList.toggle("shown", view.best[index]?.links.includes(link) ?? false);
    element(`link-${link}`).classList.toggle("faded", index !== null && !view.best[index].links.includes(link));
    const label = element(`label-${link}`);
    label.classList.toggle("faded", index !== null && !view.best[index].links.includes(link));
    if (index !== null) label.textContent = view.choices[link][links[link]];
  });
  if (index === null) labels(view);
}

function labels(view) {
  view.links.forEach((_, link) => {
    const chances = state.marginals[link];
    const top = chances.indexOf(Math.max(...chances));
    element(`label-${link}`).textContent = `${view.choices[link][top]} ${percent(chances[top])}`;
    element(`link-${link}`).classList.toggle("given", state.given.has(link));
  });
}

function list(view, whole) {
  const agrees = (entry) => [...state.given].every(([link, choice]) => entry.choices[link] === choice);
  const shown = view.best.map((entry, index) => ({ ...entry, index })).filter(agrees);
  const items = shown.map((entry) =>
    make(
      "li",
      {
        tabindex: 0,
        onmouseenter: () => best(view, entry.index),
        onmouseleave: () => best(view, null),
        onfocus: () => best(view, entry.index),
        onblur: () => best(view, null),
      },
      make("span", { class: "number" }, percent(Math.exp(entry.log_probability - whole))),
      make("pre", {}, entry.text),
      ...(entry.instances ?? []).map((text) => make("p", { class: "instance" }, text)),
    ),
  );
  const none = "None of the listed meta-graphs agrees with these choices.";
  element("best").replaceChildren(...(items.length ? items : [make("p", {}, none)]));
  const share = shown.reduce((sum, entry) => sum + Math.exp(entry.log_probability - whole), 0);
  element("share").textContent = items.length ? `Together ${percent(share)} of the whole.` : "";
}

function condition(view, whole) {
  const names = [...state.given].map(([link, choice]) => `${linkName(view, link)} is ${view.choices[link][choice]}`);
  element("given").textContent = names.length
    ? `Given that ${names.join(", and ")} (probability ${percent(Math.exp(whole))})`
    : "Click a choice to see what the others become, given it.";
  element("clear").hidden = !names.length;
}

function show() {
  const view = content.views[state.view];
  state.marginals = view.links.map((_, link) => marginal(view, link, state.given));
  const whole = logProbability(view, state.given);
  const possible = Number.isFinite(whole);
  element("impossible").hidden = possible;
  if (!possible) state.marginals = state.marginals.map((chances) => chances.map(() => 0));
  element("cards").replaceChildren(...view.links.map((_, link) => card(view, link, state.marginals[link])));
  labels(view);
  list(view, whole);
  condition(view, whole);
}

function open(number) {
  state.view = number;
  state.given.clear();
  element("picture").innerHTML = content.views[number].picture;
  show();
}

const choose = element("view");
content.views.forEach((view, number) => choose.append(make("option", { value: number }, view.name)));
choose.parentElement.hidden = content.views.length < 2;
choose.addEventListener("change", () => open(Number(choose.value)));
element("clear").addEventListener("click", () => {
  state.given.clear();
  show();
});
element("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const root = document.documentElement;
  root.dataset.theme = (root.dataset.theme ?? (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
});
open(0);
