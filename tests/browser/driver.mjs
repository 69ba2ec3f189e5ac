// Drives one Chromium for the tests: reads a command per line, as JSON, and answers each with a line.
//
// {"id", "page", "do", …} → {"id", "result"} or {"id", "error"}. Its packages are in the folder where it is started.
import {createRequire} from "node:module";
import readline from "node:readline";
import {setTimeout} from "node:timers/promises";

const require = createRequire(`${process.cwd()}/`);
const {chromium} = require("playwright-core");
const PATIENCE = 25_000;

const browser = await chromium.launch({
  executablePath: process.env.BERTH_TEST_CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});
const pages = new Map();

const commands = {
  /** A viewer of his own: no cookie, no storage. Whatever goes wrong in the page is kept. */
  async open({page: name, url, width = 1280, height = 900, scheme = "light", scale = 1, motion = "reduce", touch = false,
    permissions = []}) {
    const context = await browser.newContext({viewport: {width, height}, colorScheme: scheme, reducedMotion: motion,
      deviceScaleFactor: scale, hasTouch: touch, permissions});
    const page = await context.newPage();
    const wrong = [];
    const origin = new URL(url).origin;
    page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) wrong.push(`${message.type()}: ${message.text()}`);
    });
    page.on("request", (request) => {
      if (!request.url().startsWith(`${origin}/`) && !request.url().startsWith("data:")) wrong.push(`request: ${request.url()}`);
    });
    page.setDefaultTimeout(PATIENCE);
    pages.set(name, {page, context, wrong});
    await page.goto(url);
  },
  /** Waits until an expression of JavaScript is true; its value. (Playwright's own way needs eval in the page, which
   * the page's rules forbid; they are part of what is tested.) */
  async wait({page, expression}) {
    const end = Date.now() + PATIENCE;
    for (;;) {
      const value = await pages.get(page).page.evaluate(expression);
      if (value) return value;
      if (Date.now() > end) {
        const text = await pages.get(page).page.evaluate("document.body.innerText");
        throw new Error(`it never came true; the page says: ${text.replace(/\s+/g, " ").slice(0, 1500)}`);
      }
      await setTimeout(20);
    }
  },
  async evaluate({page, expression}) {
    return pages.get(page).page.evaluate(expression);
  },
  async click({page, selector}) {
    await pages.get(page).page.click(selector);
  },
  async hover({page, selector}) {
    await pages.get(page).page.hover(selector);
  },
  async tap({page, selector}) {
    await pages.get(page).page.tap(selector);
  },
  async fill({page, selector, text}) {
    await pages.get(page).page.fill(selector, text);
  },
  async press({page, keys}) {
    for (const key of keys) await pages.get(page).page.keyboard.press(key);
  },
  async type({page, text}) {
    await pages.get(page).page.keyboard.type(text);
  },
  async reload({page}) {
    await pages.get(page).page.reload();
  },
  async look({page, width, height = 900, scheme}) {
    const it = pages.get(page).page;
    if (width) await it.setViewportSize({width, height});
    if (scheme) await it.emulateMedia({colorScheme: scheme});
  },
  async screenshot({page, path, whole = false, clip}) {
    await pages.get(page).page.screenshot({path, fullPage: whole, clip});
  },
  /** What axe finds that is serious or critical. */
  async axe({page}) {
    const it = pages.get(page).page;
    if (!(await it.evaluate("typeof axe !== 'undefined'"))) {
      // Through the debugger, not as a script of the page: its rules forbid others.
      await it.evaluate(require("node:fs").readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
    }
    const {violations} = await it.evaluate("axe.run(document)");
    return violations.filter((one) => ["serious", "critical"].includes(one.impact)).map((one) =>
      `${one.id}: ${one.help}: ${one.nodes.map((node) => `${node.html} ${node.failureSummary}`).join(" | ")}`);
  },
  async wrong({page}) {
    return pages.get(page).wrong.splice(0);
  },
  async close({page}) {
    await pages.get(page).context.close();
    pages.delete(page);
  },
};

for await (const line of readline.createInterface({input: process.stdin})) {
  const command = JSON.parse(line);
  let answer;
  try {
    answer = {id: command.id, result: (await commands[command.do](command)) ?? null};
  } catch (error) {
    answer = {id: command.id, error: error.message};
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
