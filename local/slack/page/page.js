// One web socket brings everything this person may see and takes what they do.
import { anchor, emoji, h, markdown, mrkdwn, time } from "./text.js";

const $ = (id) => document.getElementById(id);
const at = new URLSearchParams(location.search);
const linked = location.pathname.match(/^\/archives\/(\w+)\/p(\d{10})(\d{6})/); // a permalink
const state = { you: "", people: {}, channels: {}, whispers: [], commands: [], unread: new Set(), thread: null };
let socket;

function connect() {
  const you = at.get("as");
  socket?.close();
  socket = new WebSocket(`ws://${location.host}/live${you ? `?as=${you}` : ""}`);
  socket.onmessage = (frame) => hear(JSON.parse(frame.data));
  socket.onclose = (event) => {
    if (event.target !== socket) return;
    notice("Connection lost. Trying again…");
    setTimeout(connect, 1000);
  };
}

const send = (wish) => socket.send(JSON.stringify({ channel: state.channel, ...wish }));

function hear(change) {
  if (change.type === "welcome") return welcome(change);
  if (change.type === "warning") return notice(change.text, 6000);
  if (!change.channel) return; // of modals and the home tab
  const { channel, message } = change;
  if (!state.channels[channel]) { // a conversation new to this person
    state.unread.add(channel);
    return connect();
  }
  const home = change.to ? state.whispers : state.channels[channel].messages;
  const index = home.findIndex((other) => other.ts === message.ts);
  if (change.type === "deleted") home.splice(index, 1);
  else if (index >= 0) home[index] = message;
  else home.push(message);
  if (change.type === "posted" && message.user !== state.you) {
    const thread = message.thread_ts && message.thread_ts !== message.ts ? message.thread_ts : null;
    if (thread ? state.thread !== thread : state.channel !== channel) state.unread.add(thread ?? channel);
  }
  paint();
}

function welcome(told) {
  $("notice").hidden = true;
  Object.assign(state, { you: told.you, whispers: told.whispers, commands: told.commands });
  state.people = Object.fromEntries(told.people.map((user) => [user.id, user]));
  state.channels = Object.fromEntries(told.channels.map((channel) => [channel.id, channel]));
  const people = told.people.filter((user) => !user.app);
  $("as").replaceChildren(...people.map((user) => h("option", { value: user.id }, user.name)));
  $("as").value = state.you;
  if (!state.channels[state.channel]) {
    state.channel = linked && state.channels[linked[1]] ? linked[1] : told.channels[0].id;
    if (linked) state.thread = at.get("thread_ts") ?? `${linked[2]}.${linked[3]}`;
  }
  paint();
}

const names = (id) => state.people[id]?.name ?? state.channels[id]?.name;
const label = (channel) => (channel.id[0] === "D" ? "Sweepbot" : channel.name);

function paint() {
  const here = state.channels[state.channel];
  const whispers = state.whispers.filter((one) => one.channel === here.id);
  const all = [...here.messages, ...whispers].sort((a, b) => (a.ts < b.ts ? -1 : 1));
  const reply = (one) => one.thread_ts && one.thread_ts !== one.ts;
  $("channels").replaceChildren(...Object.values(state.channels).map((channel) => h("button", {
    className: state.unread.has(channel.id) ? "unread" : "", ariaCurrent: channel === here ? "page" : null,
    onclick: () => open(channel.id, null),
  }, h("i", {}, channel.id[0] === "D" ? "@" : "#"), label(channel))));
  $("title").textContent = (here.id[0] === "D" ? "" : "# ") + label(here);
  $("about").textContent = here.name === "random" ? "Sweepbot is not in this channel" : "";
  document.title = `${state.unread.size ? "• " : ""}${label(here)} – Local Slack`;
  $("write").elements[0].placeholder = `Message ${$("title").textContent.replace("# ", "#")} or type /`;
  list($("messages"), all.filter((one) => !reply(one) || one.subtype === "thread_broadcast"), false);
  const thread = all.filter((one) => state.thread && (one.ts === state.thread || one.thread_ts === state.thread));
  $("thread").hidden = !thread.length;
  $("where").textContent = $("title").textContent;
  list($("replies"), thread, true);
}

function open(channel, thread) {
  Object.assign(state, { channel, thread });
  state.unread.delete(thread ?? channel);
  document.body.classList.remove("menu");
  paint();
  (thread ? $("reply") : $("write")).elements[0].focus();
}

