// Runs Python in a thread: answers the page's questions with session.py, one after the other.

const SITE = new URL("./", import.meta.url);
let python, session;

async function boot() {
  const settings = await (await fetch(new URL("settings.json", SITE))).json();
  const base = new URL(settings.pyodide, SITE).href;
  say("Python, about 10 MB the first time");
  const { loadPyodide } = await import(`${base}pyodide.mjs`);
  python = await loadPyodide({ indexURL: base });
  say("numpy");
  await python.loadPackage("numpy", { messageCallback: () => {} });
  say("tflm");
  await Promise.all(settings.wheels.map(async (wheel) => unpack(wheel)));
  python.FS.writeFile("session.py", await (await fetch(new URL("session.py", SITE))).text());
  python.FS.mkdir("models");
  session = python.pyimport("session").Session(python.pyimport("pathlib").Path("models"));
  postMessage({ ready: true });
}

async function unpack(wheel) {
  python.unpackArchive(await (await fetch(new URL(wheel, SITE))).arrayBuffer(), "whl");
}

function say(loading) {
  postMessage({ loading });
}

function toJavaScript(answer) {
  const plain = copied(answer);
  answer.destroy();
  return plain;
}

function copied(answer) {
  return answer.toJs({ dict_converter: Object.fromEntries, create_pyproxies: false });
}

const booted = boot();
booted.catch((error) => postMessage({ failed: String(error.message || error) }));

onmessage = async ({ data: { id, question, options } }) => {
  await booted;
  const given = { ...options };
  if (given.data) given.data = python.toPy(given.data);
  if (given.progress) given.progress = (text) => postMessage({ id, progress: text });
  if (given.best) given.best = (answer) => postMessage({ id, best: copied(answer) });
  try {
    postMessage({ id, answer: toJavaScript(session.ask.callKwargs(question, given)) });
  } catch (error) {
    postMessage({ id, answer: { error: String(error.message || error) } });
  }
};
