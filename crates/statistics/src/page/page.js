'use strict';
(() => {
const root = document.documentElement, button = document.getElementById('live');
let timer, busy, paused = /;norefresh/.test(location.href), since;
// Makes `old` equal to `now`, and keeps what belongs to the reader: open rows, marked boxes, typed text.
const morph = (old, now) => {
  if (old.isEqualNode(now)) return;
  if (old.nodeType !== 1) { old.nodeValue = now.nodeValue; return; }
  for (const { name } of [...old.attributes]) if (name !== 'open' && !now.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (name !== 'open' && name !== 'value' && name !== 'checked' && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (now.dataset.k !== undefined || old === document.activeElement && old.tagName === 'SELECT') return;
  let at = old.firstChild;
  for (const next of [...now.childNodes]) {
    let found = at;
    if (next.id) found = [...old.children].find(child => child.id === next.id);
    else while (found && found.id) found = found.nextSibling;
    if (!found || found.nodeName !== next.nodeName) { old.insertBefore(next, at); continue; }
    if (found === at) at = at.nextSibling; else old.insertBefore(found, at);
    morph(found, next);
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
};
const show = (kind, text) => { root.className = kind; button.textContent = text; };
const address = () => {
  const open = [...document.querySelectorAll('details[data-p][open]')].map(row => row.dataset.p);
  return location.href.replace(/#.*/, '').replace(/;st=\w+/, '') + ';live;open=' + open.join();
};
const update = async () => {
  clearTimeout(timer);
  if (busy || document.hidden) return;
  busy = true;
  const begun = performance.now();
  try {
    const reply = await fetch(address(), { cache: 'no-store', signal: AbortSignal.timeout(8000) });
    if (!reply.ok) throw 0;
    const now = new DOMParser().parseFromString(await reply.text(), 'text/html');
    // Another version of the program has another style and script.
    if (now.body.dataset.v !== document.body.dataset.v) { location.reload(); return; }
    const focus = document.activeElement;
    document.title = now.title;
    for (const part of ['link', 'header p', 'main', 'footer']) morph(document.querySelector(part), now.querySelector(part));
    if (focus && focus !== document.activeElement) focus.focus({ preventScroll: true });
    since = 0;
    show('live', paused ? 'paused' : '● live');
  } catch {
    since = since || new Date().toLocaleTimeString();
    show('lost', '● no connection since ' + since);
  }
  busy = false;
  const took = performance.now() - begun;
  if (!paused) timer = setTimeout(update, since ? 3000 : Math.max(1000, took * 10));
};
const go = (href, replace) => { history[replace ? 'replaceState' : 'pushState'](null, '', href); update(); };
// The page updates itself, so the reload of `stats refresh` is not needed.
addEventListener('load', () => { stop(); if (!paused) timer = setTimeout(update, 1000); else show('', 'paused'); });
addEventListener('popstate', update);
document.addEventListener('visibilitychange', () => document.hidden ? clearTimeout(timer) : paused || update());
document.addEventListener('toggle', event => { if (event.target.dataset.p && event.target.open) update(); }, true);
document.addEventListener('click', event => {
  const link = event.target.closest('a.l');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go(link.href);
});
document.addEventListener('click', event => {
  const link = event.target.closest('.a a'), row = link && document.getElementById(decodeURIComponent(link.hash.slice(1)));
  if (row) row.open = true;
});
const search = document.querySelector('input[type=search]');
if (search) search.addEventListener('input', () => {
  const form = search.form, hidden = [...form.elements].filter(field => field.type === 'hidden' && field.value);
  const words = hidden.map(field => ';' + field.name + '=' + encodeURIComponent(field.value));
  go(form.dataset.u + words.join('') + (search.value ? ';find=' + encodeURIComponent(search.value) : ''), true);
});
button.hidden = false;
button.onclick = () => { paused = !paused; if (paused) { clearTimeout(timer); show('live', 'paused'); } else update(); };
})();
