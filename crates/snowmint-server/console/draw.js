// Try it: draws ids from a namespace, and shows how programs do the same.

import { $, banner, code, copyButton, el, explain, fill, headers, problemOf, request, say, thousands, token } from './page.js';
import { link } from './inspect.js';

/** What the server has for this client, once it is known. */
let server;
/** The namespace of the address; without one, the first. */
let wanted;
/** Asks the server again. */
let again;
let asking;
let busy = false;

export function start(known, ask) {
  again = ask;
  $('draw-form').addEventListener('submit', (event) => { event.preventDefault(); draw(); });
  $('draw-namespace').addEventListener('change', () => { location.hash = `#/draw/${encodeURIComponent($('draw-namespace').value)}`; });
  $('draw-count').addEventListener('input', examples);
  known.then((found) => {
    server = found;
    choose();
  });
}

export function show(parts) {
  wanted = parts.length > 0 ? parts.join('/') : undefined;
  if (server) choose();
}

/** Selects the namespace of the address. Ids of another one are never drawn instead. */
async function choose() {
  asking?.abort();
  const listed = server.namespaces.some(({ name }) => name === wanted);
  const names = server.namespaces.map(({ name }) => el('option', { value: name }, name));
  fill($('draw-namespace'), names, wanted !== undefined && !listed && el('option', { value: wanted }, wanted));
  if (wanted !== undefined) $('draw-namespace').value = wanted;
  if (server.problem) return blocked(server.problem, retry());
  if (wanted === undefined || listed) {
    const summary = server.namespaces.find(({ name }) => name === chosen().name)?.summary;
    if (!chosen().name) return blocked('This server has no namespace that you may use.');
    return blocked(null, summary, server.more_namespaces > 0 && `The list has the first ${thousands(server.namespaces.length)} namespaces. The address of this page takes any other: #/draw/NAME`);
  }
  blocked('');
  asking = new AbortController();
  const { signal } = asking;
  try {
    const { namespaces } = await request(`v1/server?namespace=${encodeURIComponent(wanted)}`, { signal });
    if (!signal.aborted) blocked(namespaces.length > 0 ? null : `This server has no namespace ${wanted}, or your token may not use it.`, namespaces[0]?.summary);
  } catch (error) {
    if (!signal.aborted) blocked(error.message);
  }
}

/** Shows why nothing can be drawn, or with `null` that it can be. */
function blocked(why, ...more) {
  $('draw-button').disabled = why !== null;
  fill($('draw-note'), why && banner('error', why), more.filter(Boolean).map((it) => el('p', { class: 'note' }, it)));
  fill($('draw-result'));
  examples();
}

const retry = () => el('button', { type: 'button', async click() {
  const { problem } = await again();
  // All views reload with what the server has now.
  if (problem) say(problem); else location.reload();
} }, 'Try again');

const chosen = () => ({ name: $('draw-namespace').value, count: Math.min(Math.max(Math.round(Number($('draw-count').value)) || 1, 1), 1000) });

async function draw() {
  const { name, count } = chosen();
  // A second click would use up ids that nobody sees.
  if (busy || $('draw-button').disabled) return;
  busy = true;
  // The attribute `disabled` would take the focus away.
  $('draw-button').setAttribute('aria-disabled', 'true');
  try {
    const response = await fetch(`v1/ids/${encodeURIComponent(name)}?count=${count}`, { method: 'POST', headers: headers() }).catch(() => { throw new Error('the server does not answer'); });
    if (!response.ok) throw await problemOf(response);
    const { ids } = await response.json();
    const by = new URLSearchParams({ namespace: name }).toString();
    fill($('draw-result'),
      el('p', { class: 'outcome' }, `${thousands(ids.length)} ${ids.length === 1 ? 'id' : 'ids'} of ${name}`),
      el('ol', { class: 'ids mono', 'aria-label': `Ids of ${name}` }, ids.map((id) => el('li', {}, el('a', { href: link(id, by), title: 'Inspect it' }, id)))),
      el('p', { class: 'outcome' }, copyButton(ids.join('\n'), count === 1 ? 'the id' : 'all ids')));
    say(`${ids.length} ${ids.length === 1 ? 'id' : 'ids'} of ${name} drawn`);
  } catch (error) {
    fill($('draw-result'), explain(error));
  } finally {
    busy = false;
    $('draw-button').removeAttribute('aria-disabled');
  }
}

/** The text as one argument of a shell. */
const quoted = (text) => (/^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

function examples() {
  const { name, count } = chosen();
  if (!name || $('draw-button').disabled) return fill($('draw-code'));
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
    code('Go, clients/go', go(origin, count, secret)),
    code('Java, clients/java', java(origin, count, secret)),
    code('Rust, crate snowmint-client', rust),
    code('gRPC, with grpcurl', grpc(base, name, count, secret)));
}

/** Whether ids are texts, which clients get by another call. */
const isText = () => server.namespaces.find(({ name }) => name === chosen().name)?.texts === true;

function go(origin, count, secret) {
  const settings = [`Servers: []string{${JSON.stringify(origin)}}`, secret && 'Token: os.Getenv("SNOWMINT_TOKEN")'].filter(Boolean).join(', ');
  const imports = ['context', 'fmt', 'log', secret && 'os'].filter(Boolean).map((name) => `\t"${name}"\n`).join('');
  const fails = '\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n';
  const source = `${isText() ? 'Texts' : 'Namespace'}(${JSON.stringify(chosen().name)})`;
  return `package main\n\nimport (\n${imports}\n\tsnowmint "github.com/snowmint/snowmint/clients/go"\n)\n\nfunc main() {\n\tclient, err := snowmint.New(snowmint.Options{${settings}})\n${fails}\tdefer client.Close()\n\tids, err := client.${source}.NextN(context.Background(), ${count})\n${fails}\tfmt.Println(ids)\n}`;
}

function java(origin, count, secret) {
  const builder = [`SnowmintClient.builder().server(${JSON.stringify(origin)})`, secret && '.token(System.getenv("SNOWMINT_TOKEN"))', '.build()'].filter(Boolean).join('');
  const source = `${isText() ? 'texts' : 'namespace'}(${JSON.stringify(chosen().name)})`;
  return `import io.snowmint.client.SnowmintClient;\nimport java.util.Arrays;\n\nclass Example {\n    public static void main(String[] args) {\n        try (SnowmintClient client = ${builder}) {\n            System.out.println(${isText() ? '' : 'Arrays.toString('}client.${source}.next(${count})${isText() ? '' : ')'});\n        }\n    }\n}`;
}

/** gRPC is answered on the port of HTTP; the server has reflection. */
function grpc(base, name, count, secret) {
  const port = base.port || (base.protocol === 'https:' ? '443' : '80');
  return ['grpcurl', base.protocol === 'http:' && '-plaintext', secret && '-H "authorization: Bearer $SNOWMINT_TOKEN"', `-d ${quoted(JSON.stringify({ namespace: name, count }))}`, `${base.hostname}:${port}`, 'snowmint.v1.Snowmint/Next'].filter(Boolean).join(' ');
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
