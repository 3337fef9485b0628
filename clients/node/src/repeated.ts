/** A string of JSON, with the colon after the name of a member, or the begin or end of an object. */
const token = /"([^"\\]*(?:\\.[^"\\]*)*)"(\s*:)?|[{}]/g;

/** Returns whether an object in valid JSON has one of these members twice. `JSON.parse` would use the last one. */
export function hasRepeatedMember(json: string, names: ReadonlySet<string>): boolean {
  if (!json.includes("\\") && [...names].every((name) => occursOnce(json, `"${name}"`))) {
    // A million texts take long to look at.
    return false;
  }
  const objects: Set<string>[] = [];
  for (const [text, quoted = "", colon] of json.matchAll(token)) {
    if (text === "{") {
      objects.push(new Set());
    } else if (text === "}") {
      objects.pop();
    } else if (colon !== undefined) {
      const name = quoted.includes("\\") ? (JSON.parse(`"${quoted}"`) as string) : quoted;
      const seen = objects.at(-1);
      if (seen?.has(name) === true) {
        return true;
      }
      if (names.has(name)) {
        seen?.add(name);
      }
    }
  }
  return false;
}

/** Returns whether a text is in another one once at most. */
function occursOnce(json: string, text: string): boolean {
  return json.indexOf(text) === json.lastIndexOf(text);
}
