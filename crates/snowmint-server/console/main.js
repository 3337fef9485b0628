// The console: its views, its theme and its token. Each view is an address after `#`, so that links and the back button work.

import { $, el, fill, request, say, token } from './page.js';
import * as design from './design.js';
import * as draw from './draw.js';
import * as fleet from './fleet.js';
import * as inspect from './inspect.js';

const VIEWS = { inspect, design, fleet, draw };
const TITLES = { inspect: 'Inspect', design: 'Design a layout', fleet: 'Fleet', draw: 'Try it' };

let shown;

function route() {
  if (location.hash && !location.hash.startsWith('#/')) return;
  const [path, query] = location.hash.slice(2).split('?');
  const [name, ...rest] = path.split('/');
  const view = Object.hasOwn(VIEWS, name) ? name : 'inspect';
  if (view !== shown) {
    for (const other of Object.keys(VIEWS)) $(other).hidden = other !== view;
    for (const link of document.querySelectorAll('nav a')) {
      if (link.dataset.view === view) link.setAttribute('aria-current', 'page'); else link.removeAttribute('aria-current');
    }
    document.title = `${TITLES[view]} · Snowmint`;
    VIEWS[shown]?.hide?.();
    // Not at the first load: the reader is at the top of the page.
    if (shown) $(`${view}-title`).focus();
    shown = view;
  }
  let parts = rest;
  try { parts = rest.map(decodeURIComponent); } catch { /* As it is: the view says that it does not know it. */ }
  parts = parts.filter(Boolean);
  VIEWS[view].show(parts, new URLSearchParams(query));
}

// Theme

const THEMES = ['auto', 'light', 'dark'];
const theme = () => document.documentElement.dataset.theme ?? 'auto';
const showTheme = () => {
  fill($('theme-button'), el('span', { class: 'word' }, 'Theme: '), theme());
  $('theme-button').setAttribute('aria-label', `Theme: ${theme()}`);
};
$('theme-button').addEventListener('click', () => {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  if (next === 'auto') delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = next;
  try { localStorage.setItem('snowmint-theme', next); } catch { /* Until the page is closed. */ }
  showTheme();
});

// Token

const panel = $('token-panel');
// Browsers trust TLS and their own machine.
$('token-insecure').hidden = isSecureContext;
function openPanel(open, note) {
  panel.hidden = !open;
  $('token-button').setAttribute('aria-expanded', String(open));
  if (note) $('token-note').textContent = note;
  if (open) $('token').focus();
}
function useToken(text) {
  token.set(text);
  $('token').value = '';
  // All views reload with the rights of this token.
  location.reload();
}
$('token-button').addEventListener('click', () => openPanel(panel.hidden));
$('token-forget').addEventListener('click', () => useToken(''));
panel.addEventListener('submit', (event) => {
  event.preventDefault();
  const text = $('token').value.trim();
  // Visible ASCII, as a header takes it.
  if (!/^[!-~]{1,200}$/.test(text)) {
    $('token-note').textContent = 'Invalid token: expected the text that `snowmint token create` printed.';
    $('token').focus();
  } else useToken(text);
});
panel.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape') return;
  openPanel(false);
  $('token-button').focus();
});
document.addEventListener('needs-token', ({ detail }) => {
  if (panel.hidden) {
    openPanel(true, detail);
    say(detail);
  }
});

document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  $('main').focus();
});

/** What the server has for this client; nothing, and the problem, if it does not say so. */
async function known() {
  const none = { namespaces: [], more_namespaces: 0, layouts: [], version: '' };
  try {
    const server = await request('v1/server');
    fill($('version'), `Snowmint ${server.version}`);
    // A token may lack the right to inspect.
    const { layouts } = await request('v1/layouts').catch(() => none);
    return { ...none, ...server, layouts };
  } catch (error) {
    if (error.status === 401) document.dispatchEvent(new CustomEvent('needs-token', { detail: error.message }));
    return { ...none, tokens: error.status === 401, problem: error.message };
  }
}

if (token.get()) $('token-button').append(' ', el('span', { class: 'badge good' }, 'set'));
showTheme();
const server = known();
for (const view of Object.values(VIEWS)) view.start(server, known);
addEventListener('hashchange', route);
route();
