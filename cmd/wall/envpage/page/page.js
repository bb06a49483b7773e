// The settings page of "wall env ui". Everything that is shown is text: no markup is made of data.
'use strict';

(() => {
  const $ = (id) => document.getElementById(id);
  const storageKey = 'wall-session';
  let session = null;   // sent with every request; the cookie alone is worth nothing
  let surfaces = [];
  let surface = null;   // of the selected tab
  let preview = null;   // of that surface
  let changing = null;  // name of the variable that the form changes, null when it adds one
  let asked = 0;        // counts requests for previews, so that a late answer is not shown

  function element(tag, text, attributes) {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
    return e;
  }

  // plain shows what is invisible, or would turn the writing direction, as a number.
  function plain(text) {
    return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => '\\u{' + c.codePointAt(0).toString(16) + '}');
  }

  function button(text, label, action) {
    const b = element('button', text, { type: 'button', 'aria-label': label });
    b.addEventListener('click', action);
    return b;
  }

  function tell(text) { $('status').textContent = text; }

  function showError(id, text) {
    $(id).textContent = text || '';
    $(id).hidden = !text;
  }

  class Failure extends Error {}

  async function call(method, path, body) {
    const options = { method, cache: 'no-store', credentials: 'same-origin', redirect: 'error', headers: {} };
    if (session) options.headers['X-Wall-Session'] = session;
    if (body !== undefined) {
      options.headers['Content-Type'] = 'application/json';
      options.body = JSON.stringify(body);
    }
    let answer;
    try {
      answer = await fetch(path, options);
    } catch {
      close('wall does not answer any more. Start "wall env ui" again.');
      throw new Failure('wall does not answer any more');
    }
    let data = {};
    try { data = await answer.json(); } catch { /* told below */ }
    if (answer.ok) return data;
    const text = data.error || 'wall answered with status ' + answer.status;
    if (answer.status === 401) close(text);
    throw new Failure(text);
  }

  // close shows that there is nothing more to do here.
  function close(text) {
    $('app').hidden = true;
    $('end').hidden = true;
    $('stored-rows').replaceChildren(); // values that were shown
    $('edit-value').value = '';
    try { sessionStorage.removeItem(storageKey); } catch { /* there was none */ }
    session = null;
    showError('closed', text);
  }

  async function begin() {
    const token = location.hash.slice(1);
    history.replaceState(null, '', '/'); // the token does not stay in the address or the history
    try {
      if (token) {
        session = (await call('POST', '/api/session', { token })).session;
        try { sessionStorage.setItem(storageKey, session); } catch { /* a reload ends the session then */ }
      } else {
        try { session = sessionStorage.getItem(storageKey); } catch { /* none */ }
        if (!session) {
          close('This address alone opens nothing. Open the one that "wall env ui" printed; it works once.');
          return;
        }
      }
      const state = await call('GET', '/api/state');
      surfaces = state.surfaces;
      $('facts').replaceChildren(...[['Preview for commands in ', state.directory], ['Variables are stored in ', state.file]].map(([label, path]) => {
        const line = element('span', label);
        line.append(element('code', path));
        return line;
      }));
      makeTabs();
      $('app').hidden = false;
      $('end').hidden = false;
      await loadStored();
      await select(surfaces[0].name);
    } catch (e) {
      if (!(e instanceof Failure)) throw e;
      if ($('closed').hidden) close(e.message);
    }
  }

  // Stored variables.

  async function loadStored() {
    let names = [];
    try {
      names = (await call('GET', '/api/variables')).names;
      showError('stored-error', '');
    } catch (e) {
      if (!(e instanceof Failure)) throw e;
      showError('stored-error', e.message);
    }
    $('stored').hidden = names.length === 0;
    $('stored-empty').hidden = names.length > 0 || !$('stored-error').hidden;
    $('stored-rows').replaceChildren(...names.map(storedRow));
  }

  function storedRow(name) {
    const row = element('tr');
    const head = element('th', name, { scope: 'row', class: 'name' });
    const value = element('td', '\u2022\u2022\u2022\u2022\u2022\u2022', { class: 'value hidden-value' });
    let shown = false;
    const mask = () => {
      shown = false;
      value.textContent = '\u2022\u2022\u2022\u2022\u2022\u2022';
      value.className = 'value hidden-value';
      show.textContent = 'Show';
      show.setAttribute('aria-label', 'Show the value of ' + name);
    };
    const show = button('Show', 'Show the value of ' + name, async () => {
      if (shown) { mask(); return; }
      try {
        const answer = await call('POST', '/api/value', { name });
        value.className = 'value';
        if (answer.text === undefined) value.textContent = '(' + answer.bytes + ' bytes that are not text)';
        else value.textContent = answer.text === '' ? '(empty)' : answer.text;
        shown = true;
        show.textContent = 'Hide';
        show.setAttribute('aria-label', 'Hide the value of ' + name);
      } catch (e) {
        if (!(e instanceof Failure)) throw e;
        showError('stored-error', e.message);
      }
    });
    const change = button('Change', 'Change ' + name, () => {
      setForm(name);
      $('edit-value').focus();
    });
    const remove = button('Remove', 'Remove ' + name, async () => {
      try {
        await call('POST', '/api/unset', { name });
        if (changing === name) setForm(null);
        tell(name + ' was removed');
        await refresh();
        $('edit-name').focus();
      } catch (e) {
        if (!(e instanceof Failure)) throw e;
        showError('stored-error', e.message);
      }
    });
    const actions = element('td', undefined, { class: 'actions' });
    actions.append(show, change, remove);
    row.append(head, value, actions);
    return row;
  }

  // setForm makes the form change one variable, or add one when name is null.
  function setForm(name) {
    changing = name;
    $('edit-title').textContent = name === null ? 'Add a variable' : 'Change ' + name;
    $('edit-name').value = name === null ? '' : name;
    $('edit-name').readOnly = name !== null;
    $('edit-value').value = '';
    $('edit-save').textContent = name === null ? 'Add' : 'Store the new value';
    $('edit-cancel').hidden = name === null;
    showError('edit-error', '');
  }

  async function save(event) {
    event.preventDefault();
    const name = $('edit-name').value;
    const replace = changing !== null;
    $('edit-save').disabled = true;
    try {
      const answer = await call('POST', '/api/set', { name, value: $('edit-value').value, replace });
      setForm(null);
      tell(name + ' was stored');
      await refresh();
      if (answer.caution) showError('edit-error', 'Stored. ' + answer.caution);
      $('edit-name').focus();
    } catch (e) {
      if (!(e instanceof Failure)) throw e;
      showError('edit-error', e.message);
    } finally {
      $('edit-save').disabled = false;
    }
  }

  async function refresh() {
    await loadStored();
    await loadPreview();
  }

  // The preview.

  function makeTabs() {
    $('tabs').replaceChildren(...surfaces.map((s, i) => {
      const tab = element('button', s.name, {
        type: 'button', role: 'tab', id: 'tab-' + s.name, 'aria-controls': 'panel', 'aria-selected': 'false', tabindex: '-1',
      });
      tab.addEventListener('click', () => select(s.name));
      tab.addEventListener('keydown', (event) => {
        const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: surfaces.length - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        const next = surfaces[(to + surfaces.length) % surfaces.length].name;
        $('tab-' + next).focus();
        select(next);
      });
      return tab;
    }));
  }

  async function select(name) {
    surface = name;
    for (const s of surfaces) {
      const on = s.name === name;
      $('tab-' + s.name).setAttribute('aria-selected', String(on));
      $('tab-' + s.name).tabIndex = on ? 0 : -1;
    }
    $('panel').setAttribute('aria-labelledby', 'tab-' + name);
    await loadPreview();
  }

  async function loadPreview() {
    const mine = ++asked;
    try {
      const answer = await call('GET', '/api/preview?surface=' + encodeURIComponent(surface));
      if (mine !== asked) return;
      preview = answer;
      showError('preview-error', '');
      $('preview-body').hidden = false;
      showPreview();
    } catch (e) {
      if (!(e instanceof Failure)) throw e;
      if (mine !== asked) return;
      preview = null;
      $('preview-body').hidden = true;
      showError('preview-error', e.message);
    }
  }

  function place(origin) {
    if (origin.file && origin.line) return origin.file + ':' + origin.line;
    return origin.file || origin.text || '';
  }

  function plural(n, one, many) { return n + ' ' + (n === 1 ? one : many); }

  function showPreview() {
    const c = preview.caller;
    $('summary').replaceChildren(
      document.createTextNode('Profile '), element('strong', preview.profile),
      document.createTextNode(', scrub '), element('strong', preview.scrub), document.createTextNode('. '),
      element('strong', c.passes + ' of ' + plural(c.total, 'variable', 'variables')),
      document.createTextNode(' of the caller pass, ' + c.replaced + ' replaced, ' + c.dropped + ' left outside. Stored variables are ' +
        (preview.inject ? 'laid over.' : 'left out.')));

    $('notices').hidden = preview.notices.length === 0;
    $('notices').replaceChildren(...preview.notices.map((n) => {
      const item = element('li', plain(n.text));
      const more = [place(n.origin), n.hint].filter(Boolean).join(': ');
      if (more) item.append(element('span', plain(more), { class: 'hint' }));
      return item;
    }));
    showGroups();
  }

  function showGroups() {
    const wanted = $('filter').value.toLowerCase();
    const of = (from) => preview.variables.filter((v) => v.from === from).map((v) => ({
      name: v.name,
      rule: v.reason + (v.source ? ': ' + [v.source.kind, v.source.name, ...v.source.argv].filter(Boolean).join(' ') : '') + (v.replaces ? ', instead of the caller\u2019s' : ''),
      place: place(v.origin),
    }));
    const groups = [
      ['Pass', of('caller')], ['Set', of('set')], ['Injected', of('injected')], ['From a source', of('source')],
      ['Stay outside', preview.dropped.map((d) => ({ name: d.name, rule: d.reason }))],
    ];
    const shown = [];
    for (const [title, all] of groups) {
      const rows = all.filter((r) => (r.name + ' ' + r.rule).toLowerCase().includes(wanted));
      if (rows.length > 0) shown.push(group(title, rows, all.length));
    }
    $('groups').replaceChildren(...(shown.length > 0 ? shown : [element('p', 'No variable fits the filter.', { class: 'empty group' })]));
  }

  function group(title, rows, total) {
    const box = element('div', undefined, { class: 'group groups' });
    const head = element('h3', title);
    head.append(element('span', rows.length === total ? String(total) : rows.length + ' of ' + total, { class: 'count' }));
    const table = element('table', undefined, { 'aria-label': title });
    const columns = element('tr');
    const places = rows[0].place !== undefined;
    columns.append(element('th', 'Name', { scope: 'col' }), element('th', 'Rule', { scope: 'col' }));
    if (places) columns.append(element('th', 'Where', { scope: 'col' }));
    const top = element('thead');
    top.append(columns);
    const body = element('tbody');
    for (const r of rows) {
      const row = element('tr');
      row.append(element('th', plain(r.name), { scope: 'row', class: 'name' }), element('td', plain(r.rule), { class: 'rule' }));
      if (places) row.append(element('td', plain(r.place), { class: 'place' }));
      body.append(row);
    }
    table.append(top, body);
    const scroll = element('div', undefined, { class: 'scroll' });
    scroll.append(table);
    box.append(head, scroll);
    return box;
  }

  $('edit').addEventListener('submit', save);
  $('edit-cancel').addEventListener('click', () => { setForm(null); $('edit-name').focus(); });
  $('edit-show').addEventListener('change', () => $('edit-value').classList.toggle('masked', !$('edit-show').checked));
  $('filter').addEventListener('input', () => { if (preview) showGroups(); });
  $('end').addEventListener('click', async () => {
    try {
      await call('POST', '/api/end', {});
      close('The page has ended. Start "wall env ui" to open it again.');
    } catch (e) {
      if (!(e instanceof Failure)) throw e;
    }
  });
  begin();
})();
