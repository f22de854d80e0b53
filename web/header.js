// Reads the header of a .tflite file without Python: flatbuffer tables, by the offsets of their fields.

const IDENTIFIER = "TFL3";
const HEAD_BYTES = 4096;
const MODEL = { operatorCodes: 1, subgraphs: 2, description: 3 };
const CODE = { builtinByte: 0, custom: 1, builtin: 3 };
const SUBGRAPH = { tensors: 0, operators: 3 };
const OPERATOR = { code: 0 };
const TENSOR = { type: 1 };

class Table {
  // What is read of vectors in total is bounded: a file may refer to one vector many times.
  constructor(view, at, room = { bytes: 4 * view.byteLength }) {
    this.view = view;
    this.at = at;
    this.room = room;
    this.fields = at - view.getInt32(at, true);
  }

  // Position of a field; 0 if it has its default.
  #place(field) {
    const entry = 4 + 2 * field;
    const offset = entry < this.view.getUint16(this.fields, true) ? this.view.getUint16(this.fields + entry, true) : 0;
    return offset && this.at + offset;
  }

  byte(field) {
    const place = this.#place(field);
    return place ? this.view.getInt8(place) : 0;
  }

  integer(field) {
    const place = this.#place(field);
    return place ? this.view.getInt32(place, true) : 0;
  }

  #vector(field) {
    const place = this.#place(field);
    return place ? place + this.view.getUint32(place, true) : 0;
  }

  #length(vector, size) {
    const length = vector ? this.view.getUint32(vector, true) : 0;
    this.room.bytes -= length * size;
    if (this.room.bytes < 0) throw new RangeError("vectors are longer than the file");
    return length;
  }

  text(field) {
    const vector = this.#vector(field);
    const length = this.#length(vector, 1);
    return new TextDecoder().decode(new Uint8Array(this.view.buffer, this.view.byteOffset + vector + 4, length));
  }

  tables(field) {
    const vector = this.#vector(field);
    return Array.from({ length: this.#length(vector, 4) }, (_, i) => {
      const place = vector + 4 + 4 * i;
      return new Table(this.view, place + this.view.getUint32(place, true), this.room);
    });
  }
}

function counted(names) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) || 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

// Whether the bytes are a model: bytes 5 to 8 of the flatbuffer identify the format.
export function isModel(bytes) {
  return bytes.length >= 8 && String.fromCharCode(...bytes.subarray(4, 8)) === IDENTIFIER;
}

// The format of bytes that are not a model, by their first ones; undefined if it is unknown.
export function formatOf(bytes, { formats }) {
  const head = Array.from(bytes.subarray(0, HEAD_BYTES), (byte) => String.fromCharCode(byte)).join("");
  return formats.find(({ pattern }) => new RegExp(pattern).test(head));
}

// Counts operators and tensors by type; null if the bytes are C source, or cannot be read, and Python will say why.
export function headerOf(bytes, { operators, types }) {
  if (!isModel(bytes)) return null;
  try {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const model = new Table(view, view.getUint32(0, true));
    const codes = model.tables(MODEL.operatorCodes).map((code) => {
      const number = Math.max(code.byte(CODE.builtinByte), code.integer(CODE.builtin));
      return code.text(CODE.custom) || operators[number] || `operator ${number}`;
    });
    const subgraphs = model.tables(MODEL.subgraphs);
    return {
      description: model.text(MODEL.description),
      subgraphs: subgraphs.length,
      operators: counted(
        subgraphs.flatMap((subgraph) => subgraph.tables(SUBGRAPH.operators))
          .map((operator) => codes[operator.integer(OPERATOR.code)]),
      ),
      tensors: counted(
        subgraphs.flatMap((subgraph) => subgraph.tables(SUBGRAPH.tensors))
          .map((tensor) => types[tensor.byte(TENSOR.type)] || "?"),
      ),
    };
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
}
