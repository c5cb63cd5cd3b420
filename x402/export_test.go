package x402

// ReadByHand reports whether an answer is read without the strict decoder.
func ReadByHand(data []byte, into any) bool { return readPlain(data, into) }
