// The page: sends a model to the engine and shows the results. session.py computes them.

import { Engine } from "./engine.js";
import { formatOf, headerOf, isModel } from "./header.js";

const EXAMPLES = "examples/";
const HIGHEST_PICTURE = 4000;
const FIRST_MACHINE = "nano33ble";

const $ = (selector, inside = document) => inside.querySelector(selector);
const number = new Intl.NumberFormat("en-US");
const query = new URLSearchParams(location.search);
const machineForm = $("#machine");
const [machineChoice, kernelsChoice] = [machineForm.elements.machine, machineForm.elements.kernels];

const isEmbedded = window.parent !== window;

let settings, measured;
let machines = [];
let current = null;
let openInPython = null;
let busy = 0;
let pending = "Python"; // what is being loaded; questions wait for it

const engine = new Engine(({ loading = "", failed }) => {
  pending = loading;
  if (failed) showError(`Python can't be loaded: ${failed}. Check the network connection.`);
  showStatus();
});

// --- Display --------------------------------------------------------------------------------------------------------

function showError(text) {
  $("#error").textContent = text;
  $("#error").hidden = !text;
}

function showStatus() {
  const status = $("#status");
  status.hidden = !pending && !busy;
  $("span", status).textContent = pending ? `Loading ${pending}` : "Computing";
  $("#stop").hidden = !busy || Boolean(pending);
}

function fillReport(element, html) {
  element.innerHTML = html;
  for (const table of element.querySelectorAll("table")) {
    const frame = document.createElement("div");
    Object.assign(frame, { className: "scroll", tabIndex: 0, role: "region", ariaLabel: table.caption?.textContent || "figures" });
    table.replaceWith(frame);
    frame.append(table);
  }
}

function fillList(list, entries) {
  list.replaceChildren(...entries.map(([label, value]) => {
    const pair = document.createElement("div"), term = document.createElement("dt"), text = document.createElement("dd");
    term.textContent = label;
    text.textContent = value;
    pair.append(term, text);
    return pair;
  }));
}

function inBytes(size) {
  const unit = size >= 2 ** 20 ? [2 ** 20, "MiB"] : [2 ** 10, "KiB"];
  return size < 1024 ? `${size} bytes` : `${number.format(size)} bytes (${(size / unit[0]).toFixed(1)} ${unit[1]})`;
}

function showHeader(name, bytes) {
  const header = headerOf(bytes, settings);
  const counts = (pairs) => pairs.map(([what, count]) => `${count} ${what}`).join(", ");
  const total = (pairs) => pairs.reduce((sum, [, count]) => sum + count, 0);
  $("#model-title").textContent = name;
  document.title = `${name}: does it fit?`;
  fillList($("#header"), [
    ["File", inBytes(bytes.length)],
    ...(header ? [
      [`${total(header.operators)} operators`, counts(header.operators)],
      [`${total(header.tensors)} tensors`, counts(header.tensors)],
      ...(header.description ? [["Description", header.description]] : []),
    ] : []),
  ]);
  $("#model").hidden = false;
}

// --- Requests --------------------------------------------------------------------------------------------------------

async function ask(question, options = {}, onProgress = null) {
  const known = recorded(question, options);
  if (known) return known;
  if (question === "open") openInPython = current;
  else if (current !== openInPython && question !== "find") ask("open", { name: current.name, data: current.bytes });
  busy += 1;
  showStatus();
  const answer = await engine.ask(question, options, onProgress);
  busy -= 1;
  showStatus();
  return answer;
}

// An answer for the first example, recorded when the page was built; Python need not have loaded.
function recorded(question, { board, kernels }) {
  if (current?.example !== measured.example) return null;
  const { arena, check, boards, open } = measured.answers;
  if (question === "open" && openInPython !== current) return open;
  if (question === "boards" && kernels === null) return boards;
  return board === measured.board && kernels === measured.kernels ? { arena, check }[question] : null;
}

function chosenMachine() {
  const { option, name } = machines[machineChoice.value];
  return { [option]: name, kernels: kernelsChoice.value };
}

