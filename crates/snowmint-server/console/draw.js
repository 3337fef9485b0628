// Try it: draws ids from a namespace, and shows how programs do the same.

import { $, code, copyButton, el, explain, fill, headers, problemOf, say, token } from './page.js';
import { link } from './inspect.js';

let server = { namespaces: [] };

export function start(known) {
  $('draw-form').addEventListener('submit', (event) => { event.preventDefault(); draw(); });
  $('draw-namespace').addEventListener('change', () => { location.hash = `#/draw/${encodeURIComponent($('draw-namespace').value)}`; });
  $('draw-count').addEventListener('input', examples);
  known.then((found) => {
    server = found;
    fill($('draw-namespace'), server.namespaces.map(({ name, summary }) => el('option', { value: name, title: summary }, name)));
    const [view, name] = location.hash.slice(2).split('/');
    show(view === 'draw' && name ? [decodeURIComponent(name)] : []);
  });
}

export function show([name]) {
  if (name && server.namespaces.some((it) => it.name === name)) $('draw-namespace').value = name;
  examples();
}

const chosen = () => ({ name: $('draw-namespace').value, count: Math.min(Math.max(Math.round(Number($('draw-count').value)) || 1, 1), 1000) });

async function draw() {
  const { name, count } = chosen();
  if (!name) return;
  try {
    const response = await fetch(`v1/ids/${encodeURIComponent(name)}?count=${count}`, { method: 'POST', headers: headers() }).catch(() => { throw new Error('the server does not answer'); });
    if (!response.ok) throw await problemOf(response);
    const { ids } = await response.json();
    const by = new URLSearchParams({ namespace: name }).toString();
    fill($('draw-result'),
      el('ol', { class: 'ids mono', 'aria-label': `Ids of ${name}` }, ids.map((id) => el('li', {}, el('a', { href: link(id, by), title: 'Inspect it' }, id)))),
      el('p', { class: 'outcome' }, copyButton(ids.join('\n'), count === 1 ? 'the id' : 'all ids')));
    say(`${ids.length} ${ids.length === 1 ? 'id' : 'ids'} drawn`);
  } catch (error) {
    fill($('draw-result'), explain(error));
  }
}

/** The text as one argument of a shell. */
const quoted = (text) => (/^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

function examples() {
  const { name, count } = chosen();
  if (!name) return fill($('draw-code'), el('p', { class: 'quiet' }, 'This server has no namespace for you.'));
  const secret = server.tokens || token.get() !== '';
  const base = new URL('.', location.href);
  const origin = `${base.origin}${base.pathname}`.replace(/\/$/, '');
  const url = `${origin}/v1/ids/${encodeURIComponent(name)}?count=${count}`;
  const text = JSON.stringify(name);
  const rust = `let client = snowmint_client::Client::builder().server(${JSON.stringify(origin)})${secret ? '.token(std::env::var("SNOWMINT_TOKEN")?)' : ''}.build()?;\nlet ids = client.namespace(${text})?;\nprintln!("{:?}", ids.next_ids(${count}).await?);`;
  fill($('draw-code'),
    secret && el('p', { class: 'note' }, 'SNOWMINT_TOKEN is the token in the environment of the program.'),
    code('curl', `curl -X POST ${secret ? '-H "Authorization: Bearer $SNOWMINT_TOKEN" ' : ''}${quoted(url)}`),
    redis(name, count, secret),
    code('Rust', rust));
}

/** The same over the Redis protocol, if it is on. */
function redis(name, count, secret) {
  if (!server.resp) return el('p', { class: 'note' }, 'The Redis protocol is off: see `snowmint serve --resp`.');
  const text = JSON.stringify(name);
  const socket = server.resp.startsWith('unix:') && server.resp.slice(5);
  const tls = !socket && location.protocol === 'https:';
  const host = location.hostname.replace(/^\[|\]$/g, '');
  const port = server.resp.slice(server.resp.lastIndexOf(':') + 1);
  const cli = [secret && 'REDISCLI_AUTH="$SNOWMINT_TOKEN"', 'redis-cli', socket ? `-s ${quoted(socket)}` : `${host === 'localhost' || host === '127.0.0.1' ? '' : `-h ${host} `}-p ${port}`, tls && '--tls', 'ID.NEXT', quoted(name), `COUNT ${count}`].filter(Boolean).join(' ');
  const python = [socket ? `unix_socket_path=${JSON.stringify(socket)}` : `host="${host}", port=${port}`, tls && 'ssl=True', secret && 'password=os.environ["SNOWMINT_TOKEN"]', 'decode_responses=True'].filter(Boolean).join(', ');
  const node = [socket ? `socket: { path: ${JSON.stringify(socket)} }` : `url: '${tls ? 'rediss' : 'redis'}://${host.includes(':') ? `[${host}]` : host}:${port}'`, secret && 'password: process.env.SNOWMINT_TOKEN'].filter(Boolean).join(', ');
  return [
    code('redis-cli', cli),
    code('Python, package redis', `${secret ? 'import os\n' : ''}import redis\n\nserver = redis.Redis(${python})\nprint(server.execute_command("ID.NEXT", ${text}, "COUNT", ${count}))`),
    code('Node.js, package redis', `import { createClient } from 'redis';\n\nconst server = await createClient({ ${node} }).connect();\nconsole.log(await server.sendCommand(['ID.NEXT', ${text}, 'COUNT', '${count}']));\nawait server.quit();`),
  ];
}
