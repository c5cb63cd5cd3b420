/** Decodes base64 in either alphabet, padded or not, to text. Throws for any other input. */
export function fromBase64(s: string): string {
  const binary = atob(trimEnd(s, "=").replace(/-/g, "+").replace(/_/g, "/"));
  return new TextDecoder("utf-8", { fatal: true }).decode(
    Uint8Array.from(binary, (c) => c.charCodeAt(0)),
  );
}

/** Encodes a text as padded base64 of the standard alphabet. */
export function toBase64(s: string): string {
  let binary = "";
  for (const byte of new TextEncoder().encode(s)) binary += String.fromCharCode(byte);
  return btoa(binary);
}

/** Removes the characters c at the end of a text in linear time, unlike /c+$/. */
export function trimEnd(text: string, c: string): string {
  let end = text.length;
  while (end > 0 && text[end - 1] === c) end--;
  return text.slice(0, end);
}