async function openModel(name, bytes, example = "") {
  await ready; // a model may be chosen before the page has its settings
  showError("");
  const isSource = settings.c_suffixes.some((suffix) => name.toLowerCase().endsWith(suffix)); // Python reads its arrays
  if (!isModel(bytes) && !isSource) {
    const found = formatOf(bytes, settings) ?? { name: "of an unknown format", advice: "bytes 5 to 8 are not TFL3" };
    showError(`${name} is not a .tflite model but ${found.name}; ${found.advice}`);
    return;
  }
  current = { name, bytes, example };
  remember("example", example);
  for (const result of document.querySelectorAll(".result, .report, .figures, .verdict")) result.replaceChildren();
  for (const picture of document.querySelectorAll("iframe.picture")) picture.hidden = true;
  showHeader(name, bytes);
  const answer = await sendModel();
  if (answer.stopped || answer.superseded) return;
  if (answer.error) {
    showError(answer.error);
    $("#answers").hidden = true;
    return;
  }
  $("#answers").hidden = false;
  fillReport($("#operators-report"), answer.operators);
  await showMachine();
  await showBoards();
}

async function sendModel() {
  const model = current;
  const answer = await ask("open", { name: model.name, data: model.bytes });
  return model === current ? answer : { superseded: true };
}

// The answer for the chosen model and machine; null if the choice has changed meanwhile.
async function askOfChoice(question, options = {}) {
  const model = current, machine = chosenMachine();
  const answer = await ask(question, { ...machine, ...options });
  const same = model === current && JSON.stringify(machine) === JSON.stringify(chosenMachine());
  return same && !answer.stopped ? answer : null;
}

async function showMachine() {
  const answer = await askOfChoice("arena");
  if (!answer) return;
  showArena(answer);
  const check = await askOfChoice("check");
  if (!check) return;
  fillReport($("#device-report"), check.error ? "" : check.report);
}

function showArena(answer) {
  const verdict = $("#verdict");
  verdict.className = "verdict";
  if (answer.error) {
    verdict.textContent = answer.error;
    verdict.classList.add("no");
    for (const place of [$("#figures"), $("#arena-report")]) place.replaceChildren();
    $("#picture").hidden = true;
    return;
  }
  const place = machines[machineChoice.value].name;
  const needed = number.format(answer.minimum_arena_bytes);
  const says = { yes: "It fits", no: "It does not fit", "not known": "It is not known whether it fits" }[answer.answer];
  const next = answer.fits ? "" : " Continue with “Make it fit”, or with “C files”, which need no interpreter.";
  const fits = says ? ` ${says} ${place}: ${answer.verdict}.${next}` : "";
  verdict.textContent = `An arena of ${needed} bytes.${fits}`;
  verdict.classList.toggle("yes", answer.fits === true);
  verdict.classList.toggle("no", answer.fits === false);
  fillList($("#figures"), [
    ["smallest arena", answer.minimum_arena_bytes], ["in use", answer.arena_used_bytes],
    ["head", answer.head_bytes], ["tail", answer.tail_bytes],
  ].map(([label, size]) => [label, `${number.format(size)} B`]));
  fillReport($("#arena-report"), answer.report);
  showPicture("#picture", answer.page);
}

function showPicture(place, page) {
  const picture = $(place).cloneNode(); // a frame that was hidden when its page changed keeps a width of 0 in Chromium
  Object.assign(picture, { srcdoc: page, hidden: false });
  $(place).replaceWith(picture);
}

async function showBoards() {
  const form = $("#boards-form"), model = current;
  const answer = await ask("boards", { kernels: form.elements.kernels.value || null });
  if (model !== current || answer.stopped) return;
  const report = $("#boards-report");
  if (answer.error) {
    report.textContent = answer.error;
    return;
  }
  fillReport(report, answer.report);
  [...report.querySelectorAll("tbody tr")].forEach((row, i) => {
    row.className = answer.fit[i] ? "yes" : "no";
    const choose = document.createElement("button");
    choose.type = "button";
    choose.className = "link";
    choose.textContent = row.cells[0].textContent;
    choose.addEventListener("click", () => chooseMachine(choose.textContent));
    row.cells[0].replaceChildren(choose);
  });
  filterBoards();
}

function filterBoards() {
  const form = $("#boards-form").elements, wanted = form.find.value.trim().toLowerCase();
  const rows = [...document.querySelectorAll("#boards-report tbody tr")];
  for (const row of rows) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted) || (form.fitting.checked && row.className !== "yes");
  }
  const fitting = rows.filter((row) => row.className === "yes").length;
  $("#boards-count").textContent = rows.length ? `It fits ${fitting} of ${rows.length} boards.` : "";
}