/** Only messages that changed are drawn anew, so that focus, selection and scrolling survive. */
function list(place, messages, inThread) {
  const follow = place.dataset.of !== state.channel + (inThread && state.thread) ||
    place.scrollHeight - place.scrollTop - place.clientHeight < 80;
  const old = new Map([...place.children].map((item) => [item.dataset.ts, item]));
  const items = messages.map((message, index) => {
    const previous = messages[index - 1];
    const follows = previous?.user === message.user && message.ts - previous.ts < 300 && !message.is_ephemeral &&
      !previous.is_ephemeral && !(inThread && index === 1) && !message.blocks;
    const seen = JSON.stringify([message, follows, !inThread && state.unread.has(message.ts)]);
    const kept = old.get(message.ts);
    return kept?.seen === seen ? kept : Object.assign(draw(message, follows, inThread, kept), { seen });
  });
  const focused = place.contains(document.activeElement) && document.activeElement.dataset.action;
  const same = items.length === old.size && items.every((item, index) => item === place.children[index]);
  if (!same) place.replaceChildren(...items);
  if (focused) place.querySelector(`[data-action="${CSS.escape(focused)}"]`)?.focus();
  place.dataset.of = state.channel + (inThread && state.thread);
  if (follow) place.scrollTop = place.scrollHeight;
}

function draw(message, follows, inThread, kept) {
  const author = state.people[message.user];
  const body = message.blocks?.map((block) => BLOCKS[block.type](block, message)) ??
    [h("div", { className: "text" }, mrkdwn(message.text, names))];
  if (message.edited) body.push(h("small", { className: "edited" }, "(edited)"));
  const replies = message.reply_count && !inThread ? h("button", {
    className: `replies ${state.unread.has(message.ts) ? "unread" : ""}`, onclick: () => open(state.channel, message.ts),
  }, h("b", {}, `${message.reply_count} ${message.reply_count === 1 ? "reply" : "replies"}`),
  h("span", {}, `Last reply at ${time(message.latest_reply)}`)) : null;
  const arrives = !kept && Date.now() / 1000 - message.ts < 2;
  const kinds = [follows && "follows", message.is_ephemeral && "ephemeral", arrives && "new"].filter(Boolean);
  const item = h("li", { className: kinds.join(" ") },
    h("span", { className: `avatar ${author.app ? "app" : ""}`, ariaHidden: "true" }, author.name[0]),
    h("div", { className: "content" },
      message.is_ephemeral ? h("small", { className: "only" }, "👁 Only visible to you") : null,
      h("div", { className: "who" }, h("b", {}, author.name), author.app ? h("span", { className: "badge" }, "APP") : null,
        h("time", { title: new Date(message.ts * 1000).toLocaleString("en") }, time(message.ts))),
      body, replies),
    inThread || message.is_ephemeral ? null : h("button", {
      className: "plain start", title: "Reply in a thread", onclick: () => open(state.channel, message.ts) }, "💬"));
  const hue = 345 + 130 * Object.keys(state.people).indexOf(message.user);
  item.querySelector(".avatar").style.setProperty("--hue", hue);
  item.dataset.ts = message.ts;
  return item;
}

const spelt = (text) => text.replace(/:([a-z0-9_+-]+):/g, (_, name) => emoji(name));
const words = (text) => (text.type === "mrkdwn" ? mrkdwn(text.text, names) : [spelt(text.text)]);
const image = (one) => h("img", { src: one.image_url ?? `/files/${one.slack_file.id}`, alt: one.alt_text, loading: "lazy" });

const BLOCKS = {
  section: (block, message) => h("div", { className: "section" }, h("div", {},
    block.text ? h("div", { className: "text" }, words(block.text)) : null,
    block.fields ? h("div", { className: "fields" }, block.fields.map((field) => h("div", {}, words(field)))) : null),
  block.accessory ? drawElement(block.accessory, message) : null),
  header: (block) => h("h3", {}, words(block.text)),
  divider: () => h("hr"),
  context: (block) => h("div", { className: "context" }, block.elements.map((one) => drawElement(one))),
  actions: (block, message) => h("div", { className: "actions" }, block.elements.map((one) => drawButton(one, message))),
  image: (block) => h("figure", {}, block.title ? h("figcaption", {}, words(block.title)) : null, image(block)),
  markdown: (block) => h("div", { className: "text" }, markdown(block.text, names)),
  rich_text: (block) => h("div", { className: "text" }, block.elements.map(rich)),
  table: (block) => h("div", { className: "scroll", tabIndex: 0 }, h("table", {}, block.rows.map((row, index) =>
    h("tr", {}, row.map((cell, column) => h(index ? "td" : "th", {
      style: `text-align: ${block.column_settings?.[column]?.align ?? "left"}`,
    }, cell.type === "raw_text" ? cell.text : cell.elements.map(rich))))))),
};

