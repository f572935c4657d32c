// Numbers, times and names as text.

export function count(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e9) return `${(value / 1e9).toFixed(1)} G`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return Math.round(value).toLocaleString("en-US");
}

/** A number as it is, with up to six digits after the point. */
export function number(value) {
  return value.toLocaleString("en-US", { maximumFractionDigits: 6 });
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 && value < 10 ? `${value.toFixed(1)}/s` : `${count(value)}/s`;
}

export function percent(ratio) {
  return ratio === null || ratio === undefined ? "–" : `${Math.round(ratio * 100)} %`;
}

/** The phase of a task, with how much of its state it has read while it reads that from the store. */
export function phase(task) {
  const permille = task.counters.restored_permille;
  return permille === undefined ? task.phase : `${task.phase} ${percent(permille / 1000)}`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let index = 0;
  while (value >= 1024 && index < units.length - 1) { value /= 1024; index += 1; }
  return `${index && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[index]}`;
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1) return "< 1 ms";
  if (value < 1000) return `${Math.round(value)} ms`;
  return duration(value);
}

export function duration(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export function clock(iso) {
  const at = new Date(iso);
  return Number.isNaN(at.getTime()) ? "–" : at.toLocaleTimeString("en-GB", { hour12: false });
}

/** A watermark: how far it is behind, or its date if it is far away. */
export function watermark(iso, nowIso) {
  if (!iso) return "";
  const behind = new Date(nowIso) - new Date(iso);
  if (Math.abs(behind) < 86400000) return behind >= 0 ? `watermark −${duration(behind)}` : `watermark +${duration(-behind)}`;
  return `watermark ${iso.slice(0, 19).replace("T", " ")}`;
}

/** The number of an incarnation: the driver's term, and the view that began it. */
export function incarnation(number) {
  return number ? `${Math.floor(number / 4294967296)}.${number % 4294967296}` : "–";
}

export function plural(number, word, many = `${word}s`) {
  return `${number.toLocaleString("en-US")} ${number === 1 ? word : many}`;
}

export function shortened(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