// --- Choices ---------------------------------------------------------------------------------------------------------

function offerMachines(known, names) {
  machines = known;
  $("#board-names").replaceChildren(...names.map((name) => new Option("", name)));
  const labels = [...new Set(machines.map(({ group }) => group))];
  machineChoice.replaceChildren(...labels.map((label) => {
    const group = Object.assign(document.createElement("optgroup"), { label });
    machines.forEach((machine, i) => { if (machine.group === label) group.append(new Option(machine.label, i)); });
    return group;
  }));
  const asked = query.get("board") || query.get("target");
  const found = machines.findIndex(({ name }) => name === asked);
  machineChoice.value = found >= 0 ? found : machines.findIndex(({ name }) => name === FIRST_MACHINE);
  offerKernels(query.get("kernels"));
  machineChoice.disabled = kernelsChoice.disabled = false;
  const libraries = [...new Set(machines.flatMap(({ kernels }) => kernels))];
  if (asked && found < 0) findBoard(asked);
  $("#boards-form").elements.kernels.append(...libraries.map((name) => new Option(name, name)));
}

function offerKernels(asked = null) {
  const { kernels, option } = machines[machineChoice.value];
  kernelsChoice.replaceChildren(...kernels.map((name, i) =>
    new Option(i === 0 && option === "board" ? `${name} (usual there)` : name, name)));
  if (asked && kernels.includes(asked)) kernelsChoice.value = asked;
}

async function findBoard(text) {
  const wanted = text.trim(), error = $("#find-error");
  error.hidden = true;
  if (!wanted) return;
  const answer = await ask("find", { name: wanted });
  if (answer.stopped || wanted !== (machineForm.elements.find.value.trim() || wanted)) return;
  if (answer.error) {
    Object.assign(error, { textContent: answer.error, hidden: false });
    return;
  }
  machineChoice.value = machines.findIndex((machine) => machine.name === answer.name);
  machineChoice.dispatchEvent(new Event("change"));
}

function chooseMachine(name) {
  machineChoice.value = machines.findIndex((machine) => machine.name === name);
  machineChoice.dispatchEvent(new Event("change"));
  $("#arena").scrollIntoView();
  machineChoice.focus({ preventScroll: true });
}

function remember(key, value) {
  const address = new URL(location.href);
  if (value) address.searchParams.set(key, value);
  else address.searchParams.delete(key);
  history.replaceState(null, "", address);
}

function rememberMachine() {
  const { board = "", target = "", kernels } = chosenMachine();
  for (const [key, value] of Object.entries({ board, target, kernels })) remember(key, value);
}

// --- Downloads -------------------------------------------------------------------------------------------------------

function showResult(form, answer) {
  const result = $(".result", form);
  if (!answer.report) {
    result.textContent = answer.error || "Stopped.";
    return;
  }
  fillReport(result, answer.report);
  if (answer.page) showPicture(`#${form.id} iframe.picture`, answer.page);
  for (const file of answer.files || []) result.append(offered(file));
}

function offered({ name, data }) {
  const link = document.createElement("a");
  Object.assign(link, { className: "download", download: name, textContent: `Download ${name}`,
    href: URL.createObjectURL(new Blob([data], { type: "application/octet-stream" })) });
  const row = Object.assign(document.createElement("div"), { className: "row" });
  row.append(link);
  if (name.endsWith(".tflite")) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Continue with this model" });
    button.addEventListener("click", () => openModel(name, data));
    row.append(button);
  }
  return row;
}

function onSubmit(form, question, optionsOf, tells = false) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const model = current, result = $(".result", form);
    result.textContent = "Working";
    const options = { ...chosenMachine(), ...await optionsOf(form.elements) };
    const answer = await ask(question, options, tells && ((text) => { result.textContent = text; }));
    if (model === current) showResult(form, answer);
  });
}

