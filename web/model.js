// @ts-check
// The types of the server's JSON (docs/json.md describes the keys), and the state that all parts of the page share.

/** @typedef {"free"|"leased"|"shared"|"stranger"|"drained"|"lost"|"unknown"} State */
/** @typedef {{pid: number, user: string|null, name: string|null, memory_mib: number|null, lease: string|null}} Process */
/** @typedef {"announced"|"estimated"} EndSource */
/**
 * A lease whose record cannot be read has neither pid, holder, command, label nor since.
 * @typedef {{id: string, user: string, pid: number|null, holder: "job"|"shell"|null, adopted: boolean|null, command: string|null, label: string|null,
 *   since: string|null, ends: string|null, ends_source: EndSource|null, overdue: boolean, exclusive: boolean,
 *   memory_mib: number|null, job: string|null, idle_s: number|null, problem: string|null}} Lease
 */
/**
 * @typedef {{index: number|string, uuid: string|null, name: string|null, state: State, memory_total_mib: number|null,
 *   memory_used_mib: number|null, utilization_pct: number|null, temperature_c: number|null, power_w: number|null,
 *   performance_state: number|null, reason: string, processes: Process[], leases: Lease[]}} Gpu
 */
/**
 * @typedef {{ticket: string, position: number, user: string, pid: number, command: string|null, label: string,
 *   since: string, request: string, count: number, memory_mib: number|null, time_s: number|null, gpu_name: string|null,
 *   gpus: (number|string)[]|null, reason: string, starts: string|null, start_unknown_reason: string|null}} Ticket
 */
/**
 * @typedef {{host: string, driver: string|null, gpus: Gpu[], queue: Ticket[], queue_length?: number,
 *   next_free: {gpus: (number|string)[], at: string, source: EndSource}|null,
 *   age_s: number|null, problem: string|null, filtered?: boolean}} Host
 */
/** @typedef {{total: number, succeeded: number, failed: number, running: number}} BatchCounts */
/**
 * @typedef {{id: string, user: string, host: string|null, queue_hosts: string[], kind: "run"|"batch"|"shell"|"adopted", detached: boolean,
 *   state: "held"|"waiting"|"running"|"ended", reason: string|null, position: number|null, command: string, label: string,
 *   gpus: (number|string)[], leases: string[], submitted: string, started: string|null, ended: string|null,
 *   starts: string|null, ends: string|null, ends_source: EndSource|null, result: string|null, exit_code: number|null,
 *   batch: BatchCounts|null, output: string|null}} Job
 */
/** @typedef {{jobs: Job[], jobs_length: number}} JobList */
/** @typedef {{version: string, changes: boolean, user: string, host: string}} Hello */
/** @typedef {{uuid: string, utilization_pct: (number|null)[], memory_used_mib: (number|null)[]}} GpuSamples */
/** @typedef {{interval_s: number, until: string, hosts: {host: string, gpus: GpuSamples[]}[]}} Samples */
/**
 * @typedef {{time: string, hosts: {host: string,
 *   gpus: {uuid: string, utilization_pct: number|null, memory_used_mib: number|null}[]}[]}} Sample
 */
/** @typedef {{user: string, start: string, end: string, leases: number, shared: boolean}} Span */
/** @typedef {{host: string, uuid: string, index: number|string|null, name: string|null, spans: Span[]}} Row */
/** @typedef {{since: string, until: string, resolution_s: number, truncated: boolean, gpus: Row[]}} Timeline */
/**
 * @typedef {{user: string, leases: number, running: number, gpu_hours: number, shared_gpu_hours: number,
 *   utilization_pct: number|null, idle_gpu_hours: number|null, waited_s_median: number|null}} UserFigures
 */
/** @typedef {{since: string, until: string, users: UserFigures[]}} Report */
/**
 * @typedef {{lease: string, host: string, user: string, command: string|null, label: string, granted: string,
 *   ended: string|null, ending: string, exit_code: number|null, signal: number|null,
 *   within: string|null}} LoggedLease
 */

/** The icon of each state. The shapes differ, so that colour is never the only distinction. */
export const STATE_ICONS = /** @type {Record<State, string>} */ ({
  free: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Zm0 2a3.5 3.5 0 1 1 0 7 3.5 3.5 0 0 1 0-7Z",
  leased: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Z",
  shared: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Zm0 2v7a3.5 3.5 0 0 1 0-7Z",
  stranger: "M8 1.5 15 14H1Zm-1 4.5v4h2V6Zm0 5v2h2v-2Z",
  drained: "M2.5 2.5h11v11h-11Zm2 4.3v2.4h7V6.8Z",
  lost: "M4 2 8 6l4-4 2 2-4 4 4 4-2 2-4-4-4 4-2-2 4-4-4-4Z",
  unknown: "M8 1 15 8l-7 7-7-7Zm-1 9.5v2h2v-2Zm-1.6-4h1.7c0-1 1.7-1 1.7 0 0 .8-1.7.8-1.7 2.8h1.8c0-1.2 1.7-1.300 1.700-2.900C10.600 3 5.400 3 5.400 6.500Z",
});

export const STATES = /** @type {State[]} */ (Object.keys(STATE_ICONS));

/** @typedef {"running"|"waiting"|"held"|"succeeded"|"failed"|"unknown"} JobIcon */

/** The icon of each state of a job, with the same rule. */
export const JOB_ICONS = /** @type {Record<JobIcon, string>} */ ({
  running: "M4 2.5 13.5 8 4 13.500Z",
  waiting: "M8 1.500a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13Zm0 2a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9ZM7 5v4h4V7.200H8.800V5Z",
  held: "M3.5 2.500h3.200v11H3.500Zm5.8 0h3.200v11H9.300Z",
  succeeded: "M2 8.3 4 6.300l2.5 2.500L12 3.300l2 2-7.5 7.500Z",
  failed: STATE_ICONS.lost,
  unknown: STATE_ICONS.unknown,
});

/** What the server has sent about itself; null before the first connection. */
export const server = {
  /** @type {Hello | null} */
  hello: null,
};

/**
 * Identifies a GPU. A lost GPU may not have a UUID; then its index is used.
 * @param {string} host
 * @param {{uuid: string|null, index: number|string|null}} gpu
 */
export function gpu_key(host, gpu) {
  return `${host}/${gpu.uuid ?? `index ${gpu.index}`}`;
}
