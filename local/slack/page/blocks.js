// Block Kit as DOM nodes. A surface is what blocks stand on: { id, names, act(element, value), input(block) }.
import { anchor, emoji, h, markdown, mrkdwn } from "./text.js";

const spelt = (text) => text.replace(/:([a-z0-9_+-]+):/g, (_, name) => emoji(name));
export const words = (text, names) => (text.type === "mrkdwn" ? mrkdwn(text.text, names) : [spelt(text.text)]);
const image = (one) => h("img", { src: one.image_url ?? `/files/${one.slack_file.id}`, alt: one.alt_text, loading: "lazy" });

export const draw = (blocks, surface) => blocks.map((block) => BLOCKS[block.type](block, surface));

const BLOCKS = {
  section: (block, on) => h("div", { className: "section" }, h("div", {},
    block.text ? h("div", { className: "text" }, words(block.text, on.names)) : null,
    block.fields ? h("div", { className: "fields" }, block.fields.map((field) => h("div", {}, words(field, on.names)))) : null),
  block.accessory ? drawElement(block.accessory, on) : null),
  header: (block) => h("h3", {}, words(block.text)),
  divider: () => h("hr"),
  context: (block, on) => h("div", { className: "context" }, block.elements.map((one) => drawElement(one, on))),
  actions: (block, on) => h("div", { className: "actions" }, block.elements.map((one) => drawElement(one, on))),
  image: (block) => h("figure", {}, block.title ? h("figcaption", {}, words(block.title)) : null, image(block)),
  markdown: (block, on) => h("div", { className: "text" }, markdown(block.text, on.names)),
  rich_text: (block, on) => h("div", { className: "text" }, block.elements.map((part) => rich(part, on.names))),
  table: (block, on) => h("div", { className: "scroll", tabIndex: 0 }, h("table", {}, block.rows.map((row, index) =>
    h("tr", {}, row.map((cell, column) => h(index ? "td" : "th", {
      style: `text-align: ${block.column_settings?.[column]?.align ?? "left"}; ` +
        `white-space: ${block.column_settings?.[column]?.is_wrapped ? "normal" : "nowrap"}`,
    }, cell.type === "raw_text" ? cell.text : cell.elements.map((part) => rich(part, on.names)))))))),
  input: (block, on) => on.input(block),
};

function drawElement(one, on) {
  if (one.type === "image") return image(one);
  if (one.type === "static_select") return drawSelect(one, one.initial_option, on);
  return one.type === "button" ? drawButton(one, on) : h("span", {}, words(one, on.names));
}

/** The browser's own menu: chosen is an option or nothing. */
export function drawSelect(one, chosen, on) {
  const ask = h("option", { value: "", hidden: true }, one.placeholder?.text ?? "Choose…");
  const options = one.options.map((option) => h("option", { value: option.value }, spelt(option.text.text)));
  const menu = h("select", { className: "menu", ariaLabel: one.placeholder?.text ?? "Choose" }, ask, options);
  menu.value = chosen?.value ?? "";
  menu.onchange = () => on.act(one, one.options.find((option) => option.value === menu.value));
  menu.dataset.action = `${on.id} ${one.action_id}`;
  return menu;
}

function rich(part, names) {
  const items = () => part.elements.map((one) => h("li", {}, rich(one, names)));
  if (part.type === "rich_text_list") return h(part.style === "ordered" ? "ol" : "ul", {}, items());
  const tags = { rich_text_section: "div", rich_text_quote: "blockquote", rich_text_preformatted: "pre" };
  return h(tags[part.type], {}, part.elements.map((span) => {
    if (span.type === "emoji") return emoji(span.name);
    if (span.type === "link") return anchor(span.url, span.text);
    if (span.type !== "text") return h("span", { className: "mention" }, `@${names(span.user_id ?? span.channel_id)}`);
    const styles = { bold: "strong", italic: "em", strike: "s", code: "code" };
    return Object.keys(span.style ?? {}).reduce((inner, style) => h(styles[style] ?? "span", {}, inner), span.text);
  }));
}

function drawButton(one, on) {
  const press = async () => {
    if (!one.confirm || await confirmed(one.confirm, on.names)) on.act(one, one.value ?? null);
  };
  const props = { type: one.url ? "" : "button", className: `button ${one.style ?? ""}`, onclick: press, ariaLabel: one.accessibility_label ?? null };
  const link = one.url ? { href: /^https?:/i.test(one.url) ? one.url : "#", target: "_blank", rel: "noopener noreferrer" } : {};
  const button = h(one.url ? "a" : "button", { ...props, ...link }, words(one.text), one.url ? h("i", {}, " ↗") : null);
  button.dataset.action = `${on.id} ${one.action_id} ${one.value ?? ""}`;
  return button;
}

function confirmed({ title, text, confirm, deny, style }, names) {
  const dialog = document.getElementById("confirm");
  const [no, yes] = dialog.querySelectorAll("button");
  dialog.querySelector("h2").replaceChildren(...words(title, names));
  dialog.querySelector("div").replaceChildren(...words(text, names));
  no.replaceChildren(...words(deny));
  yes.replaceChildren(...words(confirm));
  yes.className = `button ${style ?? "primary"}`;
  no.className = "button";
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => (dialog.onclose = () => resolve(dialog.returnValue === "yes")));
}