onSubmit($("#fit"), "fit", (fields) => {
  $("#fit-picture").hidden = true;
  return { reserve: fields.reserve.value || "4K", best: true };
}, true);
onSubmit($("#plan"), "plan", (fields) => ({
  in_place: fields.in_place.checked, reorder: fields.reorder.checked, seconds: secondsFrom(fields),
}), true);
onSubmit($("#tile"), "tile", (fields) => ({
  macs: fields.macs.value || "10%", ram: fields.ram.value || null, seconds: secondsFrom(fields),
}), true);
onSubmit($("#memories"), "memories", (fields) => {
  $("#memories-picture").hidden = true;
  return { memories: fields.memories.value, cost: fields.cost.value || null, seconds: secondsFrom(fields) };
}, true);
onSubmit($("#stream"), "stream", (fields) => ({ hop: Number(fields.hop.value) || 1, causal: fields.causal.checked }), true);
onSubmit($("#comparison"), "compare", async ({ other: { files: [file] } }) => ({ name: file.name, data: await bytesOf(file) }));
onSubmit($("#compile"), "compile", (fields) => ({ tests: Number(fields.tests.value) || 1 }));
onSubmit($("#export"), "export", (fields) => ({ typed: fields.typed.checked }));

function secondsFrom(fields) {
  return fields.seconds.value === "" ? null : Number(fields.seconds.value);
}

// --- Files -----------------------------------------------------------------------------------------------------------

async function bytesOf(file) {
  return new Uint8Array(await file.arrayBuffer());
}

async function openFile(file) {
  const bytes = await bytesOf(file);
  openModel(file.name, bytes);
}

async function openExample(name) {
  if (!settings.examples.includes(name)) {
    showError(`Unknown example ${name}; use one of ${settings.examples.join(", ")}.`);
    return;
  }
  const file = `${name}.tflite`, answer = await fetch(EXAMPLES + file);
  openModel(file, new Uint8Array(await answer.arrayBuffer()), name);
}

function offerExamples() {
  $("#examples").append(...settings.examples.flatMap((name, i) => {
    const link = Object.assign(document.createElement("a"), { href: `?example=${name}`, textContent: name });
    link.addEventListener("click", (event) => {
      event.preventDefault();
      openExample(name);
    });
    return [i ? ", " : "", link];
  }));
}

$("#file").addEventListener("change", async ({ target }) => {
  if (target.files.length) await openFile(target.files[0]);
  target.value = ""; // so that choosing the same file again is a change
});
addEventListener("dragover", (event) => {
  event.preventDefault();
  $("#drop").classList.add("over");
});
addEventListener("dragleave", () => $("#drop").classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  $("#drop").classList.remove("over");
  if (event.dataTransfer.files.length) openFile(event.dataTransfer.files[0]);
});
machineChoice.addEventListener("change", () => {
  offerKernels();
  rememberMachine();
  showMachine();
});
machineForm.elements.find.addEventListener("change", ({ target }) => findBoard(target.value));
kernelsChoice.addEventListener("change", () => {
  rememberMachine();
  showMachine();
});
$("#boards-form").elements.kernels.addEventListener("change", showBoards);
$("#boards-form").addEventListener("input", filterBoards);
for (const id of ["#boards-form", "#machine"]) $(id).addEventListener("submit", (event) => event.preventDefault());
$("#stop").addEventListener("click", async () => {
  engine.stop();
  openInPython = null;
  if (current) await sendModel();
});
addEventListener("message", ({ source, data }) => { // the picture's frame has an origin of its own: it says how high it is
  const height = Number(data?.height);
  const picture = [...document.querySelectorAll("iframe.picture")].find((frame) => frame.contentWindow === source);
  if (picture && height > 0) picture.style.height = `${Math.min(height, HIGHEST_PICTURE)}px`;
});

// In a frame, Python waits until someone is about to use it; the page around the frame is told how high it is.
function embed() {
  document.body.classList.add("embedded");
  for (const event of ["pointerdown", "dragenter", "keydown"]) addEventListener(event, () => engine.start(), { once: true });
  const tellHeight = () => window.parent.postMessage({ height: document.body.offsetHeight }, location.origin);
  new ResizeObserver(tellHeight).observe(document.body);
}

$("#more").addEventListener("click", () => document.body.classList.add("whole"));
const ready = start();

async function start() {
  [settings, measured] = await Promise.all(["settings.json", "measured.json"].map(async (file) => (await fetch(file)).json()));
  offerMachines(measured.machines, measured.names);
  if (isEmbedded) embed();
  else engine.start();
  $("#version").textContent = `tflm ${settings.version}`;
  offerExamples();
  if (query.has("example")) openExample(query.get("example"));
}
