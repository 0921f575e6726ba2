// Slack's own mark-up as DOM nodes. User text only ever becomes text nodes and attributes, never HTML.

export function h(tag, props = {}, ...children) {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const EMOJI = Object.fromEntries(
  ("white_check_mark ✅ x ❌ warning ⚠️ hourglass ⌛ hourglass_flowing_sand ⏳ package 📦 recycle ♻️ microscope 🔬 " +
    "seedling 🌱 runner 🏃 chart_with_upwards_trend 📈 tada 🎉 octagonal_sign 🛑 no_entry_sign 🚫 potable_water 🚰 " +
    "heavy_plus_sign ➕ wrench 🔧 arrow_forward ▶️ bell 🔔 bar_chart 📊 moneybag 💰 zzz 💤 stopwatch ⏱️ " +
    "black_square_for_stop ⏹️ page_facing_up 📄 +1 👍 eyes 👀 rocket 🚀"
  ).split(" ").map((word, at, words) => [word, words[at + 1]]).filter((_, at) => at % 2 === 0),
);

const INLINE = new RegExp(
  [/`(?<code>[^`\n]+)`/, /<(?<link>[^<>\n]+)>/, /(?<![\w*])\*(?<strong>[^\s*](?:[^*\n]*[^\s*])?)\*(?![\w*])/,
    /(?<![\w_])_(?<em>[^\s_](?:[^_\n]*[^\s_])?)_(?![\w_])/, /(?<![\w~])~(?<s>[^\s~](?:[^~\n]*[^\s~])?)~(?![\w~])/,
    /:(?<emoji>[a-z0-9_+-]+):/].map((part) => part.source).join("|"), "g");

const plain = (text) => text.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");

function inline(text, names) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    const [kind, inner] = Object.entries(match.groups).find(([, found]) => found !== undefined);
    nodes.push(plain(text.slice(end, match.index)));
    end = match.index + match[0].length;
    if (kind === "emoji") nodes.push(emoji(inner));
    else if (kind === "link") nodes.push(link(inner, names));
    else nodes.push(h(kind, {}, kind === "code" ? plain(inner) : inline(inner, names)));
  }
  return [...nodes, plain(text.slice(end))];
}

export const emoji = (name) => EMOJI[name] ?? `:${name}:`;

export function anchor(url, label) {
  if (!/^(https?|mailto):/i.test(url)) return plain(label ?? url); // no javascript: and the like
  return h("a", { href: plain(url), target: "_blank", rel: "noopener noreferrer" }, plain(label ?? url));
}

function link(inner, names) {
  const [target, label] = [inner.split("|")[0], inner.includes("|") ? inner.slice(inner.indexOf("|") + 1) : undefined];
  if (/^[@#]/.test(target)) return h("span", { className: "mention" }, target[0] + (names(target.slice(1)) ?? label ?? target.slice(1)));
  if (target.startsWith("!date^")) return date(target.split("^"), label);
  if (target.startsWith("!")) return h("span", { className: "mention" }, `@${target.slice(1).split("^")[0]}`);
  return /^(https?|mailto):/i.test(target) ? anchor(target, label) : `<${plain(inner)}>`;
}

function date([, seconds, format], fallback) {
  const when = new Date(seconds * 1000);
  const day = when.toLocaleDateString("en", { day: "numeric", month: "short", year: "numeric" });
  const shown = format.replace(/\{time(_secs)?\}/g, time(seconds)).replace(/\{date\w*\}/g, day);
  return h("time", { title: fallback ?? "", dateTime: when.toISOString() }, shown);
}

const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
export const time = (ts) => new Date(ts * 1000).toLocaleTimeString("en", CLOCK);

/** mrkdwn: code blocks, quotes and lists line by line, the rest inline. `names` gives a user's or channel's name. */
export function mrkdwn(text, names) {
  return text.split(/```\n?([\s\S]+?)```\n?/).flatMap((part, at) => {
    if (at % 2) return [h("pre", {}, plain(part.replace(/\n$/, "")))];
    return part.replace(/\n$/, "").split("\n").map((line) => {
      const [, mark, rest] = line.match(/^(&gt;|>|\s*[•◦-](?= )|\s*\d+\.(?= ))?\s?([\s\S]*)$/);
      const quote = mark === "&gt;" || mark === ">";
      const item = () => [h("span", {}, mark.replace("-", "•")), h("span", {}, inline(rest, names))];
      if (mark && !quote) return h("div", { className: "item" }, item());
      return h(quote ? "blockquote" : "div", { className: line ? "" : "gap" }, inline(mark ? rest : line, names));
    }).filter((node, _, lines) => lines.length > 1 || node.textContent);
  });
}

/** The markdown block speaks standard Markdown; Slack turns it into its own. */
export const markdown = (text, names) => mrkdwn(text.replace(/```\w+\n/g, "```\n").replace(/^#{1,6} +(.*)$/gm, "**$1**")
  .replace(/\[([^\]\n]+)\]\(([^)\s]+)\)/g, "<$2|$1>").replace(/(?<!\*)\*(?!\*)([^*\n]+)\*(?!\*)/g, "_$1_")
  .replace(/\*\*([^*\n]+)\*\*/g, "*$1*").replace(/^(\s*)[*+] /gm, "$1- "), names);
