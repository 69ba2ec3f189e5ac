// @ts-check
// The samples of the last hour for each GPU, as received from the stream.
import {gpu_key} from "./model.js";

/** @typedef {import("./model.js").Samples} Samples */
/** @typedef {import("./model.js").Sample} Sample */

const POINTS = 360;

/** @type {Map<string, {utilization: (number|null)[], memory: (number|null)[]}>} */
const series = new Map();

/** @param {Samples} samples of the last hour */
export function set_samples(samples) {
  series.clear();
  for (const host of samples.hosts) {
    for (const gpu of host.gpus) {
      series.set(gpu_key(host.host, {uuid: gpu.uuid, index: null}),
          {utilization: gpu.utilization_pct.slice(-POINTS), memory: gpu.memory_used_mib.slice(-POINTS)});
    }
  }
}

/** @param {Sample} sample the next one; GPUs that are missing in it are unknown at that time */
export function add_sample(sample) {
  const missing = new Set(series.keys());
  for (const host of sample.hosts) {
    for (const gpu of host.gpus) {
      const key = gpu_key(host.host, {uuid: gpu.uuid, index: null});
      missing.delete(key);
      add(key, gpu.utilization_pct, gpu.memory_used_mib);
    }
  }
  for (const key of missing) add(key, null, null);
}

/** @param {string} key @param {number|null} utilization @param {number|null} memory */
function add(key, utilization, memory) {
  let one = series.get(key);
  if (!one) series.set(key, (one = {utilization: [], memory: []}));
  one.utilization.push(utilization);
  one.memory.push(memory);
  if (one.utilization.length > POINTS) one.utilization.shift();
  if (one.memory.length > POINTS) one.memory.shift();
}

/** @param {string} key */
export function gpu_samples(key) {
  return series.get(key) ?? {utilization: [], memory: []};
}