function drawElement(one, message) {
  if (one.type === "image") return image(one);
  return one.type === "button" ? drawButton(one, message) : h("span", {}, words(one));
}

function rich(part) {
  const items = () => part.elements.map((one) => h("li", {}, rich(one)));
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

function drawButton(one, message) {
  const press = async () => {
    if (one.confirm && !(await confirmed(one.confirm))) return;
    send({ do: "click", channel: state.channel, ts: message.ts, action_id: one.action_id, value: one.value ?? null });
  };
  const props = { className: `button ${one.style ?? ""}`, onclick: press, ariaLabel: one.accessibility_label ?? null };
  const link = one.url ? { href: /^https?:/i.test(one.url) ? one.url : "#", target: "_blank", rel: "noopener noreferrer" } : {};
  const button = h(one.url ? "a" : "button", { ...props, ...link }, words(one.text), one.url ? h("i", {}, " ↗") : null);
  button.dataset.action = `${message.ts} ${one.action_id}`;
  return button;
}

function confirmed({ title, text, confirm, deny, style }) {
  const dialog = $("confirm");
  const [no, yes] = dialog.querySelectorAll("button");
  dialog.querySelector("h2").replaceChildren(...words(title));
  dialog.querySelector("div").replaceChildren(...words(text));
  no.replaceChildren(...words(deny));
  yes.replaceChildren(...words(confirm));
  yes.className = `button ${style ?? "primary"}`;
  no.className = "button";
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => (dialog.onclose = () => resolve(dialog.returnValue === "yes")));
}

function notice(text, milliseconds) {
  $("notice").textContent = text;
  $("notice").hidden = false;
  clearTimeout(notice.timer);
  if (milliseconds) notice.timer = setTimeout(() => ($("notice").hidden = true), milliseconds);
}

function composer(form, thread) {
  const box = form.elements[0];
  let last = "";
  const grow = () => { box.style.height = "auto"; box.style.height = `${box.scrollHeight}px`; hint(); };
  const hint = () => {
    if (thread) return;
    const typed = box.value.split(" ")[0];
    const found = box.value.startsWith("/") ? state.commands.filter((command) => command.startsWith(typed)) : [];
    $("hint").hidden = !found.length;
    $("hint").replaceChildren(...found.map((command) => h("span", {}, h("b", {}, command), " branch=main gpus=1 space=lr")));
  };
  form.onsubmit = (event) => {
    event.preventDefault();
    const text = box.value.trim();
    if (!text) return;
    const [command] = text.split(/\s/, 1);
    if (!text.startsWith("/")) send({ do: "say", text, thread_ts: thread ? state.thread : null });
    else if (thread) return notice(`${command} is not supported in threads. Sorry!`, 6000);
    else send({ do: "command", command, text: text.slice(command.length).trim() });
    last = text;
    box.value = "";
    grow();
  };
  box.oninput = grow;
  box.onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
    if (event.key === "ArrowUp" && !box.value) { event.preventDefault(); box.value = last; grow(); }
    if (event.key === "Tab" && !$("hint").hidden && !box.value.includes(" ")) {
      event.preventDefault();
      box.value = `${$("hint").querySelector("b").textContent} `;
      hint();
    }
  };
}

composer($("write"), false);
composer($("reply"), true);
$("close").onclick = () => open(state.channel, null);
$("menu").onclick = () => document.body.classList.toggle("menu");
$("messages").onclick = () => document.body.classList.remove("menu");
$("as").onchange = () => {
  at.set("as", $("as").value);
  history.replaceState(null, "", `/?as=${$("as").value}`);
  Object.assign(state, { thread: null, unread: new Set() });
  connect();
};
document.onkeydown = (event) => {
  if (event.key !== "Escape" || $("confirm").open) return;
  if (document.body.classList.contains("menu")) document.body.classList.remove("menu");
  else if (state.thread) open(state.channel, null);
};
connect();
