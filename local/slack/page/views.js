// Modals and the home tab. Typed text is sent at once, so that a redrawn view shows it again.
import { draw, drawSelect, words } from "./blocks.js";
import { h } from "./text.js";

const dialog = document.getElementById("modal");
const [form] = dialog.children;
const alert = form.querySelector("p");
const place = form.querySelector("form > div");
const [close, go] = form.querySelectorAll("menu button");
let send, view, names;
let menus = {}; // the open type-ahead menus, by action

export function showViews(views, named, sending) {
  [send, names] = [sending, named];
  const before = view?.id;
  view = views.at(-1);
  if (!view) return dialog.close();
  const focused = before === view.id && dialog.contains(document.activeElement) && document.activeElement.dataset.action;
  dialog.dataset.hash = view.hash;
  dialog.querySelector("h2").textContent = view.title.text;
  close.textContent = view.close?.text ?? "Cancel";
  go.textContent = view.submit?.text ?? "";
  go.hidden = !view.submit;
  menus = {};
  place.replaceChildren(...draw(view.blocks, { ...surface(view), input: drawInput }));
  showErrors({});
  if (!dialog.open) dialog.showModal();
  const wanted = focused && place.querySelector(`[data-action="${CSS.escape(focused)}"]`);
  const first = before !== view.id && (place.querySelector("input, select, textarea") ?? close);
  if (wanted || first) (wanted || first).focus();
}

export function drawHome(section, home, named, sending) {
  if (section.hidden || section.dataset.hash === home?.hash) return;
  const focused = section.contains(document.activeElement) && document.activeElement.dataset.action;
  const on = { ...surface(home ?? {}), names: named, act: act("press", sending) };
  section.replaceChildren(...(home ? draw(home.blocks, on) : [h("p", {}, "Sweepbot has not shown anything here yet.")]));
  section.dataset.hash = home?.hash ?? "";
  if (focused) section.querySelector(`[data-action="${CSS.escape(focused)}"]`)?.focus();
}

export function showErrors(errors) {
  go.disabled = false;
  alert.textContent = errors[""] ?? "";
  alert.hidden = !errors[""];
  for (const field of place.querySelectorAll(".field")) {
    const sentence = field.querySelector("[role=alert]");
    sentence.textContent = errors[field.dataset.block] ?? "";
    sentence.hidden = !sentence.textContent;
  }
  const first = place.querySelector(".field:has([role=alert]:not([hidden]))");
  first?.querySelector("input, select, textarea").focus();
}

export const showOptions = (found) => menus[found.action_id]?.(found);

const act = (what, sending) => (one, value) => sending({ do: what, action_id: one.action_id, value });
const surface = (shown) => ({ id: shown.id, names, act: act("press", send) });
const enter = (one, value) => send({ do: "enter", block_id: one.block_id, action_id: one.action_id, value });

function drawInput(block) {
  const one = { ...block.element, block_id: block.block_id }; // action ids repeat in other blocks
  const now = view.state.values[block.block_id][one.action_id];
  const field = DRAWN[one.type]?.(one, now) ?? drawText(one, now);
  const box = field.matches("input, select, textarea") ? field : field.querySelector("input");
  box.id = `${view.id}-${one.block_id}-${one.action_id}`;
  box.dataset.action = `${view.id} ${one.action_id}`;
  box.removeAttribute("aria-label");
  const optional = block.optional ? h("i", {}, " (optional)") : null;
  const shown = h("div", { className: "field" }, h("label", { htmlFor: box.id }, words(block.label), optional), field,
    block.hint ? h("small", {}, words(block.hint)) : null, h("p", { role: "alert", hidden: true }));
  shown.dataset.block = block.block_id;
  return shown;
}

const DRAWN = {
  static_select: (one, now) => drawSelect(one, now.selected_option, { ...surface(view), act: enter }),
  external_select: (one, now) => drawMenu(one, now.selected_option),
  number_input: (one, now) => drawText(one, now, { type: "number", min: one.min_value ?? "", max: one.max_value ?? "" }),
};

function drawText(one, now, more = {}) {
  const props = { placeholder: one.placeholder?.text ?? "", value: now.value ?? "", ...more };
  const box = one.multiline ? h("textarea", { rows: 8, spellcheck: false, ...props }) : h("input", props);
  if (one.max_length) box.maxLength = one.max_length;
  box.oninput = () => enter(one, box.value || null);
  return box;
}

/** A text to type into, and below it what the app offers for that. */
function drawMenu(one, chosen) {
  const list = h("ul", { role: "listbox", id: `${view.id}-${one.block_id}-${one.action_id}-list`, hidden: true });
  const box = h("input", { role: "combobox", autocomplete: "off", value: chosen?.text.text ?? "",
    placeholder: one.placeholder?.text ?? "Type to search…" });
  const aria = (name, value) => box.setAttribute(`aria-${name}`, value);
  let options = [], active = -1, waiting;
  aria("controls", list.id);
  const shut = () => { list.hidden = true; aria("expanded", "false"); box.value = chosen?.text.text ?? ""; };
  const mark = (index) => {
    active = index;
    [...list.children].forEach((item, at) => item.setAttribute("aria-selected", at === index));
    aria("activedescendant", list.children[index]?.id ?? "");
    list.children[index]?.scrollIntoView({ block: "nearest" });
  };
  const choose = (option) => { chosen = option; shut(); enter(one, option); };
  const ask = (typed) => {
    list.replaceChildren(h("li", { className: "note" }, "Loading…"));
    [list.hidden, options, active] = [false, [], -1];
    aria("expanded", "true");
    clearTimeout(waiting);
    waiting = setTimeout(() => send({ do: "options", action_id: one.action_id, typed }), 120);
  };
  menus[one.action_id] = ({ typed, offered }) => {
    if (list.hidden || (typed && typed !== box.value)) return; // an answer to what was typed before
    options = typeof offered === "string" ? [] : offered;
    const none = h("li", { className: "note" }, typeof offered === "string" ? offered : "Nothing fits");
    list.replaceChildren(...(options.length ? options.map((option, index) => h("li", {
      role: "option", id: `${list.id}-${index}`, onmousedown: (event) => { event.preventDefault(); choose(option); },
    }, option.text.text, option.description ? h("small", {}, option.description.text) : null)) : [none]));
    mark(typed && options.length ? 0 : -1);
  };
  box.onclick = () => { if (list.hidden) { box.select(); ask(""); } };
  box.oninput = () => ask(box.value);
  box.onblur = shut;
  box.onkeydown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && list.hidden) ask("");
    else if (step) mark((active + step + options.length) % options.length);
    else if (event.key === "Enter" && !list.hidden && options[active]) choose(options[active]);
    else if (event.key === "Escape" && !list.hidden) shut();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  aria("expanded", "false");
  return h("div", { className: "combobox" }, box, list);
}

form.onsubmit = (event) => {
  event.preventDefault();
  if (go.hidden || go.disabled) return;
  go.disabled = true;
  send({ do: "submit" });
};
dialog.oncancel = (event) => { event.preventDefault(); send({ do: "dismiss" }); };
close.onclick = form.querySelector("header button").onclick = () => send({ do: "dismiss" });
