/** The maximum length of a name of others in an error. */
export const LONGEST_NAME = 200;
/** The maximum length of a message of others in an error. */
export const LONGEST_MESSAGE = 4000;

/** Returns a text of others as an error may show it: short, and without characters that control a terminal. */
export function shown(text: string, longest: number): string {
  const end = text.length > longest ? `… (${String(text.length)} characters)` : "";
  return text.slice(0, longest).replace(/[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/gu, escaped) + end;
}

function escaped(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
}
