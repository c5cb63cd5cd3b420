/**
 * Returns the error of a 402: begin, then the sentence if it contains an address, because some
 * clients show nothing else of the response. It has at most 300 bytes: a sentence that does not fit
 * is omitted, and begin is cut between characters.
 */
export function challengeError(begin: string, sentence: string): string {
  const bytes = (s: string) => new TextEncoder().encode(s).length;
  const whole = begin + (begin.endsWith(".") ? " " : ": ") + sentence;
  if (sentence.includes("://") && bytes(whole) <= 300) return whole;
  const characters = [...begin.slice(0, 300)];
  while (bytes(characters.join("")) > 300) characters.pop();
  return characters.join("");
}
