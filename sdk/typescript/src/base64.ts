/** Decodes base64 in either alphabet, padded or not, to a text. Throws for other text. */
export function fromBase64(s: string): string {
  const binary = atob(s.replace(/-/g, "+").replace(/_/g, "/").replace(/=+$/, ""));
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
