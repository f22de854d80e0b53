// The worker as the page sees it: questions with promises of answers; it can be stopped, and begins anew by itself.

export class Engine {
  #worker;
  #waiting = new Map();
  #count = 0;
  #listener;

  // The listener is told {loading}, {ready} or {failed}, as worker.js says them.
  constructor(listener) {
    this.#listener = listener;
    this.#begin();
  }

  ask(question, options = {}, onProgress = null) {
    const id = ++this.#count;
    return new Promise((resolve) => {
      this.#waiting.set(id, { resolve, onProgress });
      this.#worker.postMessage({ id, question, options: onProgress ? { ...options, progress: true } : options });
    });
  }

  // Ends whatever is being computed; those who wait get `stopped`.
  stop() {
    this.#worker.terminate();
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    this.#begin();
    for (const { resolve } of waiting) resolve({ stopped: true });
  }

  #begin() {
    this.#worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    this.#worker.onmessage = ({ data }) => (data.id ? this.#hear(data) : this.#listener(data));
    this.#worker.onerror = (event) => this.#listener({ failed: event.message || "the worker can't be loaded" });
  }

  #hear({ id, answer, progress }) {
    const asked = this.#waiting.get(id);
    if (progress) {
      asked?.onProgress?.(progress);
      return;
    }
    this.#waiting.delete(id);
    asked?.resolve(answer);
  }
}
