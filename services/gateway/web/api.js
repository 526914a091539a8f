// The REST API and its event stream. A token, where the cell wants one, is kept for this tab only.

const TOKEN = "sanjaya-token";
let askToken = async () => {};

export function onTokenWanted(ask) { askToken = ask; }

export function setToken(token) { sessionStorage.setItem(TOKEN, token); }

function headers(more = {}) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

// The JSON at a path; null for 404. Throws an Error with the problem's detail for everything else.
export async function get(path, more = {}) {
  const answer = await fetch(path, { headers: headers(more), cache: "no-store" });
  if (answer.status === 401) { await askToken(); return get(path, more); }
  if (answer.status === 404) return null;
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.detail || answer.statusText);
  return body;
}

// What is answered to a request. Throws an Error with the problem's detail when it is refused.
export async function post(path, request = {}) {
  const answer = await fetch(path, { method: "POST", headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(request) });
  if (answer.status === 401) { await askToken(); return post(path, request); }
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.detail || answer.statusText);
  return body;
}

// Follow a stream of server-sent events for ever, resuming behind the last one after every interruption.
export async function follow(path, { onEvent, onState }) {
  let last = null;
  for (let wait = 500; ; wait = Math.min(wait * 2, 10_000)) {
    try {
      const more = last === null ? {} : { "Last-Event-ID": last };
      const answer = await fetch(path, { headers: headers({ Accept: "text/event-stream", ...more }), cache: "no-store" });
      if (answer.status === 401) { await askToken(); continue; }
      if (!answer.ok) throw new Error(answer.statusText);
      onState("open");
      wait = 250;
      for await (const event of events(answer.body)) {
        if (event.id !== undefined) last = event.id;
        if (event.data !== undefined) onEvent(event.event, JSON.parse(event.data));
      }
    } catch (error) {
      console.warn("stream interrupted:", error.message);
    }
    onState("reconnecting");
    await new Promise((done) => setTimeout(done, wait));
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const event = {};
      for (const line of block.split("\n")) {
        const colon = line.indexOf(": ");
        if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 2);
      }
      yield event;
    }
  }
}
