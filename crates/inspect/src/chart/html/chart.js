"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { layout, gutter, row: ROW, line: LINE } = data;
  const canvas = document.getElementById("picture");
  const tip = document.getElementById("tip");
  const ctx = canvas.getContext("2d", { alpha: false });
  const FONT = '11px system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif';

  // ---- what the document says, as arrays ---------------------------------------------------------------------------
  const summed = (steps) => {
    const out = new Int32Array(steps.length);
    let sum = 0;
    for (let i = 0; i < steps.length; i++) out[i] = sum += steps[i];
    return out;
  };
  const repeated = (pairs, length, Kind) => {
    const out = new Kind(length);
    for (let i = 0, at = 0; i < pairs.length; i += 2) out.fill(pairs[i], at, (at += pairs[i + 1]));
    return out;
  };
  const named = (shared) => {
    let before = "";
    return shared.map(([same, rest]) => (before = before.slice(0, same) + rest));
  };
  for (const run of data.runs) {
    const p = run.processes;
    for (const row of p.rows) {
      const shares = repeated(row.shares, p.slots, Uint8Array);
      row.ran = new Uint32Array(p.slots + 1);
      row.waited = new Uint32Array(p.slots + 1);
      for (let i = 0; i < p.slots; i++) {
        row.ran[i + 1] = row.ran[i] + ((shares[i] / 10) | 0);
        row.waited[i + 1] = row.waited[i] + (shares[i] % 10);
      }
    }
    const f = run.files, cells = f.times.length;
    f.names = named(f.names);
    f.times = summed(f.times);
    f.rows = summed(f.rows);
    f.services = repeated(f.services, cells, Uint8Array);
    f.processes = repeated(f.processes, cells, Uint16Array);
    f.lines = Math.max(1, Math.ceil(f.count / f.per));
    f.hits = null;
    // Pages so far by service, a sum before each cell.
    f.sums = data.services.map(() => new Float64Array(cells + 1));
    for (let i = 0; i < cells; i++) {
      for (let k = 0; k < f.sums.length; k++) f.sums[k][i + 1] = f.sums[k][i] + (f.services[i] === k ? f.pages[i] : 0);
    }
    for (const d of run.devices) {
      if (d.grid) {
        // So much that each place of each slot only says which kinds there were.
        const times = [], places = [], kinds = [];
        for (let at = 0; at < d.grid.length; at++) {
          const mask = parseInt(d.grid[at], 16);
          for (let kind = 0; kind < 4; kind++) {
            if (mask & (1 << kind)) { times.push((at / d.lines) | 0); places.push(at % d.lines); kinds.push(kind); }
          }
        }
        Object.assign(d, { times: Int32Array.from(times), places, kinds: Uint8Array.from(kinds) });
        continue;
      }
      d.times = summed(d.times);
      d.kinds = repeated(d.kinds, d.times.length, Uint8Array);
    }
  }
  const mostFiles = Math.max(1, ...data.runs.map((run) => run.files.count));
  const mostPages = Math.max(1, ...data.runs.map((run) => run.files.sums.reduce((sum, of) => sum + of[of.length - 1], 0)));

  // ---- colours: the page's style has them, by the reader's scheme ---------------------------------------------------
  let colours = {}, packed = {}, faint = {};
  const NAMES = ["ground", "lane", "ink", "dim", "rule", "alive", "run", "wait", "busy", "depth", "read", "ahead", "meta",
    "write", "cache", "dirty", "free", "intime", "late", "missed", "plain", "floorline", "head", "halo"];
  const CAUSES = ["late", "ahead", "meta", "intime"];
  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const parts = (name) => {
      let hex = colours[name].slice(1);
      if (hex.length < 6) hex = [...hex].map((c) => c + c).join("");
      return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
    };
    const pack = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
    for (const name of NAMES) colours[name] = style.getPropertyValue("--" + name).trim();
    const lane = parts("lane");
    for (const name of NAMES) {
      const own = parts(name);
      packed[name] = pack(own);
      faint[name] = pack(own.map((v, i) => Math.round(lane[i] + (v - lane[i]) * 0.16)));
    }
  }

  // ---- the view -----------------------------------------------------------------------------------------------------
  const view = { from: 0, to: data.span, tall: false, search: "", frames: 0, painted: 0 };
  const least = Math.min(data.span, Math.max(1000, data.span / 20000));
  let width = 0, columns = [], lanes = [], height = 0, ratio = 1, hover = null, chosen = null;

  function place() {
    const whole = Math.max(700, document.documentElement.clientWidth);
    const count = data.runs.length || 1;
    width = Math.floor((whole - gutter - layout.margin - layout.between * (count - 1)) / count);
    columns = data.runs.map((_, i) => gutter + i * (width + layout.between));
    let shift = 0;
    lanes = layout.lanes.map((lane) => {
      const own = { ...lane, y: lane.y + shift };
      if (view.tall && lane.shows === "files") {
        // A canvas has a largest height.
        own.height = Math.max(lane.height, Math.min(mostFiles * 12, 8000));
        shift += own.height - lane.height;
      }
      return own;
    });
    height = layout.height + shift;
    ratio = Math.min(window.devicePixelRatio || 1, 2);
    if (height * ratio > 16000) ratio = 1;
    canvas.width = Math.round(whole * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = whole + "px";
    canvas.style.height = height + "px";
  }
  function look(from, to) {
    let length = Math.min(Math.max(to - from, least), data.span);
    from = Math.min(Math.max(from, 0), data.span - length);
    if (from === view.from && from + length === view.to) return;
    view.from = from;
    view.to = from + length;
    ask();
  }
  function zoom(factor, at) {
    if (at === undefined) at = (view.from + view.to) / 2;
    look(at - (at - view.from) * factor, at + (view.to - at) * factor);
  }
  const pan = (share) => look(view.from + (view.to - view.from) * share, view.to + (view.to - view.from) * share);

  // ---- numbers for people ---------------------------------------------------------------------------------------------
  const three = (v) => (v < 9.995 ? v.toFixed(2) : v < 99.95 ? v.toFixed(1) : v.toFixed(0));
  function bytes(value) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let i = 0;
    while (value >= 1024 && i < units.length - 1) { value /= 1024; i++; }
    return i ? three(value) + " " + units[i] : Math.round(value) + " B";
  }
  function time(ns) {
    if (ns < 1e6) return three(ns / 1e3) + " us";
    return ns < 1e9 ? three(ns / 1e6) + " ms" : three(ns / 1e9) + " s";
  }
  function ticks(pixels) {
    const most = Math.max(1, Math.floor(pixels / 72)), length = view.to - view.from;
    let step = 1;
    while (length / step > most) {
      const lead = +String(step)[0];
      step = lead === 1 ? step * 2 : lead === 2 ? step * 2.5 : step * 2;
    }
    const [unit, name] = step < 1e3 ? [1, "ns"] : step < 1e6 ? [1e3, "us"] : step < 1e8 ? [1e6, "ms"] : [1e9, "s"];
    const found = [];
    for (let n = Math.ceil(view.from / step); n * step <= view.to; n++) {
      const value = (n * step) / unit;
      found.push([n * step, n ? (Number.isInteger(value) ? value : value.toFixed(1)) + " " + name : "0"]);
    }
    return found;
  }

  // ---- painting -------------------------------------------------------------------------------------------------------
  let asked = false;
  function ask() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(paint);
  }
  const xOf = (ns) => ((ns - view.from) / (view.to - view.from)) * width;
  // Index of the first of ascending values that is not below `value`.
  function firstFrom(values, value) {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] < value) low = middle + 1;
      else high = middle;
    }
    return low;
  }
  function visible(of) {
    const slot = data.span / of.slots;
    return [firstFrom(of.times, Math.floor(view.from / slot) - 1), firstFrom(of.times, Math.ceil(view.to / slot) + 1), slot];
  }
  function text(string, x, y, colour, align, halo) {
    ctx.textAlign = align || "left";
    if (halo) {
      ctx.strokeStyle = colours.halo;
      ctx.lineWidth = 3;
      ctx.lineJoin = "round";
      ctx.strokeText(string, x, y);
    }
    ctx.fillStyle = colours[colour] || colour;
    ctx.fillText(string, x, y);
  }
  function cut(string, pixels) {
    const most = Math.max(1, Math.floor(pixels / 6));
    if (string.length <= most) return string;
    const head = Math.floor((most - 1) / 3);
    return string.slice(0, head) + "…" + string.slice(string.length - (most - 1 - head));
  }
  // Pixels of a lane that has more in it than rectangles could be drawn of in time.
  const rasters = new Map();
  function raster(key, w, h) {
    let it = rasters.get(key);
    if (!it || it.w !== w || it.h !== h) {
      const own = document.createElement("canvas");
      own.width = w;
      own.height = h;
      const to = own.getContext("2d");
      const image = to.createImageData(w, h);
      it = { w, h, own, to, image, pixels: new Uint32Array(image.data.buffer) };
      rasters.set(key, it);
    }
    it.pixels.fill(0);
    it.box = (x0, y0, x1, y1, colour) => {
      x0 = Math.max(0, x0 | 0); y0 = Math.max(0, y0 | 0);
      x1 = Math.min(it.w, Math.max(x1 | 0, x0 + 1)); y1 = Math.min(it.h, Math.max(y1 | 0, y0 + 1));
      const pixels = it.pixels;
      for (let y = y0; y < y1; y++) {
        const row = y * it.w;
        if (x1 - x0 > 8) pixels.fill(colour, row + x0, row + x1);
        else for (let x = x0; x < x1; x++) pixels[row + x] = colour;
      }
    };
    it.show = (x, y) => {
      it.to.putImageData(it.image, 0, 0);
      ctx.drawImage(it.own, x, y, it.w / ratio, it.h / ratio);
    };
    return it;
  }
  function series(of, lane, x, colour, asLine) {
    if (!of.values.length) return;
    // Intervals are of the whole span; a run that ended earlier has fewer.
    const count = of.count, per = data.span / count, bottom = lane.y + lane.height;
    ctx.beginPath();
    let last = -1, open = false;
    for (let px = 0; px <= width; px++) {
      const from = view.from + ((view.to - view.from) * px) / width;
      let a = Math.floor(from / per);
      const b = Math.max(a + 1, Math.floor((from + (view.to - view.from) / width) / per));
      let sum = 0, n = 0;
      for (; a < b && a < of.values.length; a++) { sum += of.values[a]; n++; }
      const level = n ? (sum / n / 500) * lane.height : asLine ? -1 : 0;
      if (asLine) {
        if (level < 0) break;
        px ? ctx.lineTo(x + px, bottom - level) : ctx.moveTo(x, bottom - level);
        continue;
      }
      if (level !== last || px === width) {
        if (open) { ctx.lineTo(x + px, bottom - Math.max(last, last > 0 ? 0.6 : 0)); }
        else { ctx.moveTo(x + px, bottom); open = true; }
        ctx.lineTo(x + px, bottom - Math.max(level, level > 0 ? 0.6 : 0));
        last = level;
      }
    }
    if (asLine) {
      ctx.strokeStyle = colours[colour];
      ctx.lineWidth = 1.5;
      ctx.stroke();
    } else {
      ctx.lineTo(x + width, bottom);
      ctx.fillStyle = colours[colour];
      ctx.fill();
    }
  }
  // How many intervals the whole span has: values end where the samples do.
  for (const run of data.runs) {
    const all = [run.cpu, ...run.memory, ...run.devices.flatMap((d) => [d.read, d.written, d.busy, d.depth])];
    for (const one of all) one.count = data.intervals;
  }

  const draw = {
    floor(run, lane, x) {
      if (!run.floor) return;
      const bar = (from, to, colour, label, alpha) => {
        const [left, right] = [Math.max(0, xOf(from)), Math.min(width, xOf(to))];
        if (right <= left) return;
        ctx.globalAlpha = alpha;
        ctx.fillStyle = colours[colour];
        ctx.fillRect(x + left, lane.y, right - left, 14);
        ctx.globalAlpha = 1;
        if (right - left > 30) text(label.length * 6 + 6 < right - left ? label : cut(label.replace(/ [^ ]+ [^ ]+$/, ""), right - left - 6), x + left + 3, lane.y + 11, "ink", "left", true);
      };
      bar(0, run.floor.ns, "floorline", "floor " + time(run.floor.ns), 1);
      let from = run.floor.ns;
      run.floor.causes.forEach(([cause, ns], i) => {
        const to = Math.min(from + ns, run.end);
        bar(from, to, CAUSES[i % 4], cause + " " + time(ns), 0.42);
        from = to;
      });
      text((run.end / Math.max(1, run.floor.ns)).toFixed(2) + " times the floor of " + time(run.floor.ns), x + 4, lane.y + 27, "dim");
    },
    stages(run, lane, x) {
      const free = [-1e9, -1e9];
      for (const [ns, name] of run.marks) {
        const at = xOf(ns), own = name.length * 6 + 10;
        if (at < 0 || at > width) continue;
        const line = free.findIndex((edge) => edge <= at);
        if (line < 0) continue;
        free[line] = at + own;
        const end = at + own > width;
        text(name, x + at + (end ? -3 : 3), lane.y + 12 + LINE * line, "ink", end ? "right" : "left", true);
      }
    },
    cpu(run, lane, x) {
      series(run.cpu, lane, x, "run");
      most("100 %", lane, x);
    },
    throughput(run, lane, x) {
      const d = run.devices[lane.device];
      if (!d) return;
      series(d.read, lane, x, "read");
      series(d.written, lane, x, "write");
      most(bytes(d.read.most) + "/s", lane, x);
    },
    busy(run, lane, x) {
      const d = run.devices[lane.device];
      if (!d) return;
      series(d.busy, lane, x, "busy");
      most("100 %", lane, x);
    },
    depth(run, lane, x) {
      const d = run.devices[lane.device];
      if (!d) return;
      series(d.depth, lane, x, "depth");
      most(d.depth.most.toFixed(0), lane, x);
    },
    memory(run, lane, x) {
      const [cache, dirty, free] = run.memory;
      series(cache, lane, x, "cache");
      series(dirty, lane, x, "dirty");
      series(free, lane, x, "free", true);
      most(bytes(cache.most), lane, x);
    },
    map(run, lane, x, index) {
      const d = run.devices[lane.device];
      if (!d) return;
      const [first, end, slot] = visible(d);
      const yOf = (place) => lane.y + lane.height * (1 - (place + 0.5) / d.lines);
      ctx.strokeStyle = colours.head;
      ctx.lineWidth = 0.6;
      ctx.beginPath();
      // By pixel the highest and the lowest place, and from the last on to the next.
      let px = -1, low = 0, high = 0, at = 0;
      for (let i = first; i < end; i++) {
        const now = Math.round(xOf((d.times[i] + 0.5) * slot)), y = yOf(d.places[i]);
        if (i === first) { px = now; low = high = y; ctx.moveTo(x + now, y); }
        else if (now === px) { low = Math.min(low, y); high = Math.max(high, y); }
        else {
          ctx.moveTo(x + px, low); ctx.lineTo(x + px, high);
          ctx.moveTo(x + px, at); ctx.lineTo(x + now, y);
          px = now; low = high = y;
        }
        at = y;
      }
      ctx.moveTo(x + px, low); ctx.lineTo(x + px, high);
      ctx.stroke();
      const to = raster("map" + index + lane.device, Math.round(width * ratio), Math.round(lane.height * ratio));
      for (let i = first; i < end; i++) {
        const left = Math.round(xOf((d.times[i] + 0.5) * slot) * ratio - ratio);
        const top = Math.round((1 - (d.places[i] + 0.5) / d.lines) * lane.height * ratio - ratio);
        if (left > -2 * ratio && left < to.w) to.box(left, top, left + 2 * ratio, top + 2 * ratio, packed[data.kinds[d.kinds[i]][0]]);
      }
      to.show(x, lane.y);
      most(bytes(d.end * 512), lane, x);
      text(bytes(d.first * 512), x + 3, lane.y + lane.height - 3, "dim", "left", true);
    },
    uses(run, lane, x) {
      const f = run.files, slot = data.span / f.slots, ended = Math.min(width, Math.ceil(xOf(run.end)));
      const edges = new Int32Array(Math.max(0, ended) + 1);
      for (let px = 0; px < edges.length; px++) edges[px] = firstFrom(f.times, (view.from + ((view.to - view.from) * (px + 1)) / width) / slot);
      for (let k = f.sums.length - 1; k >= 0; k--) {
        ctx.beginPath();
        ctx.moveTo(x, lane.y + lane.height);
        for (let px = 0; px < edges.length; px++) {
          let sum = 0;
          for (let j = 0; j <= k; j++) sum += f.sums[j][edges[px]];
          ctx.lineTo(x + px, lane.y + lane.height * (1 - sum / mostPages));
        }
        ctx.lineTo(x + Math.max(0, ended), lane.y + lane.height);
        if (f.sums[k][f.times.length] > 0) {
          ctx.fillStyle = colours[data.services[k][0]];
          ctx.fill();
        }
      }
      most(bytes(mostPages * run.page), lane, x);
    },
    files(run, lane, x, index) {
      const f = run.files, [first, end, slot] = visible(f);
      const to = raster("files" + index, Math.round(width * ratio), Math.round(lane.height * ratio));
      const each = (lane.height / mostFiles) * f.per * ratio, tall = Math.max(each > 4 * ratio ? each * 0.8 : Math.ceil(each), 2 * ratio);
      const own = (slot / (view.to - view.from)) * width;
      // A slot that is wider than a place covers the next, too.
      const wide = (own > 2 ? Math.ceil(own / 2 + 0.5) * 2 : 2) * ratio;
      // Of several in a place that of most pages is drawn; what matches comes before what does not.
      const across = Math.ceil(to.w / (2 * ratio)), down = Math.max(1, Math.min(Math.round(to.h / each), Math.floor(to.h / (2 * ratio))));
      const pages = new Float64Array(across * down * 4), matching = f.hits && new Uint8Array(across * down);
      for (let i = first; i < end; i++) {
        const column = Math.floor((xOf(f.times[i] * slot) * ratio) / (2 * ratio));
        if (column < 0 || column >= across) continue;
        const at = Math.floor((f.rows[i] * each * down) / to.h) * across + column;
        if (matching && f.hits[i] && !matching[at]) { matching[at] = 1; pages.fill(0, at * 4, at * 4 + 4); }
        if (!matching || f.hits[i] || !matching[at]) pages[at * 4 + f.services[i]] += f.pages[i];
      }
      // What does not match first: the others are drawn over it.
      for (const pass of f.hits ? [0, 1] : [0]) {
        for (let at = 0; at < across * down; at++) {
          if (matching && matching[at] !== pass) continue;
          let best = 0;
          for (let k = 1; k < 4; k++) if (pages[at * 4 + k] >= pages[at * 4 + best]) best = k;
          if (!pages[at * 4 + best]) continue;
          const left = (at % across) * 2 * ratio, top = Math.min(Math.floor(at / across) * (to.h / down), to.h - tall);
          to.box(left, top, left + wide, top + tall, (f.hits && !pass ? faint : packed)[data.services[best][0]]);
        }
      }
      to.show(x, lane.y);
      if (each >= 10 * ratio) {
        for (let row = 0; row < f.lines; row++) {
          const y = lane.y + ((row + 0.8) * each) / ratio;
          text(cut(nameOf(f, row), width * 0.7), x + 3, y, f.hits && !f.hitRows[row] ? "rule" : "ink", "left", true);
        }
      } else most(f.count + " files", lane, x);
    },
    services(run, lane, x) {
      const f = run.files, [first, end, slot] = visible(f);
      const strips = data.services.map(() => new Float64Array(width));
      for (let i = first; i < end; i++) {
        const px = Math.floor(xOf((f.times[i] + 0.5) * slot));
        if (px >= 0 && px < width && (!f.hits || f.hits[i])) strips[f.services[i]][px] += f.pages[i];
      }
      strips.forEach((strip, k) => {
        ctx.fillStyle = colours[data.services[k][0]];
        const bottom = lane.y + (k + 1) * LINE - 2, top = Math.sqrt(view.strip);
        for (let px = 0; px < width; px++) {
          if (strip[px]) ctx.fillRect(x + px, bottom, 1, -Math.max(1.5, Math.min(1, Math.sqrt(strip[px]) / top) * (LINE - 2)));
        }
      });
    },
    processes(run, lane, x, index) {
      const p = run.processes, slot = data.span / p.slots;
      const to = raster("processes" + index, Math.round(width * ratio), Math.round(lane.height * ratio));
      const rowHeight = (ROW - 2) * ratio;
      const edge = new Float64Array(to.w + 1);
      for (let px = 0; px <= to.w; px++) edge[px] = (view.from + ((view.to - view.from) * px) / to.w) / slot;
      p.rows.forEach((row, r) => {
        const shades = run.files.hits && !p.lit[r] ? faint : packed;
        const top = (2 + r * ROW) * ratio;
        const left = xOf(row.from) * ratio, right = Math.max(xOf(row.to) * ratio, left + 1);
        if (right < 0 || left > to.w) return;
        const thin = p.slices ? 0 : rowHeight / 3;
        to.box(left, top + thin, right, top + rowHeight - thin, shades.alive);
        if (!p.slices) return;
        const until = Math.min(to.w, Math.ceil(right));
        for (let px = Math.max(0, left | 0); px < until; px++) {
          const a = Math.min(p.slots - 1, edge[px] | 0), b = Math.min(p.slots, Math.max(a + 1, edge[px + 1] | 0));
          const ran = (row.ran[b] - row.ran[a]) / (b - a) / 9, waited = (row.waited[b] - row.waited[a]) / (b - a) / 9;
          if (ran > 0) to.box(px, top + rowHeight - Math.max(1, Math.round(ran * rowHeight)), px + 1, top + rowHeight, shades.run);
          if (waited > 0) to.box(px, top, px + 1, top + Math.max(1, Math.round(waited * rowHeight)), shades.wait);
        }
      });
      if (!p.slices) {
        const f = run.files, [first, end, own] = visible(f);
        for (let i = first; i < end; i++) {
          const row = f.processes[i] - 1, px = xOf((f.times[i] + 0.5) * own) * ratio;
          if (row < 0 || px < 0) continue;
          const top = (2 + row * ROW) * ratio;
          to.box(px, top, px + ratio, top + rowHeight, (f.hits && !f.hits[i] ? faint : packed).plain);
        }
      }
      to.show(x, lane.y);
      ctx.strokeStyle = colours.head;
      ctx.lineWidth = 0.7;
      ctx.beginPath();
      p.rows.forEach((row, r) => {
        const at = xOf(row.from);
        if (row.parent === null || at < 0 || at > width) return;
        ctx.moveTo(x + at, lane.y + 2 + row.parent * ROW + (ROW - 2) / 2);
        ctx.lineTo(x + at, lane.y + 2 + r * ROW);
      });
      ctx.stroke();
      p.rows.forEach((row, r) => {
        const own = row.label.length * 6, left = Math.max(0, xOf(row.from));
        if (left > width || xOf(row.to) < 0) return;
        const end = left + own + 6 > width, y = lane.y + 2 + r * ROW + 10;
        const colour = run.files.hits && !p.lit[r] ? "rule" : "ink";
        text(row.label, x + (end ? Math.max(left - 4, own) : left + 4), y, colour, end ? "right" : "left", true);
      });
    },
  };
  function most(string, lane, x) {
    text(string, x + 3, lane.y + 11, "dim", "left", true);
  }
  const nameOf = (f, row) => (f.names[row] || "(its name has no room here)") + (f.per > 1 ? " and the " + (f.per - 1) + " after it" : "");

  function names() {
    for (const lane of lanes) {
      let y = lane.y, apart = 14;
      if (lane.shows === "services") { apart = LINE; y += 12; }
      else {
        ctx.font = "600 " + FONT.replace("11px", "12px");
        text(lane.title, 10, y + 11, "ink");
        ctx.font = FONT;
        y += 11 + LINE;
      }
      for (const [class_, name] of lane.legend) {
        ctx.fillStyle = colours[class_];
        ctx.fillRect(10, y - 8, 9, 9);
        text(name, 24, y, "dim");
        y += apart;
      }
    }
  }
  function head(run, x) {
    let y = layout.head - 6;
    ctx.font = "600 " + FONT.replace("11px", "15px");
    text(cut(run.title, width / 1.5), x, y, "ink");
    ctx.font = FONT;
    for (const [lines, colour] of [[run.facts, "dim"], [run.notes, "wait"]]) {
      for (const line of lines) text(cut(line, width), x, (y += LINE), colour);
    }
  }

  function paint() {
    asked = false;
    const begun = performance.now();
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.font = FONT;
    ctx.fillStyle = colours.ground;
    ctx.fillRect(0, 0, canvas.width, canvas.height);
    names();
    const bottom = lanes.length ? lanes[lanes.length - 1].y + lanes[lanes.length - 1].height : layout.top;
    const marks = ticks(width);
    data.runs.forEach((run, index) => {
      const x = columns[index];
      head(run, x);
      for (const [ns, label] of marks) {
        text(label, x + xOf(ns), layout.top - 8, "dim", "center");
        text(label, x + xOf(ns), bottom + 17, "dim", "center");
      }
      ctx.save();
      ctx.beginPath();
      ctx.rect(x, layout.top - 4, width, bottom - layout.top + 8);
      ctx.clip();
      const end = Math.min(width, xOf(run.end));
      ctx.fillStyle = colours.lane;
      for (const lane of lanes) if (end > 0) ctx.fillRect(x, lane.y, end, lane.height);
      ctx.strokeStyle = colours.rule;
      ctx.lineWidth = 1;
      ctx.beginPath();
      for (const [ns] of marks) { ctx.moveTo(x + xOf(ns), layout.top - 4); ctx.lineTo(x + xOf(ns), bottom + 4); }
      ctx.stroke();
      if (run.floor) {
        let from = run.floor.ns;
        ctx.globalAlpha = 0.1;
        run.floor.causes.forEach(([, ns], i) => {
          const to = Math.min(from + ns, run.end);
          ctx.fillStyle = colours[CAUSES[i % 4]];
          ctx.fillRect(x + xOf(from), layout.top, xOf(to) - xOf(from), bottom - layout.top);
          from = to;
        });
        ctx.globalAlpha = 1;
      }
      for (const lane of lanes) draw[lane.shows](run, lane, x, index);
      const upright = (ns, colour, dash) => {
        ctx.setLineDash(dash);
        ctx.strokeStyle = colours[colour];
        ctx.beginPath();
        ctx.moveTo(x + xOf(ns), layout.top);
        ctx.lineTo(x + xOf(ns), bottom);
        ctx.stroke();
      };
      ctx.lineWidth = 1;
      for (const [ns] of run.marks) upright(ns, "dim", [2, 3]);
      upright(run.end, "ink", []);
      ctx.lineWidth = 1.5;
      if (run.floor) upright(run.floor.ns, "floorline", [6, 3]);
      ctx.setLineDash([]);
      if (hover) {
        ctx.lineWidth = 1;
        ctx.globalAlpha = 0.6;
        upright(hover.ns, "ink", []);
        ctx.globalAlpha = 1;
      }
      if (hover && hover.ring && hover.index === index) {
        ctx.strokeStyle = colours.ink;
        ctx.lineWidth = 1.5;
        ctx.strokeRect(x + hover.ring[0] - 4, hover.ring[1] - 4, 9, 9);
      }
      ctx.restore();
    });
    document.getElementById("shown").textContent = view.from === 0 && view.to === data.span ? "" : time(view.from) + " to " + time(view.to);
    view.frames++;
    view.cost = performance.now() - begun;
    if (!view.painted) view.painted = performance.now();
  }

  // ---- what is under the pointer --------------------------------------------------------------------------------------
  function fileAt(run, i) {
    const f = run.files, slot = data.span / f.slots, p = run.processes.rows[f.processes[i] - 1];
    const pages = f.pages[i];
    return nameOf(f, f.rows[i]) + "\n" + time(f.times[i] * slot) + ": " + pages + (pages === 1 ? " page" : " pages") + " (" + bytes(pages * run.page) +
      "), " + data.services[f.services[i]][1] + (p ? "\nby " + p.label + (p.path ? "  " + p.path : "") : "");
  }
  const about = {
    files(run, lane, ns, y) {
      const f = run.files, slot = data.span / f.slots, reach = ((view.to - view.from) / width) * 7;
      const each = (lane.height / mostFiles) * f.per;
      let best = -1, nearest = 60;
      for (let i = firstFrom(f.times, Math.floor((ns - reach) / slot)); i < f.times.length && f.times[i] * slot <= ns + reach; i++) {
        if (f.hits && !f.hits[i]) continue;
        const dx = xOf((f.times[i] + 0.5) * slot) - xOf(ns), dy = lane.y + (f.rows[i] + 0.4) * each - y;
        if (dx * dx + dy * dy < nearest) { nearest = dx * dx + dy * dy; best = i; }
      }
      if (best < 0) return null;
      return { text: fileAt(run, best), ring: [xOf((f.times[best] + 0.5) * slot), lane.y + (f.rows[best] + 0.4) * each], file: f.names[f.rows[best]] };
    },
    processes(run, lane, ns, y) {
      const p = run.processes, row = p.rows[Math.floor((y - lane.y - 1) / ROW)];
      if (!row) return null;
      const slot = Math.min(p.slots - 1, Math.floor((ns / data.span) * p.slots));
      const width_ = Math.max(1, Math.ceil((((view.to - view.from) / width) * p.slots) / data.span));
      const to = Math.min(p.slots, slot + width_);
      const share = (sums) => Math.round(((sums[to] - sums[slot]) / (to - slot) / 9) * 100) + " %";
      const now = ns < row.from || ns > row.to ? "not seen then" : p.slices ? "runs " + share(row.ran) + ", waits for disks " + share(row.waited) : "";
      return { text: row.label + (row.path ? "  " + row.path : "") + "\nseen from " + time(row.from) + " to " + time(row.to) + "\n" + time(ns) + (now ? ": " + now : "") };
    },
    map(run, lane, ns, y) {
      const d = run.devices[lane.device];
      if (!d) return null;
      const slot = data.span / d.slots, reach = ((view.to - view.from) / width) * 7;
      let best = -1, nearest = 60;
      for (let i = firstFrom(d.times, Math.floor((ns - reach) / slot)); i < d.times.length && d.times[i] * slot <= ns + reach; i++) {
        const dx = xOf((d.times[i] + 0.5) * slot) - xOf(ns), dy = lane.y + lane.height * (1 - (d.places[i] + 0.5) / d.lines) - y;
        if (dx * dx + dy * dy < nearest) { nearest = dx * dx + dy * dy; best = i; }
      }
      const at = best < 0 ? d.first + (1 - (y - lane.y) / lane.height) * (d.end - d.first) : d.first + ((d.places[best] + 0.5) / d.lines) * (d.end - d.first);
      return { text: time(best < 0 ? ns : (d.times[best] + 0.5) * slot) + ": " + d.name + " at " + bytes(at * 512) + (best < 0 ? "" : ", " + data.kinds[d.kinds[best]][1]) };
    },
    stages(run, lane, ns) {
      const now = run.marks.filter(([at]) => at <= ns).pop();
      return { text: time(ns) + (now ? ": since " + time(now[0]) + " " + now[1] : "") };
    },
    floor(run, lane, ns) {
      if (!run.floor) return null;
      let from = run.floor.ns, found = ns <= from ? "floor: no order of reads is faster than " + time(from) : "";
      for (const [cause, length] of run.floor.causes) {
        if (!found && ns <= from + length) found = cause + ": " + time(length);
        from += length;
      }
      return { text: time(ns) + (found ? "\n" + found : "") };
    },
  };
  const valueAt = (of, ns) => {
    const value = of.values[Math.floor((ns / data.span) * of.count)];
    return value === undefined ? null : (value / 500) * of.most;
  };
  const values = {
    cpu: (run, lane, ns) => [["busy", valueAt(run.cpu, ns), (v) => Math.round(v * 100) + " %"]],
    memory: (run, lane, ns) => ["page cache", "to be written", "free"].map((name, i) => [name, valueAt(run.memory[i], ns), bytes]),
    throughput: (run, lane, ns, d) => d && [["read", valueAt(d.read, ns), (v) => bytes(v) + "/s"], ["written", valueAt(d.written, ns), (v) => bytes(v) + "/s"]],
    busy: (run, lane, ns, d) => d && [["busy", valueAt(d.busy, ns), (v) => Math.round(v * 100) + " %"]],
    depth: (run, lane, ns, d) => d && [["requests at once", valueAt(d.depth, ns), (v) => v.toFixed(1)]],
    uses: (run, lane, ns) => {
      const f = run.files, i = firstFrom(f.times, (ns / data.span) * f.slots);
      return data.services.map(([, name], k) => [name, f.sums[k][i] * run.page, bytes]);
    },
  };
  values.services = values.uses;
  function find(px, py) {
    const index = columns.findIndex((x) => px >= x && px <= x + width);
    const lane = lanes.find((lane) => py >= lane.y && py <= lane.y + lane.height);
    if (index < 0) return null;
    const run = data.runs[index], ns = view.from + ((px - columns[index]) / width) * (view.to - view.from);
    let found = null;
    if (lane && about[lane.shows]) found = about[lane.shows](run, lane, ns, py);
    else if (lane && values[lane.shows]) {
      const lines = (values[lane.shows](run, lane, ns, run.devices[lane.device]) || []).filter(([, value]) => value !== null);
      found = { text: [time(ns), ...lines.map(([name, value, unit]) => name + ": " + unit(value))].join("\n") };
    }
    return { index, ns, text: time(ns), ...found, lane: lane && lane.shows };
  }
  function show(found, x, y) {
    hover = found;
    tip.hidden = !found;
    if (found) {
      tip.textContent = found.text;
      const box = tip.getBoundingClientRect();
      tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
      tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18) + "px";
    }
    ask();
  }

  // ---- search ---------------------------------------------------------------------------------------------------------
  const search = document.getElementById("search");
  function seek() {
    view.search = search.value.trim().toLowerCase();
    let files = 0, processes = 0;
    for (const run of data.runs) {
      const f = run.files, p = run.processes;
      f.hits = null;
      if (!view.search) continue;
      p.hitRows = p.rows.map((row) => row.label.toLowerCase().includes(view.search) || row.path.toLowerCase().includes(view.search));
      f.hitRows = f.names.map((name) => name.toLowerCase().includes(view.search));
      f.hits = new Uint8Array(f.times.length);
      for (let i = 0; i < f.hits.length; i++) f.hits[i] = f.hitRows[f.rows[i]] || p.hitRows[f.processes[i] - 1] ? 1 : 0;
      // Who used what matches is not dimmed either.
      p.lit = [...p.hitRows];
      for (let i = 0; i < f.hits.length; i++) if (f.hits[i] && f.processes[i]) p.lit[f.processes[i] - 1] = true;
      files += f.hitRows.filter(Boolean).length;
      processes += p.hitRows.filter(Boolean).length;
    }
    view.files = files;
    view.processes = processes;
    document.getElementById("found").textContent = view.search ? files + " files, " + processes + " processes" : "";
    chosen = null;
    ask();
  }
  // The next or previous first use that matches, of all runs by time.
  function step(by) {
    const all = [];
    data.runs.forEach((run, index) => {
      const f = run.files, slot = data.span / f.slots;
      for (let i = 0; i < f.times.length; i++) if (!f.hits || f.hits[i]) all.push([f.times[i] * slot, index, i]);
    });
    if (!all.length) return;
    if (data.runs.length > 1) all.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let at = chosen ? all.findIndex(([, index, i]) => index === chosen[1] && i === chosen[2]) + by : by > 0 ? all.findIndex(([ns]) => ns >= view.from) : all.length - 1;
    at = Math.min(all.length - 1, Math.max(0, at));
    chosen = all[at];
    const [ns, index, i] = chosen, run = data.runs[index], length = view.to - view.from;
    if (ns < view.from || ns > view.to) look(ns - length / 2, ns + length / 2);
    const lane = lanes.find((lane) => lane.shows === "files"), each = (lane.height / mostFiles) * run.files.per;
    const x = xOf((run.files.times[i] + 0.5) * (data.span / run.files.slots)), y = lane.y + (run.files.rows[i] + 0.4) * each;
    const box = canvas.getBoundingClientRect();
    const text_ = fileAt(run, i);
    document.getElementById("said").textContent = text_;
    show({ index, ns, text: text_, ring: [x, y], lane: "files", file: run.files.names[run.files.rows[i]] }, box.left + columns[index] + x, box.top + y);
  }

  // ---- what the reader does -------------------------------------------------------------------------------------------
  const acts = {
    in: () => zoom(0.6), out: () => zoom(1 / 0.6), left: () => pan(-0.15), right: () => pan(0.15),
    all: () => look(0, data.span), tall: () => { view.tall = !view.tall; place(); ask(); },
    next: () => step(1), previous: () => step(-1), search: () => { search.focus(); search.select(); },
    first: () => look(0, view.to - view.from), last: () => look(data.span - (view.to - view.from), data.span),
    nothing: () => { chosen = null; show(null); },
  };
  const KEYS = { "+": "in", "=": "in", "-": "out", "0": "all", ArrowLeft: "left", ArrowRight: "right", f: "tall", n: "next", p: "previous",
    "/": "search", Home: "first", End: "last", Escape: "nothing" };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.target === search) {
      if (event.key === "Enter") { step(1); event.preventDefault(); }
      if (event.key === "Escape") { search.value = ""; seek(); acts.nothing(); canvas.focus(); }
      return;
    }
    const act = KEYS[event.key];
    if (act) { acts[act](); event.preventDefault(); }
  });
  for (const button of document.querySelectorAll("button")) button.addEventListener("click", () => acts[button.dataset.do]());
  search.addEventListener("input", seek);

  const inColumn = (px) => columns.findIndex((x) => px >= x && px <= x + width);
  const nsAt = (px, index) => view.from + ((px - columns[index]) / width) * (view.to - view.from);
  canvas.addEventListener("wheel", (event) => {
    const index = inColumn(event.offsetX);
    if (index < 0) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return pan((((event.deltaX || event.deltaY) * unit) / width) * 1.5);
    zoom(Math.exp(Math.max(-200, Math.min(200, event.deltaY * unit)) * 0.003), nsAt(event.offsetX, index));
  }, { passive: false });
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || inColumn(event.offsetX) < 0) return;
    drag = { x: event.offsetX, from: view.from, to: view.to };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const by = ((drag.x - event.offsetX) / width) * (drag.to - drag.from);
      show(null);
      return look(drag.from + by, drag.to + by);
    }
    show(find(event.offsetX, event.offsetY), event.clientX, event.clientY);
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { drag = null; });
  canvas.addEventListener("pointerleave", () => { if (!drag) show(null); });
  canvas.addEventListener("dblclick", (event) => {
    const index = inColumn(event.offsetX);
    if (index >= 0) zoom(0.4, nsAt(event.offsetX, index));
  });
  addEventListener("resize", () => { place(); ask(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); ask(); });

  // The most pages of a service in a pixel when all is shown, which the strips' heights are told by.
  function strips() {
    view.strip = 1;
    for (const run of data.runs) {
      const f = run.files, sums = new Map();
      for (let i = 0; i < f.times.length; i++) {
        const key = Math.floor((f.times[i] / f.slots) * width) * 4 + f.services[i];
        sums.set(key, (sums.get(key) || 0) + f.pages[i]);
      }
      for (const sum of sums.values()) view.strip = Math.max(view.strip, sum);
    }
  }

  readColours();
  place();
  strips();
  ask();
  // For those who drive the page by its protocol: what is shown, and where the parts are.
  window.headstartChart = {
    view, data, look, zoom, pan, find,
    lanes: () => lanes, columns: () => columns, width: () => width, hover: () => hover,
  };
})();
