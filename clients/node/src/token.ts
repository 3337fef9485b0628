import { open } from "node:fs/promises";

import { messageOf } from "./errors.js";

/** The size in bytes that a token file must not reach. Servers read less of a header. */
const LONGEST = 16 * 1024;

/** Returns whether a header can contain a token. */
export function isToken(text: string): boolean {
  return /^[!-~]+$/.test(text);
}

/** Returns the token of a request; "" if there is none. */
export type Token = (signal: AbortSignal) => Promise<string>;

export function fixedToken(text: string): Token {
  return () => Promise.resolve(text);
}

/** A token that is read from a file for each request, so that a new one takes effect immediately. */
export function fileToken(file: string): Token {
  // If the file system hangs, one thread of the pool waits for it, not one for each request.
  let reading: Promise<unknown> | undefined;
  return async (signal) => {
    while (reading !== undefined) {
      await Promise.race([reading, aborted(signal)]);
      if (signal.aborted) {
        throw new Error(`token file ${file}: not read in time`);
      }
    }
    const read = readStart(file);
    reading = read.then(done, done);
    function done(): void {
      reading = undefined;
    }
    const text = await read.then(
      (content) => content.trim(),
      (cause: unknown) => {
        throw new Error(`token file: ${messageOf(cause)}`, { cause });
      },
    );
    if (!isToken(text) || text.length >= LONGEST) {
      throw new Error(`token file ${file}: expected one token of visible ASCII characters`);
    }
    return text;
  };
}

/** Returns the text of a file, or the start of a longer one: a file such as /dev/zero has no end. */
async function readStart(file: string): Promise<string> {
  const handle = await open(file);
  try {
    const bytes = Buffer.alloc(LONGEST);
    let length = 0;
    for (let read = -1; read !== 0 && length < LONGEST; length += read) {
      read = (await handle.read(bytes, length, LONGEST - length)).bytesRead;
    }
    return bytes.toString("utf8", 0, length);
  } finally {
    await handle.close();
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    signal.addEventListener(
      "abort",
      () => {
        resolve();
      },
      { once: true },
    );
  });
}
