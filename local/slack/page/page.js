// One web socket brings everything this person may see and takes what they do.
import * as block from "./blocks.js";
import { anchor, h, mrkdwn, time } from "./text.js";
import { drawHome, showErrors, showOptions, showViews } from "./views.js";

const $ = (id) => document.getElementById(id);
const at = new URLSearchParams(location.search);
const linked = location.pathname.match(/^\/archives\/(\w+)\/p(\d{10})(\d{6})/); // a permalink
const state = { you: "", people: {}, channels: {}, ephemeral_messages: [], commands: [], unread: new Set(), thread: null, home: null };
const HOME = "home"; // in place of a channel
const EXAMPLES = { "/sweep": " branch=main gpus=1 space=lr", "/gpus": " mine" };
let socket;

function connect() {
  const you = at.get("as");
  socket?.close();
  socket = new WebSocket(`ws://${location.host}/live${you ? `?as=${you}` : ""}`);
  socket.onmessage = (frame) => onChange(JSON.parse(frame.data));
  socket.onclose = (event) => {
    if (event.target !== socket) return;
    notice("Connection lost. Trying again…");
    setTimeout(connect, 1000);
  };
}

const send = (action) => socket.send(JSON.stringify({ channel: state.channel, ...action }));

function onChange(change) {
  if (change.type === "welcome") return welcome(change);
  if (change.type === "warning") return notice(change.text, 6000);
  if (change.type === "views") return showViews(change.views, names, send);
  if (change.type === "errors") return showErrors(change.errors);
  if (change.type === "options") return showOptions(change);
  if (change.type === "home") {
    state.home = change.home;
    return paint();
  }
  const { channel, message } = change;
  if (!state.channels[channel]) { // a conversation new to this person
    state.unread.add(channel);
    return connect();
  }
  const home = change.to ? state.ephemeral_messages : state.channels[channel].messages;
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

function welcome(start) {
  $("notice").hidden = true;
  Object.assign(state, { you: start.you, ephemeral_messages: start.ephemeral_messages, commands: start.commands, home: start.home });
  state.people = Object.fromEntries(start.people.map((user) => [user.id, user]));
  state.channels = Object.fromEntries(start.channels.map((channel) => [channel.id, channel]));
  const people = start.people.filter((user) => !user.app);
  $("as").replaceChildren(...people.map((user) => h("option", { value: user.id }, user.name)));
  $("as").value = state.you;
  if (!state.channels[state.channel] && state.channel !== HOME) {
    state.channel = linked && state.channels[linked[1]] ? linked[1] : start.channels[0].id;
    if (linked) state.thread = at.get("thread_ts") ?? `${linked[2]}.${linked[3]}`;
  }
  showViews(start.views, names, send);
  paint();
  $("write").elements[0].oninput(); // hints at the commands also for what was typed before they were known
}

const names = (id) => state.people[id]?.name ?? state.channels[id]?.name;
const label = (channel) => (channel.id[0] === "D" ? "Sweepbot" : channel.name);
const surface = (message) => ({ id: message.ts, names,
  act: (one, value) => send({ do: "click", ts: message.ts, action_id: one.action_id, value }) });

function paint() {
  const here = state.channels[state.channel] ?? { id: HOME, name: "Sweepbot", messages: [] };
  const ephemeral = state.ephemeral_messages.filter((one) => one.channel === here.id);
  const all = [...here.messages, ...ephemeral].sort((a, b) => (a.ts < b.ts ? -1 : 1));
  const reply = (one) => one.thread_ts && one.thread_ts !== one.ts;
  $("channels").replaceChildren(...Object.values(state.channels).map((channel) => h("button", {
    className: state.unread.has(channel.id) ? "unread" : "", ariaCurrent: channel === here ? "page" : null,
    onclick: () => open(channel.id, null),
  }, h("i", {}, channel.id[0] === "D" ? "@" : "#"), label(channel))), h("button", {
    ariaCurrent: here.id === HOME ? "page" : null, onclick: () => { open(HOME, null); send({ do: "home" }); },
  }, h("i", {}, "⌂"), "Sweepbot’s home"));
  $("title").textContent = ("DH".includes(here.id[0].toUpperCase()) ? "" : "# ") + label(here);
  $("home").hidden = here.id !== HOME;
  $("messages").hidden = $("write").hidden = here.id === HOME;
  drawHome($("home"), state.home, names, send);
  $("about").textContent = here.name === "random" ? "Sweepbot is not in this channel" : "";
  document.title = `${state.unread.size ? "• " : ""}${label(here)} – Local Slack`;
  $("write").elements[0].placeholder = `Message ${$("title").textContent.replace("# ", "#")} or type /`;
  const thread = all.filter((one) => state.thread && (one.ts === state.thread || one.thread_ts === state.thread));
  $("thread").hidden = !thread.length;
  list($("messages"), all.filter((one) => !reply(one) || one.subtype === "thread_broadcast"), false);
  $("where").textContent = $("title").textContent;
  list($("replies"), thread, true);
}

function open(channel, thread) {
  Object.assign(state, { channel, thread });
  state.unread.delete(thread ?? channel);
  document.body.classList.remove("menu");
  paint();
  if (channel !== HOME) (thread ? $("reply") : $("write")).elements[0].focus();
}

/** Only messages that changed are redrawn, to keep focus, selection, and scrolling. */
function list(place, messages, inThread) {
  const follow = place.dataset.of !== state.channel + (inThread && state.thread) || place.atEnd;
  const old = new Map([...place.children].map((item) => [item.dataset.ts, item]));
  const items = messages.map((message, index) => {
    const about = !inThread && message.subtype === "thread_broadcast" ? parent(message).text : "";
    const previous = messages[index - 1];
    const follows = !about && previous?.user === message.user && message.ts - previous.ts < 300 && !message.is_ephemeral &&
      !previous.is_ephemeral && !(inThread && index === 1) && !message.blocks;
    const seen = JSON.stringify([message, follows, about, !inThread && state.unread.has(message.ts)]);
    const kept = old.get(message.ts);
    return kept?.seen === seen ? kept : Object.assign(draw(message, follows, about, inThread, kept), { seen });
  });
  const focused = place.contains(document.activeElement) && document.activeElement.dataset.action;
  const same = items.length === old.size && items.every((item, index) => item === place.children[index]);
  if (!same) place.replaceChildren(...items);
  if (focused) place.querySelector(`[data-action="${CSS.escape(focused)}"]`)?.focus();
  place.dataset.of = state.channel + (inThread && state.thread);
  if (follow) toEnd(place);
}

/** Keep the end in view, also when a thread opens and lines wrap differently. */
function toEnd(place) {
  place.atEnd = true;
  place.scrollTop = place.scrollHeight;
}

for (const place of [$("messages"), $("replies")]) {
  place.onscroll = () => { place.atEnd = place.scrollHeight - place.scrollTop - place.clientHeight < 80; };
  new ResizeObserver(() => place.atEnd && toEnd(place)).observe(place);
}

const parent = (reply) => state.channels[state.channel].messages.find((one) => one.ts === reply.thread_ts);

/** `about`: the first message of the thread of which this reply is also shown in the channel. */
function draw(message, follows, about, inThread, kept) {
  const author = state.people[message.user];
  const body = message.blocks ? block.draw(message.blocks, surface(message)) :
    [h("div", { className: "text" }, mrkdwn(message.text, names))];
  body.push(...(message.files ?? []).map((file) => /\.(png|jpe?g|gif)$/i.test(file.name) ?
    h("figure", {}, h("figcaption", {}, file.name), h("img", { src: `/files/${file.id}`, alt: file.name, loading: "lazy" })) :
    h("div", { className: "file" }, "📄 ", anchor(file.url_private, file.name))));
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
      about ? h("button", { className: "plain only", onclick: () => open(state.channel, message.thread_ts) },
        "replied to a thread: ", h("b", {}, block.words({ type: "plain_text", text: about }))) : null,
      h("div", { className: "who" }, h("b", {}, author.name), author.app ? h("span", { className: "badge" }, "APP") : null,
        h("time", { title: new Date(message.ts * 1000).toLocaleString("en") }, time(message.ts))),
      body, replies),
    inThread || message.is_ephemeral ? null : h("button", {
      className: "plain start", title: "Reply in a thread",
      onclick: () => open(state.channel, message.thread_ts ?? message.ts) }, "💬"));
  const hue = 345 + 130 * Object.keys(state.people).indexOf(message.user);
  item.querySelector(".avatar").style.setProperty("--hue", hue);
  item.dataset.ts = message.ts;
  return item;
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
    $("hint").replaceChildren(...found.map((command) => h("span", {}, h("b", {}, command), EXAMPLES[command] ?? "")));
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
    toEnd($(thread ? "replies" : "messages"));
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
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (document.body.classList.contains("menu")) document.body.classList.remove("menu");
  else if (state.thread) open(state.channel, null);
};
connect();
