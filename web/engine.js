// The page's interface to the worker: questions return promises of answers. The worker starts with the first question, or
// with start(). A stopped worker restarts by itself; what it had found by then is the answer, marked as `stopped`.

export class Engine {
  #worker = null;
  #waiting = new Map();
  #count = 0;
  #listener;

  // The listener is told {loading}, {ready} or {failed}, as worker.js says them.
  constructor(listener) {
    this.#listener = listener;
  }

  start() {
    if (!this.#worker) this.#begin();
  }

  ask(question, options = {}, onProgress = null) {
    const id = ++this.#count;
    this.start();
    return new Promise((resolve) => {
      this.#waiting.set(id, { resolve, onProgress });
      this.#worker.postMessage({ id, question, options: onProgress ? { ...options, progress: true } : options });
    });
  }

  // Stops the current computation; pending questions are answered with `stopped` and the best answer so far.
  stop() {
    this.#worker.terminate();
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    this.#begin();
    for (const { resolve, best } of waiting) resolve({ ...best, stopped: true });
  }

  #begin() {
    this.#worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    this.#worker.onmessage = ({ data }) => (data.id ? this.#hear(data) : this.#listener(data));
    this.#worker.onerror = (event) => this.#listener({ failed: event.message || "cannot load the worker" });
  }

  #hear({ id, answer, progress, best }) {
    const asked = this.#waiting.get(id);
    if (progress) {
      asked?.onProgress?.(progress);
      return;
    }
    if (best) {
      if (asked) asked.best = best;
      return;
    }
    this.#waiting.delete(id);
    asked?.resolve(answer);
  }
}
