// @ts-check
// Requests to the server, and the token that some servers require.
import {printable} from "./format.js";

const KEY = "berth-token";

/** @template T @typedef {{data: T, problem: null, status: number} | {data: null, problem: string, status: number}} Answer */

/** The token or null. It comes from the page's address (#token=…), which is cleared at once, or from the form. */
export function stored_token() {
  return sessionStorage.getItem(KEY);
}

/** @param {string | null} value */
export function store_token(value) {
  if (value === null) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, value);
}

export function store_token_from_url() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given === null) return;
  store_token(given);
  history.replaceState(null, "", location.pathname + location.search);
}

/**
 * The Authorization header, if there is a token.
 * @returns {Record<string, string>}
 */
export function authorization() {
  const secret = stored_token();
  return secret ? {Authorization: `Bearer ${secret}`} : {};
}

/**
 * Sends a GET request, or a POST request if there is a body. Never throws: a failure is a message in `problem`.
 * @param {string} path below /api/v1/
 * @param {object} [body]
 * @returns {Promise<Answer<any>>}
 */
export async function call(path, body) {
  const headers = path === "session" ? {} : authorization();
  if (body) headers["Content-Type"] = "application/json";
  try {
    const response = await fetch(`api/v1/${path}`, {method: body ? "POST" : "GET", headers, cache: "no-store",
      body: body && JSON.stringify(body)});
    const data = await response.json().catch(() => null);
    if (response.ok) return {data, problem: null, status: response.status};
    const problem = printable(data?.error, 500) || `The server answered ${response.status}.`;
    return {data: null, problem, status: response.status};
  } catch {
    return {data: null, problem: "The server does not answer.", status: 0};
  }
}

/**
 * Asks the server whether a token is valid, and stores it if so. Returns a message, or null on success.
 * @param {string} value
 */
export async function check_token(value) {
  const answer = await call("session", {token: value});
  if (answer.problem === null) store_token(value);
  return answer.problem;
}
